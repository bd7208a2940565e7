#include "espalier/executor/training/plan_file/loaded.h"

#include <fmt/format.h>

#include <algorithm>

#include "espalier/core/error.h"
#include "espalier/ops/matmul/gemm_choice.h"

namespace espalier {

namespace {

Mode mode_of(const std::filesystem::path& path, const SavedPlan& plan, const LoadOptions& options) {
  const Mode mode = options.mode.value_or(options.optimizer ? Mode::training : plan.mode);
  if (mode == Mode::training && plan.mode == Mode::inference && !options.optimizer)
    throw Error(
        fmt::format("load_executor: {} was saved for inference; training it needs an optimizer: "
                    "load_executor(path, {{.optimizer = …}})",
                    path.string()));
  return mode;
}

/// Keeps the outputs of these names. Without "value" among them, the first is the tree's value.
void keep_outputs(const std::filesystem::path& path, const std::vector<std::string>& names, SavedPlan& plan) {
  std::vector<std::pair<std::string, PlanOutput>> kept;
  bool with_value = false;
  for (const std::string& name : names) {
    if (std::ranges::count(names, name) > 1)
      throw Error(fmt::format("load_executor: .outputs has '{}' twice", name));
    if (name == "value") {
      with_value = true;
      continue;
    }
    const auto output = std::ranges::find(plan.outputs, name, [](const auto& known) { return known.first; });
    if (output == plan.outputs.end()) {
      std::string known = "value";
      for (const auto& [other, unused] : plan.outputs) known += ", " + other;
      throw Error(fmt::format("load_executor: {} has no output '{}'; it has {}", path.string(), name, known));
    }
    kept.push_back(*output);
  }
  if (!with_value) {
    const auto& [name, first] = kept.front();
    if (first.finish())
      throw Error(fmt::format(
          "load_executor: the output '{}' is a Metric, which no run returns; name another first", name));
    plan.root = first.variables()[0];
  }
  plan.outputs = std::move(kept);
}

}  // namespace

LoadedStep load_step(const std::filesystem::path& path, const LoadOptions& options,
                     const std::source_location& where) {
  SavedPlan plan = read_plan(path, options.data, where);
  const Mode mode = mode_of(path, plan, options);
  const bool training = mode == Mode::training;
  if (training && !options.outputs.empty())
    throw Error("load_executor: .outputs is what inference computes, and this executor trains");
  if (!options.outputs.empty()) keep_outputs(path, options.outputs, plan);
  const Precision precision = options.precision.value_or(plan.precision);
  const bool built = training && !options.optimizer;
  if (built && precision == Precision::float16 && !plan.step.loss_scale)
    throw Error(fmt::format(
        "load_executor: training in float16 scales the loss, which the updates in {} do not; name "
        "the optimizer: load_executor(path, {{.optimizer = …, .precision = Precision::float16}})",
        path.string()));
  LoadedStep loaded{
      .root = plan.root,
      .options = {.mode = mode,
                  .optimizer = options.optimizer,
                  .devices = options.devices.empty() ? std::vector<Device>{cpu()} : options.devices,
                  .replicas = options.replicas,
                  .accumulate = training ? options.accumulate.value_or(plan.accumulate) : 1,
                  .launch = options.launch,
                  .validation = options.validation,
                  .precision = precision,
                  .outputs = std::move(plan.outputs),
                  .without = options.without,
                  .memory_budget = options.memory_budget,
                  .dump = options.dump,
                  .plan_cache = options.plan_cache,
                  .buckets = options.buckets,
                  .tune = options.tune,
                  .find_nan = options.find_nan},
      .step = {},
      .run = std::move(plan.run),
      .continues = built};
  if (built) {
    loaded.step = std::move(plan.step);
    // Libraries round differently, so the run goes on with those that it had.
    (void)gemm_choices().set(loaded.run.state.products);
  }
  return loaded;
}

}  // namespace espalier
