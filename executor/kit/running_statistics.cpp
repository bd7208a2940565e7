#include "espalier/executor/kit/running_statistics.h"

#include <algorithm>
#include <utility>

#include "espalier/core/node.h"
#include "espalier/nn/mode_scope.h"
#include "espalier/nn/running_statistics.h"

namespace espalier {

namespace {

/// Has layers take means over all steps from now on. Sets all back at its end, unless `keep` was called.
class Restarted {
 public:
  explicit Restarted(const nn::Module& module) {
    find(*module.state());
    std::ranges::sort(layers_);
    const auto [again, end] = std::ranges::unique(layers_);
    layers_.erase(again, end);
    for (nn::RunningStatistics* layer : layers_) {
      momenta_.push_back(layer->momentum());
      for (const auto& part : layer->parts())
        if (!part.child && part.slot.buffer && part.slot.value.defined())
          before_.emplace_back(part.slot.value, part.slot.value.value().clone());
    }
    for (nn::RunningStatistics* layer : layers_) {
      layer->set_momentum({});
      layer->restart();
    }
  }
  ~Restarted() {
    for (size_t i = 0; i < layers_.size(); ++i) layers_[i]->set_momentum(momenta_[i]);
    for (const auto& [buffer, value] : before_) set_value(buffer, value);
  }
  Restarted(const Restarted&) = delete;
  Restarted& operator=(const Restarted&) = delete;

  void keep() { before_.clear(); }

 private:
  void find(nn::ModuleState& module) {
    if (auto* layer = dynamic_cast<nn::RunningStatistics*>(&module)) layers_.push_back(layer);
    for (const auto& part : module.parts())
      if (part.child) find(*part.child);
  }

  std::vector<nn::RunningStatistics*> layers_;
  std::vector<std::optional<double>> momenta_;
  std::vector<std::pair<Variable, Tensor>> before_;
};

}  // namespace

void internal::update_running_statistics(const nn::Module& module, const NetCall& net,
                                         const TrainingData& data, const StatisticsOptions& options) {
  data::Distributor feed =
      data.distributor({.batch_size = options.batch_size, .shuffle = options.shuffle, .seed = options.seed});
  const size_t inputs = inputs_for_prediction("update_running_statistics", net, feed);
  const Device device = device_of_module(module);
  const NoGrad no_tree;
  const nn::ModeScope training(module, true);
  Restarted restarted(module);
  const int64_t epoch = feed.feed()->epoch();
  for (int64_t step = 0; step < feed.steps(); ++step) {
    const auto batch = feed.feed()->batch(epoch, step);
    std::vector<Variable> columns;
    for (size_t i = 0; i < inputs; ++i) columns.emplace_back(batch[i].to(device));
    (void)net.call(columns).value();
  }
  feed.reset();
  restarted.keep();
}

}  // namespace espalier
