// Positions drawn from rows of weights.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "espalier/core/sampling.h"
#include "espalier/ops/functions/sampling.h"
#include "espalier/ops/pointwise.h"
#include "espalier/ops/random/random_op.h"
#include "espalier/ops/random/sampling_ops.h"

namespace espalier {

namespace {

class Multinomial : public RandomOp {
 public:
  Multinomial(int64_t count, bool replacement)
      : RandomOp(InputSet::all()), count_(count), replacement_(replacement) {}
  std::string_view name() const override { return "multinomial"; }
  Attributes attributes() const override { return {{"count", count_}, {"replacement", replacement_}}; }
  bool mixes(size_t, size_t axis, const InputSpecs& in) const override {
    return axis + 1 == in[0]->shape.rank();
  }
  Specs infer(const InputSpecs& in) const override {
    check_dtype<Reals>(*in[0], name());
    const Shape& weights = in[0]->shape;
    if (weights.rank() == 0) throw ShapeError("multinomial: takes weights along the last axis, not a scalar");
    if (count_ < 0 || (!replacement_ && count_ > weights[-1]))
      throw ShapeError(fmt::format("multinomial: {} positions {} cannot be drawn from rows of {}", count_,
                                   replacement_ ? "with replacement" : "without replacement", weights.str()));
    Dims dims = weights.dims();
    dims.back() = count_;
    return {{DType::int64, Shape(std::move(dims))}};
  }
  void run_cpu(const KernelCall& call) const override {
    const Tensor weights = call.inputs[0]->contiguous_copy();
    if (call.outputs[0]->elements() == 0) return;
    if (weights.dtype() == DType::float32)
      draw_rows(static_cast<const float*>(weights.address()), weights.shape(), call);
    else
      draw_rows(static_cast<const double*>(weights.address()), weights.shape(), call);
  }

 private:
  template <class T>
  void draw_rows(const T* weights, const Shape& shape, const KernelCall& call) const {
    const int64_t n = shape[-1], rows = call.outputs[0]->elements() / count_;
    int64_t* out = detail::output<int64_t>(call);
    parallel_for(rows, std::max<int64_t>(1, 4096 / (n + count_)), [&](int64_t begin, int64_t end) {
      std::vector<double> row(static_cast<size_t>(n)), sums(row.size());
      for (int64_t r = begin; r < end; ++r) {
        std::copy_n(weights + r * n, n, row.begin());
        check_row(row, r);
        if (replacement_) add_up(row, sums);
        for (int64_t c = 0; c < count_; ++c) {
          if (!replacement_) add_up(row, sums);
          out[r * count_ + c] = draw(sums, call.random, r * count_ + c);
          if (!replacement_) row[static_cast<size_t>(out[r * count_ + c])] = 0;
        }
      }
    });
  }
  static void add_up(const std::vector<double>& row, std::vector<double>& sums) {
    double sum = 0;
    for (size_t i = 0; i < row.size(); ++i) sums[i] = sum += row[i];
  }
  static int64_t draw(const std::vector<double>& sums, const RandomStream& random, int64_t element) {
    sampling::ElementWords words(random.seed, random.stream,
                                 static_cast<unsigned long long>(
                                     sampling::number_of(element, random.first, random.run, random.stride)));
    const double at = words.uniform() * sums.back();  // below the sum, so at a positive weight
    const auto found = std::upper_bound(sums.begin(), sums.end(), at);
    return found == sums.end() ? std::lower_bound(sums.begin(), sums.end(), sums.back()) - sums.begin()
                               : found - sums.begin();
  }
  void check_row(const std::vector<double>& row, int64_t number) const {
    int64_t positive = 0;
    for (const double weight : row) {
      if (!(weight >= 0 && std::isfinite(weight)))
        throw Error(fmt::format("multinomial: {} is no weight: weights are finite and not negative", weight));
      positive += weight > 0;
    }
    if (positive < (replacement_ ? 1 : count_))
      throw Error(
          fmt::format("multinomial: {} positions cannot be drawn from row {}, with {} positive weights",
                      count_, number, positive));
  }

  int64_t count_;
  bool replacement_;
};

}  // namespace

OpPtr multinomial_op(int64_t count, bool replacement) {
  return std::make_shared<Multinomial>(count, replacement);
}

Variable multinomial(const Operand& weights, int64_t count, bool replacement) {
  return apply(multinomial_op(count, replacement), {&weights.variable()}, weights.where());
}

}  // namespace espalier
