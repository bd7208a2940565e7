#include "espalier/executor/training/plan_for.h"

#include <fmt/format.h>

#include "espalier/core/error.h"

namespace espalier {

std::shared_ptr<const PlanData> compile_for(const Variable& root, const PlanOptions& options) {
  if (options.devices < 1)
    throw Error(fmt::format("plan_for: a plan cannot be made for {} devices", options.devices));
  Setup setup(root, {.mode = options.mode,
                     .optimizer = options.optimizer,
                     .replicas = options.replicas,
                     .accumulate = options.accumulate,
                     .precision = options.precision,
                     .without = options.without,
                     .memory_budget = options.memory_budget,
                     .dump = options.dump});
  setup.prepare_for(
      {.device = options.device, .replicas = options.devices, .overlaps = options.device != DeviceType::cpu});
  const int micro_batches = setup.micro_batches(false);
  if (setup.feeds.has_open_placeholders())
    throw UnsupportedError("plan_for: a placeholder has open axes; give it the sizes to plan for");
  BatchSignature rows;
  setup.feeds.read_sizes(0, {}, rows);
  return compile_step(setup, rows, {0, options.devices, micro_batches - 1, micro_batches}, !setup.training());
}

}  // namespace espalier
