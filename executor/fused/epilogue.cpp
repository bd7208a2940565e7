#include "espalier/executor/fused/epilogue.h"

#include <algorithm>

#include "espalier/core/cpu/parallel.h"
#include "espalier/core/row_kernel.h"
#include "espalier/executor/fused/folds.h"
#include "espalier/executor/fused/interpreter.h"

namespace espalier {

namespace {

OpTraits traits_of(const Epilogue& x) {
  const InputSet anchors = InputSet::first(x.anchor_inputs);
  return {.kind = x.anchor->kind(),
          .takes_halves = true,  // each of the two is widened where that is needed
          .reads = {x.anchor->traits().reads.bits | ~anchors.bits}};
}

/// The anchor's kernel and the program over what it makes.
class BoundEpilogue : public BoundKernel {
 public:
  BoundEpilogue(const EpilogueOp& op, const KernelCall& call, EpilogueOp::Between between,
                const BindContext& context, Workspace workspace)
      : between_(std::make_unique<EpilogueOp::Between>(std::move(between))),
        anchor_(op.bind_anchor(call, between_->made, context, std::move(workspace))),
        kernel_(kernel_of(op, op.program_call(call, between_->seen))) {
    choose_ranges();
    const int64_t cost = kernel_.tiles() * kernel_.tile_cost();
    threads_ = range_rows_ ? std::clamp<int64_t>(ranges_, 1, num_threads())
                           : threads_for_tiles(cost, kernel_.tiles());
    scratch_ = TileScratch(kernel_.scratch_bytes(), threads_);
  }

  void prepare() override { anchor_->prepare(); }
  InputSet prepared_inputs() const override { return anchor_->prepared_inputs(); }
  void run(RandomStream random) override {
    kernel_.begin();
    if (range_rows_)
      rows_->begin_rows();
    else
      anchor_->run(random);
    parallel_for(threads_, 1, [&](int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; ++t) {
        kernel_.clear(scratch_.of(t));
        if (range_rows_)
          for (int64_t r = ranges_ * t / threads_; r < ranges_ * (t + 1) / threads_; ++r)
            run_range(r, scratch_.of(t));
        else
          run_tiles(kernel_.tiles() * t / threads_, kernel_.tiles() * (t + 1) / threads_, scratch_.of(t));
        stream_fence();
      }
    });
    kernel_.finish(scratch_.all());
  }

 private:
  static TileKernel kernel_of(const EpilogueOp& op, const KernelCall& call) {
    return {
        op.program(), {call.inputs.data(), call.inputs.size()}, {call.outputs.data(), call.outputs.size()}};
  }
  /// Ranges of rows, each by one thread: a range is still in the caches when the program reads it, and no
  /// thread waits for another.
  void choose_ranges() {
    const int64_t tile = kernel_.row_tiles();
    rows_ = dynamic_cast<RowKernel*>(anchor_.get());
    if (!rows_ || !tile) return;
    range_rows_ = (rows_->rows_at_once(kernel_.rows(), tile) + tile - 1) / tile * tile;
    if (range_rows_) ranges_ = (kernel_.rows() + range_rows_ - 1) / range_rows_;
  }
  void run_range(int64_t range, char* scratch) const {
    const int64_t begin = range * range_rows_, end = std::min(begin + range_rows_, kernel_.rows());
    rows_->run_rows(begin, end);
    const int64_t tile = kernel_.row_tiles();
    run_tiles(begin / tile, (end + tile - 1) / tile, scratch);
  }
  void run_tiles(int64_t begin, int64_t end, char* scratch) const {
    for (int64_t tile = begin; tile < end; ++tile) kernel_.run_tile(tile, scratch);
  }

  std::unique_ptr<EpilogueOp::Between> between_;  // does not move
  std::unique_ptr<BoundKernel> anchor_;
  RowKernel* rows_ = nullptr;  // the anchor, if it is one
  TileKernel kernel_;
  int64_t threads_ = 1;
  int64_t range_rows_ = 0, ranges_ = 0;  // 0: the anchor's output is computed as a whole
  TileScratch scratch_;
};

Tensor shaped(const Tensor& memory, const Shape& shape) {
  Layout layout(shape);
  layout.offset = memory.layout().offset;
  return Tensor(memory.storage(), std::move(layout), memory.dtype());
}

/// The inputs of the anchor among all.
template <class List>
List first_of(const List& all, size_t count) {
  return List(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(count));
}

}  // namespace

EpilogueOp::EpilogueOp(Epilogue epilogue) : Op(traits_of(epilogue)), epilogue_(std::move(epilogue)) {}

Attributes EpilogueOp::attributes() const {
  Attributes all{{"anchor", std::string(anchor().name())}};
  for (auto& attribute : anchor().attributes()) all.push_back(std::move(attribute));
  all.emplace_back("input", static_cast<int64_t>(epilogue_.input));
  all.emplace_back("program", program().str());
  return all;
}

bool EpilogueOp::can_write_over(size_t output, size_t input) const {
  if (input < anchor_inputs() || output == holding_output(DeviceType::cpu))
    return false;  // the anchor's output is written earlier
  const size_t k = input - anchor_inputs();
  return epilogue_.program->can_write_over(output, k < epilogue_.input ? k : k + 1);
}

NodeFlops EpilogueOp::cost(const NodeWork& work) const {
  NodeWork of_anchor{first_of(work.inputs, anchor_inputs()), {&epilogue_.output, 1}, 0};
  of_anchor.elements = static_cast<double>(epilogue_.output.shape.elements());
  for (const Spec* input : of_anchor.inputs)
    of_anchor.elements += static_cast<double>(input->shape.elements());
  NodeFlops flops = anchor().cost(of_anchor);
  flops.elementwise += program().flops();
  return flops;
}

/// On a GPU, a kernel that goes over its elements more than once cannot write over what it still has to read.
std::optional<size_t> EpilogueOp::holding_output(DeviceType device) const {
  const auto& code = program().instructions;
  const auto is_map = [](const Instruction& n) { return n.kind == Instruction::Kind::map; };
  if (device != DeviceType::cpu && !std::ranges::all_of(code, is_map)) return std::nullopt;
  for (size_t o = 0; o < program().outputs.size(); ++o) {
    const Instruction& n = code[program().outputs[o]];
    if (is_map(n) && n.extent == Extent::full && n.dtype == epilogue_.output.dtype) return o;
  }
  return std::nullopt;
}

int64_t EpilogueOp::between_bytes(DeviceType device) const {
  return holding_output(device) ? 0 : Workspace::bytes_for(epilogue_.output);
}

int64_t EpilogueOp::workspace_bytes(const PlannedCall& call) const {
  return between_bytes(call.device) +
         aligned_bytes(anchor().workspace_bytes({call.device,
                                                 first_of(call.inputs, anchor_inputs()),
                                                 first_of(call.layouts, anchor_inputs()),
                                                 {&epilogue_.output, 1}}));
}

EpilogueOp::Between EpilogueOp::between(const KernelCall& call, Workspace& workspace) const {
  const Device device = call.outputs[0]->device();
  const Spec& made = epilogue_.output;
  const auto output = holding_output(device.type);
  const Tensor memory = output ? *call.outputs[*output] : workspace.take(made.shape, made.dtype, device);
  return {shaped(memory, made.shape), shaped(memory, epilogue_.seen)};
}

std::unique_ptr<BoundKernel> EpilogueOp::bind_anchor(const KernelCall& call, Tensor& output,
                                                     const BindContext& context, Workspace workspace) const {
  KernelCall own = call;
  own.inputs = first_of(call.inputs, anchor_inputs());
  own.outputs = {&output};
  BindContext with_rest = context;
  with_rest.offer(workspace);
  return bind_kernel(anchor(), own, with_rest);
}

KernelCall EpilogueOp::program_call(const KernelCall& call, const Tensor& seen) const {
  KernelCall own = call;
  own.inputs.clear();
  own.inputs.append(call.inputs.begin() + static_cast<std::ptrdiff_t>(anchor_inputs()), call.inputs.end());
  own.inputs.insert(epilogue_.input, &seen);
  return own;
}

std::unique_ptr<BoundKernel> EpilogueOp::bind_cpu(const KernelCall& call, const BindContext& context) const {
  Workspace workspace = Workspace::of(context);
  Between made = between(call, workspace);
  return std::make_unique<BoundEpilogue>(*this, call, std::move(made), context, std::move(workspace));
}

}  // namespace espalier
