#include "espalier/ops/loop/scan_draws.h"

#include <fmt/format.h>

#include "espalier/core/error.h"
#include "espalier/core/gradient_rule.h"

namespace espalier {

namespace {

/// On a GPU: what is in its memory before the first stream of a step.
Tensor read_base(const uint64_t* base, Device device) {
  Storage storage;
  storage.data = const_cast<uint64_t*>(base);
  storage.bytes = 2 * sizeof *base;
  storage.device = device;
  storage.release = [](Storage*) {};
  storage.foreign = true;
  return Tensor(StoragePtr(&storage), Layout(Shape{2}), DType::int64).to(cpu());
}

class ScanDraws : public Op, public DrawsStreams {
 public:
  explicit ScanDraws(LoopBodyPtr body)
      : Op({.effect = body->draws.empty() ? Effect::none : Effect::random,
            .runs_on_host = true,
            .reads = InputSet::none(),
            .gradient_reads = InputSet::none(),
            .passes_no_gradient = true}),
        body_(std::move(body)) {}
  std::string_view name() const override { return "scan_draws"; }
  const LoopBodyPtr& body() const { return body_; }
  Attributes attributes() const override { return {{"body", body_->number}}; }

  Specs infer(const InputSpecs& in) const override {
    if (in.size() + 1 != body_->inputs.size() || !body_->random_nodes)
      throw ShapeError(fmt::format("scan_draws: {} operands do not go with the step", in.size()));
    (void)body_->of_step(in);
    return {body_->draws_spec()};
  }
  int64_t streams(const InputSpecs& in) const override {
    int64_t all = 0;
    if (__builtin_mul_overflow(in[body_->states]->shape[0], of_step(in).back(), &all) || all > most)
      throw Error(fmt::format("scan: its steps take more than {} streams of random numbers", most));
    return all;
  }

  void run_cpu(const KernelCall& call) const override { run(call, numbers_for(call), call.random); }
  std::unique_ptr<BoundKernel> bind_cpu(const KernelCall& call, const BindContext&) const override {
    struct Bound : BoundKernel {
      Bound(const ScanDraws& draws, const KernelCall& given)
          : op(draws), call(given), numbers(op.numbers_for(call)) {}
      void run(RandomStream random) override { op.run(call, numbers, random); }
      bool can_be_captured() const override { return false; }
      const ScanDraws& op;
      const KernelCall call;
      Tensor numbers;
    };
    return std::make_unique<Bound>(*this, call);
  }
  Gradients gradient(const GradientRule& rule) const override { return Gradients(rule.inputs(), Variable()); }
  std::shared_ptr<const Op> for_inference() const override {
    const LoopBodyPtr& calm = body_->for_inference();
    return calm ? std::make_shared<ScanDraws>(calm) : nullptr;
  }

 private:
  std::vector<int64_t> of_step(const InputSpecs& in) const { return body_->streams(body_->of_step(in)); }

  /// The numbers of a call, of which the first two change from run to run.
  Tensor numbers_for(const KernelCall& call) const {
    std::vector<Spec> specs;
    for (const Tensor* input : call.inputs) specs.push_back(input->spec());
    InputSpecs in;
    for (const Spec& spec : specs) in.push_back(&spec);
    const std::vector<int64_t> before = of_step(in);
    Tensor numbers(body_->draws_spec().shape, DType::int64);
    int64_t* at = numbers.data<int64_t>();
    at[2] = before.back();
    std::copy(before.begin(), before.end() - 1, at + 3);
    return numbers;
  }
  static void run(const KernelCall& call, Tensor numbers, RandomStream random) {
    Tensor& out = *call.outputs[0];
    auto* at = numbers.data<int64_t>();
    at[0] = static_cast<int64_t>(random.seed);
    at[1] = static_cast<int64_t>(random.stream);
    if (call.random_base) {
      const Tensor base = read_base(call.random_base, out.device());
      at[0] = base.data<int64_t>()[0];
      at[1] += base.data<int64_t>()[1];
    }
    copy_elements(numbers, out);
  }

  LoopBodyPtr body_;
};

}  // namespace

OpPtr scan_draws_op(LoopBodyPtr body) { return std::make_shared<ScanDraws>(std::move(body)); }

LoopBodyPtr body_of_draws(const Op& op) {
  const auto* draws = dynamic_cast<const ScanDraws*>(&op);
  return draws ? draws->body() : nullptr;
}

}  // namespace espalier
