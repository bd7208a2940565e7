// Weights and factors of dropout as whole matrices, and the keys of dropout.
#include <optional>

#include "espalier/ops/attention/cuda/operands.cuh"
#include "espalier/ops/cuda/kernels.h"

namespace espalier::cu {

namespace {

/// One thread for each weight.
template <class T>
__global__ void __launch_bounds__(threads_in_block)
    find_weights(const T* __restrict__ q, const T* __restrict__ k, const Computed<T>* __restrict__ log_sums,
                 T* __restrict__ out, const __grid_constant__ DeviceAttention a, int64_t count) {
  using C = Computed<T>;
  for (int64_t i = grid_thread(); i < count; i += grid_threads()) {
    const int64_t row = divide(i, a.keys), key = i - row * a.keys;
    const int64_t head = divide(row, a.queries), query = row - head * a.queries;
    const T *from = q + row * a.width, *to = k + (a.key_head(head) * a.keys + key) * a.width;
    C sum = 0;
    for (int64_t e = 0; e < a.width; ++e) sum += static_cast<C>(from[e]) * static_cast<C>(to[e]);
    const C score = a.masked<T>(a.masks_of<T>(head), query, key, sum * static_cast<C>(a.scale));
    const bool hidden = score == -std::numeric_limits<C>::infinity();
    out[i] = static_cast<T>(hidden ? C(0) : scalar::Exp()(score - log_sums[row]));
  }
}

template <class T>
__global__ void __launch_bounds__(threads_in_block)
    find_factors(T* __restrict__ out, const __grid_constant__ DeviceAttention a, int64_t count) {
  for (int64_t i = grid_thread(); i < count; i += grid_threads()) {
    const int64_t row = divide(i, a.keys), head = divide(row, a.queries);
    out[i] =
        static_cast<T>(a.factor<Computed<T>>(a.masks_of<T>(head), row - head * a.queries, i - row * a.keys));
  }
}

/// If `base` is not null, the seed is base[0], and the stream counts from base[1].
__global__ void __launch_bounds__(threads_in_block)
    draw_keys(int64_t* __restrict__ out, int64_t count, RandomStream random, const uint64_t* base) {
  const uint64_t seed = base ? base[0] : random.seed, stream = base ? base[1] + random.stream : random.stream;
  for (int64_t i = grid_thread(); i < count; i += grid_threads()) {
    const int64_t number = random.first + (random.run ? i / random.run * random.stride + i % random.run : i);
    const philox::Block block = philox::block(seed, stream, static_cast<uint64_t>(number / 2));
    const bool second = number % 2;
    const uint64_t low = second ? block.word[2] : block.word[0],
                   high = second ? block.word[3] : block.word[1];
    out[i] = static_cast<int64_t>(low | high << 32);
  }
}

template <class F>
Bound for_output_type(const KernelCall& call, F&& f) {
  if (call.outputs[0]->elements() == 0) return bound([](RandomStream) {});
  Bound result;
  visit_elements(call.outputs[0]->dtype(), [&]<class T>(TypeTag<T>) {
    if constexpr (is_real_element<T>) result = f(TypeTag<T>{});
  });
  return result;
}

Bound bind_weights(const Op& op, const KernelCall& call) {
  return for_output_type(call, [&]<class T>(TypeTag<T>) {
    KernelCall as_attention = call;  // the values do not matter
    as_attention.inputs[2] = call.inputs[1];
    AttentionForm form = AttentionForm::of(op);
    form.dropout = 0;
    return bound([o = DeviceOperands(form, as_attention, 0, 3), sums = ContiguousInput(*call.inputs[2]),
                  out = call.outputs[0]](RandomStream) mutable {
      const DeviceAttention a = o.refresh();
      sums.refresh();
      const int64_t count = out->elements();
      launch(find_weights<T>, grid_for(count), o.template q<T>(), o.template k<T>(),
             static_cast<const Computed<T>*>(sums.address()), static_cast<T*>(out->address()), a, count);
    });
  });
}

Bound bind_factors(const Op& op, const KernelCall& call) {
  const AttentionForm form = AttentionForm::of(op);
  const AttentionSizes sizes(call.inputs[0]->shape(), call.inputs[1]->shape(), call.inputs[1]->shape());
  DeviceAttention a{};
  a.queries = sizes.queries, a.keys = sizes.keys;
  a.drops = form.dropout > 0;
  a.kept = 1 / (1 - form.dropout);
  a.threshold = philox::keep_threshold(1 - form.dropout);
  return for_output_type(call, [&]<class T>(TypeTag<T>) {
    return bound([a, keys = ContiguousInput(*call.inputs[form.keys_at(2)]),
                  out = call.outputs[0]](RandomStream) mutable {
      keys.refresh();
      a.dropout_keys = static_cast<const int64_t*>(keys.address());
      const int64_t count = out->elements();
      launch(find_factors<T>, grid_for(count), static_cast<T*>(out->address()), a, count);
    });
  });
}

Bound bind_keys(const KernelCall& call) {
  return bound([out = call.outputs[0], base = call.random_base](RandomStream random) {
    const int64_t count = out->elements();
    if (count > 0)
      launch(draw_keys, grid_for(count), static_cast<int64_t*>(out->address()), count, random, base);
  });
}

}  // namespace

void add_attention_matrix_kernels(KernelRegistry& kernels) {
  kernels.add("attention_weights", bind_weights);
  kernels.add("attention_dropout", bind_factors);
  kernels.add("attention_keys", bind_keys);
  kernels.add("no_attention_keys", [](const KernelCall& call) {
    return bound([out = call.outputs[0]](RandomStream) { zero_elements(*out); });
  });
}

}  // namespace espalier::cu
