#include "espalier/executor/fused/codegen/fused_values.h"

#include <fmt/format.h>

#include "espalier/core/error.h"
#include "espalier/core/op_names.h"
#include "espalier/core/scalar.h"

namespace espalier::fused {

namespace {

class Lowering {
 public:
  Lowering(const Program& program, const FusedTensors& tensors) : program_(program), tensors_(tensors) {}

  Values run() {
    for (const Instruction& n : program_.instructions) ids_.push_back(lower(n));
    for (const uint32_t output : program_.outputs) values_.results.push_back(ids_[output]);
    return std::move(values_);
  }

 private:
  uint32_t add(Value value) {
    values_.all.push_back(std::move(value));
    return static_cast<uint32_t>(values_.all.size()) - 1;
  }
  uint32_t add_map(std::string functor, Extent extent, DType dtype, std::vector<uint32_t> arguments) {
    return add({.kind = Value::Kind::map,
                .extent = extent,
                .dtype = dtype,
                .text = std::move(functor),
                .arguments = std::move(arguments)});
  }
  uint32_t add_fold(Value::Kind kind, Extent extent, Fold fold, uint32_t argument) {
    return add({.kind = kind,
                .extent = extent,
                .dtype = values_.all[argument].dtype,
                .arguments = {argument},
                .fold = fold});
  }

  uint32_t argument(const Argument& argument, const Instruction& by) {
    if (argument.from == Argument::From::value) return ids_[argument.index];
    if (argument.from == Argument::From::constant) {
      const Program::Constant& c = program_.constants[argument.index];
      return add({.kind = Value::Kind::constant,
                  .extent = Extent::uniform,
                  .dtype = c.dtype,
                  .text = literal(c.value, c.dtype)});
    }
    const FusedTensor& tensor = tensors_.inputs[argument.index];
    const Extent extent =
        by.extent == Extent::uniform && by.kind == Instruction::Kind::map ? Extent::uniform : argument.extent;
    const Layout layout =
        extent == Extent::uniform ? Layout() : collapsed(broadcast_layout(tensor.layout, by.shape));
    for (uint32_t i = 0; i < values_.all.size(); ++i) {
      const Value& known = values_.all[i];
      if (known.kind == Value::Kind::load && known.input == argument.index && known.extent == extent &&
          known.layout.shape == layout.shape && known.layout.strides == layout.strides)
        return i;
    }
    return add({.kind = Value::Kind::load,
                .extent = extent,
                .dtype = tensor.dtype,
                .input = argument.index,
                .layout = layout});
  }

  uint32_t lower(const Instruction& n) {
    std::vector<uint32_t> arguments;
    for (const Argument& a : n.arguments) arguments.push_back(argument(a, n));
    switch (n.kind) {
      case Instruction::Kind::map: return map(n, arguments);
      case Instruction::Kind::whole_row: return whole_row(n, arguments[0]);
      case Instruction::Kind::fold_row:
        return add_fold(Value::Kind::fold_row, Extent::row, n.fold, arguments[0]);
      case Instruction::Kind::fold_all:
        return add_fold(Value::Kind::fold_all, Extent::uniform, n.fold, arguments[0]);
      case Instruction::Kind::fold_column: break;
    }
    const uint32_t id = add_fold(Value::Kind::fold_column, Extent::uniform, n.fold, arguments[0]);
    values_.all[id].period = n.period;
    return id;
  }

  uint32_t map(const Instruction& n, const std::vector<uint32_t>& arguments) {
    std::vector<Spec> specs;
    for (const uint32_t a : arguments) specs.push_back({values_.all[a].dtype, n.shape});
    InputSpecs inputs;
    for (const Spec& spec : specs) inputs.push_back(&spec);
    const std::string functor(n.op->loops(inputs).functor);
    if (functor.empty())
      throw UnsupportedError(fmt::format("{}: has no function for CUDA kernels", n.op->name()));
    if (arguments.size() <= 2 || functor == "scalar::Select")
      return add_map(functor, n.extent, n.dtype, arguments);
    uint32_t result = arguments[0];  // more than two are folded from the left
    for (size_t k = 1; k < arguments.size(); ++k)
      result = add_map(functor, n.extent, n.dtype, {result, arguments[k]});
    return result;
  }

  uint32_t whole_row(const Instruction& n, uint32_t x) {
    const bool logarithm = is_op(*n.op, "log_softmax");
    if (!logarithm && !is_op(*n.op, "softmax"))
      throw UnsupportedError(fmt::format("{}: has no function for CUDA kernels", n.op->name()));
    const uint32_t largest = add_fold(Value::Kind::fold_row, Extent::row, Fold::max, x);
    const uint32_t below = add_map("scalar::Subtract", Extent::full, n.dtype, {x, largest});
    const uint32_t exp = add_map("scalar::Exp", Extent::full, n.dtype, {below});
    const uint32_t sum = add_fold(Value::Kind::fold_row, Extent::row, Fold::sum, exp);
    if (logarithm)
      return add_map("scalar::Subtract", Extent::full, n.dtype,
                     {below, add_map("scalar::Log", Extent::row, n.dtype, {sum})});
    return add_map("scalar::Multiply", Extent::full, n.dtype,
                   {exp, add_map("scalar::Reciprocal", Extent::row, n.dtype, {sum})});
  }

  const Program& program_;
  const FusedTensors& tensors_;
  Values values_;
  std::vector<uint32_t> ids_;  // of each instruction
};

}  // namespace

Values lower_to_values(const Program& program, const FusedTensors& tensors) {
  return Lowering(program, tensors).run();
}

std::string_view stored_type(DType dtype) {
  switch (dtype) {
    case DType::float32: return "float";
    case DType::float64: return "double";
    case DType::int32: return "int";
    case DType::int64: return "long";
    case DType::boolean: return "bool";
    case DType::float16: return "Float16";
    case DType::bfloat16: return "BFloat16";
    case DType::int8: return "signed char";
    case DType::uint8: return "unsigned char";
    case DType::int16: return "short";
  }
  return {};
}

DType computed_dtype(DType dtype) { return is_half(dtype) ? DType::float32 : dtype; }
std::string_view computed_type(DType dtype) { return stored_type(computed_dtype(dtype)); }

std::string literal(double value, DType dtype) {
  switch (dtype) {
    case DType::float32: {
      const auto x = static_cast<float>(value);
      if (std::isfinite(x)) return fmt::format("{:a}f", x);
      return fmt::format("__builtin_bit_cast(float, {:#x}u)", __builtin_bit_cast(uint32_t, x));
    }
    case DType::float64:
      if (std::isfinite(value)) return fmt::format("{:a}", value);
      return fmt::format("__builtin_bit_cast(double, {:#x}ul)", __builtin_bit_cast(uint64_t, value));
    case DType::int32: {
      const auto x = scalar::Cast<int32_t>()(value);
      return x == INT32_MIN ? "(-2147483647 - 1)" : fmt::format("{}", x);
    }
    case DType::int64: {
      const auto x = scalar::Cast<int64_t>()(value);
      return x == INT64_MIN ? "(-9223372036854775807l - 1)" : fmt::format("{}l", x);
    }
    case DType::float16: return literal(Float16(value), DType::float32);
    case DType::bfloat16: return literal(BFloat16(value), DType::float32);
    case DType::int8:
    case DType::uint8:
    case DType::int16: return literal(value, DType::int32);
    case DType::boolean: break;
  }
  return value != 0 ? "true" : "false";
}

}  // namespace espalier::fused
