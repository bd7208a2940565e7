#include "espalier/executor/training/tree_value.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "espalier/core/error.h"
#include "espalier/executor/training/row_axis.h"
#include "espalier/ops/ops.h"

namespace espalier {

namespace {

/// The same elements under a shape in which the axis of rows is split into [repeats, rows].
Tensor split_repeats(const Tensor& value, size_t axis, int64_t repeats) {
  Dims dims(value.shape().begin(), value.shape().begin() + axis);
  dims.push_back(repeats);
  dims.push_back(value.shape().dims()[axis] / repeats);
  dims.append(value.shape().begin() + axis + 1, value.shape().end());
  return with_shape(value.contiguous_copy(), Shape(std::move(dims)));
}

/// The reverse: merges an axis with the axis of repeats in front of it.
Tensor merge_repeats(const Tensor& value, size_t axis) {
  Dims dims(value.shape().begin(), value.shape().begin() + axis - 1);
  dims.push_back(value.shape().dims()[axis - 1] * value.shape().dims()[axis]);
  dims.append(value.shape().begin() + axis + 1, value.shape().end());
  return with_shape(value, Shape(std::move(dims)));
}

/// The rows of a result that were given, without those that filled the batch.
Tensor first_rows(const Tensor& value, RowAxis rows, int64_t given, int64_t filled) {
  const auto cut = [&](const Tensor& all, size_t axis) {
    const int64_t per_row = all.shape().dims()[axis] / filled;
    return all.slice(static_cast<int64_t>(axis), 0, given * per_row);
  };
  if (rows.repeats == 1) return cut(value, rows.axis);
  return merge_repeats(
      cut(split_repeats(value.to(cpu()), rows.axis, rows.repeats), rows.axis + 1).contiguous_copy(),
      rows.axis + 1);
}

/// How a user asks for what is `which` in TreeValue.
std::string call_for(const Setup& setup, size_t which) {
  if (which == 0) return "value";
  const auto after = std::ranges::upper_bound(setup.first_outputs, which - 1);
  const auto number = static_cast<size_t>(after - setup.first_outputs.begin() - 1);
  return fmt::format("output(\"{}\")", setup.options.outputs[number].first);
}

/// Throws UnsupportedError if the rows of a result are not there, or not in the order of the batch.
void check_rows(const Setup& setup, const PlanData& plan, size_t which) {
  const Replication& replication = *plan.replication;
  const size_t result = which == 0 ? plan.value : plan.outputs[which - 1];
  if (!replication.rows[result]) return;
  if (replication.micro_batches > 1)
    throw UnsupportedError(fmt::format(
        "{}: it has a row for each of the batch, which was taken in {} micro-batches, and none kept its "
        "rows",
        call_for(setup, which), replication.micro_batches));
  if (replication.rows[result]->repeats < 1)
    throw UnsupportedError(
        fmt::format("{}: its rows are not those of the batch in their order", call_for(setup, which)));
}

}  // namespace

void check_has_values(const Setup& setup, const BatchPlans& plans, bool outputs) {
  const PlanData& plan = *plans.last().data;
  if (!plan.replication) return;
  for (size_t which = 0; which <= (outputs ? plan.outputs.size() : 0); ++which)
    check_rows(setup, plan, which);
}

void TreeValue::keep() {
  if (!plans_) return;
  kept_.clear();
  for (size_t which = 0; which <= plans_->last().data->outputs.size(); ++which) {
    try {
      kept_.push_back({copy(which), nullptr});
    } catch (const UnsupportedError&) {  // thrown if the value is asked for
      kept_.push_back({{}, std::current_exception()});
    }
  }
  plans_ = nullptr;
}

void TreeValue::clear() {
  plans_ = nullptr;
  kept_.clear();
}

Tensor TreeValue::find(size_t which) const {
  if (plans_) return copy(which);
  if (kept_.empty())
    throw Error(fmt::format("{}: the executor has not run a step yet", call_for(setup_, which)));
  if (kept_[which].error) std::rethrow_exception(kept_[which].error);
  return kept_[which].value;
}

Tensor TreeValue::copy(size_t which) const {
  const auto at_home = [&](const Tensor& value) {
    return setup_.home == value.device() ? value.clone() : value.to(setup_.home);
  };
  const PlanData& plan = *plans_->last().data;
  const Runtime& runtime = *plans_->last().runtime;
  const size_t result = which == 0 ? plan.value : plan.outputs[which - 1];
  if (plan.replication && plan.replication->rows[result]) {
    check_rows(setup_, plan, which);
    return gather_rows(result);
  }
  const ResultRows& rows = plans_->rows();
  if (!rows.empty() && rows[result] && rows_ > 0 && rows_ < plans_->samples())
    return at_home(first_rows(runtime.result(result), *rows[result], rows_, plans_->samples()));
  if (which > 0 || !plan.value_in_reals || !plan.sums(*plan.value_in_reals))
    return at_home(runtime.result(result));
  return at_home(cast(runtime.value_in_reals(), setup_.root.dtype()).value());
}

/// Concatenates the rows that the replicas of all processes have.
Tensor TreeValue::gather_rows(size_t result) const {
  const Replication& replication = *plans_->last().data->replication;
  const RowAxis& rows = *replication.rows[result];
  const size_t axis = rows.axis + 1;  // behind the repeats
  const auto rows_of = [&](int replica) {
    return BatchShard{replica, replication.replicas}.counted(replication.batch_rows);
  };
  std::vector<Tensor> own;
  Tensor some;
  for (size_t i = 0; i < plans_->devices(); ++i) {
    const BoundPlan& plan = plans_->of_device(i);
    some = split_repeats(plan.runtime->result(result).to(cpu()), axis - 1, rows.repeats);
    if (rows_of(plan.shard.replica) > 0) own.push_back(some);
  }
  const auto here = static_cast<int>(plans_->devices());
  const BatchShard last = plans_->of_device(plans_->devices() - 1).shard;
  const int64_t per_row = some.shape().dims()[axis] / last.rows(replication.batch_rows);
  std::vector<int64_t> sizes;  // that each process has along the axis
  for (int first = 0; first < replication.replicas; first += here) {
    sizes.push_back(0);
    for (int i = 0; i < here; ++i) sizes.back() += rows_of(first + i) * per_row;
  }
  const Tensor whole = job_.gather(join(own, axis, some), axis, sizes);
  return merge_repeats(whole, axis).to(setup_.home);
}

}  // namespace espalier
