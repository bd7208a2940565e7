#!/usr/bin/env bash
# table.sh FILE...: the medians in files of lines "name value" as tables, and of each aim whether it was reached. run.sh
# writes the files.
set -euo pipefail

grep -h '^# ' "$@" | awk '!seen[$2 $3 $4 $5]++' | sed 's/^# //' || true # products, as the first turn saw them
awk '
  $1 !~ /^#/ && NF == 2 { values[$1, ++count[$1]] = $2 }
  function median(name,   i, j, v, n, sorted) {
    n = count[name]
    for (i = 1; i <= n; ++i) {
      v = values[name, i] + 0
      for (j = i - 1; j >= 1 && sorted[j] > v; --j) sorted[j + 1] = sorted[j]
      sorted[j + 1] = v
    }
    return sorted[int((n + 1) / 2)]
  }
  function has(name) { return name in count }
  function text(name) { return has(name) ? sprintf("%.1f", median(name)) : "-" }
  # One quantity of all contestants: their names are `name`, the contestant, `unit`.
  function row(what, name, unit) {
    if (!has(name "executor" unit) && !has(name "eager" unit)) return
    printf "%-32s %10s %10s %10s %10s %10s %10s\n", what, text(name "executor" unit), text(name "eager" unit),
      text(name "pytorch" unit), text(name "pytorch_graph" unit), text(name "pytorch_compiled" unit),
      text(name "pytorch_compiled_graph" unit)
  }
  function figure(what, name) { if (has(name)) printf "%-32s %10s\n", what, text(name) }
  # An aim, and a / b, or only a if b is empty; `sign` is "<=", ">=" or their strict forms.
  function aim(what, a, b, sign, wanted,   value, reached) {
    if (!has(a) || (b != "" && !has(b))) {
      printf "%-58s %10s   not measured\n", what, "-"
      return
    }
    value = b == "" ? median(a) : median(b) ? median(a) / median(b) : 0
    reached = sign == "<=" ? value <= wanted : sign == ">=" ? value >= wanted : sign == "<" ? value < wanted : value > wanted
    printf "%-58s %10.2f   %s\n", what, value, reached ? "reached" : "MISSED"
  }
  # Stores the faster of two contestants under a separate name.
  function best(name, a, b) {
    if (!has(a) && !has(b)) return
    values[name, 1] = !has(b) || (has(a) && median(a) < median(b)) ? median(a) : median(b)
    count[name] = 1
  }
  END {
    figure("copy within the memory [GB/s]", "machine_copy_gb_per_s")
    split("1 5 10 20", nodes, " ")
    for (i = 1; i <= 4; ++i) figure("empty graph of " nodes[i] " nodes [us]", "machine_empty_graph_" nodes[i] "_us")
    split("mlp gpt_small gpt_large", workloads, " ")
    split("float32 tf32 bf16", numbers, " ")
    for (w = 1; w <= 3; ++w)
      for (n = 1; n <= 3; ++n) {
        figure("products of " workloads[w] ", " numbers[n] " [us]", workloads[w] "_products_" numbers[n] "_us")
        figure("  [TFLOP/s]", workloads[w] "_products_" numbers[n] "_tflops")
      }
    print ""
    printf "%-32s %10s %10s %10s %10s %10s %10s\n", "", "executor", "eager", "PyTorch", "graph", "compiled", "comp.graph"
    row("MLP [us/step]", "mlp_", "_us")
    figure("  in segments", "mlp_executor_segments_us")
    figure("  kernel by kernel", "mlp_executor_stream_us")
    figure("  nodes of the graph", "mlp_nodes")
    figure("  floor [us]", "mlp_floor_us")
    figure("  floor as one graph [us]", "mlp_floor_one_graph_us")
    figure("  long epoch, all queued [us]", "idle_queued_us")
    figure("  long epoch [us]", "idle_wall_us")
    row("op, one variable [ns]", "chain_shared_", "_ns")
    row("op, a leaf per add [ns]", "chain_distinct_", "_ns")
    for (d = 1; d <= 2; ++d)
      for (s = 1; s <= 2; ++s) {
        direction = d == 1 ? "forward" : "backward"
        size = s == 1 ? "16m" : "256m"
        row("pointwise " direction " " size " [GB/s]", "pointwise_" direction "_" size "_", "_gb_per_s")
      }
    row("Adam, 200 parameters [ms]", "optimizer_", "_ms")
    for (w = 2; w <= 3; ++w)
      for (n = 1; n <= 3; ++n)
        row(workloads[w] " " numbers[n] " [ms/step]", workloads[w] "_" numbers[n] "_", "_ms")
    for (n = 1; n <= 3; ++n)
      row("  attention as one op, " numbers[n], "gpt_large_attention_" numbers[n] "_", "_ms")
    split("document resnet18 lstm", networks, " ")
    for (w = 1; w <= 3; ++w)
      for (n = 1; n <= 3; ++n)
        row(networks[w] " " numbers[n] " [ms/step]", networks[w] "_" numbers[n] "_", "_ms")
    for (n = 1; n <= 3; n += 2) {
      row("attention " numbers[n] " [ms]", "attention_" numbers[n] "_forward_", "_ms")
      row("  with gradients [ms]", "attention_" numbers[n] "_both_", "_ms")
    }
    for (n = 1; n <= 4; n *= 2) {
      figure("all_reduce, " n " on a GPU [GB/s]", "all_reduce_one_gpu_" n "_gb_per_s")
      figure("  100 floats [us]", "all_reduce_one_gpu_" n "_small_us")
    }
    split("peers nccl", kinds, " ")
    for (n = 1; n <= 16; ++n)
      for (k = 1; k <= 2; ++k) {
        figure("all_reduce, " n " GPUs, " kinds[k] " [GB/s]", "all_reduce_" kinds[k] "_" n "_gb_per_s")
        figure("  100 floats [us]", "all_reduce_" kinds[k] "_" n "_small_us")
      }
    print ""
    printf "%-58s %10s\n", "aim", "measured"
    aim("MLP: step <= 1.5 x floor", "mlp_executor_us", "mlp_floor_us", "<=", 1.5)
    aim("MLP: nodes <= 10", "mlp_nodes", "", "<=", 10)
    aim("MLP: >= 6 x as fast as PyTorch", "mlp_pytorch_us", "mlp_executor_us", ">=", 6)
    best("mlp_best_compiled", "mlp_pytorch_compiled_us", "mlp_pytorch_compiled_graph_us")
    aim("MLP: faster than torch.compile with CUDA graphs", "mlp_best_compiled", "mlp_executor_us", ">", 1)
    aim("MLP: device idle between steps < 2 %", "idle_percent", "", "<", 2)
    aim("eager MLP: faster than PyTorch", "mlp_pytorch_us", "mlp_eager_us", ">", 1)
    aim("eager op, one variable: faster than PyTorch", "chain_shared_pytorch_ns", "chain_shared_eager_ns", ">", 1)
    aim("eager op, a leaf per add: faster than PyTorch", "chain_distinct_pytorch_ns", "chain_distinct_eager_ns", ">", 1)
    for (d = 1; d <= 2; ++d)
      for (s = 1; s <= 2; ++s) {
        direction = d == 1 ? "forward" : "backward"
        size = s == 1 ? "16m" : "256m"
        aim("pointwise " direction " " size ": >= 0.85 of copying", "pointwise_" direction "_" size "_executor_gb_per_s",
          "machine_copy_gb_per_s", ">=", 0.85)
      }
    aim("Adam: launches <= 3", "optimizer_launches", "", "<=", 3)
    aim("Adam: >= 0.8 of copying", "optimizer_executor_gb_per_s", "machine_copy_gb_per_s", ">=", 0.8)
    aim("all_reduce, 2 on a GPU: >= 0.8 of copying", "all_reduce_one_gpu_2_gb_per_s", "machine_copy_gb_per_s", ">=", 0.8)
    best("gpt_best_compiled", "gpt_large_bf16_pytorch_compiled_ms", "gpt_large_bf16_pytorch_compiled_graph_ms")
    aim("GPT block, large, bf16: as fast as torch.compile", "gpt_best_compiled", "gpt_large_attention_bf16_executor_ms", ">=", 1)
  }' "$@"
