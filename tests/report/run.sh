#!/usr/bin/env bash
# Writes a report and a trace of a training plan, opens the report in Chromium, and checks the drawing.
# Usage: tests/report/run.sh [preset]; the preset must have been built with tests
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"build/${1:-release}/tests/report/make_report" "$folder"
python3 tests/report/check.py "$folder"
