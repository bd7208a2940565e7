// Distinct elements and counts of numbers.
#include "espalier/ops/functions/counting.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "espalier/core/op_registry.h"
#include "espalier/core/values_later.h"
#include "espalier/ops/indexing/indices.h"
#include "espalier/ops/ops.h"
#include "espalier/ops/pointwise.h"
#include "espalier/ops/registered_ops.h"
#include "espalier/ops/shape_like_ops.h"
#include "espalier/ops/sorting/radix_sort.h"

namespace espalier {

namespace {

/// Throws UnsupportedError for an operand whose value is another in each step.
void refuse_lazy_operand(const Variable& x, std::string_view op, std::string_view instead) {
  if (x.node()->lazy || build_context().lazy)
    throw UnsupportedError(fmt::format(
        "{}: the size of the result depends on values that each step computes, and the shapes of a "
        "plan do not; {}",
        op, instead));
}

/// The positions of the elements in their order, and where in it the distinct ones begin.
struct DistinctElements {
  std::vector<int64_t> order, begins;

  explicit DistinctElements(const Tensor& x) {
    const int64_t n = x.elements();
    if (n == 0) return;
    visit(x.dtype(), [&]<class T>(TypeTag<T>) {
      const T* data = static_cast<const T*>(x.address());
      if (sizeof(OrderKey<T>) == 4 && n < (int64_t{1} << 32))
        find<NarrowItem>(data, n);
      else
        find<WideItem>(data, n);
    });
  }
  int64_t size() const { return static_cast<int64_t>(begins.size()); }

 private:
  template <class Item, class T>
  void find(const T* data, int64_t n) {
    std::vector<Item> items(static_cast<size_t>(n)), scratch(static_cast<size_t>(n));
    for (int64_t i = 0; i < n; ++i) items[static_cast<size_t>(i)] = Item::of(order_key(data[i]), i);
    const Item* sorted = sort_items_shared(items.data(), scratch.data(), n);
    order.resize(static_cast<size_t>(n));
    for (int64_t i = 0; i < n; ++i) {
      const int64_t at = order[static_cast<size_t>(i)] = sorted[i].at();
      if (i == 0 || sorted[i].key() != sorted[i - 1].key() || data[at] != data[at]) begins.push_back(i);
    }
  }
};

/// In float32 if they are halves, in int32 if they are smaller integers, and on the host.
Tensor computed_elements(const Tensor& x) {
  const Tensor here = x.to(cpu());
  const DType dtype = is_half(x.dtype()) ? float32 : is_small_integer(x.dtype()) ? int32 : x.dtype();
  return here.to(dtype).contiguous_copy();
}

/// Outputs the distinct values, for each element which of them it is, and how often each occurs.
class Unique : public Op {
 public:
  explicit Unique(int64_t count)
      : Op({.runs_on_host = true, .gradient_reads = InputSet::none(), .passes_no_gradient = true}),
        count_(count) {}
  /// For elements that have been looked at. They are computed again once `forget` has been called.
  explicit Unique(DistinctElements found) : Unique(found.size()) { found_ = std::move(found); }
  void forget() { found_.reset(); }
  std::string_view name() const override { return "unique"; }
  Attributes attributes() const override { return {{"count", count_}}; }
  Specs infer(const InputSpecs& in) const override {
    Specs specs;
    specs.push_back({in[0]->dtype, Shape{count_}});
    specs.push_back({DType::int64, in[0]->shape});
    specs.push_back({DType::int64, Shape{count_}});
    return specs;
  }
  void run_cpu(const KernelCall& call) const override {
    const Tensor x = computed_elements(*call.inputs[0]);
    std::optional<DistinctElements> looked_up;
    if (!found_) looked_up.emplace(x);
    const DistinctElements& found = found_ ? *found_ : *looked_up;
    if (found.size() != count_)
      throw UnsupportedError(
          fmt::format("unique: there are {} distinct elements, and there were {} when the tree was written; "
                      "the shapes of a "
                      "tree do not follow values: call unique() anew, or use sort()",
                      found.size(), count_));
    Tensor values({count_}, x.dtype()), inverse(x.shape(), int64), counts({count_}, int64);
    const int64_t n = x.elements();
    visit(x.dtype(), [&]<class T>(TypeTag<T>) {
      const T* from = static_cast<const T*>(x.address());
      T* to = static_cast<T*>(values.address());
      auto *which = static_cast<int64_t*>(inverse.address()),
           *often = static_cast<int64_t*>(counts.address());
      for (int64_t k = 0; k < count_; ++k) {
        const auto at = static_cast<size_t>(k);
        const int64_t begin = found.begins[at], end = k + 1 < count_ ? found.begins[at + 1] : n;
        to[k] = from[found.order[static_cast<size_t>(begin)]];
        often[k] = end - begin;
        for (int64_t i = begin; i < end; ++i) which[found.order[static_cast<size_t>(i)]] = k;
      }
    });
    copy_elements(values.to(call.outputs[0]->dtype()), *call.outputs[0]);
    copy_elements(inverse, *call.outputs[1]);
    copy_elements(counts, *call.outputs[2]);
  }
  Gradients gradient(const GradientRule&) const override { return {Variable()}; }

 private:
  int64_t count_;
  std::optional<DistinctElements> found_;
};

/// Counts numbers below `bins` in `counts`. Equal numbers in succession would wait for each other, so few
/// bins have four lines of counts.
class NumberCounts {
 public:
  /// For about `numbers` numbers.
  NumberCounts(int64_t* counts, int64_t bins, int64_t numbers) : counts_(counts), bins_(bins) {
    std::fill_n(counts, bins, int64_t{0});
    constexpr int64_t few = 4096;
    if (bins <= few && numbers >= 16 * bins) more_.resize(static_cast<size_t>(3 * bins));
  }
  NumberCounts(const NumberCounts&) = delete;
  NumberCounts& operator=(const NumberCounts&) = delete;
  ~NumberCounts() {
    const int64_t lines = static_cast<int64_t>(more_.size()) / std::max<int64_t>(1, bins_);
    for (int64_t line = 0; line < lines; ++line)
      for (int64_t k = 0; k < bins_; ++k) counts_[k] += more_[static_cast<size_t>(line * bins_ + k)];
  }
  /// Counts at(i) for i from 0 to `count`.
  template <class At>
  void add(At at, int64_t count) {
    int64_t i = 0;
    int64_t* a = counts_;
    if (!more_.empty()) {
      int64_t *b = more_.data(), *c = b + bins_, *d = c + bins_;
      for (; i + 4 <= count; i += 4) {
        ++a[at(i)];
        ++b[at(i + 1)];
        ++c[at(i + 2)];
        ++d[at(i + 3)];
      }
    }
    for (; i < count; ++i) ++a[at(i)];
  }

 private:
  int64_t *counts_, bins_;
  std::vector<int64_t> more_;
};

/// Counts the elements of x from `low` to `high` in bins of one width; those outside go to one more bin. What
/// histogram() makes of other ops.
template <class T>
void count_in_bins(const T* x, int64_t n, int64_t bins, double low, double high, int64_t* counts) {
  constexpr int64_t block = 1024;
  std::array<int64_t, block> places;
  NumberCounts counter(counts, bins + 1, n);
  const T first = static_cast<T>(low), last = static_cast<T>(high);
  const T per_unit = static_cast<T>(static_cast<double>(bins) / (high - low));
  for (int64_t begin = 0; begin < n; begin += block) {
    const int64_t count = std::min(block, n - begin);
    const T* from = x + begin;
    int64_t* place = places.data();
    vectorized([=]() __attribute__((always_inline)) {
      for (int64_t i = 0; i < count; ++i) {
        const T at = scalar::Floor()((from[i] - first) * per_unit);
        const T above = at > T(0) ? at : T(0);
        const bool inside = (from[i] >= first) & (from[i] <= last);
        const int64_t bin = scalar::Cast<int64_t>()(inside ? above : T(0));
        const int64_t kept = bin < bins ? bin : bins - 1;
        place[i] = inside ? kept : bins;
      }
    });
    counter.add([=](int64_t i) { return place[i]; }, count);
  }
}

/// So that the bytes of int64 or float64 bins are an int64.
constexpr int64_t most_bins = std::numeric_limits<int64_t>::max() / int64_t{sizeof(int64_t)};

class Bincount : public Op {
 public:
  explicit Bincount(int64_t length) : Op({.passes_no_gradient = true}), length_(length) {}
  std::string_view name() const override { return "bincount"; }
  Attributes attributes() const override { return {{"length", length_}}; }
  Specs infer(const InputSpecs& in) const override {
    check_indices(*in[0], name());
    return {{DType::int64, Shape{length_}}};
  }
  void run_cpu(const KernelCall& call) const override {
    constexpr int64_t block = 8192;  // stays in the cache between check and count
    const Tensor flat = call.inputs[0]->contiguous_copy().reshape({-1});
    const int64_t n = flat.elements();
    NumberCounts counter(detail::output<int64_t>(call), length_, n);
    for (int64_t begin = 0; begin < n; begin += block)
      with_indices(flat.slice(0, begin, std::min(n, begin + block)), length_, name(), false,
                   [&](auto at, int64_t count) { counter.add(at, count); });
  }
  Gradients gradient(const GradientRule&) const override { return {Variable()}; }

 private:
  int64_t length_;
};

/// One more than the largest number, and at least `least`. Throws IndexError for negative numbers.
int64_t bins_for(const Tensor& x, int64_t least) {
  const Tensor numbers = x.to(cpu()).to(DType::int64).contiguous_copy();
  const auto* list = static_cast<const int64_t*>(numbers.address());
  const auto [lowest, highest] = detail::range_with_zero(list, numbers.elements());
  if (lowest < 0) throw IndexError(fmt::format("bincount: {} is negative", lowest));
  if (highest >= most_bins)
    throw ShapeError(
        fmt::format("bincount: the bins up to {} have more bytes than 64 bits can count", highest));
  return numbers.elements() == 0 ? least : std::max(least, highest + 1);
}

}  // namespace

UniqueElements unique(const Operand& x, const UniqueOptions& options) {
  const Variable& v = x.defined("unique");
  const auto op = located(x.where(), [&] {
    refuse_lazy_operand(v, "unique", "use sort(), or call unique() with value()");
    return std::make_shared<Unique>(DistinctElements(computed_elements(v.value(x.where()))));
  });
  const Variable values = apply(op, {&v}, x.where());
  op->forget();
  return {values, options.inverse ? Variable(values.node(), 1) : Variable(),
          options.counts ? Variable(values.node(), 2) : Variable()};
}

Variable bincount(const Operand& x, const BincountOptions& options) {
  const Variable& v = x.defined("bincount");
  const Variable& weights = options.weights;
  const CallScope scope(x.where());
  const int64_t length = located(x.where(), [&] {
    check_indices({v.dtype(), v.shape()}, "bincount");
    if (weights.defined() && !(weights.shape() == v.shape()))
      throw ShapeError(fmt::format("bincount: weights of shape {} for numbers of shape {}",
                                   weights.shape().str(), v.shape().str()));
    if (options.min_length < 0 || options.length.value_or(0) < 0)
      throw Error(fmt::format("bincount: the number of bins is {}",
                              std::min(options.min_length, options.length.value_or(0))));
    if (std::max(options.min_length, options.length.value_or(0)) > most_bins)
      throw ShapeError(fmt::format("bincount: {} bins have more bytes than 64 bits can count",
                                   std::max(options.min_length, options.length.value_or(0))));
    if (options.length) return std::max(*options.length, options.min_length);
    refuse_lazy_operand(v, "bincount", "give the number of bins as `length`");
    return bins_for(v.value(x.where()), options.min_length);
  });
  if (!weights.defined()) return apply(std::make_shared<Bincount>(length), {&v}, x.where());
  const Variable bins = zeros({length}, weights.dtype()).to(weights.device());
  return scatter_add_like(reshape(weights, {-1}), reshape(v, {-1}), bins, 0, "bincount", false);
}

Variable histogram(const Operand& x, int64_t bins, double low, double high) {
  const Variable& v = x.defined("histogram");
  const CallScope scope(x.where());
  return located(x.where(), [&] {
    check_dtype<Reals>({v.dtype(), v.shape()}, "histogram");
    if (bins < 1 || !(low < high))
      throw Error(
          fmt::format("histogram: {} bins between {} and {}; there must be at least one, and the first "
                      "bound below the second",
                      bins, low, high));
    if (!std::isfinite(high - low))
      throw Error(fmt::format("histogram: the width from {} to {} is infinite, and so would be that of a bin",
                              low, high));
    if (bins >= most_bins)
      throw ShapeError(fmt::format("histogram: {} bins have more bytes than 64 bits can count", bins));
    // A float cannot tell bounds beyond its range from infinity.
    const bool within_float =
        std::max(std::abs(low), std::abs(high)) <= std::numeric_limits<float>::max() / 2;
    const DType computed = v.dtype() == DType::float64 || !within_float ? DType::float64 : DType::float32;
    const Variable wide = v.dtype() == computed ? v : cast(v, computed);
    const auto numbers = [&] {
      const Variable inside =
          logical_and(greater_equal(wide, full_like(wide, low)), less_equal(wide, full_like(wide, high)));
      const Variable place = floor((wide - low) * (static_cast<double>(bins) / (high - low)));
      const Variable bin = minimum(cast(maximum(place, 0), DType::int64), bins - 1);
      return where(inside, bin, full_like(bin, bins));  // what is outside goes to one more bin
    };
    const auto op = std::make_shared<Bincount>(bins + 1);
    const auto count = [&] {
      const bool eager = is_eager_on_cpu(wide);
      const Variable counted = [&] {
        std::optional<ValuesLater> later;
        if (eager) later.emplace();
        return numbers();
      }();
      if (!eager) return apply(op, {&counted}, x.where());
      const auto compute = [&](Tensor& out) {
        const Tensor in = wide.value().contiguous_copy();
        auto* counts = static_cast<int64_t*>(out.address());
        visit(in.dtype(), [&]<class T>(TypeTag<T>) {
          if constexpr (Reals::accepts<T>)
            count_in_bins(static_cast<const T*>(in.address()), in.elements(), bins, low, high, counts);
        });
      };
      return apply_by(compute, op, {&counted}, x.where());
    };
    return slice(count(), 0, 0, bins);
  });
}

void add_counting_ops(OpRegistry& ops) {
  ops.add("unique", 1, [](AttributeReader& a) { return std::make_shared<Unique>(a.integer("count", 0)); });
  ops.add("bincount", 1,
          [](AttributeReader& a) { return std::make_shared<Bincount>(a.integer("length", 0)); });
}

}  // namespace espalier
