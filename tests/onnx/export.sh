#!/usr/bin/env bash
# Writes networks as ONNX files and compares onnxruntime with Espalier on them: tests/onnx/export.sh program [large]
# $ONNX_PYTHON (by default python3) is a Python that has onnx and onnxruntime; `program` is espalier_onnx_models of a build. With
# "large", also the networks of images whose files have hundreds of megabytes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$1" "$folder" "${2:-}"
"${ONNX_PYTHON:-python3}" "$(dirname "${BASH_SOURCE[0]}")/check_models.py" "$folder"
