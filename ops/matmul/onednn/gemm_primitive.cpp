#include "espalier/ops/matmul/gemm_primitive.h"

#include <dnnl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <string_view>

#include "espalier/core/device.h"
#include "espalier/core/error.h"
#include "espalier/core/small_vector.h"

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

dnnl_data_type_t onednn_type(DType dtype) { return dtype == DType::bfloat16 ? dnnl_bf16 : dnnl_f32; }

dnnl_memory_desc_t matrix(int64_t rows, int64_t columns, bool transposed, int64_t leading,
                          dnnl_data_type_t type) {
  dnnl_memory_desc_t desc;
  const dnnl_dims_t sizes = {rows, columns}, strides = {transposed ? 1 : leading, transposed ? leading : 1};
  check(dnnl_memory_desc_init_by_strides(&desc, 2, sizes, type, strides));
  return desc;
}

/// Matrices over the axes of a batch, along which they are `steps` apart; a step of 0 repeats one.
dnnl_memory_desc_t over_batch(const dnnl_memory_desc_t& matrix, const Shape& batch, const Dims& steps) {
  if (batch.rank() == 0) return matrix;
  const size_t rank = batch.rank() + 2;
  if (rank > DNNL_MAX_NDIMS) throw UnsupportedError("matmul: oneDNN has no primitive for so many axes");
  dnnl_dims_t sizes, strides;
  for (size_t i = 0; i < batch.rank(); ++i) {
    sizes[i] = steps[i] == 0 ? 1 : batch.dims()[i];
    strides[i] = std::max<int64_t>(steps[i], 1);
  }
  for (size_t i = 0; i < 2; ++i) {
    sizes[batch.rank() + i] = matrix.dims[i];
    strides[batch.rank() + i] = matrix.format_desc.blocking.strides[i];
  }
  dnnl_memory_desc_t desc;
  check(dnnl_memory_desc_init_by_strides(&desc, static_cast<int>(rank), sizes, matrix.data_type, strides));
  return desc;
}

/// Of matrices c, which lie side by side.
Dims steps_of_c(const GemmBatch& x) {
  Dims steps(x.batch.rank(), 0);
  int64_t step = x.gemm.m * x.gemm.ldc;
  for (size_t i = x.batch.rank(); i-- > 0; step *= x.batch.dims()[i]) steps[i] = step;
  return steps;
}

dnnl_memory_desc_t vector(int64_t size) {
  dnnl_memory_desc_t desc;
  const dnnl_dims_t sizes = {size};
  check(dnnl_memory_desc_init_by_tag(&desc, 1, sizes, dnnl_f32, dnnl_a));
  return desc;
}

/// A matrix of these sizes in the layout that a primitive chooses.
dnnl_memory_desc_t any_layout(const dnnl_memory_desc_t& matrix) {
  dnnl_memory_desc_t desc;
  check(
      dnnl_memory_desc_init_by_tag(&desc, matrix.ndims, matrix.dims, matrix.data_type, dnnl_format_tag_any));
  return desc;
}

bool has_bias(const Gemm& g) {
  return g.epilogue == GemmEpilogue::bias || g.epilogue == GemmEpilogue::bias_relu;
}

template <class T, dnnl_status_t (*destroy)(T)>
struct Handle {
  Handle() = default;
  Handle(const Handle&) = delete;
  ~Handle() {
    if (handle) destroy(handle);
  }
  T handle = nullptr;
};

/// What a primitive will do, decided but not compiled.
class Description {
 public:
  Description(const GemmBatch& x, GemmLibrary which, DType b_type)
      : Description(x.gemm, x, which, onednn_type(x.gemm.dtype), onednn_type(b_type)) {}

  const_dnnl_primitive_desc_t get() const { return primitive_.handle; }
  const dnnl_memory_desc_t& scratch() const {
    return *dnnl_primitive_desc_query_md(primitive_.handle, dnnl_query_scratchpad_md, 0);
  }
  int64_t scratch_bytes() const { return static_cast<int64_t>(dnnl_memory_desc_get_size(&scratch())); }

  const dnnl_memory_desc_t a, plain_b, c, bias;
  dnnl_memory_desc_t b;

 private:
  Description(const Gemm& g, const GemmBatch& x, GemmLibrary which, dnnl_data_type_t type,
              dnnl_data_type_t b_type)
      : a(over_batch(matrix(g.m, g.k, g.transpose_a, g.lda, type), x.batch, x.a_steps)),
        plain_b(which == GemmLibrary::onednn_inner
                    ? matrix(g.n, g.k, !g.transpose_b, g.ldb, b_type)
                    : over_batch(matrix(g.k, g.n, g.transpose_b, g.ldb, b_type), x.batch, x.b_steps)),
        c(over_batch(matrix(g.m, g.n, false, g.ldc, type), x.batch, steps_of_c(x))),
        bias(which == GemmLibrary::onednn_inner ? vector(g.n) : matrix(1, g.n, false, g.n, dnnl_f32)) {
    b = plain_b;
    b.data_type = type;
    if (packs(which)) b = any_layout(b);
    const dnnl_memory_desc_t* const added = has_bias(g) ? &bias : nullptr;
    dnnl_matmul_desc_t product;
    dnnl_inner_product_desc_t inner;
    if (which == GemmLibrary::onednn_inner)
      check(dnnl_inner_product_forward_desc_init(&inner, dnnl_forward_inference, &a, &b, added, &c));
    else
      check(dnnl_matmul_desc_init(&product, &a, &b, added, &c));
    const_dnnl_op_desc_t desc = &product;
    if (which == GemmLibrary::onednn_inner) desc = &inner;
    check(dnnl_primitive_attr_create(&attributes_.handle));
    check(dnnl_primitive_attr_set_scratchpad_mode(attributes_.handle, dnnl_scratchpad_mode_user));
    if (g.epilogue == GemmEpilogue::bias_relu) {
      check(dnnl_post_ops_create(&post_.handle));
      check(dnnl_post_ops_append_eltwise(post_.handle, 1, dnnl_eltwise_relu, 0, 0));
      check(dnnl_primitive_attr_set_post_ops(attributes_.handle, post_.handle));
    }
    check(dnnl_primitive_desc_create(&primitive_.handle, desc, attributes_.handle, engine(), nullptr));
    b = *dnnl_primitive_desc_query_md(primitive_.handle, dnnl_query_weights_md, 0);
    const char* implementation = "";
    check(dnnl_primitive_desc_query(primitive_.handle, dnnl_query_impl_info_str, 0, &implementation));
    if (type == dnnl_bf16 && std::string_view(implementation).starts_with("ref"))
      throw UnsupportedError("matmul: oneDNN has plain loops for this product");
  }

  Handle<dnnl_primitive_attr_t, dnnl_primitive_attr_destroy> attributes_;
  Handle<dnnl_post_ops_t, dnnl_post_ops_destroy> post_;
  Handle<dnnl_primitive_desc_t, dnnl_primitive_desc_destroy> primitive_;
};

bool is_plain(const Gemm& g) {
  return (g.dtype == DType::float32 || g.dtype == DType::bfloat16) && g.alpha == 1 && g.beta == 0;
}

}  // namespace

struct GemmPrimitive::Impl {
  dnnl_primitive_t primitive = nullptr, reorder = nullptr;
  dnnl_stream_t stream = nullptr;
  dnnl_memory_t a = nullptr, plain_b = nullptr, b = nullptr, bias = nullptr, c = nullptr, scratch = nullptr;
  int64_t scratch_bytes = 0;
  dnnl_memory_desc_t layout;  // of b

  ~Impl() {
    for (dnnl_memory_t memory : {a, plain_b, b, bias, c, scratch})
      if (memory) dnnl_memory_destroy(memory);
    for (dnnl_primitive_t made : {primitive, reorder})
      if (made) dnnl_primitive_destroy(made);
    if (stream) dnnl_stream_destroy(stream);
  }

  void make(const GemmBatch& product, GemmLibrary which, DType b_type) {
    const Gemm& g = product.gemm;
    const Description description(product, which, b_type);
    layout = description.b;
    scratch_bytes = description.scratch_bytes();
    check(dnnl_primitive_create(&primitive, description.get()));
    check(dnnl_stream_create(&stream, engine(), dnnl_stream_default_flags));
    const auto memory = [](dnnl_memory_t& made, const dnnl_memory_desc_t& desc) {
      check(dnnl_memory_create(&made, &desc, engine(), DNNL_MEMORY_NONE));
    };
    memory(a, description.a);
    memory(b, description.b);
    if (packs(which)) {
      memory(plain_b, description.plain_b);
      Handle<dnnl_primitive_desc_t, dnnl_primitive_desc_destroy> copy;
      check(dnnl_reorder_primitive_desc_create(&copy.handle, &description.plain_b, engine(), &description.b,
                                               engine(), nullptr));
      check(dnnl_primitive_create(&reorder, copy.handle));
    }
    memory(c, description.c);
    if (has_bias(g)) memory(bias, description.bias);
    if (scratch_bytes > 0) memory(scratch, description.scratch());
  }
};

GemmPrimitive::GemmPrimitive(const GemmBatch& product, GemmLibrary which, DType b_type)
    : impl_(std::make_unique<Impl>()) {
  if (!is_plain(product.gemm))
    throw UnsupportedError(
        "matmul: oneDNN's primitive is used for plain products of float32 and bfloat16 only");
  const GemmThreads threads(threads_for(product, num_threads()));
  impl_->make(product, which, b_type);
}
GemmPrimitive::~GemmPrimitive() = default;
GemmPrimitive::GemmPrimitive(GemmPrimitive&&) noexcept = default;

int64_t GemmPrimitive::scratch_bytes() const { return impl_->scratch_bytes; }

int64_t GemmPrimitive::packed_bytes() const {
  return static_cast<int64_t>(dnnl_memory_desc_get_size(&impl_->layout));
}

std::string GemmPrimitive::packed_layout() const {
  return {reinterpret_cast<const char*>(&impl_->layout), sizeof impl_->layout};
}

void GemmPrimitive::pack(const void* b, void* packed) {
  check(dnnl_memory_set_data_handle_v2(impl_->plain_b, const_cast<void*>(b), nullptr));
  check(dnnl_memory_set_data_handle_v2(impl_->b, packed, nullptr));
  const dnnl_exec_arg_t arguments[] = {{DNNL_ARG_FROM, impl_->plain_b}, {DNNL_ARG_TO, impl_->b}};
  check(dnnl_primitive_execute(impl_->reorder, impl_->stream, 2, arguments));
}

int64_t GemmPrimitive::scratch_bytes(const Gemm& g, int threads) {
  if (!is_plain(g)) return 0;
  return scratch_bytes({g, {}, {}, {}}, GemmLibrary::onednn_matmul, g.dtype, threads).value_or(0);
}

std::optional<int64_t> GemmPrimitive::scratch_bytes(const GemmBatch& x, GemmLibrary which, DType b_type,
                                                    int threads) {
  threads = threads_for(x, threads);
  static std::mutex mutex;
  static auto* known = new std::map<std::string, std::optional<int64_t>>;
  const Gemm& g = x.gemm;
  const auto list = [](const Dims& numbers) { return fmt::join(numbers, ","); };
  const std::string key = fmt::format("{} {} {} {} {} {} {}{} {} {} {} {} {} {} {} {}", name(g.dtype), g.m,
                                      g.n, g.k, g.lda, g.ldb, g.ldc, g.transpose_a, g.transpose_b, threads,
                                      static_cast<int>(g.epilogue), static_cast<int>(which), name(b_type),
                                      list(x.batch.dims()), list(x.a_steps), list(x.b_steps));
  const std::lock_guard lock(mutex);
  if (const auto found = known->find(key); found != known->end()) return found->second;
  const GemmThreads scope(threads);
  std::optional<int64_t> bytes;
  try {
    bytes = Description(x, which, b_type).scratch_bytes();
  } catch (const UnsupportedError&) {  // then it is computed otherwise
  }
  return known->emplace(key, bytes).first->second;
}

void GemmPrimitive::run(const void* a, const void* b, const void* bias, void* c, void* scratch) {
  SmallVector<dnnl_exec_arg_t, 5> arguments;
  const auto add = [&](int argument, dnnl_memory_t memory, const void* data) {
    if (!memory) return;
    check(dnnl_memory_set_data_handle_v2(memory, const_cast<void*>(data), nullptr));
    arguments.push_back({argument, memory});
  };
  add(DNNL_ARG_SRC, impl_->a, a);
  add(DNNL_ARG_WEIGHTS, impl_->b, b);
  add(DNNL_ARG_DST, impl_->c, c);
  add(DNNL_ARG_BIAS, impl_->bias, bias);
  add(DNNL_ARG_SCRATCHPAD, impl_->scratch, scratch);
  check(dnnl_primitive_execute(impl_->primitive, impl_->stream, static_cast<int>(arguments.size()),
                               arguments.data()));
}

}  // namespace espalier
