// Padding of axes, with a number or with elements of the axis.
#include <algorithm>
#include <memory>

#include "espalier/core/channels_last.h"
#include "espalier/core/countable.h"
#include "espalier/core/op_registry.h"
#include "espalier/ops/functions/arrange.h"
#include "espalier/ops/ops.h"
#include "espalier/ops/pointwise.h"
#include "espalier/ops/registered_ops.h"
#include "espalier/ops/shape_like_ops.h"

namespace espalier {

namespace {

std::string_view mode_name(PadMode mode) {
  switch (mode) {
    case PadMode::reflect: return "reflect";
    case PadMode::replicate: return "replicate";
    case PadMode::circular: return "circular";
    case PadMode::constant: break;
  }
  return "constant";
}

/// What the ops below share: one axis that grows by copies, which every device can make.
class PadAxisOp : public Op {
 public:
  PadAxisOp(int64_t axis, Padding by)
      : Op({.linearity = Linearity::together,
            .precision = OpPrecision::follows,
            .only_copies = true,
            .gradient_reads = InputSet::none()}),
        axis_(axis),
        by_(by) {}
  Attributes attributes() const override {
    return {{"axis", axis_}, {"before", by_.before}, {"after", by_.after}};
  }
  bool mixes(size_t input, size_t axis, const InputSpecs& in) const override {
    return input == 0 && axis == resolve_axis(axis_, in[0]->shape.rank(), name());
  }
  /// The number of a constant padding is a scalar.
  ChannelsLastOp with_channels_last(const InputSpecs& in, const Spec& out) const override {
    return along_axis_with_channels_last(*this, in, out, InputSet::only(0));
  }
  Specs infer(const InputSpecs& in) const override {
    Shape shape = in[0]->shape;
    int64_t& size = shape.dims()[resolve_axis(axis_, shape.rank(), name())];
    if (__builtin_add_overflow(size, by_.before, &size) || __builtin_add_overflow(size, by_.after, &size))
      throw ShapeError(
          fmt::format("pad: axis {} of {} gets longer than 64 bits can count", axis_, in[0]->shape.str()));
    check_countable(shape, "pad");
    return {{in[0]->dtype, std::move(shape)}};
  }

 protected:
  /// Copies to the elements `begin` to `end` of the axis.
  void put(const Tensor& from, Tensor& out, int64_t begin, int64_t end) const {
    Tensor part = out.slice(axis_, begin, end);
    if (part.elements() > 0) copy_elements(from, part);
  }
  /// The part of a gradient that is x.
  Variable inner(const Variable& g) const {
    return slice(g, axis_, by_.before, by_.after == 0 ? open_end : -by_.after);
  }

  int64_t axis_;
  Padding by_;
};

/// With a number. Inputs: x and the number, a scalar.
class PadConstant : public PadAxisOp {
 public:
  using PadAxisOp::PadAxisOp;
  std::string_view name() const override { return "pad_constant"; }
  void run_cpu(const KernelCall& call) const override {
    const Tensor& x = *call.inputs[0];
    Tensor& out = *call.outputs[0];
    const int64_t size = x.shape()[axis_], end = by_.before + size;
    const auto number = [&](int64_t count) {
      Shape shape = out.shape();
      shape.dims()[resolve_axis(axis_, shape.rank(), name())] = count;
      const Tensor& value = *call.inputs[1];
      return Tensor(value.storage(), broadcast_layout(value.layout(), shape), value.dtype());
    };
    put(number(by_.before), out, 0, by_.before);
    put(x, out, by_.before, end);
    put(number(by_.after), out, end, end + by_.after);
  }
  Gradients gradient(const GradientRule& rule) const override {
    return {inner(rule.output_gradient()), Variable()};
  }
};

/// With elements of the axis.
class PadFromAxis : public PadAxisOp {
 public:
  PadFromAxis(int64_t axis, Padding by, PadMode mode) : PadAxisOp(axis, by), mode_(mode) {}
  std::string_view name() const override { return "pad_from_axis"; }
  Attributes attributes() const override {
    Attributes all = PadAxisOp::attributes();
    all.emplace_back("mode", std::string(mode_name(mode_)));
    return all;
  }
  Specs infer(const InputSpecs& in) const override {
    const Shape& shape = in[0]->shape;
    const int64_t size = shape.dims()[resolve_axis(axis_, shape.rank(), name())],
                  most = std::max(by_.before, by_.after);
    const int64_t can = mode_ == PadMode::reflect ? size - 1 : mode_ == PadMode::circular ? size : most;
    if (most > can || (size == 0 && most > 0))
      throw ShapeError(fmt::format("pad: axis {} of shape {} is too short for {} and {} elements ({})", axis_,
                                   shape.str(), by_.before, by_.after, mode_name(mode_)));
    return PadAxisOp::infer(in);
  }
  void run_cpu(const KernelCall& call) const override {
    const Tensor& x = *call.inputs[0];
    Tensor& out = *call.outputs[0];
    if (out.elements() == 0) return;
    const int64_t size = x.shape()[axis_], end = by_.before + size;
    put(x, out, by_.before, end);
    switch (mode_) {
      case PadMode::circular:
        put(x.slice(axis_, size - by_.before, size), out, 0, by_.before);
        put(x.slice(axis_, 0, by_.after), out, end, end + by_.after);
        break;
      case PadMode::reflect:
        put(steps(x, by_.before, by_.before, -1), out, 0, by_.before);
        put(steps(x, size - 2, by_.after, -1), out, end, end + by_.after);
        break;
      default:
        put(steps(x, 0, by_.before, 0), out, 0, by_.before);
        put(steps(x, size - 1, by_.after, 0), out, end, end + by_.after);
    }
  }
  Gradients gradient(const GradientRule& rule) const override {
    const Variable &g = rule.output_gradient(), x = rule.input(0);
    std::vector<Variable> parts{inner(g)};
    const int64_t before = by_.before, after = by_.after;
    const auto add = [&](bool front, int64_t begin) {  // where in x the padding of that end comes from
      Variable part = front ? slice(g, axis_, 0, before) : slice(g, axis_, -after, open_end);
      if (mode_ == PadMode::reflect) part = flip(part, axis_);
      if (mode_ == PadMode::replicate) part = sum(part, axis_, true);
      parts.push_back(pad_like(part, x, axis_, begin));
    };
    if (before > 0) add(true, mode_ == PadMode::circular ? -before : mode_ == PadMode::reflect ? 1 : 0);
    if (after > 0) add(false, mode_ == PadMode::circular ? 0 : mode_ == PadMode::reflect ? -1 - after : -1);
    return {parts.size() == 1 ? parts[0] : add_all(parts)};
  }

 private:
  /// `count` elements of the axis from `begin` on, each `step` behind the one before.
  Tensor steps(const Tensor& x, int64_t begin, int64_t count, int64_t step) const {
    const size_t axis = resolve_axis(axis_, x.rank(), name());
    Layout layout = x.layout();
    if (count > 0) layout.offset += begin * layout.strides[axis];
    layout.shape.dims()[axis] = count;
    layout.strides[axis] *= step;
    return Tensor(x.storage(), std::move(layout), x.dtype());
  }

  PadMode mode_;
};

}  // namespace

Variable pad(const Operand& x, const std::vector<Padding>& paddings, const PadOptions& options) {
  const CallScope scope(x.where());
  return located(x.where(), [&] {
    Variable result = x.defined("pad");
    const auto rank = static_cast<int64_t>(result.rank()), count = static_cast<int64_t>(paddings.size());
    if (count > rank)
      throw ShapeError(fmt::format("pad: {} paddings for the shape {}", count, result.shape().str()));
    for (int64_t i = 0; i < count; ++i) {
      const int64_t axis = rank - count + i;
      Padding by = paddings[static_cast<size_t>(i)];
      if (by.before < 0 || by.after < 0) {
        const int64_t size = result.shape()[axis];
        if (std::max<int64_t>(-by.before, 0) > size - std::max<int64_t>(-by.after, 0))
          throw ShapeError(fmt::format("pad: cutting {} and {} elements off axis {} of shape {}", -by.before,
                                       -by.after, axis, result.shape().str()));
        result = slice(result, axis, std::max<int64_t>(-by.before, 0), by.after < 0 ? by.after : open_end);
        by = {std::max<int64_t>(by.before, 0), std::max<int64_t>(by.after, 0)};
      }
      if (by.before == 0 && by.after == 0) continue;
      if (options.mode == PadMode::constant) {
        const Variable value = full({}, options.value, result.dtype()).to(result.device());
        result = apply(std::make_shared<PadConstant>(axis, by), {&result, &value}, x.where());
      } else {
        result = apply(std::make_shared<PadFromAxis>(axis, by, options.mode), {&result}, x.where());
      }
    }
    return result;
  });
}

void add_pad_ops(OpRegistry& ops) {
  const auto by = [](AttributeReader& a) { return Padding{a.integer("before", 0), a.integer("after", 0)}; };
  ops.add("pad_constant", 2,
          [=](AttributeReader& a) { return std::make_shared<PadConstant>(a.integer("axis"), by(a)); });
  ops.add("pad_from_axis", 1, [=](AttributeReader& a) {
    const std::string& mode = a.text("mode");
    for (const PadMode known : {PadMode::reflect, PadMode::replicate, PadMode::circular})
      if (mode == mode_name(known)) return std::make_shared<PadFromAxis>(a.integer("axis"), by(a), known);
    a.refuse("mode");
  });
}

}  // namespace espalier
