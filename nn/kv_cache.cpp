#include "espalier/nn/kv_cache.h"

#include <fmt/format.h>

#include <algorithm>

#include "espalier/core/device.h"
#include "espalier/core/error.h"
#include "espalier/core/node.h"
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

}  // namespace

KvCache::KvCache(int64_t capacity, Where where) : capacity_(capacity) {
  if (capacity < 0)
    located(where, [&] { throw Error(fmt::format("KvCache: a capacity of {} steps", capacity)); });
}

void KvCache::add(Tensor& all, const Tensor& more, int64_t length, int64_t capacity) {
  if (!all.defined() || all.shape()[2] < capacity) {
    Shape shape = more.shape();
    shape.dims()[2] = capacity;
    Tensor larger(shape, more.dtype(), more.device());
    if (length > 0) {
      Tensor start = larger.slice(2, 0, length);
      copy_elements(all.slice(2, 0, length), start);
    }
    all = larger;
  }
  Tensor end = all.slice(2, length, length + more.shape()[2]);
  copy_elements(more, end);
}

void KvCache::append(const Variable& k, const Variable& v, Where where) {
  located(where, [&] {
    check_steps(k, keys_, "keys");
    check_steps(v, values_, "values");
    const int64_t time = k.shape()[2];
    if (v.shape()[0] != k.shape()[0] || v.shape()[1] != k.shape()[1] || v.shape()[2] != time)
      throw ShapeError(
          fmt::format("KvCache: keys of shape {} and values of shape {}", k.shape().str(), v.shape().str()));
    if (k.node()->lazy || v.node()->lazy)
      throw UnsupportedError(
          "KvCache: keys and values of a feed have no values yet; a plan computes a whole sequence");
    if (length_ + time > capacity_) capacity_ = std::max(2 * capacity_, length_ + time);
    add(keys_, k.value(), length_, capacity_);
    add(values_, v.value(), length_, capacity_);
    length_ += time;
  });
}

Variable KvCache::steps_of(const Tensor& all) const {
  if (!all.defined()) throw Error("KvCache: it has no steps yet");
  return all.slice(2, 0, length_);
}

void KvCache::select(const Tensor& rows, Where where) {
  located(where, [&] {
    if (!keys_.defined()) throw Error("KvCache: it has no steps yet");
    keys_ = gather(Variable(keys_), Variable(rows), 0).value();
    values_ = gather(Variable(values_), Variable(rows), 0).value();
  });
}

void KvCache::truncate(int64_t length, Where where) {
  if (length < 0 || length > length_)
    located(where, [&] {
      throw IndexError(fmt::format("KvCache: it has {} steps and cannot keep {}", length_, length));
    });
  length_ = length;
}

}  // namespace espalier::nn
