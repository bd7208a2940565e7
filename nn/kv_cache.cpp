#include "espalier/nn/kv_cache.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <utility>

#include "espalier/core/device.h"
#include "espalier/core/error.h"
#include "espalier/core/node.h"
#include "espalier/ops/indexing/checked_indices.h"
#include "espalier/ops/ops.h"

namespace espalier::nn {

namespace {

void check_steps(const Variable& x, const Tensor& all, std::string_view what) {
  if (x.rank() != 4)
    throw ShapeError(
        fmt::format("KvCache: {} are [batch, heads, time, width], not {}", what, x.shape().str()));
  if (!all.defined()) return;
  for (const size_t axis : {0, 1, 3})
    if (x.shape().dims()[axis] != all.shape().dims()[axis])
      throw ShapeError(fmt::format("KvCache: {} of shape {} do not go with those before, {}", what,
                                   x.shape().str(), all.shape().str()));
  if (x.dtype() != all.dtype())
    throw TypeError(
        fmt::format("KvCache: {} are {} and those before {}", what, name(x.dtype()), name(all.dtype())));
}

/// Memory for `capacity` steps like `more`, which begins with the first `length` ones of `all`.
Tensor with_capacity(const Tensor& all, const Tensor& more, int64_t length, int64_t capacity) {
  Shape shape = more.shape();
  shape.dims()[2] = capacity;
  Tensor larger(shape, more.dtype(), all.defined() ? all.device() : more.device());
  if (length > 0) {
    Tensor start = larger.slice(2, 0, length);
    copy_elements(all.slice(2, 0, length), start);
  }
  return larger;
}

}  // namespace

/// Keys and values [batch, heads, capacity, width] that copies of a cache share.
struct KvCache::Memory {
  Tensor keys, values;
  std::atomic<int64_t> written;  ///< steps; no cache writes over those in front
};

KvCache::KvCache(int64_t capacity, Where where) : capacity_(capacity) {
  if (capacity < 0)
    located(where, [&] { throw Error(fmt::format("KvCache: a capacity of {} steps", capacity)); });
}

KvCache& KvCache::operator=(KvCache&& other) noexcept {
  memory_ = std::move(other.memory_);
  projected_ = std::move(other.projected_);
  rows_ = std::exchange(other.rows_, {});
  length_ = std::exchange(other.length_, 0);
  capacity_ = std::exchange(other.capacity_, 0);
  return *this;
}

void KvCache::append(const Variable& k, const Variable& v, Where where) {
  located(where, [&] {
    check_steps(k, memory_ ? memory_->keys : Tensor(), "keys");
    check_steps(v, memory_ ? memory_->values : Tensor(), "values");
    const int64_t time = k.shape()[2];
    if (v.shape()[0] != k.shape()[0] || v.shape()[1] != k.shape()[1] || v.shape()[2] != time)
      throw ShapeError(
          fmt::format("KvCache: keys of shape {} and values of shape {}", k.shape().str(), v.shape().str()));
    if (k.node()->lazy || v.node()->lazy)
      throw UnsupportedError(
          "KvCache: keys and values of a feed have no values yet; a plan computes a whole sequence");
    const Tensor more_keys = k.value(), more_values = v.value();
    const int64_t end = length_ + time;
    const int64_t capacity = end > capacity_ ? std::max(2 * capacity_, end) : capacity_;
    // Steps behind the length are those of copies, or were cut off: they are free if nothing else holds them.
    if (memory_ && memory_.use_count() == 1 && memory_->keys.storage().unique() &&
        memory_->values.storage().unique())
      memory_->written = length_;
    int64_t written = length_;
    if (!memory_ || memory_->keys.shape()[2] < end || !memory_->written.compare_exchange_strong(written, end))
      memory_ = std::shared_ptr<Memory>(
          new Memory{with_capacity(memory_ ? memory_->keys : Tensor(), more_keys, length_, capacity),
                     with_capacity(memory_ ? memory_->values : Tensor(), more_values, length_, capacity),
                     {end}});
    for (const auto& [all, more] :
         {std::pair(&memory_->keys, &more_keys), {&memory_->values, &more_values}}) {
      Tensor there = all->slice(2, length_, end);
      copy_elements(*more, there);
    }
    length_ = end;
    capacity_ = capacity;
  });
}

Variable KvCache::keys(Where where) const {
  return located(where, [&]() -> Variable {
    if (!memory_) throw Error("KvCache::keys: it has no steps yet");
    return memory_->keys.slice(2, 0, length_);
  });
}

Variable KvCache::values(Where where) const {
  return located(where, [&]() -> Variable {
    if (!memory_) throw Error("KvCache::values: it has no steps yet");
    return memory_->values.slice(2, 0, length_);
  });
}

void KvCache::select(const Tensor& rows, Where where) {
  const CallScope scope(where);
  located(where, [&] {
    constexpr std::string_view function = "KvCache::select";
    if (!memory_ && !projected_) throw Error(fmt::format("{}: it has no steps yet", function));
    if (!rows.defined()) throw Error(fmt::format("{}: the rows are undefined", function));
    if (rows.dtype() != int32 && rows.dtype() != int64)
      throw TypeError(fmt::format("{}: rows must be int32 or int64, not {}", function, name(rows.dtype())));
    if (rows.rank() != 1)
      throw ShapeError(fmt::format("{}: rows of shape {} are not [n]", function, rows.shape().str()));
    const NoGrad no_gradients;
    const Variable keys = memory_ ? memory_->keys.slice(2, 0, length_) : projected_->keys;
    const Variable numbers = checked_indices(Variable(rows).to(keys.device()), keys, 0, false, function);
    const auto selected = [&](const Variable& x) { return gather(x, numbers); };
    const auto composed = [&](const Tensor& before) {
      return before.defined() ? selected(before).value() : numbers.value().to(int64);
    };
    auto projected = projected_;
    if (projected) {
      auto other = std::make_shared<Projected>(*projected);
      other->keys = selected(other->keys);
      other->values = selected(other->values);
      other->rows = composed(other->rows);
      projected = std::move(other);
    }
    const Tensor all_rows = composed(rows_);
    if (memory_) {
      const Variable values = memory_->values.slice(2, 0, length_);
      memory_ =
          std::shared_ptr<Memory>(new Memory{selected(keys).value(), selected(values).value(), {length_}});
    }
    projected_ = std::move(projected);
    rows_ = all_rows;
  });
}

void KvCache::truncate(int64_t length, Where where) {
  if (length < 0 || length > length_)
    located(where, [&] {
      throw IndexError(fmt::format("KvCache::truncate: it has {} steps and cannot keep {}", length_, length));
    });
  length_ = length;
  if (length == 0) projected_.reset(), rows_ = {};
}

}  // namespace espalier::nn
