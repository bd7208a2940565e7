// Elementwise operations, products and conversions as nodes of ONNX.
#include <fmt/format.h>

#include <cmath>
#include <map>

#include "espalier/nn/onnx/graph_writer.h"
#include "espalier/nn/onnx/tensors.h"

namespace espalier::onnx {

namespace {

/// Ops that are one node of the same operands.
const std::map<std::string_view, std::string_view> same = {
    {"add", "Add"},
    {"subtract", "Sub"},
    {"multiply", "Mul"},
    {"power", "Pow"},
    {"maximum", "Max"},
    {"minimum", "Min"},
    {"saturate_min", "Max"},
    {"saturate_max", "Min"},
    {"clamp_min", "Max"},
    {"clamp_max", "Min"},
    {"negative", "Neg"},
    {"abs", "Abs"},
    {"sign", "Sign"},
    {"sqrt", "Sqrt"},
    {"exp", "Exp"},
    {"log", "Log"},
    {"sin", "Sin"},
    {"cos", "Cos"},
    {"tan", "Tan"},
    {"asin", "Asin"},
    {"acos", "Acos"},
    {"atan", "Atan"},
    {"sinh", "Sinh"},
    {"cosh", "Cosh"},
    {"asinh", "Asinh"},
    {"acosh", "Acosh"},
    {"atanh", "Atanh"},
    {"erf", "Erf"},
    {"relu", "Relu"},
    {"tanh", "Tanh"},
    {"sigmoid", "Sigmoid"},
    {"gelu", "Gelu"},
    {"mish", "Mish"},
    {"softsign", "Softsign"},
    {"hardswish", "HardSwish"},
    {"reciprocal", "Reciprocal"},
    {"where", "Where"},
    {"equal", "Equal"},
    {"less", "Less"},
    {"less_equal", "LessOrEqual"},
    {"greater", "Greater"},
    {"greater_equal", "GreaterOrEqual"},
    {"logical_and", "And"},
    {"logical_or", "Or"},
    {"logical_not", "Not"},
    {"logical_xor", "Xor"},
    {"add_all", "Sum"},
    {"selu", "Selu"},
    {"bitwise_and", "BitwiseAnd"},
    {"bitwise_or", "BitwiseOr"},
    {"bitwise_xor", "BitwiseXor"},
    {"bitwise_not", "BitwiseNot"},
};

std::string product(GraphWriter& w, const GraphWriter::Call& call) {
  const bool transpose_a = attribute<bool>(call.op, "transpose_a"),
             transpose_b = attribute<bool>(call.op, "transpose_b");
  if (call.input(0).shape.rank() == 2 && call.input(1).shape.rank() == 2 && (transpose_a || transpose_b)) {
    pb::NodeProto& node = w.begin("Gemm", call.inputs);
    w.set(node, "transA", int64_t{transpose_a});
    w.set(node, "transB", int64_t{transpose_b});
    return w.last_output(node);
  }
  const auto operand = [&](size_t i, bool transposed) {
    if (!transposed) return call.inputs[i];
    const size_t rank = call.input(i).shape.rank();
    std::vector<int64_t> order;
    for (size_t axis = 0; axis < rank; ++axis) order.push_back(static_cast<int64_t>(axis));
    std::swap(order[rank - 1], order[rank - 2]);
    pb::NodeProto& node = w.begin("Transpose", {call.inputs[i]});
    w.set(node, "perm", order);
    return w.last_output(node);
  };
  return w.add("MatMul", {operand(0, transpose_a), operand(1, transpose_b)});
}

/// A product that is added to a matrix, or to a vector for each row.
std::string added_product(GraphWriter& w, const GraphWriter::Call& call) {
  pb::NodeProto& node = w.begin("Gemm", {call.inputs[1], call.inputs[2], call.inputs[0]});
  w.set(node, "transA", int64_t{attribute<bool>(call.op, "transpose_a")});
  w.set(node, "transB", int64_t{attribute<bool>(call.op, "transpose_b")});
  return w.last_output(node);
}

/// x and a number, which ONNX has as an attribute.
std::string with_attribute(GraphWriter& w, const GraphWriter::Call& call, std::string_view type,
                           std::string_view name) {
  pb::NodeProto& node = w.begin(type, {call.inputs[0]});
  w.set(node, name, w.number_of(call.node.inputs[1], call.op));
  return w.last_output(node);
}

}  // namespace

std::string write_elementwise(GraphWriter& w, const GraphWriter::Call& call) {
  const std::string_view op = call.op.name();
  const auto& in = call.inputs;
  const DType dtype = call.output().dtype;
  const bool integer = !is_real(dtype);
  if (const auto known = same.find(op); known != same.end()) return w.add(known->second, in);
  if (op == "divide" && !integer) {
    const std::string_view left = call.node.inputs[0].node()->op().name(),
                           right = call.node.inputs[1].node()->op().name();
    if (left == "pool_sum" && right == "pool_count") return {};  // write_windows
    return w.add("Div", in);
  }
  if ((op == "floor" || op == "ceil" || op == "round" || op == "trunc") && integer) return in[0];
  if (op == "floor") return w.add("Floor", in);
  if (op == "ceil") return w.add("Ceil", in);
  if (op == "round") return w.add("Round", in);
  if (op == "trunc") return w.add("Mul", {w.add("Sign", in), w.add("Floor", {w.add("Abs", in)})});
  if (op == "not_equal") return w.add("Not", {w.add("Equal", in)});
  if (op == "erfc") return w.add("Sub", {w.number(1, dtype), w.add("Erf", in)});
  if (op == "square") return w.add("Mul", {in[0], in[0]});
  if (op == "cube") return w.add("Mul", {w.add("Mul", {in[0], in[0]}), in[0]});
  if (op == "rsqrt") return w.add("Reciprocal", {w.add("Sqrt", in)});
  if (op == "silu") return w.add("Mul", {in[0], w.add("Sigmoid", in)});
  if (op == "exp2") return w.add("Pow", {w.number(2, dtype), in[0]});
  if (op == "expm1") return w.add("Sub", {w.add("Exp", in), w.number(1, dtype)});
  if (op == "log1p") return w.add("Log", {w.add("Add", {in[0], w.number(1, dtype)})});
  if (op == "log2") return w.add("Div", {w.add("Log", in), w.number(std::log(2.0), dtype)});
  if (op == "log10") return w.add("Div", {w.add("Log", in), w.number(std::log(10.0), dtype)});
  if (op == "hardsigmoid") {
    pb::NodeProto& node = w.begin("HardSigmoid", in);
    w.set(node, "alpha", 1.0 / 6);
    w.set(node, "beta", 0.5);
    return w.last_output(node);
  }
  if (op == "elu") return with_attribute(w, call, "Elu", "alpha");
  if (op == "celu") return with_attribute(w, call, "Celu", "alpha");
  if (op == "softplus") {
    const std::string beta = in[1];
    return w.add("Div", {w.add("Softplus", {w.add("Mul", {in[0], beta})}), beta});
  }
  if (op == "cast") {
    pb::NodeProto& node = w.begin("Cast", in);
    w.set(node, "to", int64_t{type_in_file(dtype)});
    return w.last_output(node);
  }
  if (op == "matmul") return product(w, call);
  if (op == "sum_of_products" && in.size() == 3) return added_product(w, call);
  return {};
}

}  // namespace espalier::onnx
