// Concatenation along an axis, and along a new one.
#include <algorithm>
#include <cstring>

#include "espalier/core/channels_last.h"
#include "espalier/core/countable.h"
#include "espalier/core/deferred/stacked.h"
#include "espalier/core/op_registry.h"
#include "espalier/ops/kept_op.h"
#include "espalier/ops/ops.h"
#include "espalier/ops/pointwise.h"
#include "espalier/ops/registered_ops.h"
#include "espalier/ops/shape_like_ops.h"

namespace espalier {

namespace {

/// The shape of the parts behind each other. Throws ShapeError naming `op` if they do not go together.
Shape joined_shape(std::span<const Spec* const> parts, int64_t along, std::string_view op) {
  Shape shape = parts[0]->shape;
  const size_t axis = resolve_axis(along, shape.rank(), op);
  int64_t total = 0;
  for (const Spec* part : parts) {
    bool fits = part->shape.rank() == shape.rank();
    for (size_t i = 0; fits && i < shape.rank(); ++i)
      fits = i == axis || part->shape.dims()[i] == shape.dims()[i];
    if (!fits)
      throw ShapeError(fmt::format("{}: {} and {} differ in more than axis {}", op, shape.str(),
                                   part->shape.str(), along));
    if (__builtin_add_overflow(total, part->shape.dims()[axis], &total))
      throw ShapeError(
          fmt::format("{}: the sizes along axis {} add up to more than 64 bits hold", op, along));
  }
  shape.dims()[axis] = total;
  check_countable(shape, op);
  return shape;
}

class Concat : public Op, public Batchable {
 public:
  explicit Concat(int64_t axis)
      : Op({.linearity = Linearity::together,
            .precision = OpPrecision::follows,
            .only_copies = true,
            .gradient_reads = InputSet::none()}),
        axis_(axis) {}
  std::string_view name() const override { return "concat"; }
  Attributes attributes() const override { return {{"axis", axis_}}; }
  Specs infer(const InputSpecs& in) const override {
    for (const Spec* part : in) check_same_dtype(*in[0], *part, name());
    return {{in[0]->dtype, joined_shape(std::span(in.begin(), in.end()), axis_, name())}};
  }
  void run_cpu(const KernelCall& call) const override {
    int64_t begin = 0;
    for (const Tensor* part : call.inputs) {
      const int64_t size = part->shape()[axis_];
      Tensor to = call.outputs[0]->slice(axis_, begin, begin + size);
      copy_elements(*part, to);
      begin += size;
    }
  }
  ChannelsLastOp with_channels_last(const InputSpecs& in, const Spec& out) const override {
    return along_axis_with_channels_last(*this, in, out);
  }
  Gradients gradient(const GradientRule& rule) const override {
    Gradients settled(rule.inputs());
    if (!rule.output().node()->lazy) {  // the sizes are fixed: slices with constant bounds
      int64_t begin = 0;
      for (size_t i = 0; i < rule.inputs(); ++i) {
        const int64_t size = rule.input(i).shape()[axis_];
        if (rule.wants(i)) settled[i] = slice(rule.output_gradient(), axis_, begin, begin + size);
        begin += size;
      }
      return settled;
    }
    std::vector<Variable> parts;
    for (size_t i = 0; i < rule.inputs(); ++i) parts.push_back(rule.input(i));
    Gradients result;
    for (size_t i = 0; i < parts.size(); ++i)
      result.push_back(rule.wants(i) ? concat_part(rule.output_gradient(), parts, i, axis_) : Variable());
    return result;
  }
  InputSet row_inputs(const InputSpecs& in) const override {
    return resolve_axis(axis_, in[0]->shape.rank(), name()) > 0 ? InputSet::all() : InputSet::none();
  }
  Gradients batched(const Stacked& in) const override {
    std::vector<Variable> parts;
    for (size_t i = 0; i < in.size(); ++i) parts.push_back(in.stacked(i));
    return {concat(parts, in.axis(axis_))};
  }
  std::optional<int64_t> joins_along() const override { return axis_; }

 private:
  int64_t axis_;
};

/// The transpose of concat, for one of its inputs. Inputs: x, and all inputs of concat for their shapes.
class ConcatPart : public Op {
 public:
  ConcatPart(size_t part, int64_t axis)
      : Op({.precision = OpPrecision::follows,
            .only_copies = true,
            .reads = InputSet::only(0),
            .gradient_reads = InputSet::none()}),
        part_(part),
        axis_(axis) {}
  std::string_view name() const override { return "concat_part"; }
  Attributes attributes() const override { return {{"part", static_cast<int64_t>(part_)}, {"axis", axis_}}; }
  Specs infer(const InputSpecs& in) const override {
    if (in.size() < 2 || part_ > in.size() - 2)
      throw IndexError(fmt::format("concat_part: there is no part {} of {}", part_, in.size() - 1));
    const Shape whole = joined_shape(std::span(in.begin() + 1, in.end()), axis_, name());
    if (!(in[0]->shape == whole))
      throw ShapeError(
          fmt::format("concat_part: {} in place of {}, the parts together", in[0]->shape.str(), whole.str()));
    return {{in[0]->dtype, in[part_ + 1]->shape}};
  }
  void run_cpu(const KernelCall& call) const override {
    int64_t begin = 0;
    for (size_t i = 0; i < part_; ++i) begin += call.inputs[i + 1]->shape()[axis_];
    const int64_t size = call.inputs[part_ + 1]->shape()[axis_];
    copy_elements(call.inputs[0]->slice(axis_, begin, begin + size), *call.outputs[0]);
  }
  ChannelsLastOp with_channels_last(const InputSpecs& in, const Spec& out) const override {
    return along_axis_with_channels_last(*this, in, out);
  }
  Gradients gradient(const GradientRule& rule) const override {
    std::vector<Variable> parts;
    for (size_t i = 1; i < rule.inputs(); ++i) {
      const Variable like = rule.input(i);
      const Variable zero(full({}, 0, like.dtype()).to(like.device()));
      parts.push_back(i == part_ + 1 ? rule.output_gradient() : broadcast_like(zero, like));
    }
    Gradients result(rule.inputs());
    result[0] = concat(parts, axis_);
    return result;
  }

 private:
  size_t part_;
  int64_t axis_;
};

/// Inputs of one shape along a new axis.
/// Element i of each input, one behind the other, for each i.
void interleave(const KernelCall& call, size_t elements) {
  visit_size(call.outputs[0]->dtype(), [&]<class T>(TypeTag<T>) {
    constexpr size_t block = 1024;  // Lines of the output stay in the cache until all inputs are in.
    const size_t parts = call.inputs.size();
    SmallVector<Tensor, 4> dense;
    for (const Tensor* part : call.inputs) dense.push_back(part->contiguous_copy());
    T* const to = static_cast<T*>(call.outputs[0]->address());
    for (size_t begin = 0; begin < elements; begin += block)
      for (size_t k = 0; k < parts; ++k) {
        const T* from = static_cast<const T*>(dense[k].address());
        for (size_t i = begin; i < std::min(elements, begin + block); ++i) to[i * parts + k] = from[i];
      }
  });
}

class Stack : public Op, public Batchable {
 public:
  explicit Stack(int64_t axis)
      : Op({.linearity = Linearity::together,
            .precision = OpPrecision::follows,
            .only_copies = true,
            .gradient_reads = InputSet::none()}),
        axis_(axis) {}
  std::string_view name() const override { return "stack"; }
  Attributes attributes() const override { return {{"axis", axis_}}; }
  Specs infer(const InputSpecs& in) const override {
    for (const Spec* part : in) {
      check_same_dtype(*in[0], *part, name());
      if (!(part->shape == in[0]->shape))
        throw ShapeError(
            fmt::format("stack: shapes {} and {} differ", in[0]->shape.str(), part->shape.str()));
    }
    Shape shape = in[0]->shape;
    shape.dims().insert(resolve_axis(axis_, shape.rank() + 1, name()), static_cast<int64_t>(in.size()));
    check_countable(shape, name());
    return {{in[0]->dtype, std::move(shape)}};
  }
  void run_cpu(const KernelCall& call) const override {
    Tensor& out = *call.outputs[0];
    const size_t axis = resolve_axis(axis_, out.rank(), name()), parts = call.inputs.size();
    if (out.device().type != DeviceType::cpu) return copy_parts(call, axis);
    size_t blocks = 1;
    for (size_t i = 0; i < axis; ++i) blocks *= static_cast<size_t>(out.shape().dims()[i]);
    const size_t bytes = blocks ? out.bytes() / blocks / parts : 0;
    if (bytes == 0) return;
    if (bytes == size_of(out.dtype())) return interleave(call, blocks);
    for (size_t i = 0; i < parts; ++i) {
      const Tensor part = call.inputs[i]->contiguous_copy();
      const char* from = static_cast<const char*>(part.address());
      char* to = static_cast<char*>(out.address()) + i * bytes;
      for (size_t block = 0; block < blocks; ++block, from += bytes, to += parts * bytes)
        std::memcpy(to, from, bytes);
    }
  }
  Gradients gradient(const GradientRule& rule) const override {
    Gradients result(rule.inputs());
    for (size_t i = 0; i < result.size(); ++i) {
      const auto at = static_cast<int64_t>(i);
      if (rule.wants(i)) result[i] = squeeze(slice(rule.output_gradient(), axis_, at, at + 1), axis_);
    }
    return result;
  }
  Gradients batched(const Stacked& in) const override {
    std::vector<Variable> parts;
    for (size_t i = 0; i < in.size(); ++i) parts.push_back(in.stacked(i));
    return {stack(parts, in.axis(axis_))};
  }
  std::optional<int64_t> joins_along() const override { return axis_; }

 private:
  static void copy_parts(const KernelCall& call, size_t axis) {
    for (size_t i = 0; i < call.inputs.size(); ++i) {
      const Tensor& x = *call.inputs[i];
      Layout layout = x.layout();
      layout.shape.dims().insert(axis, 1);
      layout.strides.insert(axis, 0);
      const auto along = static_cast<int64_t>(axis), at = static_cast<int64_t>(i);
      Tensor to = call.outputs[0]->slice(along, at, at + 1);
      copy_elements(Tensor(x.storage(), std::move(layout), x.dtype()), to);
    }
  }

  int64_t axis_;
};

void check_some(const std::vector<Variable>& variables, std::string_view op,
                const std::source_location& where) {
  if (variables.empty())
    located(where, [&] { throw ShapeError(fmt::format("{}: the list of variables is empty", op)); });
}

}  // namespace

Variable concat(const std::vector<Variable>& variables, int64_t axis, std::source_location where) {
  check_some(variables, "concat", where);
  SmallVector<const Variable*, 8> inputs;
  for (const Variable& v : variables) inputs.push_back(&v);
  return apply(kept_op<Concat>(axis), {inputs.data(), inputs.size()}, where);
}

Variable stack(const std::vector<Variable>& variables, int64_t axis, std::source_location where) {
  check_some(variables, "stack", where);
  const CallScope scope(where);
  located(where, [&] {
    for (const Variable& v : variables) {
      if (!v.defined()) throw Error("stack: an operand is an undefined Variable");
      if (!(v.shape() == variables[0].shape()))
        throw ShapeError(
            fmt::format("stack: shapes {} and {} differ", variables[0].shape().str(), v.shape().str()));
      if (v.dtype() != variables[0].dtype())
        throw TypeError(fmt::format("stack: element types {} and {} differ; cast() one of them",
                                    name(variables[0].dtype()), name(v.dtype())));
    }
    (void)resolve_axis(axis, variables[0].rank() + 1, "stack");
  });
  const bool in_plan = build_context().lazy ||
                       std::ranges::any_of(variables, [](const Variable& v) { return v.node()->lazy; });
  if (!in_plan) {
    SmallVector<const Variable*, 8> inputs;
    for (const Variable& v : variables) inputs.push_back(&v);
    return apply(kept_op<Stack>(axis), {inputs.data(), inputs.size()}, where);
  }
  std::vector<Variable> parts;  // plans know more of these ops
  for (const Variable& v : variables) parts.push_back(unsqueeze(v, axis));
  return concat(parts, axis, where);
}

Variable concat_part(const Variable& x, const std::vector<Variable>& parts, size_t part, int64_t axis) {
  SmallVector<const Variable*, 8> inputs{&x};
  for (const Variable& v : parts) inputs.push_back(&v);
  return apply(std::make_shared<ConcatPart>(part, axis), {inputs.data(), inputs.size()},
               std::source_location::current());
}

void add_concat_ops(OpRegistry& ops) {
  ops.add("concat", Arity::at_least(1),
          [](AttributeReader& a) { return std::make_shared<Concat>(a.integer("axis")); });
  ops.add("stack", Arity::at_least(1),
          [](AttributeReader& a) { return std::make_shared<Stack>(a.integer("axis")); });
  ops.add("concat_part", Arity::at_least(2), [](AttributeReader& a) {
    return std::make_shared<ConcatPart>(static_cast<size_t>(a.integer("part", 0)), a.integer("axis"));
  });
}

}  // namespace espalier
