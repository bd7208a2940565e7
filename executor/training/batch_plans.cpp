#include "espalier/executor/training/batch_plans.h"

#include "espalier/core/random.h"

namespace espalier {

BatchPlans::BatchPlans(Replicas& devices, std::vector<BoundPlan> plans, int64_t samples, ResultRows rows)
    : devices_(&devices), plans_(std::move(plans)), samples_(samples), rows_(std::move(rows)) {}

void BatchPlans::run(BatchSource& batch, uint64_t first_stream, Profiler* profiler) {
  const Generator random = generator();
  const size_t each = plans_.size() / devices_->size();
  devices_->run([&](size_t device) {
    generator() = random;  // each thread has its own
    for (const BoundPlan& plan : std::span(plans_).subspan(device * each, each)) {
      batch.load(plan, device == 0 ? profiler : nullptr);
      const auto run = [&] {
        plan.runtime->run(first_stream, profiler && &plan == &last() ? profiler->timestamps() : nullptr);
        // Before others read what has been written.
        if (device == 0) devices_->first().leaves.mark_assigned(plan.runtime->assigned());
      };
      // Further replicas have their own copies of the leaves.
      device == 0 ? devices_->use_leaves(!plan.runtime->assigned().empty(), run) : run();
    }
  });
  batch.advance();
  for (size_t i = 1; i < devices_->size(); ++i)
    (*devices_)[i].leaves.mark_assigned(last().runtime->assigned());
}

void BatchPlans::prepare() {
  const size_t each = plans_.size() / devices_->size();
  devices_->begin_after_eager();
  devices_->update_leaves();
  devices_->run([&](size_t device) {
    const auto prepare = [&] {
      for (const BoundPlan& plan : std::span(plans_).subspan(device * each, each)) plan.runtime->prepare();
    };
    device == 0 ? devices_->use_leaves(false, prepare) : prepare();
  });
  devices_->finish_before_eager();
}

}  // namespace espalier
