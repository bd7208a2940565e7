#!/usr/bin/env bash
# Makes a report and a trace of a plan that trains, looks at the report in Chromium, and checks what is drawn.
# Usage: tests/report/run.sh [preset], which has been built with its tests
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"build/${1:-release}/tests/report/make_report" "$folder"
python3 tests/report/check.py "$folder"
