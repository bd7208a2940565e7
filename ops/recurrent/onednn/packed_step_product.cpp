#include "espalier/ops/recurrent/packed_step_product.h"

#include <dnnl.h>
#include <fmt/format.h>

#include <algorithm>

#include "espalier/core/error.h"
#include "espalier/core/small_vector.h"

namespace espalier {

namespace onednn {

/// A handle of oneDNN with its destructor.
template <class T, dnnl_status_t (*destroy)(T)>
class Handle {
 public:
  Handle() = default;
  Handle(Handle&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Handle& operator=(Handle&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Handle() {
    if (handle_) destroy(handle_);
  }
  T get() const { return handle_; }
  T* put() { return &handle_; }

 private:
  T handle_ = nullptr;
};
using Description = Handle<dnnl_primitive_desc_t, dnnl_primitive_desc_destroy>;
using Primitive = Handle<dnnl_primitive_t, dnnl_primitive_destroy>;
using Memory = Handle<dnnl_memory_t, dnnl_memory_destroy>;
using Stream = Handle<dnnl_stream_t, dnnl_stream_destroy>;
using PrimitiveAttributes = Handle<dnnl_primitive_attr_t, dnnl_primitive_attr_destroy>;

}  // namespace onednn

namespace {

void check(dnnl_status_t status) {
  if (status == dnnl_success) return;
  if (status == dnnl_out_of_memory) throw OutOfMemory("recurrence: oneDNN found no memory for its primitive");
  throw Error(fmt::format("recurrence: oneDNN failed with status {}", int{status}));
}

dnnl_engine_t engine() {
  static const dnnl_engine_t one = [] {
    dnnl_engine_t made = nullptr;
    check(dnnl_engine_create(&made, dnnl_cpu, 0));
    return made;
  }();
  return one;
}

dnnl_memory_desc_t matrix(int64_t rows, int64_t columns, bool transposed) {
  dnnl_memory_desc_t desc;
  const dnnl_dims_t sizes = {rows, columns}, strides = {transposed ? 1 : columns, transposed ? rows : 1};
  check(dnnl_memory_desc_init_by_strides(&desc, 2, sizes, dnnl_f32, strides));
  return desc;
}

/// The product with so many rows, in the layout of the matrix that oneDNN likes best.
onednn::Description describe(const StepProductSizes& s, int64_t rows) {
  const dnnl_memory_desc_t a = matrix(rows, s.inner, false), c = matrix(rows, s.columns, false);
  dnnl_memory_desc_t b;
  const dnnl_dims_t sizes = {s.inner, s.columns};
  check(dnnl_memory_desc_init_by_tag(&b, 2, sizes, dnnl_f32, dnnl_format_tag_any));
  dnnl_matmul_desc_t desc;
  check(dnnl_matmul_desc_init(&desc, &a, &b, nullptr, &c));
  onednn::PrimitiveAttributes attributes;
  check(dnnl_primitive_attr_create(attributes.put()));
  check(dnnl_primitive_attr_set_scratchpad_mode(attributes.get(), dnnl_scratchpad_mode_user));
  onednn::Description made;
  check(dnnl_primitive_desc_create(made.put(), &desc, attributes.get(), engine(), nullptr));
  return made;
}
const dnnl_memory_desc_t& part(const onednn::Description& d, dnnl_query_t which) {
  return *dnnl_primitive_desc_query_md(d.get(), which, 0);
}
int64_t bytes_of(const dnnl_memory_desc_t& desc) {
  return static_cast<int64_t>(dnnl_memory_desc_get_size(&desc));
}
Spec bytes(int64_t count) { return {DType::uint8, Shape{count}}; }

/// Whether oneDNN has packed products on this processor: the layout that it likes best is one of blocks.
bool packs(const StepProductSizes& s) {
  if (s.dtype != DType::float32 || s.rows.empty()) return false;
  const GemmThreads threads(step_gemm(s, s.rows.front()));
  const onednn::Description description = describe(s, s.rows.front());
  const dnnl_memory_desc_t& desc = part(description, dnnl_query_weights_md);
  return desc.format_kind == dnnl_blocked && desc.format_desc.blocking.inner_nblks > 0;
}

class OnednnStepProduct : public PackedStepProduct {
 public:
  OnednnStepProduct(const StepProductSizes& s, Workspace& workspace) : sizes_(s) {
    check(dnnl_stream_create(stream_.put(), engine(), dnnl_stream_default_flags));
    const dnnl_memory_desc_t given = matrix(s.inner, s.columns, s.transposed);
    const auto memory = [](onednn::Memory& made, const dnnl_memory_desc_t& desc, void* at) {
      check(dnnl_memory_create(made.put(), &desc, engine(), at));
    };
    memory(plain_, given, DNNL_MEMORY_NONE);
    int64_t most_scratch = 0;
    for (const int64_t rows : s.rows) {
      const GemmThreads threads(step_gemm(s, rows));
      const onednn::Description description = describe(s, rows);
      Product& product = products_.emplace_back();
      product.rows = rows;
      product.layout = layout_for(part(description, dnnl_query_weights_md), given, workspace);
      check(dnnl_primitive_create(product.primitive.put(), description.get()));
      memory(product.a, part(description, dnnl_query_src_md), DNNL_MEMORY_NONE);
      memory(product.c, part(description, dnnl_query_dst_md), DNNL_MEMORY_NONE);
      const dnnl_memory_desc_t& own = part(description, dnnl_query_scratchpad_md);
      if (bytes_of(own) <= most_scratch) continue;
      most_scratch = bytes_of(own);
      scratch_ = {};
      memory(scratch_, own, DNNL_MEMORY_NONE);
    }
    if (!most_scratch) return;
    scratch_buffer_ = workspace.take(bytes(most_scratch).shape, DType::uint8, cpu());
    check(dnnl_memory_set_data_handle_v2(scratch_.get(), scratch_buffer_.address(), nullptr));
  }

  void set_matrix(const void* matrix) override {
    check(dnnl_memory_set_data_handle_v2(plain_.get(), const_cast<void*>(matrix), nullptr));
    for (const Layout& layout : layouts_) {
      const dnnl_exec_arg_t arguments[] = {{DNNL_ARG_FROM, plain_.get()}, {DNNL_ARG_TO, layout.memory.get()}};
      check(dnnl_primitive_execute(layout.reorder.get(), stream_.get(), 2, arguments));
    }
  }

  void run(int64_t rows, const void* a, void* out) override {
    const auto product = std::ranges::find(products_, rows, &Product::rows);
    const GemmThreads threads(step_gemm(sizes_, rows));
    check(dnnl_memory_set_data_handle_v2(product->a.get(), const_cast<void*>(a), nullptr));
    check(dnnl_memory_set_data_handle_v2(product->c.get(), out, nullptr));
    const dnnl_exec_arg_t arguments[] = {{DNNL_ARG_SRC, product->a.get()},
                                         {DNNL_ARG_WEIGHTS, layouts_[product->layout].memory.get()},
                                         {DNNL_ARG_DST, product->c.get()},
                                         {DNNL_ARG_SCRATCHPAD, scratch_.get()}};
    check(dnnl_primitive_execute(product->primitive.get(), stream_.get(), scratch_.get() ? 4 : 3, arguments));
  }

 private:
  struct Layout {
    dnnl_memory_desc_t desc;
    Tensor buffer;
    onednn::Memory memory;
    onednn::Primitive reorder;
  };
  struct Product {
    int64_t rows;
    size_t layout;
    onednn::Primitive primitive;
    onednn::Memory a, c;
  };

  size_t layout_for(const dnnl_memory_desc_t& desc, const dnnl_memory_desc_t& given, Workspace& workspace) {
    for (size_t i = 0; i < layouts_.size(); ++i)
      if (dnnl_memory_desc_equal(&layouts_[i].desc, &desc)) return i;
    Layout& made = layouts_.emplace_back();
    made.desc = desc;
    made.buffer = workspace.take(bytes(bytes_of(desc)).shape, DType::uint8, cpu());
    check(dnnl_memory_create(made.memory.put(), &desc, engine(), made.buffer.address()));
    onednn::Description reorder;
    check(dnnl_reorder_primitive_desc_create(reorder.put(), &given, engine(), &desc, engine(), nullptr));
    check(dnnl_primitive_create(made.reorder.put(), reorder.get()));
    return layouts_.size() - 1;
  }

  StepProductSizes sizes_;
  onednn::Stream stream_;
  onednn::Memory plain_, scratch_;
  Tensor scratch_buffer_;
  std::vector<Layout> layouts_;
  std::vector<Product> products_;
};

}  // namespace

std::unique_ptr<PackedStepProduct> onednn_step_product(const StepProductSizes& sizes, Workspace& workspace) {
  if (!packs(sizes)) return nullptr;
  return std::make_unique<OnednnStepProduct>(sizes, workspace);
}

std::optional<int64_t> onednn_step_product_bytes(const StepProductSizes& s) {
  if (!packs(s)) return std::nullopt;
  std::vector<dnnl_memory_desc_t> layouts;
  int64_t total = 0, scratch = 0;
  for (const int64_t rows : s.rows) {
    const GemmThreads threads(step_gemm(s, rows));
    const onednn::Description description = describe(s, rows);
    const dnnl_memory_desc_t& desc = part(description, dnnl_query_weights_md);
    if (std::none_of(layouts.begin(), layouts.end(),
                     [&](const auto& known) { return dnnl_memory_desc_equal(&known, &desc); })) {
      layouts.push_back(desc);
      total += Workspace::bytes_for(bytes(bytes_of(desc)));
    }
    scratch = std::max(scratch, bytes_of(part(description, dnnl_query_scratchpad_md)));
  }
  return total + Workspace::bytes_for(bytes(scratch));
}

}  // namespace espalier
