#include "espalier/ops/matmul/gemm_primitive.h"

#include <dnnl.h>
#include <fmt/format.h>

#include <array>
#include <map>
#include <mutex>

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

dnnl_memory_desc_t matrix(int64_t rows, int64_t columns, bool transposed, int64_t leading) {
  dnnl_memory_desc_t desc;
  const dnnl_dims_t sizes = {rows, columns}, strides = {transposed ? 1 : leading, transposed ? leading : 1};
  check(dnnl_memory_desc_init_by_strides(&desc, 2, sizes, dnnl_f32, strides));
  return desc;
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
  check(dnnl_memory_desc_init_by_tag(&desc, 2, matrix.dims, dnnl_f32, dnnl_format_tag_any));
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
  explicit Description(const Gemm& g, GemmLibrary which = GemmLibrary::onednn_matmul)
      : a(matrix(g.m, g.k, g.transpose_a, g.lda)),
        plain_b(which == GemmLibrary::onednn_inner ? matrix(g.n, g.k, !g.transpose_b, g.ldb)
                                                   : matrix(g.k, g.n, g.transpose_b, g.ldb)),
        c(matrix(g.m, g.n, false, g.ldc)),
        bias(which == GemmLibrary::onednn_inner ? vector(g.n) : matrix(1, g.n, false, g.n)) {
    b = packs(which) ? any_layout(plain_b) : plain_b;
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
  }

  const_dnnl_primitive_desc_t get() const { return primitive_.handle; }
  const dnnl_memory_desc_t& scratch() const {
    return *dnnl_primitive_desc_query_md(primitive_.handle, dnnl_query_scratchpad_md, 0);
  }
  int64_t scratch_bytes() const { return static_cast<int64_t>(dnnl_memory_desc_get_size(&scratch())); }

  const dnnl_memory_desc_t a, plain_b, c, bias;
  dnnl_memory_desc_t b;

 private:
  Handle<dnnl_primitive_attr_t, dnnl_primitive_attr_destroy> attributes_;
  Handle<dnnl_post_ops_t, dnnl_post_ops_destroy> post_;
  Handle<dnnl_primitive_desc_t, dnnl_primitive_desc_destroy> primitive_;
};

bool is_plain(const Gemm& g) { return g.dtype == DType::float32 && g.alpha == 1 && g.beta == 0; }

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

  void make(const Gemm& g, GemmLibrary which) {
    const Description description(g, which);
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

GemmPrimitive::GemmPrimitive(const Gemm& gemm, GemmLibrary which) : impl_(std::make_unique<Impl>()) {
  if (!is_plain(gemm))
    throw UnsupportedError("matmul: oneDNN's primitive is used for plain float32 products only");
  const GemmThreads threads(gemm);
  impl_->make(gemm, which);
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
  if (on_one_thread(g)) threads = 1;
  static std::mutex mutex;
  static auto* known = new std::map<std::array<int64_t, 10>, int64_t>;
  const std::array<int64_t, 10> key{
      g.m,   g.n,           g.k,           g.lda,   g.ldb,
      g.ldc, g.transpose_a, g.transpose_b, threads, static_cast<int64_t>(g.epilogue)};
  const std::lock_guard lock(mutex);
  if (const auto found = known->find(key); found != known->end()) return found->second;
  const GemmThreads scope(threads);
  int64_t bytes = 0;
  try {
    bytes = Description(g).scratch_bytes();
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
