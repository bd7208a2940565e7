#include "espalier/executor/fused/matmul_ops.h"

#include <algorithm>

#include "espalier/core/cpu/parallel.h"
#include "espalier/executor/fused/folds.h"
#include "espalier/executor/fused/interpreter.h"
#include "espalier/ops/matmul/matmul_call.h"

namespace espalier {

namespace {

class BoundUpdate : public BoundKernel {
 public:
  BoundUpdate(const KernelCall& call, MatmulForm form)
      : p_(call.inputs[0]),
        rate_(call.inputs[1]),
        out_(call.outputs[0]),
        product_(*call.inputs[2], *call.inputs[3], *call.outputs[0], form.transpose_a, form.transpose_b,
                 GemmEpilogue::accumulate) {}

  void run(RandomStream) override {
    if (p_->address() != out_->address()) copy_elements(*p_, *out_);
    product_.run(-rate_->item(), 1);
  }

 private:
  const Tensor *p_, *rate_;
  Tensor* out_;
  MatmulCall product_;
};

/// Product and epilogue in one call of the library.
class BoundLibraryEpilogue : public BoundKernel {
 public:
  BoundLibraryEpilogue(const KernelCall& call, MatmulForm form, Tensor product, GemmEpilogue epilogue,
                       size_t bias)
      : out_(std::make_unique<Tensor>(std::move(product))),
        bias_(call.inputs[bias]),
        product_(*call.inputs[0], *call.inputs[1], *out_, form.transpose_a, form.transpose_b, epilogue) {}

  bool is_best() const { return product_.takes_epilogue(); }
  void run(RandomStream) override { product_.run_with(bias_->address()); }

 private:
  std::unique_ptr<Tensor> out_;
  const Tensor* bias_;
  MatmulCall product_;
};

class BoundEpilogue : public BoundKernel {
 public:
  BoundEpilogue(const KernelCall& call, MatmulForm form, Tensor product, Tensor seen, const Program& program,
                size_t product_input)
      : product_memory_(std::make_unique<Tensor>(std::move(product))),
        seen_(std::make_unique<Tensor>(std::move(seen))),
        product_(*call.inputs[0], *call.inputs[1], *product_memory_, form.transpose_a, form.transpose_b),
        kernel_(program, inputs_with(call, product_input), {call.outputs.data(), call.outputs.size()}) {
    choose_parts();
    const int64_t cost = kernel_.tiles() * kernel_.tile_cost();
    threads_ =
        part_rows_ ? std::clamp<int64_t>(parts_, 1, num_threads()) : threads_for_tiles(cost, kernel_.tiles());
    scratch_ = TileScratch(kernel_.scratch_bytes(), threads_);
  }

  void run(RandomStream) override {
    kernel_.begin();
    if (part_rows_)
      product_.refresh();
    else
      product_.run();
    parallel_for(threads_, 1, [&](int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; ++t) {
        kernel_.clear(scratch_.of(t));
        if (part_rows_)
          for (int64_t p = parts_ * t / threads_; p < parts_ * (t + 1) / threads_; ++p)
            run_part(p, scratch_.of(t));
        else
          run_tiles(kernel_.tiles() * t / threads_, kernel_.tiles() * (t + 1) / threads_, scratch_.of(t));
        stream_fence();
      }
    });
    kernel_.finish(scratch_.all());
  }

 private:
  /// Parts of rows, each by one thread: a part is still in the caches when the program reads it, and no
  /// thread waits for another.
  void choose_parts() {
    const Gemm& gemm = product_.product().gemm;
    const int64_t tile = kernel_.row_tiles(), batch = product_.product().batch.elements();
    if (!tile || kernel_.rows() != gemm.m * batch) return;
    if (product_.product().batch.rank() > 0) {
      if (gemm.m % tile == 0 && batch >= num_threads()) part_rows_ = gemm.m;
    } else if (gemm.k <= 64) {
      // With so small a k, moving the product to memory and back dominates.
      constexpr int64_t part_bytes = 96 * 1024;
      const auto row_bytes = gemm.n * static_cast<int64_t>(size_of(gemm.dtype));
      part_rows_ = std::clamp<int64_t>(part_bytes / std::max<int64_t>(row_bytes, 1), 16,
                                       std::max<int64_t>(gemm.m, 16));
    } else if (num_threads() > 1 && !on_one_thread(gemm) && !product_.has_primitive()) {
      part_rows_ = (gemm.m + num_threads() - 1) / num_threads();
    }
    part_rows_ = (part_rows_ + tile - 1) / tile * tile;
    if (part_rows_) parts_ = (kernel_.rows() + part_rows_ - 1) / part_rows_;
  }
  void run_part(int64_t part, char* scratch) const {
    const int64_t begin = part * part_rows_, end = std::min(begin + part_rows_, kernel_.rows());
    if (product_.product().batch.rank() > 0)
      product_.run_one(part);
    else
      product_.run_rows(begin, end);
    const int64_t tile = kernel_.row_tiles();
    run_tiles(begin / tile, (end + tile - 1) / tile, scratch);
  }
  void run_tiles(int64_t begin, int64_t end, char* scratch) const {
    for (int64_t tile = begin; tile < end; ++tile) kernel_.run_tile(tile, scratch);
  }
  std::vector<const Tensor*> inputs_with(const KernelCall& call, size_t product_input) const {
    std::vector<const Tensor*> inputs(call.inputs.begin() + 2, call.inputs.end());
    inputs.insert(inputs.begin() + static_cast<std::ptrdiff_t>(product_input), seen_.get());
    return inputs;
  }

  std::unique_ptr<Tensor> product_memory_,
      seen_;  // one memory, in the shapes of the product and of the program
  MatmulCall product_;
  TileKernel kernel_;
  int64_t threads_ = 1;
  int64_t part_rows_ = 0, parts_ = 0;  // 0: the product is computed as a whole
  TileScratch scratch_;
};

}  // namespace

std::unique_ptr<BoundKernel> MatmulUpdate::bind_cpu(const KernelCall& call, const BindContext&) const {
  return std::make_unique<BoundUpdate>(call, form_);
}

MatmulEpilogue::MatmulEpilogue(MatmulForm form, Spec product, Shape seen,
                               std::shared_ptr<const FusedOp> program, size_t product_input)
    : Op({.kind = OpKind::matmul}),
      form_(form),
      product_(std::move(product)),
      seen_(std::move(seen)),
      program_(std::move(program)),
      product_input_(product_input) {}

std::optional<size_t> MatmulEpilogue::product_output() const {
  const Program& program = program_->program();
  for (size_t o = 0; o < program.outputs.size(); ++o) {
    const Instruction& n = program.instructions[program.outputs[o]];
    if (n.kind == Instruction::Kind::map && n.extent == Extent::full && n.dtype == product_.dtype) return o;
  }
  return std::nullopt;
}

bool MatmulEpilogue::can_write_over(size_t output, size_t input) const {
  if (input < 2 || output == product_output()) return false;  // the product is computed earlier
  const size_t k = input - 2;
  return program_->can_write_over(output, k < product_input_ ? k : k + 1);
}

NodeFlops MatmulEpilogue::cost(const NodeWork& work) const {
  NodeFlops flops = product_flops(form_, *work.inputs[0], product_.shape.elements());
  flops.elementwise = program_->program().flops();
  return flops;
}

std::pair<GemmEpilogue, size_t> MatmulEpilogue::for_library(const KernelCall& call) const {
  const Program& program = program_->program();
  const auto& code = program.instructions;
  const std::pair<GemmEpilogue, size_t> nothing{GemmEpilogue::none, 0};
  if (code.empty() || code.size() > 2 || program.outputs.size() != 1 || program.outputs[0] != code.size() - 1)
    return nothing;
  const Instruction& add = code[0];
  if (add.op->name() != "add" || add.extent != Extent::full || add.shape.rank() == 0 ||
      add.shape[-1] != product_.shape[-1])
    return nothing;
  const auto is_product = [&](const Argument& a) {
    return a.from == Argument::From::input && a.index == product_input_;
  };
  const bool first = is_product(add.arguments[0]);
  if (!first && !is_product(add.arguments[1])) return nothing;
  const Argument& bias = add.arguments[first ? 1 : 0];
  if (bias.from != Argument::From::input || is_product(bias)) return nothing;
  const size_t input = 2 + bias.index - (bias.index > product_input_);
  const Tensor& vector = *call.inputs[input];
  if (vector.rank() == 0 || vector.elements() != add.shape[-1] || vector.shape()[-1] != add.shape[-1] ||
      !vector.contiguous())
    return nothing;
  if (code.size() == 1) return {GemmEpilogue::bias, input};
  const Instruction& relu = code[1];
  if (relu.op->name() != "relu" || relu.arguments[0].from != Argument::From::value) return nothing;
  return {GemmEpilogue::bias_relu, input};
}

Tensor MatmulEpilogue::scratch(const KernelCall& call, std::optional<size_t> output) const {
  return output ? *call.outputs[*output] : Tensor(product_.shape, product_.dtype, call.outputs[0]->device());
}
Tensor MatmulEpilogue::shaped(const Tensor& memory, const Shape& shape) const {
  Layout layout(shape);
  layout.offset = memory.layout().offset;
  return Tensor(memory.storage(), std::move(layout), product_.dtype);
}

std::unique_ptr<BoundKernel> MatmulEpilogue::bind_cpu(const KernelCall& call, const BindContext&) const {
  const Tensor memory = scratch(call, product_output());
  if (const auto [epilogue, bias] = for_library(call);
      epilogue != GemmEpilogue::none && product_.dtype == DType::float32) {
    auto whole =
        std::make_unique<BoundLibraryEpilogue>(call, form_, shaped(memory, product_.shape), epilogue, bias);
    if (whole->is_best()) return whole;
  }
  return std::make_unique<BoundEpilogue>(call, form_, shaped(memory, product_.shape), shaped(memory, seen_),
                                         program_->program(), product_input_);
}

}  // namespace espalier
