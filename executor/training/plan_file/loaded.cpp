#include "espalier/executor/training/plan_file/loaded.h"

#include <fmt/format.h>

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

}  // namespace

LoadedStep load_step(const std::filesystem::path& path, const LoadOptions& options,
                     const std::source_location& where) {
  SavedPlan plan = read_plan(path, options.data, where);
  const Mode mode = mode_of(path, plan, options);
  const bool training = mode == Mode::training;
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
                  .outputs = std::move(plan.outputs),
                  .precision = precision,
                  .without = options.without,
                  .memory_budget = options.memory_budget,
                  .dump = options.dump,
                  .plan_cache = options.plan_cache,
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
