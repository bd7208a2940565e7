// update_running_statistics: the statistics of BatchNorms, computed anew.
#pragma once
#include <cstdint>
#include <source_location>

#include "espalier/executor/kit/fit.h"

namespace espalier {

struct StatisticsOptions {
  int64_t batch_size = 32;
  bool shuffle = true;  ///< else batches of sorted data would each have too small a variance
  uint64_t seed = 0;
};

namespace internal {
void update_running_statistics(const nn::Module& module, const NetCall& net, const TrainingData& data,
                               const StatisticsOptions& options);
}

/// Sets the running statistics of all BatchNorms in `net` to the means of those of the batches of one epoch,
/// as they must be when its parameters were replaced by averages; PyTorch's update_bn. The net is called as
/// `predict` calls it, eagerly and without a tree, but in training mode; its modes are afterwards as before.
/// Throws as `predict`; all statistics that were there are then as before.
template <NetOfVariables Net>
void update_running_statistics(Net net, const TrainingData& data, const StatisticsOptions& options = {},
                               std::source_location where = std::source_location::current()) {
  internal::at_line(
      where, [&] { internal::update_running_statistics(net, internal::net_call(net), data, options); });
}

}  // namespace espalier
