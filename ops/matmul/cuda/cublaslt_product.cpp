#include "espalier/ops/matmul/cuda/cublaslt_product.h"

#include <algorithm>

#include "espalier/core/cuda/runtime.h"
#include "espalier/ops/matmul/batch_axes.h"
#include "espalier/ops/matmul/cuda/measuring.h"
#include "espalier/ops/matmul/matmul_call.h"
#include "espalier/ops/matmul/matmul_precision.h"

namespace espalier::cu {

namespace {

constexpr int64_t most_in_a_launch = 65535;  // matrices: what a grid's outer axes have room for

/// A power of two that divides all addresses and steps which were added.
class Alignment {
 public:
  void add(const void* address) { bits_ |= reinterpret_cast<uintptr_t>(address); }
  void add(int64_t bytes) { bits_ |= static_cast<uintptr_t>(bytes); }
  uint16_t bytes() const { return static_cast<uint16_t>(bits_ & (~bits_ + 1)); }

 private:
  uintptr_t bits_ = 256;  // more does not matter to anyone
};

}  // namespace

LtProduct::LtProduct(const Tensor& a, const Tensor& b, Tensor& out, MatmulForm form, const LtOptions& options)
    : a_(&a), b_(&b), out_(&out) {
  if (out.elements() == 0) return;
  if (a.shape().end()[-1 - form.transpose_a] == 0) {
    nothing_to_sum_ = true;
    supported_ = options.epilogue == LtEpilogue::none && options.beta == 0 && !options.device_beta;
    return;
  }
  Workspace workspace = options.workspace;
  const auto copy = [&](const Tensor& x) { return workspace.take(x.shape(), x.dtype(), x.device()); };
  if (!gemm_takes(a.layout(), form.transpose_a)) copy_a_ = copy(a);
  if (!gemm_takes(b.layout(), form.transpose_b)) copy_b_ = copy(b);
  const BatchCopies copies = batch_copies(a.dtype(), (copy_a_.defined() ? copy_a_ : a).layout(),
                                          (copy_b_.defined() ? copy_b_ : b).layout(), out.shape(), form);
  if (copies.a && !copy_a_.defined()) copy_a_ = copy(a);
  if (copies.b && !copy_b_.defined()) copy_b_ = copy(b);
  const Layout &x = (copy_a_.defined() ? copy_a_ : a).layout(),
               &y = (copy_b_.defined() ? copy_b_ : b).layout();
  const GemmBatch product = gemm_of(a.dtype(), x, y, out.shape(), form);
  scalars_ = {static_cast<float>(options.alpha),
              static_cast<float>(options.beta),
              options.alpha,
              options.beta,
              options.device_alpha,
              options.device_beta};
  handle_ = lt_handle();
  workspace_ = lt_workspace();
  plan_launches(product, options);
}

LtCase LtProduct::describe(const Gemm& g, const LtOptions& options) const {
  LtCase c{};
  c.m = g.m, c.n = g.n, c.k = g.k, c.lda = g.lda, c.ldb = g.ldb, c.ldc = g.ldc;
  c.device = out_->device().index;
  c.dtype = g.dtype;
  c.transpose_a = g.transpose_a, c.transpose_b = g.transpose_b;
  c.tf32 = g.dtype == DType::float32 && matmul_precision() == MatmulPrecision::tf32;
  c.epilogue = options.epilogue;
  c.adds = options.beta != 0 || options.device_beta;
  c.device_scalars = options.device_alpha != nullptr;
  c.measured = MeasuringScope::wanted();
  return c;
}

void LtProduct::plan_launches(const GemmBatch& product, const LtOptions& options) {
  SmallVector<BatchAxis, 4> outer = batch_axes(product);
  BatchAxis inner{1, 0, 0, 0};
  if (!outer.empty()) inner = outer.back(), outer.pop_back();
  if (options.epilogue != LtEpilogue::none && (inner.size > 1 || !outer.empty())) {
    supported_ = false;
    return;
  }

  const auto bytes = static_cast<int64_t>(size_of(product.gemm.dtype));
  const auto* a = static_cast<const char*>((copy_a_.defined() ? copy_a_ : *a_).address());
  const auto* b = static_cast<const char*>((copy_b_.defined() ? copy_b_ : *b_).address());
  auto* out = static_cast<char*>(out_->address());
  const auto* added = options.added ? static_cast<const char*>(options.added) : out;
  const int64_t whole = std::min(inner.size, most_in_a_launch), rest = inner.size % whole;

  LtCase c = describe(product.gemm, options);
  Alignment of_a, of_b, of_c, of_vector;
  of_a.add(a), of_b.add(b), of_c.add(out), of_c.add(added), of_vector.add(options.vector);
  const auto follow = [&](const BatchAxis& axis, int64_t count) {
    of_a.add(axis.a * count * bytes), of_b.add(axis.b * count * bytes), of_c.add(axis.c * count * bytes);
  };
  for (const BatchAxis& axis : outer) follow(axis, 1);
  if (whole < inner.size) follow(inner, whole);
  c.align_a = of_a.bytes(), c.align_b = of_b.bytes(), c.align_c = of_c.bytes();
  c.align_vector = options.vector ? of_vector.bytes() : 0;
  c.batch = whole;
  if (whole > 1) c.step_a = inner.a, c.step_b = inner.b, c.step_c = inner.c;

  if (options.epilogue != LtEpilogue::none) operation_.emplace(lt_operation(c, options.vector, options.mask));
  whole_ = lt_recipe(c, operation_ ? &*operation_ : nullptr);
  supported_ = whole_->supported;
  if (rest && supported_) {
    c.batch = rest;
    if (rest == 1) c.step_a = c.step_b = c.step_c = 0;
    rest_ = lt_recipe(c, nullptr);
    supported_ = rest_->supported;
  }

  int64_t outers = 1;
  for (const BatchAxis& axis : outer) outers *= axis.size;
  for (int64_t i = 0; i < outers; ++i) {
    BatchAxis at{0, 0, 0, 0};
    int64_t left = i;
    for (const BatchAxis& axis : outer) {
      const int64_t index = left % axis.size;
      left /= axis.size;
      at.a += index * axis.a, at.b += index * axis.b, at.c += index * axis.c;
    }
    for (int64_t first = 0; first < inner.size; first += whole) {
      const int64_t in_c = (at.c + first * inner.c) * bytes;
      launches_.push_back({first + whole > inner.size ? rest_.get() : whole_.get(),
                           a + (at.a + first * inner.a) * bytes, b + (at.b + first * inner.b) * bytes,
                           added + in_c, out + in_c});
    }
  }
}

void LtProduct::run() {
  if (nothing_to_sum_) return zero_elements(*out_);
  if (copy_a_.defined()) copy_elements(*a_, copy_a_);
  if (copy_b_.defined()) copy_elements(*b_, copy_b_);
  const DType dtype = out_->dtype();
  for (const Launch& x : launches_) {
    const LtRecipe& recipe = *x.recipe;
    const LtOperation& operation = operation_ ? *operation_ : recipe.operation;
    // The library thinks in columns: what it sees are transposes, and (a · b)' = b' · a'.
    check(
        cublasLtMatmul(handle_, operation.get(), scalars_.alpha(dtype), x.b, recipe.b.get(), x.a,
                       recipe.a.get(), scalars_.beta(dtype), x.added, recipe.c.get(), x.out, recipe.c.get(),
                       &recipe.algorithm, workspace_.address(), size_t{lt_workspace_bytes}, current_stream()),
        "cublasLtMatmul");
  }
}

}  // namespace espalier::cu
