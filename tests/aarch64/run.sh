#!/usr/bin/env bash
# Builds the library and its tests for aarch64 by Debian's cross compiler, and runs them under qemu: run.sh [suite...], by
# default all, for which an emulated processor needs more than half an hour. "run.sh quick" takes a few minutes: it compiles
# the tests of kernels and plans alone, optimizes little, and leaves out what is long. Debian's packages for
# arm64 are unpacked below build/aarch64; nothing of them is installed.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
cmake/install_dependencies.sh build aarch64

folder=$PWD/build/aarch64
sysroot=$folder/sysroot
packages=$(tests/aarch64/fetch.sh)
if ! cmp -s "$packages/names" "$sysroot/names"; then
  rm -rf "$sysroot" && mkdir -p "$sysroot"
  for package in "$packages"/*.deb; do dpkg-deb -x "$package" "$sysroot"; done
  cp "$packages/names" "$sysroot"
fi

# Not under qemu: a child that goes on with threads, a process that starts itself, and a limit on memory.
skipped='!child_process:!interrupt/a_process_of_its_own:!checkpoint/it_resumes_in_another_process'
skipped+=':!allocator/the_cache_is_given_back_before_memory_is_refused'
build=$folder/build
options=(-DESPALIER_TESTS= -DESPALIER_ONNX=ON -DESPALIER_BUILD_PROGRAMS=ON)
targets=(espalier_tests espalier_onnx_tests step_allocations durability)
if [ "$*" = quick ]; then
  shift
  build=$folder/quick
  tests=(pointwise math_functions numbers half strided_copy reduce scan sort index scatter softmax_loss normalize random
    random_ops matmul products decompositions convolution winograd pooling attention_op memory_cell recurrence recurrent
    fused_kernels fusion epilogue convolution_fusion bfloat16_convolutions bfloat16_products half_programs executor
    plan_files plan_figures c_export_ops)
  options=(-DCMAKE_CXX_FLAGS_RELEASE="-O1 -ftree-vectorize -DNDEBUG" -DESPALIER_TESTS="$(IFS=';' && echo "${tests[*]}")"
    -DESPALIER_ONNX=OFF -DESPALIER_BUILD_PROGRAMS=OFF)
  targets=(espalier_tests)
  long=(attention_op/memory_is_linear_in_tokens convolution_fusion/a_network_of_residual_blocks
    bfloat16_convolutions/a_network_of_residual_blocks matmul/larger_ones_from_any_strides
    matmul/many_small_ones_and_few_large_ones plan_files/every_kind_of_optimizer_goes_on
    random_numbers/windows_show_what_the_whole_stream_has_there recurrence/packed_rows
    recurrent/a_thousand_steps_keep_memory_flat scan/one_element_long_rows_and_nothing
    softmax_and_losses/dropout_zeroes_and_scales sorting/equal_elements_keep_their_order sorting/rows_of_all_lengths
    strided_copy/any_order_of_axes winograd/agrees_with_direct_convolutions)
  skipped+=$(printf ':!%s' "${long[@]}")
fi

cmake -S . -B "$build" -G Ninja --toolchain cmake/aarch64.cmake -DCMAKE_BUILD_TYPE=Release -DESPALIER_CCACHE=ON \
  -DESPALIER_CUDA=OFF -DESPALIER_NCCL=OFF -DESPALIER_MPI=OFF -DESPALIER_BUILD_SAMPLES=OFF -DESPALIER_BUILD_DOCS=OFF -DESPALIER_BUILD_TESTS=ON -DESPALIER_WARNINGS_AS_ERRORS=ON \
  -DCMAKE_UNITY_BUILD=ON "${options[@]}"
cmake --build "$build" --target "${targets[@]}"

run=(qemu-aarch64 -L "$sysroot" "$build/tests/espalier_tests")
suites=("$@")
others=() # programs of their own
if [ ${#suites[@]} -eq 0 ]; then
  mapfile -t suites < <("${run[@]}" --list_content 2>&1 | sed -nE 's/^([a-z]\w*)\*?$/\1/p' | grep -vx child_process)
  others=("${targets[@]:1}")
fi
logs=$folder/logs
mkdir -p "$logs"
export ESPALIER_CACHE=off CC=aarch64-linux-gnu-gcc OMP_NUM_THREADS=2
# Its output is shown only if a case fails.
printf '%s\n' "${suites[@]}" | xargs -P "$(nproc)" -I SUITE bash -c '
  "$@" --run_test="SUITE" --color_output=no --report_level=short >"$0/SUITE" 2>&1 || { echo "SUITE:"; cat "$0/SUITE"; exit 1; }
' "$logs" "${run[@]}" --run_test="$skipped"
for program in "${others[@]}"; do
  path=$(find "$build/tests" -name "$program" -type f)
  "${run[@]:0:3}" "$path" >"$logs/$program" 2>&1 || { echo "$program:"; cat "$logs/$program"; exit 1; }
done
echo "${#suites[@]} suites and ${#others[@]} other programs passed on aarch64"
