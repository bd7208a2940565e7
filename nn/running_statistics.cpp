#include "espalier/nn/running_statistics.h"

#include <fmt/format.h>

#include "espalier/core/error.h"
#include "espalier/core/with_assignment.h"
#include "espalier/ops/ops.h"

namespace espalier::nn {

void RunningStatistics::declare_statistics(std::optional<double> momentum) {
  if (momentum && !(*momentum >= 0 && *momentum <= 1))
    throw Error(fmt::format("{}: momentum is {}; it must be from 0 to 1", kind(), *momentum));
  momentum_ = momentum;
  declare_buffer("running_mean", {-1}, init::Zeros());
  declare_buffer("running_var", {-1}, init::Ones());
  declare_buffer(
      "num_batches_tracked", {}, [](const Shape& shape, DType dtype) { return zeros(shape, dtype); }, int64);
  entries().back().slot.optional = true;
}

void RunningStatistics::restart() {
  for (const Entry& entry : entries())
    if (!entry.child && entry.slot.buffer && entry.slot.value.defined()) {
      const Variable& buffer = entry.slot.value;
      set_value(buffer, entry.slot.initialize(buffer.shape(), buffer.dtype()).to(buffer.device()));
    }
}

Variable RunningStatistics::tracking(const Variable& y, const Variable& mean,
                                     const Variable& variance) const {
  const Variable& seen = parameter("num_batches_tracked");
  const auto moved = [&](const Variable& running, const Variable& of_batch) {
    const Variable step = reshape(stop_gradient(of_batch), running.shape()) - running;
    return momentum_ ? running + step * *momentum_
                     : running + step / cast(seen + int64_t{1}, running.dtype());
  };
  const Variable &running_mean = parameter("running_mean"), &running_var = parameter("running_var");
  const Variable with_mean = with_assignment(y, running_mean, moved(running_mean, mean));
  const Variable with_both = with_assignment(with_mean, running_var, moved(running_var, variance));
  return with_assignment(with_both, seen, seen + int64_t{1});
}

}  // namespace espalier::nn
