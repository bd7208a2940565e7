#!/usr/bin/env bash
# table.sh FILE: the medians in a file of lines "name value", as a table with ratios and aims; run.sh writes both.
set -euo pipefail
file=$1

value() { # the median of a quantity, or - if there is none
  awk -v name="$1" '$1 == name { print $2 }' "$file" | sort -g |
    awk '{ v[NR] = $1 } END { print NR ? v[int((NR + 1) / 2)] : "-" }'
}
over() { # a / b
  awk -v a="$1" -v b="$2" 'BEGIN { if (a == "-" || b == "-" || b == 0) print "-"; else printf "%.2f", a / b }'
}
line() { printf '%-40s %9s %9s %9s %9s %9s %9s %9s | %8s %8s %8s %8s %8s %8s  %s\n' "$@"; }

# description, the parts of the name before and after the contestant's, the aim. Ratios are of the executor, or of eager if
# there is no executor.
row() {
  local what=$1 name=$2 unit=$3 aim=${4:-} eager executor torch pytorch compiled mlx floor best
  eager=$(value "${name}eager$unit") executor=$(value "${name}executor$unit")
  torch=$(value "${name}torch$unit") pytorch=$(value "${name}pytorch$unit")
  compiled=$(value "${name}pytorch_compiled$unit") mlx=$(value "${name}mlx$unit")
  floor=$(value "${name}floor$unit")
  best=$executor
  [ "$best" != - ] || best=$eager
  [ "$best" != - ] || return 0
  line "$what" "$eager" "$executor" "$torch" "$pytorch" "$compiled" "$mlx" "$floor" "$(over "$executor" "$eager")" \
    "$(over "$best" "$floor")" "$(over "$torch" "$best")" "$(over "$pytorch" "$best")" \
    "$(over "$compiled" "$best")" "$(over "$mlx" "$best")" "$aim"
}
# Rows with one or two figures: description, Espalier's, libtorch's or that of whom the description names, the aim.
figure() {
  local ours theirs
  ours=$(value "$2") theirs=$(value "$3")
  [ "$ours" = - ] || line "$1" "$ours" - "$theirs" - - - - - - "$(over "$theirs" "$ours")" - - - "${4:-}"
}
# Rows of numbers of steps, words or trees in a second: description, what comes before the contestant's name, and behind it.
rate() {
  local what=$1 prefix=$2 unit=$3 executor=- best=- name value_of
  local -a values=() ratios=()
  for name in eager deferred packed executor torch pytorch dynet; do
    value_of=$(value "${prefix}_${name}_$unit")
    values+=("$value_of")
    [ "$name" != executor ] || executor=$value_of
  done
  [ "${values[0]}" != - ] || return 0
  best=$executor
  [ "$best" != - ] || best=${values[1]}
  for name in 4 5 6; do ratios+=("$(over "$best" "${values[name]}")"); done
  printf '%-40s %9s %9s %9s %9s %9s %9s %9s | %8s %8s %8s\n' "$what" "${values[@]}" "${ratios[@]}"
}

grep '^# ' "$file" | awk '!seen[$2 $3 $4]++' | sed 's/^# //' || true # products, as the first turn saw them
line "" eager executor libtorch PyTorch compiled MLX floor ex/eager us/floor lt/us pt/us ptc/us mlx/us aim
figure "op, one variable [ns]" chain_shared_ns chain_shared_torch_ns
figure "op, a leaf per add [ns]" chain_distinct_ns chain_distinct_torch_ns
row "MLP [us/step]" mlp_ _us
figure "  written by hand [us/step]" mlp_hand_us -
figure "  plan's arena [kB]" mlp_arena_kb -
figure "  its largest live set [kB]" mlp_largest_live_kb -
figure "  eager step's peak [kB]" mlp_eager_peak_kb -
row "inference of one row [us]" inference_ _us "executor <= 15"
row "pointwise, forward [ms]" pointwise_forward_ _ms
row "  peak memory of the process [MB]" pointwise_forward_ _mb
row "pointwise, with gradients [ms]" pointwise_backward_ _ms
row "  peak memory of the process [MB]" pointwise_backward_ _mb
figure "  stream, 3 in and 1 out [GB/s]" stream_gb_per_s -
row "GPT block [ms/step]" gpt_ _ms
row "  peak memory of the process [MB]" gpt_ _mb
figure "  plan's arena [kB]" gpt_arena_kb -
for network in document training resnet18 mobilenet; do
  case $network in
    document) what="32 convolutions, a step of 256" ;;
    training) what="ResNet-18, a step of 16" ;;
    resnet18) what="ResNet-18, one image" ;;
    *) what="MobileNet v2, one image" ;;
  esac
  row "$what [ms]" vision_${network}_ _ms
  figure "  PyTorch with channels last" vision_${network}_executor_ms vision_${network}_pytorch_channels_last_ms
  figure "  NNabla, one graph" vision_${network}_executor_ms vision_${network}_nnabla_static_ms
  figure "  NNabla, a graph for each run" vision_${network}_eager_ms vision_${network}_nnabla_dynamic_ms
  figure "  in bfloat16, PyTorch by autocast" vision_${network}_bfloat16_ms vision_${network}_pytorch_autocast_ms
  row "  peak memory of the process [MB]" vision_${network}_ _peak_mb
  figure "  PyTorch with channels last" vision_${network}_executor_peak_mb vision_${network}_pytorch_channels_last_peak_mb
  figure "  NNabla, one graph" vision_${network}_executor_peak_mb vision_${network}_nnabla_static_peak_mb
done
figure "get_executor, nothing cached [ms]" get_executor_cold_ms - "< 500"
figure "  and its first step [ms]" first_step_cold_ms -
figure "get_executor, cached [ms]" get_executor_cached_ms - "< 50"
figure "  and its first step [ms]" first_step_cached_ms -
figure "compile 30 lines [s]" espalier_compile_s torch_compile_s
figure "  memory that takes [MB]" espalier_compile_mb torch_compile_mb
figure "  stripped binary, libtorch shared [MB]" espalier_binary_mb torch_binary_mb
figure "start of hello tensor [ms]" espalier_start_ms torch_start_ms

[ "$(value lstm_eager_steps_per_s)$(value tagger_eager_words_per_s)$(value tree_lstm_eager_trees_per_s)" != --- ] || exit 0
printf '\n%-40s %9s %9s %9s %9s %9s %9s %9s | %8s %8s %8s\n' "in a second" eager deferred packed executor libtorch PyTorch DyNet \
  us/lt us/pt us/dy
rate "LSTM [steps]" lstm steps_per_s
rate "tagger [words]" tagger words_per_s
rate "trees of an LSTM [trees]" tree_lstm trees_per_s
