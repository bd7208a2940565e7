#include "espalier/core/custom_op.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <map>
#include <mutex>
#include <type_traits>

#include "espalier/core/error.h"
#include "espalier/core/gradient_rule.h"
#include "espalier/core/node.h"

namespace espalier {

namespace {

std::string describe(const Spec& spec) { return fmt::format("{} {}", name(spec.dtype), spec.shape.str()); }

/// Whether summing can bring a gradient of shape `from` down to `to`.
bool sums_down(const Shape& from, const Shape& to) {
  if (to.rank() > from.rank()) return false;
  for (size_t i = 1; i <= to.rank(); ++i) {
    const int64_t size = to.dims()[to.rank() - i];
    if (size != 1 && size != from.dims()[from.rank() - i]) return false;
  }
  return true;
}

/// A call of a gradient function, which may ask for gradients by which those of other nodes are called, but
/// not for its own.
class GradientCall {
 public:
  /// Throws Error for a node whose gradient function runs already in this thread, and for too many of them.
  explicit GradientCall(const Node& node) {
    std::vector<const Node*>& running = calls();
    if (std::ranges::count(running, &node))
      throw Error(fmt::format(
          "custom op '{}': its gradient function asks for a gradient that passes through the op's own "
          "output, "
          "and so for itself, without end; what it differentiates can read stop_gradient(g.output), and "
          "stop_gradient(g.output_gradient), which may be made of the output as well",
          node.op().name()));
    if (running.size() == most)
      throw Error(fmt::format(
          "custom op '{}': {} gradient functions of custom ops have called each other; one that applies its "
          "own op to what it differentiates never ends",
          node.op().name(), most));
    running.push_back(&node);
  }
  ~GradientCall() { calls().pop_back(); }
  GradientCall(const GradientCall&) = delete;
  GradientCall& operator=(const GradientCall&) = delete;

 private:
  static constexpr size_t most = 256;
  static std::vector<const Node*>& calls() {
    static thread_local std::vector<const Node*> running;
    return running;
  }
};

}  // namespace

class CustomOp::Impl : public Op, public std::enable_shared_from_this<Impl> {
 public:
  explicit Impl(CustomOpOptions options)
      : Op({.runs_on_host = true, .gradient_reads_output = true}), options_(std::move(options)) {
    static std::atomic<int64_t> made{0};
    number_ = ++made;
  }

  std::string_view name() const override { return options_.name; }
  /// Two custom ops may share a name: the number tells passes which nodes compute the same.
  Attributes attributes() const override { return {{"custom_op", number_}}; }
  bool mixes(size_t, size_t, const InputSpecs&) const override { return !options_.row_by_row; }

  Specs infer(const InputSpecs& inputs) const override {
    check_count(inputs.size());
    if (early().op == this) return {early().output.spec()};
    std::vector<Spec> specs;
    for (const Spec* spec : inputs) specs.push_back(*spec);
    if (options_.infer) return {by_user("infer", [&] { return options_.infer(specs); })};
    return {infer_by_zeros(std::move(specs))};
  }

  void run_cpu(const KernelCall& call) const override {
    Tensor result = early().op == this ? std::exchange(early().output, Tensor()) : run(call.inputs);
    Tensor& output = *call.outputs[0];
    if (result.dtype() != output.dtype())
      throw TypeError(fmt::format("{}: forward gave {}, not {} as inferred", name(), describe(result.spec()),
                                  describe(output.spec())));
    if (!(result.shape() == output.shape()))
      throw ShapeError(fmt::format("{}: forward gave {}, not {} as inferred", name(), describe(result.spec()),
                                   describe(output.spec())));
    copy_elements(result, output);
  }

  Gradients gradient(const GradientRule& rule) const override {
    if (!options_.gradient) throw UnsupportedError(fmt::format("{} has no gradient: none was given", name()));
    CustomGradient known{{}, rule.output(), rule.output_gradient()};
    for (size_t i = 0; i < rule.inputs(); ++i) known.inputs.push_back(rule.input(i));
    const GradientCall call(*known.output.node());
    const std::vector<Variable> given = by_user("gradient", [&] { return options_.gradient(known); });
    if (given.size() != rule.inputs())
      throw ShapeError(fmt::format("{}: the gradient function gave {} gradients for {} inputs", name(),
                                   given.size(), rule.inputs()));
    Gradients gradients;
    for (size_t i = 0; i < given.size(); ++i) {
      if (given[i].defined()) check_gradient_of(i, known.inputs[i], given[i]);
      gradients.push_back(rule.wants(i) ? given[i] : Variable());
    }
    return gradients;
  }

  Variable apply_to(const std::vector<Variable>& inputs, const std::source_location& where) const {
    check_count(inputs.size());
    std::vector<const Variable*> addresses;
    bool values_known = !build_context().lazy && !options_.infer;
    for (const Variable& input : inputs) {
      addresses.push_back(&input);
      values_known = values_known && input.defined() && !input.node()->lazy;
    }
    EarlyScope scope;
    if (values_known) {
      std::vector<Tensor> tensors;
      for (const Variable& input : inputs) tensors.push_back(input.value());
      SmallVector<const Tensor*, 4> pointers;
      for (const Tensor& tensor : tensors) pointers.push_back(&tensor);
      Tensor output = run(pointers);
      early() = {this, std::move(output)};
    }
    return apply(shared_from_this(), addresses, where);
  }

 private:
  /// The output of an eager application, computed before its node is made, which needs to know its spec.
  /// So forward runs once.
  struct Early {
    const Impl* op = nullptr;
    Tensor output;
  };
  static Early& early() {
    static thread_local Early now;
    return now;
  }
  struct EarlyScope {
    Early before = std::exchange(early(), Early());
    EarlyScope() = default;
    EarlyScope(const EarlyScope&) = delete;
    ~EarlyScope() { early() = std::move(before); }
  };

  /// Calls a function of the user's. Errors have the lines in it, and say which it is.
  template <class F>
  std::invoke_result_t<const F&> by_user(std::string_view function, const F& f) const {
    return run_own_lines(
        f, [&] { return fmt::format(", in the {} function of the custom op '{}'", function, name()); });
  }

  void check_count(size_t inputs) const {
    if (options_.inputs && inputs != *options_.inputs)
      throw ShapeError(fmt::format("{}: {} inputs, not {}", name(), inputs, *options_.inputs));
  }

  Tensor run(const SmallVector<const Tensor*, 4>& inputs) const {
    std::vector<Tensor> tensors;
    for (const Tensor* input : inputs)
      tensors.push_back((options_.takes_device_tensors ? *input : input->to(cpu())).contiguous_copy());
    Tensor result = by_user("forward", [&] { return options_.forward(tensors); });
    if (!result.defined()) throw TypeError(fmt::format("{}: forward gave an undefined tensor", name()));
    return result;
  }

  Spec infer_by_zeros(std::vector<Spec> inputs) const {
    {
      const std::lock_guard lock(mutex_);
      const auto found =
          std::find_if(known_.begin(), known_.end(), [&](const auto& pair) { return pair.first == inputs; });
      if (found != known_.end()) return found->second;
    }
    std::vector<Tensor> tensors;
    for (const Spec& spec : inputs) tensors.push_back(zeros(spec.shape, spec.dtype));
    SmallVector<const Tensor*, 4> pointers;
    for (const Tensor& tensor : tensors) pointers.push_back(&tensor);
    Spec output = run(pointers).spec();
    const std::lock_guard lock(mutex_);
    if (known_.size() >= 16) known_.clear();  // a feed has few shapes; whatever has more cannot pile up
    known_.emplace_back(std::move(inputs), output);
    return output;
  }

  void check_gradient_of(size_t i, const Variable& input, const Variable& gradient) const {
    if (gradient.dtype() != input.dtype())
      throw TypeError(fmt::format("{}: the gradient function gave a gradient of {} for input {} of {}",
                                  name(), espalier::name(gradient.dtype()), i,
                                  espalier::name(input.dtype())));
    if (!sums_down(gradient.shape(), input.shape()))
      throw ShapeError(
          fmt::format("{}: the gradient function gave a gradient of shape {} for input {} of shape {}",
                      name(), gradient.shape().str(), i, input.shape().str()));
  }

  CustomOpOptions options_;
  int64_t number_ = 0;
  mutable std::mutex mutex_;
  mutable std::vector<std::pair<std::vector<Spec>, Spec>> known_;
};

Variable CustomOp::operator()(const std::vector<Variable>& inputs, std::source_location where) const {
  CallScope scope(where, "");
  return located(*build_context().where, [&] { return op_->apply_to(inputs, where); });
}

CustomOp custom_op(CustomOpOptions options, std::source_location where) {
  return located(where, [&] {
    if (options.name.empty()) throw Error("custom_op: it needs a name");
    if (!options.forward) throw Error(fmt::format("custom_op: '{}' needs a forward function", options.name));
    return CustomOp(std::make_shared<const CustomOp::Impl>(std::move(options)));
  });
}

namespace {

struct RegisteredOps {
  std::mutex mutex;
  std::map<std::string, OpPtr, std::less<>> by_name;
};
RegisteredOps& registered_ops() {
  static auto* const ops = new RegisteredOps;  // a program may load plans while it ends
  return *ops;
}

}  // namespace

void register_custom_op(const CustomOp& op, std::source_location where) {
  located(where, [&] {
    RegisteredOps& ops = registered_ops();
    const std::lock_guard lock(ops.mutex);
    const auto [known, added] = ops.by_name.emplace(op.op_->name(), op.op_);
    if (!added && known->second != op.op_)
      throw Error(fmt::format("register_custom_op: another op '{}' is registered already", op.op_->name()));
  });
}

bool is_custom_op(const Op& op) {
  const Attributes attributes = op.attributes();
  return attributes.size() == 1 && attributes[0].first == "custom_op";
}

bool is_registered(const Op& custom_op) { return registered_custom_op(custom_op.name()).get() == &custom_op; }

OpPtr registered_custom_op(std::string_view name) {
  RegisteredOps& ops = registered_ops();
  const std::lock_guard lock(ops.mutex);
  const auto found = ops.by_name.find(name);
  return found == ops.by_name.end() ? nullptr : found->second;
}

}  // namespace espalier
