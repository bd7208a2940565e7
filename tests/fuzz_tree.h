// A random tree over a feed, from most operations, for tests that compare plans with eager training.
#pragma once
#include <memory>
#include <random>
#include <string>

#include "espalier/core/custom_op.h"
#include "espalier/core/error.h"
#include "espalier/core/node.h"
#include "espalier/data/distributor.h"
#include "espalier/ops/ops.h"
#include "testing.h"

namespace espalier::testing {

inline const CustomOp& doubled() {
  static const CustomOp op =
      custom_op({.name = "doubled",
                 .forward = [](const std::vector<Tensor>& in) { return (Variable(in[0]) * 2.0).value(); },
                 .row_by_row = true,
                 .gradient = [](const CustomGradient& g) { return Variables{g.output_gradient * 2.0}; },
                 .infer = [](const std::vector<Spec>& in) { return in[0]; }});
  return op;
}

/// A loss over a feed whose last batch is short. Equal seeds give equal trees. Without `sums`, its last
/// additions do not mix sums and means, which replicas could not reduce.
class FuzzTree {
 public:
  explicit FuzzTree(uint32_t seed, bool sums = true) : sums_(sums), random_(seed) {
    const int64_t rows = random_() % 2 ? 13 : 11;  // 5, 5 and 3 or 1
    feed = feed_of(rows, seed);
    const std::vector<Shape> shapes{{8, 8}, {8},    {6, 8}, {1},   {},       {6, 1},  {8, 6},
                                    {2, 8}, {1, 8}, {48},   {900}, {2, 700}, {48, 8}, {100, 7}};
    const std::vector<Shape> large{{128, 96}, {96, 128}, {128}, {96}, {3, 128, 96}, {8, 128}, {1}};
    for (const Shape& shape : seed % 7 ? shapes : large)
      if (random_() % 3) parameters.push_back(leaf(shape, seed * 16 + parameters.size()));
    if (parameters.size() < 2) parameters.push_back(leaf({8, 8}, seed));
    reals_ = parameters;
    bools_.push_back(greater(parameters[0], 0.1));
    if (seed % 3 == 1)  // nodes that do not depend on the batch and precede it
      for (int i = 0; i < 4; ++i) try {
          put(grow_alone());
        } catch (const Error&) {  // invalid for these shapes
        }
    const auto [in, target] = feed->get_output_graphs<2>();
    labels_ = target;
    if (random_() % 5) reals_.insert(reals_.end(), {in, in, in});
    integers_.push_back(target);
    const int steps = 4 + static_cast<int>(random_() % 24);
    for (int i = 0; i < steps; ++i) try {
        grow();
      } catch (const Error&) {  // incompatible operands
      }
    root = mean_of(reals_.back());
    for (size_t i = parameters.size(); i < reals_.size(); ++i)
      if (random_() % 4 == 0) root = root + mean_of(reals_[i]);
    for (const Variable& p : parameters)
      if (random_() % 2) root = root + mean(square(p)) * 0.01;
    if (random_() % 3 == 0) root = root + parameters[0 + random_() % parameters.size()] * 0.01;
    root = random_() % 6 ? sum(root) : root;
    if (random_() % 12 == 0)
      root = reshape(parameters.back(), {-1});  // a result that shows a parameter before its update
    root = root + mean(parameters[0]) * 0.0 + mean(in) * 0.0;
  }
  std::unique_ptr<data::Distributor> feed;
  Variables parameters;
  Variable root;

  static std::unique_ptr<data::Distributor> feed_of(int64_t rows, uint32_t seed) {
    const Tensor x = numbers({rows, 6, 8}, -1.5, 1.5, seed);
    Tensor labels({rows}, int64);
    for (int64_t i = 0; i < rows; ++i) labels.span<int64_t>()[static_cast<size_t>(i)] = (i * 5 + seed) % 8;
    return std::make_unique<data::Distributor>(
        std::vector<Tensor>{x, labels},
        data::DistributorOptions{.batch_size = 5, .shuffle = true, .seed = seed});
  }
  /// Sets a parameter from outside.
  void disturb() { set_value(parameters[0], laid_out_in_reverse(numbers(parameters[0].shape(), -1, 1, 3))); }

  static Variable leaf(const Shape& shape, uint64_t which) {
    return parameter(numbers(shape, -1, 1, which), "p" + std::to_string(which % 16));
  }

 private:
  Variable mean_of(const Variable& x) {
    switch (random_() % 4) {
      case 0: return mean(tanh(x));
      case 1: return mean(square(tanh(x)));
      case 2: return (sums_ ? sum(x) : mean(x)) * 0.001;
      default: return mean(x) * 0.1;
    }
  }
  Variable pick() {
    const size_t n = reals_.size();
    return reals_[random_() % 3 ? std::max(random_() % n, random_() % n) : random_() % n];
  }
  int64_t axis_of(const Variable& x) { return x.rank() ? static_cast<int64_t>(random_() % x.rank()) : 0; }
  Axes axes_of(const Variable& x) {
    Dims axes;
    for (size_t i = 0; i < x.rank(); ++i)
      if (random_() % 2) axes.push_back(static_cast<int64_t>(i));
    return Axes(axes);
  }
  Variable grow_alone() {
    const Variable x = pick(), y = pick();
    switch (random_() % 4) {
      case 0: return matmul(transpose(x), x) * 0.1;
      case 1: return tanh(x) * 0.5;
      case 2: return sum(square(x)) * 0.1;
      default: return y - mean(y);
    }
  }
  /// A loss for each row, by these labels.
  Variable picked(const Variable& x, const Variable& labels) {
    const Variable rows = x.rank() == 3 ? mean(x, 1) : x;
    return espalier::pick(log_softmax(rows), minimum(labels, rows.shape()[-1] - 1));
  }
  void grow() {
    const Variable x = pick(), y = pick(), z = pick();
    switch (random_() % 60) {
      case 0: return put(tanh(x));
      case 1: return put(sigmoid(x));
      case 2: return put(gelu(x));
      case 3: return put(relu(x));
      case 4: return put(x + y);
      case 5: return put(x * y * 0.5);
      case 6: return put(x - y);
      case 7: return put(x / (square(y) + 1.0));
      case 8:
      case 9:
      case 10: return put(matmul(x, y) * 0.1);
      case 11: return put(matmul(x, transpose(y)) * 0.1);
      case 12: return put(matmul(transpose(x), y) * 0.1);
      case 13: return put(tanh(matmul(x, y) + z));
      case 14: return put(gelu(matmul(x, transpose(y))));
      case 15: return put(sum(x * 0.125, axes_of(x), random_() % 2));
      case 16: return put(mean(x, axes_of(x), random_() % 2));
      case 17: return put(max(x, axes_of(x), random_() % 2));
      case 18: return put(softmax(x, axis_of(x)));
      case 19: return put(log_softmax(x, random_() % 2 ? -1 : axis_of(x)) * 0.5);
      case 20: return put(log_softmax(x));
      case 21: return put(layer_norm(x, y, z));
      case 22: return put(x - mean(x, -1, true));
      case 23: return put(transpose(x));
      case 24: return put(transpose(x, Axes({2, 0, 1})));
      case 25: return put(reshape(x, {-1, 8}));
      case 26: return put(reshape(x, {-1, 6, 8}));
      case 27: return put(flatten(x, random_() % 2 && x.rank() ? 1 : 0));
      case 28: {
        const int64_t a = axis_of(x), size = x.rank() ? x.shape()[a] : 0;
        if (size < 2 || size == 5) return;
        return put(
            slice(x, a, static_cast<int64_t>(random_() % 2), size - static_cast<int64_t>(random_() % 2)));
      }
      case 29: return put(concat({x, y}, axis_of(x)));
      case 30: return put(concat({x, x * 0.5, x}, axis_of(x)));
      case 31: {
        const int64_t a = axis_of(x), size = a == 0 && x.node()->lazy ? 1 : x.shape()[a];
        return put(gather(x, minimum(labels_, size - 1), a));
      }
      case 32: return put(one_hot(integers_[random_() % integers_.size()], 8, float64));
      case 33: return bool_put(greater(x, y));
      case 34: return bool_put(logical_and(bools_.back(), bools_[random_() % bools_.size()]));
      case 35: return put(where(bools_[random_() % bools_.size()], x, y));
      case 36: return put(cast(bools_.back(), float64) - 0.5);
      case 37: return put(dropout(x, 0.25));
      case 38: return y.node()->lazy ? void() : put(broadcast_to(x, y.shape()) * 1.0);
      case 39: return put(random_() % 2 ? ones_like(x) * 0.5 : full_like(x, 0.25));
      case 40: return put(softmax_cross_entropy(x, labels_));
      case 41: return put(doubled()({x}));
      case 42: return put(cast(cast(x, random_() % 2 ? float32 : float64) * 0.75, float64));
      case 43: return put(picked(x, labels_) * (cast(labels_, float64) * 0.1 + 0.2));
      case 44: {  // two sets of labels for one value
        const Variable other = minimum(labels_ * int64_t{3}, int64_t{7} - labels_);
        return put(picked(x, labels_) * 0.3 + picked(x, maximum(other, int64_t{0})) * 0.7);
      }
      case 45: return put(softmax(reshape(softmax(x), {-1, random_() % 2 ? 4 : 12})));
      case 46: return put(exp(reshape(tanh(reshape(x, {-1, 4}) * z), {-1, 8}) * z));
      case 47: return put(sum(softmax(x) * x, 0));
      case 48: {  // squares, if integers are exact
        constexpr int64_t big = (int64_t{1} << 53) + 1;
        return bool_put(equal((labels_ + big) * labels_ - labels_ * big, square(labels_)));
      }
      case 49: return put(where(bools_[random_() % bools_.size()], x * 0.5, 0.25));
      case 50: return put(x * (randn_like(x) * 0.1 + 1.0));
      case 51: return put(x * bernoulli(sigmoid(stop_gradient(y))));
      case 52: return put(x + (random_() % 2 ? uniform({8}, float64) : normal({}, float64)) * 0.1);
      case 53: return put(stop_gradient(x) * y + rand_like(y) * 0.1);
      default:
        if (random_() % 2) return put(maximum(x, y));
        return put(cast(floor(cast(x * 3.0, int32)), float64) * 0.1);
    }
  }
  void put(const Variable& v) {
    if (v.shape().elements() <= most && v.shape().elements() > 0) reals_.push_back(v);
  }
  void bool_put(const Variable& v) {
    if (v.shape().elements() <= most) bools_.push_back(v);
  }
  static constexpr int64_t most = 60000;
  bool sums_;
  std::mt19937 random_;
  Variables reals_, bools_, integers_;
  Variable labels_;
};

}  // namespace espalier::testing
