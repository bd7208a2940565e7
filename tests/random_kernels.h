// Random trees of ops that can be fused, over families of shapes with equal numbers of elements, for tests
// that compare plans with eager values.
#pragma once
#include <random>

#include "espalier/core/autograd.h"
#include "espalier/core/error.h"
#include "espalier/ops/ops.h"
#include "testing.h"

namespace espalier::testing {

/// Values of float64, or of float32 between casts. A tree has rows of several lengths and operands under
/// several shapes, and folds of the larger families span several tiles, which are not multiples of a period.
class KernelTree {
 public:
  explicit KernelTree(uint32_t seed) : random_(seed) {
    static const std::vector<std::vector<Shape>> families = {
        {{6, 40}, {3, 2, 40}, {12, 20}, {8, 30}, {2, 12, 10}, {240}},
        {{70, 50}, {10, 7, 50}, {35, 100}, {10, 350}, {7, 10, 50}, {3500}},
        {{5, 2100}, {3, 5, 700}, {1500, 7}, {15, 700}, {7, 1500}, {10500}},
        {{155, 40}, {5, 31, 40}, {50, 124}, {2, 3100}, {6200}},
        {{3, 3}, {9, 1}, {1, 9}, {9}},
    };
    shapes_ = families[seed % 8 < families.size() ? seed % 8 : 0];
    const int64_t last = shapes_[0][-1], first = shapes_[0][0];
    for (const Shape& shape : {shapes_[0], shapes_[1], shapes_.back(), Shape{last}, Shape{first, 1}, Shape{},
                               Shape{1}, Shape{1, last}})
      leaves_.push_back(parameter(numbers(shape, -1.5, 1.5, seed * 10 + leaves_.size()), "p"));
    values_ = leaves_;
    for (int i = 0; i < 18; ++i) try {
        grow();
      } catch (const Error&) {  // incompatible operands
      }
    // Returns the elements of some values, which kernels must then write, and folds of others.
    std::vector<Variable> shown{flatten(values_.back())};
    for (size_t i = leaves_.size(); i < values_.size(); ++i) {
      const uint32_t way = random_() % 6;
      if (way == 0) shown.push_back(flatten(values_[i]));
      if (way == 1) shown.push_back(reshape(mean(values_[i] * 0.5), {1}));
      if (way == 2) shown.push_back(reshape(sum(tanh(values_[i]) * 0.01), {1}));
    }
    root = concat(shown);
  }
  Variable root;

 private:
  uint32_t upto(size_t n) { return static_cast<uint32_t>(random_() % n); }
  Variable pick() {  // prefers later values
    const size_t n = values_.size();
    return values_[std::max(random_() % n, random_() % n)];
  }
  Variable whole() {
    Variable x = pick();
    for (int i = 0; i < 8 && x.shape().elements() != shapes_[0].elements(); ++i) x = pick();
    return x;
  }
  Shape shape() { return shapes_[upto(shapes_.size())]; }
  int64_t axis(const Variable& x) { return x.rank() ? upto(x.rank()) : 0; }
  Axes axes(const Variable& x) {
    Dims some;
    for (size_t i = 0; i < x.rank(); ++i)
      if (random_() % 2) some.push_back(static_cast<int64_t>(i));
    return Axes(some);
  }
  /// A label for each row; `which` selects a set of labels.
  static Tensor labels(const Variable& x, int64_t which) {
    const Shape shape = x.shape();
    if (shape.rank() == 0) throw ShapeError("no rows");
    Tensor labels(Shape(Dims(shape.dims().begin(), shape.dims().end() - 1)), int64);
    for (int64_t i = 0; i < labels.elements(); ++i)
      labels.span<int64_t>()[static_cast<size_t>(i)] = (i * (which + 3) + which) % shape[-1];
    return labels;
  }
  /// One loss for each row, with different weights.
  Variable picked(const Variable& x, int64_t which) {
    const Variable rows = espalier::pick(log_softmax(x), labels(x, which));
    return rows * Variable(numbers(rows.shape(), 0.1, 1, static_cast<uint64_t>(which)));
  }

  void grow() {
    const Variable x = pick(), y = pick(), z = pick(), w = whole();
    const Axes some = axes(x);
    const bool keep = random_() % 2;
    switch (upto(37)) {
      case 0: return put(tanh(x));
      case 1: return put(sigmoid(x) - 0.5);
      case 2: return put(square(x) * 0.25);
      case 3:
      case 4: return put(x * y);
      case 5:
      case 6: return put(x + y * 0.5);
      case 7: return put(x - y);
      case 8: return put(where(greater(x, y), x, z));
      case 9: return put(maximum(x, y) / (square(z) + 1.0));
      case 10: return put(sum(x * 0.125, some, keep));
      case 11: return put(mean(x, some, keep));
      case 12: return put(keep ? max(x, -1, true) : min(x, some, true));
      case 13: return put(sum(w * 0.125, 0));
      case 14: return put(w - mean(w, -1, true));
      case 15: return put(softmax(w));
      case 16: return put(log_softmax(x) * 0.5);
      case 17: return put(softmax(x, axis(x)));
      case 18: return put(sum(softmax(w), 0, true));
      case 19:
      case 20: return put(reshape(w, shape()));
      case 21: return put(softmax(reshape(softmax(w * 3.0), shape())));
      case 22: {  // z under two shapes, if possible
        const Variable first = exp(reshape(tanh(w), shape()) * tanh(z));
        return put(tanh(reshape(first, shape())) * tanh(z));
      }
      case 23: return put(transpose(x));
      case 24: {
        const int64_t a = axis(x), size = x.shape()[a];
        return put(slice(x, a, size > 1 ? upto(2) : 0, size) * 1.5);
      }
      case 25: return put(broadcast_to(x, y.shape()) * 0.5);
      case 26: return put(tanh(cast(cast(x, float32) * 1.0, float64)));
      case 27: return put(cast(floor(cast(x * 3.0, int32)), float64) * 0.1);
      case 28: return put(full_like(x, 0.25) + y * 0.0 - ones_like(y));
      case 29: return put(picked(w, upto(3)));
      case 30: {  // two sets of labels for one value, and the gradients of both
        const Variable loss = sum(picked(w, 0)) * 0.3 + sum(picked(w, 1)) * 0.7;
        return put(loss.gradient(w));
      }
      case 31: {
        const Variable loss = sum(picked(w, 2));
        return put(loss.gradient(w) + loss);
      }
      case 32: {
        const Variable loss = sum(square(tanh(x) * y));
        return put(loss.gradient(random_() % 2 ? x : y) * 0.1);
      }
      case 33: return put(add_all({x, tanh(x), x * 0.5, square(x)}));
      case 34: return put(exp(min(x)) * 0.1 + y);
      case 35: {  // concat cannot be fused, and its reader meets a value from before it
        const int64_t rows = w.shape()[0];
        return put(concat({slice(w, 0, 1, rows), slice(w, 0, 0, 1)}, 0) * x);
      }
      default: return put(layer_norm(w, leaves_[3], leaves_[7]));
    }
  }
  void put(const Variable& v) {
    if (v.shape().elements() > 0 && v.shape().elements() <= 20000) values_.push_back(v);
  }

  std::mt19937 random_;
  std::vector<Shape> shapes_;
  Variables leaves_, values_;
};

/// Values of int64, many of which a double cannot represent, and constants.
class IntegerTree {
 public:
  explicit IntegerTree(uint32_t seed) : random_(seed) {
    Tensor data({4, 6}, int64);
    for (int64_t& x : data.span<int64_t>()) x = number();
    for (int i = 0; i < 3; ++i) values_.push_back(state(data.slice(0, 0, 4 - i % 2 * 3).clone()));
    for (int i = 0; i < 16; ++i) try {
        grow();
      } catch (const Error&) {
      }
    root = values_.back() + values_[3];
  }
  Variable root;

 private:
  int64_t number() {
    static constexpr int64_t big[] = {(int64_t{1} << 53) + 1,
                                      -(int64_t{1} << 53) - 1,
                                      (int64_t{1} << 60) - 3,
                                      1'000'000'000'000'001,
                                      -1'000'000'000'000'001,
                                      3,
                                      -1,
                                      0};
    return big[random_() % 8] + static_cast<int64_t>(random_() % 3);
  }
  Variable any() { return values_[std::max(random_() % values_.size(), random_() % values_.size())]; }
  void grow() {
    const Variable x = any(), y = any();
    switch (random_() % 11) {
      case 0: return values_.push_back(x + y);
      case 9: return values_.push_back(sum(x * int64_t{3}, -1, true) + y);
      case 10: return values_.push_back(max(x + int64_t{1}, 0, true) - sum(y - x));
      case 1: return values_.push_back(x - y);
      case 2: return values_.push_back(x * int64_t{3});
      case 3: return values_.push_back(x + number());
      case 4: return values_.push_back(number() - x);
      case 5: return values_.push_back(maximum(x, number()));
      case 6: return values_.push_back(where(greater(x, y), x, y));
      case 7: return values_.push_back(minimum(x, y) + full_like(x, 7));
      default: return values_.push_back(where(equal(x, number()), x, y + number()));
    }
  }
  std::mt19937 random_;
  Variables values_;
};

}  // namespace espalier::testing
