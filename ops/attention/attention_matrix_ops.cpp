// Weights and factors of dropout as whole matrices, which gradients of masks and of second order take, and
// the keys of dropout.
#include "espalier/core/cpu/parallel.h"
#include "espalier/core/node.h"
#include "espalier/ops/attention/attention_ops.h"
#include "espalier/ops/attention/score_tile.h"
#include "espalier/ops/pointwise.h"
#include "espalier/ops/random/random_op.h"
#include "espalier/ops/widened.h"

namespace espalier {

namespace {

/// [..., heads, queries, keys]
Shape matrix_shape(const Shape& q, const Shape& k) {
  Shape shape = q;
  shape.dims()[q.rank() - 1] = k[-2];
  return shape;
}

/// Calls `f(place)` for the tiles of all matrices, several of them at a time.
template <class F>
void each_tile(const AttentionSizes& s, F&& f) {
  const int64_t tiles = (s.queries + tile_queries - 1) / tile_queries;
  parallel_for(s.batch * s.heads * tiles, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t head = i / tiles, query = i % tiles * tile_queries;
      TilePlace p{.batch = head / s.heads,
                  .head = head % s.heads,
                  .query = query,
                  .queries = std::min(tile_queries, s.queries - query),
                  .key = 0,
                  .keys = 0};
      for (; p.key < s.keys; p.key += p.keys) {
        p.keys = std::min(tile_keys, s.keys - p.key);
        f(p);
      }
    }
  });
}

template <class T>
void store_transposed(const AttentionSizes& s, const TilePlace& p, const T* tile, T* out) {
  for (int64_t q = 0; q < p.queries; ++q) {
    T* row = out + ((p.batch * s.heads + p.head) * s.queries + p.query + q) * s.keys + p.key;
    for (int64_t k = 0; k < p.keys; ++k) row[k] = tile[k * tile_row<T> + q];
  }
}

/// (q, k, log sums, options...) -> weights
class AttentionWeights : public AttentionOp {
 public:
  explicit AttentionWeights(AttentionForm form)
      : AttentionOp(form, 3,
                    {.precision = OpPrecision::product,
                     .takes_any_values = true,
                     .reads = form.keyed ? InputSet::all_but(form.keys_at(3)) : InputSet::all(),
                     .gradient_reads_output = true}) {}
  std::string_view name() const override { return "attention_weights"; }
  Specs infer(const InputSpecs& in) const override {
    InputSpecs as_attention = in;
    as_attention[2] = in[1];  // the shape of values does not matter
    const Shape like = form().output(as_attention, 3, name());
    if (!(in[2]->shape == Shape(Dims(like.begin(), like.end() - 1))) ||
        widened(in[2]->dtype) != widened(in[0]->dtype))
      throw ShapeError(fmt::format("attention_weights: log sums of {} {} for queries of {} {}",
                                   espalier::name(in[2]->dtype), in[2]->shape.str(),
                                   espalier::name(in[0]->dtype), in[0]->shape.str()));
    return {{in[0]->dtype, matrix_shape(in[0]->shape, in[1]->shape)}};
  }
  void run_cpu(const KernelCall& call) const override {
    if (call.outputs[0]->elements() == 0) return;
    KernelCall as_attention = call;
    as_attention.inputs[2] = call.inputs[1];
    AttentionForm weights = form();
    weights.dropout = 0;
    const AttentionOperands o(weights, as_attention, 3);
    const Tensor log_sums = call.inputs[2]->contiguous_copy();
    if (o.q.dtype() == DType::float32)
      run(o, static_cast<const float*>(log_sums.address()), detail::output<float>(call));
    else
      run(o, static_cast<const double*>(log_sums.address()), detail::output<double>(call));
  }
  NodeFlops cost(const NodeWork& work) const override {
    const AttentionSizes sizes(work.inputs[0]->shape, work.inputs[1]->shape, work.inputs[1]->shape);
    return {.product = sizes.product_flops(sizes.width), .product_type = work.inputs[0]->dtype};
  }
  Gradients gradient(const GradientRule& rule) const override {
    return attention_weights_gradients(rule, form());
  }

 private:
  template <class T>
  static void run(const AttentionOperands& o, const T* log_sums, T* out) {
    const AttentionSizes& s = o.sizes;
    each_tile(s, [&](const TilePlace& p) {
      std::vector<T> memory(static_cast<size_t>(tile_keys * tile_row<T> + s.width * tile_queries));
      T *const tile = memory.data(), *const queries = tile + tile_keys * tile_row<T>;
      const int64_t of_query = o.q.strides()[o.q.rank() - 2], of_key = o.k.strides()[o.k.rank() - 2];
      const T* q = static_cast<const T*>(o.q.address()) + start_of(o.q, 2, p.batch, p.head);
      const T* k = static_cast<const T*>(o.k.address()) + start_of(o.k, 2, p.batch, p.head / s.group());
      pack_transposed(q + p.query * of_query, of_query, p.queries, s.width, static_cast<T>(o.form.scale),
                      queries);
      multiply<T>({.m = p.keys,
                   .n = in_lanes<T>(p.queries),
                   .k = s.width,
                   .a = k + p.key * of_key,
                   .a_row = of_key,
                   .a_step = 1,
                   .b = queries,
                   .ldb = tile_queries,
                   .c = tile,
                   .ldc = tile_row<T>});
      mask_tile(o, p, tile);
      const T* own = log_sums + (p.batch * s.heads + p.head) * s.queries + p.query;
      const int64_t keys = p.keys, n = p.queries;
      vectorized([=]() __attribute__((always_inline)) {
        for (int64_t key = 0; key < keys; ++key)
#pragma GCC ivdep
          for (int64_t i = 0; i < n; ++i)
            tile[key * tile_row<T> + i] = exp_below_zero(tile[key * tile_row<T> + i] - own[i]);
      });
      store_transposed(s, p, tile, out);
    });
  }
};

/// (q, k, options...) -> the factors of dropout
class AttentionDropout : public AttentionOp {
 public:
  explicit AttentionDropout(AttentionForm form)
      : AttentionOp(form, 2,
                    {.takes_any_values = true,
                     .reads = InputSet::only(form.keys_at(2)),
                     .gradient_reads = InputSet::none(),
                     .passes_no_gradient = true}) {}
  std::string_view name() const override { return "attention_dropout"; }
  Specs infer(const InputSpecs& in) const override {
    if (in.size() != 2 + form().options())
      throw ShapeError(fmt::format("{}: {} operands, not {}", name(), in.size(), 2 + form().options()));
    AttentionForm::check_operands(*in[0], in[1]->shape, in[1]->shape, name());
    AttentionForm::check_keys(*in[form().keys_at(2)], in[0]->shape, name());
    return {{in[0]->dtype, matrix_shape(in[0]->shape, in[1]->shape)}};
  }
  void run_cpu(const KernelCall& call) const override {
    Tensor& out = *call.outputs[0];
    if (out.elements() == 0) return;
    KernelCall as_attention;
    as_attention.inputs = {call.inputs[0], call.inputs[1], call.inputs[1], call.inputs[form().keys_at(2)]};
    AttentionForm alone = form();
    alone.masked = alone.keys_masked = false;
    const AttentionOperands o(alone, as_attention, 3);
    if (out.dtype() == DType::float32)
      run(o, detail::output<float>(call));
    else
      run(o, detail::output<double>(call));
  }
  Gradients gradient(const GradientRule& rule) const override { return Gradients(rule.inputs(), Variable()); }
  std::shared_ptr<const Op> for_inference() const override {
    if (form().dropout == 0) return nullptr;
    AttentionForm keeping = form();
    keeping.dropout = 0;
    return std::make_shared<AttentionDropout>(keeping);
  }

 private:
  template <class T>
  static void run(const AttentionOperands& o, T* out) {
    each_tile(o.sizes, [&](const TilePlace& p) {
      std::vector<T> tile(static_cast<size_t>(tile_keys * tile_row<T>));
      uint32_t words[tile_queries];
      dropout_tile(o, p, words, tile.data());
      store_transposed(o.sizes, p, tile.data(), out);
    });
  }
};

class AttentionKeys : public RandomOp {
 public:
  std::string_view name() const override { return "attention_keys"; }
  Specs infer(const InputSpecs& in) const override {
    if (in[0]->shape.rank() < 2)
      throw ShapeError(fmt::format("attention_keys: {} has no queries", in[0]->shape.str()));
    return {{DType::int64, Shape(Dims(in[0]->shape.begin(), in[0]->shape.end() - 2))}};
  }
  void run_cpu(const KernelCall& call) const override {
    Tensor& out = *call.outputs[0];
    const RandomStream& r = call.random;
    int64_t* to = static_cast<int64_t*>(out.address());
    for (int64_t i = 0; i < out.elements(); ++i) {
      const int64_t number = r.first + (r.run ? i / r.run * r.stride + i % r.run : i);
      const auto block = philox::block(r.seed, r.stream, static_cast<uint64_t>(number / 2));
      const int half = number % 2 ? 2 : 0;
      to[i] = static_cast<int64_t>(block.word[half] | uint64_t{block.word[half + 1]} << 32);
    }
  }
  std::shared_ptr<const Op> for_inference() const override;
};

/// What stands for keys where nothing is dropped.
struct NoAttentionKeys : Op {
  NoAttentionKeys()
      : Op({.takes_halves = true,
            .reads = InputSet::none(),
            .gradient_reads = InputSet::none(),
            .passes_no_gradient = true,
            .fill = 0}) {}
  std::string_view name() const override { return "no_attention_keys"; }
  Specs infer(const InputSpecs& in) const override { return AttentionKeys().infer(in); }
  void run_cpu(const KernelCall& call) const override { zero_elements(*call.outputs[0]); }
  Gradients gradient(const GradientRule& rule) const override { return Gradients(rule.inputs(), Variable()); }
};
std::shared_ptr<const Op> AttentionKeys::for_inference() const { return shared_op<NoAttentionKeys>(); }

}  // namespace

Variable attention_keys(const Variable& q, const std::source_location& where) {
  return apply(shared_op<AttentionKeys>(), {&q}, where);
}
Variable attention_weights(const Variable& q, const Variable& k, const Variable& log_sums,
                           const std::vector<Variable>& options, const AttentionForm& form) {
  SmallVector<const Variable*, 8> inputs{&q, &k, &log_sums};
  for (const Variable& option : options) inputs.push_back(&option);
  return apply(std::make_shared<AttentionWeights>(form), {inputs.data(), inputs.size()},
               std::source_location::current());
}
Variable attention_dropout(const Variable& q, const Variable& k, const std::vector<Variable>& options,
                           const AttentionForm& form) {
  SmallVector<const Variable*, 8> inputs{&q, &k};
  for (const Variable& option : options) inputs.push_back(&option);
  return apply(std::make_shared<AttentionDropout>(form), {inputs.data(), inputs.size()},
               std::source_location::current());
}

void add_attention_matrix_ops(OpRegistry& ops) {
  ops.add<AttentionKeys, NoAttentionKeys>(1);
  ops.add("attention_weights", {3, 6},
          [](AttributeReader& a) { return std::make_shared<AttentionWeights>(AttentionForm::read(a)); });
  ops.add("attention_dropout", {3, 5}, [](AttributeReader& a) {
    const AttentionForm form = AttentionForm::read(a);
    if (!form.keyed) a.refuse("keyed");
    return std::make_shared<AttentionDropout>(form);
  });
}

}  // namespace espalier
