#include "espalier/core/cpu/widen_blocks.h"

#include <array>
#include <numeric>
#include <vector>

#include "espalier/core/cpu/cast_row.h"
#include "espalier/core/cpu/parallel.h"
#include "espalier/core/cpu/vectorize.h"
#include "espalier/core/half.h"
#include "espalier/core/scalar.h"

namespace espalier {

namespace {

constexpr int64_t block_grain = 32 * 1024;  // elements that pay for a thread
constexpr int64_t block = 1024;             // of pointwise ops, which have up to four
constexpr int64_t whole_block = 8192;
constexpr int64_t largest_block = 64 * 1024;  // in the next cache

UnaryRow widening(const Tensor& x) { return cast_row(x.dtype(), DType::float32); }
UnaryRow rounding(const Tensor& x) { return cast_row(DType::float32, x.dtype()); }

const char* at(const Tensor& x, int64_t element) {
  return static_cast<const char*>(x.address()) + element * static_cast<int64_t>(size_of(x.dtype()));
}
char* at(Tensor& x, int64_t element) {
  return static_cast<char*>(x.address()) + element * static_cast<int64_t>(size_of(x.dtype()));
}

/// An operand of a pointwise op.
struct BlockOperand {
  const char* begin;
  int64_t size;    // bytes of an element
  int64_t step;    // 0: it has one element
  UnaryRow widen;  // or none
  float one;       // that element, widened

  /// `n` elements from `i` on, which may be copied to `room`.
  const void* read(int64_t i, int64_t n, float* room) const {
    const char* from = begin + i * step * size;
    if (!widen) return from;
    if (step == 0) return &one;
    widen(n, room, from, 1);
    return room;
  }
};

bool run_pointwise(const Op& op, const RowFunction& row, const KernelCall& call) {
  const size_t arity = row.unary ? 1 : row.binary ? 2 : 3;
  if (call.inputs.size() != arity || call.outputs.size() != 1) return false;
  Tensor& out = *call.outputs[0];
  std::array<BlockOperand, 3> operands{};
  for (size_t k = 0; k < arity; ++k) {
    const Tensor& x = *call.inputs[k];
    const bool whole = x.shape() == out.shape();
    if (!op.reads_elements(k) || !(whole ? x.contiguous() : x.elements() == 1)) return false;
    operands[k] = {at(x, 0), static_cast<int64_t>(size_of(x.dtype())), whole, nullptr, 0};
    if (!is_half(x.dtype())) continue;
    operands[k].widen = widening(x);
    if (!whole) operands[k].widen(1, &operands[k].one, x.address(), 1);
  }
  const UnaryRow round = is_half(out.dtype()) ? rounding(out) : nullptr;
  parallel_for(out.elements(), block_grain, [&](int64_t begin, int64_t end) {
    alignas(64) float room[4][block];
    for (int64_t i = begin; i < end; i += block) {
      const int64_t n = std::min(block, end - i);
      const auto from = [&](size_t k) { return operands[k].read(i, n, room[k]); };
      char* const to = at(out, i);
      void* const result = round ? static_cast<void*>(room[3]) : to;
      const int64_t a = operands[0].step, b = operands[1].step, c = operands[2].step;
      if (row.unary)
        row.unary(n, result, from(0), a);
      else if (row.binary)
        row.binary(n, result, from(0), a, from(1), b);
      else
        row.ternary(n, result, from(0), a, from(1), b, from(2), c);
      if (round) round(n, to, room[3], 1);
    }
  });
  return true;
}

/// Calls `f(begin, end, block)` for blocks of entries of `x` along its first axis, each a float32 copy.
template <class F>
void for_each_block(const Tensor& x, F&& f) {
  const int64_t entries = x.shape()[0], entry = x.elements() / entries;
  const int64_t most = std::clamp<int64_t>(whole_block / entry, 1, entries);
  parallel_for(entries, std::max<int64_t>(1, block_grain / entry), [&](int64_t begin, int64_t end) {
    Shape shape = x.shape();
    shape.dims()[0] = most;
    Tensor room(shape, DType::float32);
    for (int64_t i = begin; i < end; i += most) {
      const int64_t n = std::min(most, end - i);
      widening(x)(n * entry, room.address(), at(x, i * entry), 1);
      f(i, i + n, n == most ? room : room.slice(0, 0, n));
    }
  });
}

void run(const Op& op, const Tensor& x, Tensor& out) {
  KernelCall call;
  call.inputs.push_back(&x);
  call.outputs.push_back(&out);
  op.run_cpu(call);
}

/// Widening a bfloat16 is a shift, which needs no copy. Lanes bound the rounding error.
double sum_of_block(const BFloat16* x, int64_t n) {
  constexpr int64_t lanes = 32;
  float sums[lanes] = {};
  float* const to = sums;
  vectorized([=]() __attribute__((always_inline)) {
    float in_lanes[lanes] = {};
    int64_t i = 0;
    for (; i + lanes <= n; i += lanes)
      for (int64_t k = 0; k < lanes; ++k) in_lanes[k] += static_cast<float>(x[i + k]);
    for (int64_t k = 0; i + k < n; ++k) in_lanes[k] += static_cast<float>(x[i + k]);
    for (int64_t k = 0; k < lanes; ++k) to[k] = in_lanes[k];
  });
  return std::accumulate(sums, sums + lanes, 0.0);
}

/// Of all elements; `out` has one.
void reduce_all(const Op& op, Fold fold, const Tensor& x, Tensor& out) {
  const int64_t n = x.elements(), chunks = (n + block_grain - 1) / block_grain;
  std::vector<double> parts(static_cast<size_t>(chunks));
  const bool adds_bfloat16 = x.dtype() == DType::bfloat16 && (fold == Fold::sum || fold == Fold::mean);
  const auto joined = [&](double a, double b) {
    return fold == Fold::max ? scalar::Maximum()(a, b) : fold == Fold::min ? scalar::Minimum()(a, b) : a + b;
  };
  parallel_for(chunks, 1, [&](int64_t begin, int64_t end) {
    Dims dims(x.rank(), 1);
    dims.back() = whole_block;
    const Tensor room(Shape(dims), DType::float32);
    Tensor result(out.shape(), DType::float32);
    for (int64_t c = begin; c < end; ++c)
      for (int64_t i = c * block_grain; i < std::min(n, (c + 1) * block_grain); i += whole_block) {
        const int64_t count = std::min(whole_block, n - i);
        if (adds_bfloat16) {
          parts[static_cast<size_t>(c)] += sum_of_block(static_cast<const BFloat16*>(x.address()) + i, count);
          continue;
        }
        const Tensor part = count == whole_block ? room : room.slice(-1, 0, count);
        widening(x)(count, room.storage()->data, at(x, i), 1);
        run(op, part, result);
        const double value = *static_cast<const float*>(result.address());
        const double weighed = fold == Fold::mean ? value * static_cast<double>(count) : value;
        double& total = parts[static_cast<size_t>(c)];
        total = i == c * block_grain ? weighed : joined(total, weighed);
      }
  });
  double total = parts[0];
  for (size_t c = 1; c < parts.size(); ++c) total = joined(total, parts[c]);
  if (fold == Fold::mean) total /= static_cast<double>(n);
  cast_row(DType::float64, out.dtype())(1, out.address(), &total, 1);
}

bool run_reduction(const Op& op, const Folding& folding, const Tensor& x, Tensor& out) {
  if (!x.contiguous() || x.elements() <= whole_block || !is_half(out.dtype())) return false;
  if (out.elements() == 1) {
    reduce_all(op, folding.fold, x, out);
    return true;
  }
  const bool first_stays =
      std::find(folding.axes.begin(), folding.axes.end(), int64_t{0}) == folding.axes.end();
  if (!first_stays || x.elements() / x.shape()[0] > largest_block) return false;
  Tensor wide(out.shape(), DType::float32);
  for_each_block(x, [&](int64_t begin, int64_t end, const Tensor& part) {
    Tensor result = wide.slice(0, begin, end);
    run(op, part, result);
  });
  rounding(out)(out.elements(), out.address(), wide.address(), 1);
  return true;
}

bool run_whole_rows(UnaryRow row, const Tensor& x, Tensor& out) {
  if (!x.contiguous() || x.elements() <= whole_block || x.shape()[-1] > largest_block) return false;
  const int64_t n = x.shape()[-1];
  const Tensor rows = x.reshape({x.elements() / n, n});
  for_each_block(rows, [&](int64_t begin, int64_t end, const Tensor& part) {
    Tensor results(part.shape(), DType::float32);
    for (int64_t r = 0; r < end - begin; ++r) row(n, at(results, r * n), at(part, r * n), 1);
    rounding(out)(results.elements(), at(out, begin * n), results.address(), 1);
  });
  return true;
}

}  // namespace

bool run_widened_in_blocks(const Op& op, const KernelCall& call) {
  SmallVector<Spec, 4> wide;
  wide.reserve(call.inputs.size());
  InputSpecs specs;
  for (const Tensor* x : call.inputs)
    wide.push_back({is_half(x->dtype()) ? DType::float32 : x->dtype(), x->shape()});
  for (const Spec& spec : wide) specs.push_back(&spec);
  const ElementLoops loops = op.loops(specs);
  if (op.kind() == OpKind::pointwise) return loops.row && run_pointwise(op, loops.row, call);
  if (call.inputs.size() != 1 || call.outputs.size() != 1) return false;
  const Tensor& x = *call.inputs[0];
  Tensor& out = *call.outputs[0];
  if (loops.whole_row) return run_whole_rows(loops.whole_row, x, out);
  if (const auto folding = op.folding(specs)) return run_reduction(op, *folding, x, out);
  return false;
}

}  // namespace espalier
