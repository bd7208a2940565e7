#include "espalier/ops/matmul/gemm_primitive.h"

#include <dnnl.h>
#include <fmt/format.h>

#include "espalier/core/error.h"

namespace espalier {

namespace {

void check(dnnl_status_t status) {
  if (status == dnnl_success) return;
  if (status == dnnl_out_of_memory) throw OutOfMemory("matmul: oneDNN found no memory for its primitive");
  if (status == dnnl_unimplemented || status == dnnl_invalid_arguments)
    throw UnsupportedError("matmul: oneDNN has no primitive for this product");
  throw Error(fmt::format("matmul: oneDNN failed with status {}", int{status}));
}

dnnl_engine_t engine() {
  static const dnnl_engine_t one = [] {
    dnnl_engine_t made = nullptr;
    check(dnnl_engine_create(&made, dnnl_cpu, 0));
    return made;
  }();
  return one;
}

dnnl_memory_desc_t matrix(int64_t rows, int64_t columns, bool transposed, int64_t leading) {
  dnnl_memory_desc_t desc;
  const dnnl_dims_t sizes = {rows, columns}, strides = {transposed ? 1 : leading, transposed ? leading : 1};
  check(dnnl_memory_desc_init_by_strides(&desc, 2, sizes, dnnl_f32, strides));
  return desc;
}

}  // namespace

struct GemmPrimitive::Impl {
  dnnl_primitive_t primitive = nullptr;
  dnnl_stream_t stream = nullptr;
  dnnl_memory_t a = nullptr, b = nullptr, bias = nullptr, c = nullptr;

  ~Impl() {
    for (dnnl_memory_t memory : {a, b, bias, c})
      if (memory) dnnl_memory_destroy(memory);
    if (primitive) dnnl_primitive_destroy(primitive);
    if (stream) dnnl_stream_destroy(stream);
  }

  void make(const Gemm& g) {
    const dnnl_memory_desc_t of_a = matrix(g.m, g.k, g.transpose_a, g.lda),
                             of_b = matrix(g.k, g.n, g.transpose_b, g.ldb),
                             of_c = matrix(g.m, g.n, false, g.ldc), of_bias = matrix(1, g.n, false, g.n);
    const bool biased = g.epilogue == GemmEpilogue::bias || g.epilogue == GemmEpilogue::bias_relu;
    dnnl_matmul_desc_t desc;
    check(dnnl_matmul_desc_init(&desc, &of_a, &of_b, biased ? &of_bias : nullptr, &of_c));
    const struct Attributes {
      dnnl_primitive_attr_t handle = nullptr;
      dnnl_post_ops_t post = nullptr;
      dnnl_primitive_desc_t primitive = nullptr;
      ~Attributes() {
        if (primitive) dnnl_primitive_desc_destroy(primitive);
        if (post) dnnl_post_ops_destroy(post);
        if (handle) dnnl_primitive_attr_destroy(handle);
      }
    } none;
    Attributes with = none;
    check(dnnl_primitive_attr_create(&with.handle));
    if (g.epilogue == GemmEpilogue::bias_relu) {
      check(dnnl_post_ops_create(&with.post));
      check(dnnl_post_ops_append_eltwise(with.post, 1, dnnl_eltwise_relu, 0, 0));
      check(dnnl_primitive_attr_set_post_ops(with.handle, with.post));
    }
    check(dnnl_primitive_desc_create(&with.primitive, &desc, with.handle, engine(), nullptr));
    check(dnnl_primitive_create(&primitive, with.primitive));
    check(dnnl_stream_create(&stream, engine(), dnnl_stream_default_flags));
    check(dnnl_memory_create(&a, &of_a, engine(), DNNL_MEMORY_NONE));
    check(dnnl_memory_create(&b, &of_b, engine(), DNNL_MEMORY_NONE));
    check(dnnl_memory_create(&c, &of_c, engine(), DNNL_MEMORY_NONE));
    if (biased) check(dnnl_memory_create(&bias, &of_bias, engine(), DNNL_MEMORY_NONE));
  }
};

GemmPrimitive::GemmPrimitive(const Gemm& gemm) : impl_(std::make_unique<Impl>()) {
  if (gemm.dtype != DType::float32 || gemm.alpha != 1 || gemm.beta != 0)
    throw UnsupportedError("matmul: oneDNN's primitive is used for plain float32 products only");
  const GemmThreads threads(gemm);
  impl_->make(gemm);
}
GemmPrimitive::~GemmPrimitive() = default;
GemmPrimitive::GemmPrimitive(GemmPrimitive&&) noexcept = default;

void GemmPrimitive::run(const void* a, const void* b, const void* bias, void* c) {
  const auto set = [](dnnl_memory_t memory, const void* data) {
    check(dnnl_memory_set_data_handle_v2(memory, const_cast<void*>(data), nullptr));
  };
  set(impl_->a, a);
  set(impl_->b, b);
  set(impl_->c, c);
  if (impl_->bias) set(impl_->bias, bias);
  const dnnl_exec_arg_t arguments[] = {{DNNL_ARG_SRC, impl_->a},
                                       {DNNL_ARG_WEIGHTS, impl_->b},
                                       {DNNL_ARG_DST, impl_->c},
                                       {DNNL_ARG_BIAS, impl_->bias}};
  check(dnnl_primitive_execute(impl_->primitive, impl_->stream, impl_->bias ? 4 : 3, arguments));
}

}  // namespace espalier
