// Leaves: parameters, variables, constants, states; and sources.
#include <fmt/format.h>

#include "espalier/core/deferred/waiting.h"
#include "espalier/core/error.h"
#include "espalier/core/eval.h"
#include "espalier/core/feed.h"
#include "espalier/core/loop_operand.h"
#include "espalier/core/open_sizes.h"

namespace espalier {

namespace {

class Leaf : public Op {
 public:
  enum class Kind { constant, number, variable, parameter, state, operand, real_operand };
  Leaf(Kind kind, std::string name) : Op({.kind = OpKind::leaf}), kind_(kind), name_(std::move(name)) {}

  std::string_view name() const override { return name_; }
  Specs infer(const InputSpecs&) const override { return {}; }
  Kind leaf_kind() const { return kind_; }

 private:
  Kind kind_;
  std::string name_;
};

class NumberLeaf : public Leaf {
 public:
  explicit NumberLeaf(detail::Number number) : Leaf(Kind::number, "constant"), number_(number) {}
  const detail::Number& number() const { return number_; }

 private:
  detail::Number number_;
};

class Source : public Op {
 public:
  Source(std::shared_ptr<Feed> feed, size_t output)
      : Op({.kind = OpKind::source}), feed_(std::move(feed)), output_(output) {}
  std::string_view name() const override { return "source"; }
  Attributes attributes() const override {
    return {{"feed", feed_->name()}, {"output", static_cast<int64_t>(output_)}};
  }
  Specs infer(const InputSpecs&) const override { return {feed_->specs()[output_]}; }
  const std::shared_ptr<Feed>& source_feed() const { return feed_; }
  size_t source_output() const { return output_; }

 private:
  std::shared_ptr<Feed> feed_;
  size_t output_;
};

class Placeholder : public Feed {
 public:
  Placeholder(std::string_view name, Spec spec) : name_(name), spec_(std::move(spec)) {
    for (size_t axis = 0; axis < spec_.shape.rank(); ++axis)
      if (int64_t& size = spec_.shape.dims()[axis]; size == -1) {
        size = nominal_size;
        open_.push_back({0, axis});
      }
    if (!open_.empty()) show_open_axes();
  }
  std::string name() const override { return name_; }
  std::vector<Spec> specs() const override { return {spec_}; }
  int64_t steps() const override { return INT64_MAX; }
  int64_t rows(int64_t) const override { return spec_.shape.rank() ? spec_.shape[0] : 1; }
  std::vector<OpenAxis> open_axes() const override { return open_; }
  bool is_placeholder() const override { return true; }
  void read(int64_t, int64_t, std::span<Tensor>) const override {
    throw DataError(fmt::format(
        "placeholder '{}' has no value of its own: give it one through Executor::run, or, in a tree "
        "that is fed, through Executor::step or execute",
        name_));
  }

 private:
  std::string name_;
  Spec spec_;
  std::vector<OpenAxis> open_;
};

Leaf::Kind kind_of(const Op& op) { return static_cast<const Leaf&>(op).leaf_kind(); }

OpPtr unnamed(Leaf::Kind kind, const char* name) { return std::make_shared<Leaf>(kind, name); }

}  // namespace

OpPtr constant_op() {
  static const OpPtr* op = new OpPtr(unnamed(Leaf::Kind::constant, "constant"));
  return OpPtr(std::shared_ptr<void>(), op->get());
}
OpPtr number_op(detail::Number number) { return std::make_shared<NumberLeaf>(number); }
OpPtr variable_op() {
  static const OpPtr* op = new OpPtr(unnamed(Leaf::Kind::variable, "variable"));
  return OpPtr(std::shared_ptr<void>(), op->get());
}
OpPtr parameter_op(std::string_view name) {
  return std::make_shared<Leaf>(Leaf::Kind::parameter, std::string(name));
}
OpPtr state_op(std::string_view name) { return std::make_shared<Leaf>(Leaf::Kind::state, std::string(name)); }
OpPtr source_op(std::shared_ptr<Feed> feed, size_t output) {
  return std::make_shared<Source>(std::move(feed), output);
}

const std::shared_ptr<Feed>* Op::feed() const {
  return kind() == OpKind::source ? &static_cast<const Source*>(this)->source_feed() : nullptr;
}
size_t Op::feed_output() const { return static_cast<const Source*>(this)->source_output(); }

bool is_parameter(const Op& op) { return op.is_leaf() && kind_of(op) == Leaf::Kind::parameter; }
bool is_constant(const Op& op) {
  return op.is_leaf() && (kind_of(op) == Leaf::Kind::constant || kind_of(op) == Leaf::Kind::number);
}
const detail::Number* number_of(const Op& op) {
  if (!op.is_leaf() || kind_of(op) != Leaf::Kind::number) return nullptr;
  return &static_cast<const NumberLeaf&>(op).number();
}
bool is_trainable(const Op& op) {
  return is_parameter(op) ||
         (op.is_leaf() && (kind_of(op) == Leaf::Kind::variable || kind_of(op) == Leaf::Kind::real_operand));
}

bool is_loop_operand(const Op& op) {
  return op.is_leaf() && (kind_of(op) == Leaf::Kind::operand || kind_of(op) == Leaf::Kind::real_operand);
}
Variable loop_operand_like(const Variable& x, bool row) {
  const Shape& shape = x.node()->outputs[x.output()].spec.shape;
  Variable leaf =
      loop_operand({x.dtype(), row ? Shape(Dims(shape.begin() + 1, shape.end())) : shape}, x.device());
  copy_open_axes(x, *leaf.node(), row);
  return leaf;
}
Variable loop_operand(const Spec& spec, Device device) {
  static const OpPtr* others = new OpPtr(unnamed(Leaf::Kind::operand, "operand"));
  static const OpPtr* reals = new OpPtr(unnamed(Leaf::Kind::real_operand, "operand"));
  const bool real = is_real(spec.dtype);
  Variable leaf(
      new Node(OpPtr(std::shared_ptr<void>(), (real ? reals : others)->get()),
               build_context().where ? *build_context().where : CallSite(std::source_location::current())));
  leaf.node()->outputs.push_back({spec, Tensor::to_come(device)});
  leaf.node()->needs_gradient = real;
  leaf.node()->lazy = true;  // its sizes may be those of a batch
  leaf.node()->tag = build_context().tag;
  return leaf;
}

bool is_trained(const Node& node) { return is_trainable(node.op()) && !node.frozen; }

namespace {
std::atomic<uint64_t> trainable_changes{0};

/// "a variable", "a parameter" or "the parameter 'w'".
std::string trainable_text(const Op& op) {
  if (!is_parameter(op) || op.name() == "parameter") return fmt::format("a {}", op.name());
  return fmt::format("the parameter '{}'", op.name());
}
}  // namespace
uint64_t trainable_version() { return trainable_changes.load(std::memory_order_relaxed); }

void set_trainable(const Variable& parameter, bool on, std::source_location where) {
  located(where, [&] {
    if (!parameter.defined() || !is_parameter(parameter.node()->op()))
      throw Error("set_trainable: only a parameter can be frozen");
    if (parameter.node()->frozen == !on) return;
    parameter.node()->frozen = !on;
    trainable_changes.fetch_add(1, std::memory_order_relaxed);
  });
}

Variable make_leaf(OpPtr op, const Tensor& value, const CallSite& where) {
  return located(where, [&] {
    if (!value.defined()) throw TypeError("an undefined tensor cannot become a Variable");
    const bool trainable = is_trainable(*op);
    if (trainable && !is_real(value.dtype()))
      throw TypeError(fmt::format("{} must be of a real type to have a gradient, not {}; shape {}",
                                  trainable_text(*op), name(value.dtype()), value.shape().str()));
    Variable leaf(new Node(std::move(op), build_context().where ? *build_context().where : where));
    Node& node = *leaf.node();
    node.outputs.push_back({value.spec(), value});
    node.needs_gradient = trainable;
    node.tag = build_context().tag;
    return leaf;
  });
}

Variable variable(const LeafValue& value, std::source_location where) {
  return make_leaf(variable_op(), value, where);
}
Variable parameter(const LeafValue& value, std::string_view name, std::source_location where) {
  return make_leaf(parameter_op(name), value, where);
}
Variable state(const LeafValue& value, std::string_view name, std::source_location where) {
  return make_leaf(state_op(name), value, where);
}

std::vector<Variable> source_variables(const std::shared_ptr<Feed>& feed, const std::source_location& where) {
  std::vector<Variable> sources;
  const std::vector<Spec> specs = feed->specs();
  for (size_t i = 0; i < specs.size(); ++i) {
    Variable source(new Node(source_op(feed, i), where));
    source.node()->outputs.push_back({specs[i], Tensor()});
    source.node()->lazy = true;
    std::vector<size_t> open;
    for (const OpenAxis& each : feed->open_axes())
      if (each.output == i) open.push_back(each.axis);
    set_open_axes(*source.node(), open);
    sources.push_back(std::move(source));
  }
  return sources;
}

Variable placeholder(std::string_view name, const Shape& shape, DType dtype, std::source_location where) {
  return located(where, [&] {
    if (name.empty()) throw Error("placeholder: its name is empty; values are given by it");
    const auto feed = std::make_shared<Placeholder>(name, Spec{dtype, shape});
    (void)feed->specs()[0].shape.elements();  // throws on negative sizes
    return source_variables(feed, where)[0];
  });
}

void set_value(const Variable& leaf, const Tensor& value, std::source_location where) {
  located(where, [&] {
    if (!leaf.defined() || !leaf.node()->is_leaf())
      throw Error("set_value: only a leaf can be given a value");
    if (is_constant(leaf.node()->op())) throw Error("set_value: a constant stays what it is");
    const Spec& spec = leaf.node()->outputs[0].spec;
    if (!value.defined() || value.dtype() != spec.dtype)
      throw TypeError(fmt::format("set_value: a leaf of {} cannot take {}", name(spec.dtype),
                                  value.defined() ? name(value.dtype()) : "an undefined tensor"));
    if (!(value.shape() == spec.shape))
      throw ShapeError(
          fmt::format("set_value: a leaf of shape {} cannot take {}", spec.shape.str(), value.shape().str()));
    const Tensor there = value.to(leaf.device());
    compute_all_waiting();
    assign(*leaf.node(), there.storage().get() == value.storage().get() ? value.clone() : there);
  });
}

}  // namespace espalier
