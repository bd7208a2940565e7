#include "espalier/executor/fused/matmul_ops.h"

#include <algorithm>

#include "espalier/core/cpu/parallel.h"
#include "espalier/executor/fused/interpreter.h"
#include "espalier/ops/matmul_call.h"

namespace espalier {

namespace {

class BoundUpdate : public BoundKernel {
 public:
  BoundUpdate(const KernelCall& call, MatmulForm form)
      : p_(call.inputs[0]),
        rate_(call.inputs[1]),
        out_(call.outputs[0]),
        product_(*call.inputs[2], *call.inputs[3], *call.outputs[0], form.transpose_a, form.transpose_b) {}

  void run(RandomStream) override {
    if (p_->address() != out_->address()) copy_elements(*p_, *out_);
    product_.run(-rate_->item(), 1);
  }

 private:
  const Tensor *p_, *rate_;
  Tensor* out_;
  MatmulCall product_;
};

class BoundEpilogue : public BoundKernel {
 public:
  BoundEpilogue(const KernelCall& call, MatmulForm form, Tensor product, const Program& program,
                size_t product_input)
      : landing_(std::make_unique<Tensor>(std::move(product))),
        product_(*call.inputs[0], *call.inputs[1], *landing_, form.transpose_a, form.transpose_b),
        kernel_(program, inputs_with(call, product_input), {call.outputs.data(), call.outputs.size()}) {
    // Rows of the product by thread, each followed by its share of the program: no thread waits in between.
    rows_ = product_.product().gemm.m;
    by_rows_ = num_threads() > 1 && product_.product().batch.rank() == 0 && kernel_.row_tiles() &&
               kernel_.rows() == rows_ && !on_one_thread(product_.product().gemm) &&
               rows_ >= 16 * num_threads();
    const int64_t cost = kernel_.tiles() * kernel_.tile_cost();
    threads_ = by_rows_ ? num_threads() : threads_for_tiles(cost, kernel_.tiles());
    scratch_ = TileScratch(kernel_.scratch_bytes(), threads_);
  }

  void run(RandomStream) override {
    kernel_.begin();
    if (by_rows_)
      product_.refresh();
    else
      product_.run();
    parallel_for(threads_, 1, [&](int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; ++t) {
        kernel_.clear(scratch_.of(t));
        int64_t first = kernel_.tiles() * t / threads_, last = kernel_.tiles() * (t + 1) / threads_;
        if (by_rows_) {
          const int64_t step = kernel_.row_tiles();
          const int64_t from = std::min(rows_, first * step), to = std::min(rows_, last * step);
          if (from < to) product_.run_rows(from, to);
        }
        for (int64_t tile = first; tile < last; ++tile) kernel_.run_tile(tile, scratch_.of(t));
      }
    });
    kernel_.finish(scratch_.all());
  }

 private:
  std::vector<const Tensor*> inputs_with(const KernelCall& call, size_t product_input) const {
    std::vector<const Tensor*> inputs(call.inputs.begin() + 2, call.inputs.end());
    inputs.insert(inputs.begin() + static_cast<std::ptrdiff_t>(product_input), landing_.get());
    return inputs;
  }

  std::unique_ptr<Tensor> landing_;
  MatmulCall product_;
  TileKernel kernel_;
  int64_t rows_ = 0, threads_ = 1;
  bool by_rows_ = false;
  TileScratch scratch_;
};

}  // namespace

std::unique_ptr<BoundKernel> MatmulUpdate::bind_cpu(const KernelCall& call) const {
  return std::make_unique<BoundUpdate>(call, form_);
}

MatmulEpilogue::MatmulEpilogue(MatmulForm form, Spec product, std::shared_ptr<const FusedOp> program,
                               size_t product_input)
    : form_(form),
      product_(std::move(product)),
      program_(std::move(program)),
      product_input_(product_input) {}

std::optional<size_t> MatmulEpilogue::landing() const {
  const Program& program = program_->program();
  for (size_t o = 0; o < program.outputs.size(); ++o) {
    const Instruction& n = program.instructions[program.outputs[o]];
    if (n.kind == Instruction::Kind::map && n.level == Level::full && n.dtype == product_.dtype) return o;
  }
  return std::nullopt;
}

bool MatmulEpilogue::can_write_over(size_t output, size_t input) const {
  if (input < 2 || output == landing()) return false;  // the product is made before, or meanwhile
  const size_t k = input - 2;
  return program_->can_write_over(output, k < product_input_ ? k : k + 1);
}

std::unique_ptr<BoundKernel> MatmulEpilogue::bind_cpu(const KernelCall& call) const {
  const auto at = landing();
  Tensor product = at ? Tensor(
                            call.outputs[*at]->storage(),
                            [&] {
                              Layout layout(product_.shape);
                              layout.offset = call.outputs[*at]->layout().offset;
                              return layout;
                            }(),
                            product_.dtype)
                      : Tensor(product_.shape, product_.dtype);
  return std::make_unique<BoundEpilogue>(call, form_, std::move(product), program_->program(),
                                         product_input_);
}

}  // namespace espalier
