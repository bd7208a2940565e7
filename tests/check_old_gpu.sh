#!/usr/bin/env bash
# Compiles kernels for compute capability 7.5, whose GPUs have no instructions for bfloat16 and no atomic ones for it:
# casts, and sums into rows. Nothing is compiled for such GPUs otherwise where no GPU is.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
ln -s "$root" "$folder/espalier"
nvcc=$(PATH=$PATH:/usr/local/cuda/bin command -v "${CUDACXX:-nvcc}")
for source in ops/elementwise/cuda/pointwise_cast.cu ops/indexing/cuda/scatter.cu; do
  "$nvcc" -std=c++20 --extended-lambda --expt-relaxed-constexpr -DESPALIER_WITH_CUDA=1 -DFMT_SHARED -I"$folder" \
    -arch=sm_75 -O0 -Xptxas=-O0 --Werror=all-warnings -cubin -o "$folder/kernels.cubin" "$root/$source"
done
