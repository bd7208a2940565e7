// Elementwise functions that ONNX has no node for, by a few nodes.
#include <cmath>
#include <limits>
#include <numbers>

#include "espalier/core/op_names.h"
#include "espalier/nn/onnx/graph_writer.h"

namespace espalier::onnx {

namespace {

using Name = std::string;

/// What formulas are made of. Numbers have the dtype of the first operand.
class Formula {
 public:
  Formula(GraphWriter& writer, const GraphWriter::Call& call)
      : w_(writer), call_(call), dtype_(call.input(0).dtype) {}
  bool integer() const { return !is_real(dtype_); }
  Name number(double value) const { return w_.number(value, dtype_); }
  Name of(std::string_view type, const Name& a) const { return w_.add(type, {a}); }
  Name of(std::string_view type, const Name& a, const Name& b) const { return w_.add(type, {a, b}); }
  Name of(std::string_view type, const Name& a, double b) const { return w_.add(type, {a, number(b)}); }
  Name of(std::string_view type, double a, const Name& b) const { return w_.add(type, {number(a), b}); }
  Name where(const Name& condition, const Name& a, const Name& b) const {
    return w_.add("Where", {condition, a, b});
  }
  /// Whether the signs differ, of what is not 0.
  Name signs_differ(const Name& a, const Name& b) const {
    return of("Xor", of("Less", a, 0), of("Less", b, 0));
  }

  /// The rest with the sign of a.
  Name truncated_rest(const Name& a, const Name& b) const {
    pb::NodeProto& node = w_.begin("Mod", {a, b});
    w_.set(node, "fmod", int64_t{1});
    return w_.last_output(node);
  }
  /// The rest with the sign of b.
  Name floored_rest(const Name& a, const Name& b) const {
    if (integer()) return of("Mod", a, b);
    const Name rest = truncated_rest(a, b);
    return where(is_moved(rest, b), of("Add", rest, b), rest);
  }
  /// The integer at or below a / b.
  Name floored_quotient(const Name& a, const Name& b) const {
    if (integer()) {
      const Name quotient = of("Div", a, b), exact = of("Equal", of("Mul", quotient, b), a);
      const Name below = of("And", of("Not", exact), signs_differ(a, b));
      return where(below, of("Sub", quotient, 1), quotient);
    }
    const Name rest = truncated_rest(a, b), quotient = of("Div", of("Sub", a, rest), b);
    const Name whole = of("Round", where(is_moved(rest, b), of("Sub", quotient, 1), quotient));
    return where(of("Equal", b, 0), of("Div", a, b), whole);
  }
  /// onnxruntime ends the program that divides an integer by zero. Espalier has 0 for quotient and rest.
  template <class F>
  Name unless_by_zero(F&& f) const {
    const Name &a = call_.inputs[0], &b = call_.inputs[1];
    if (!integer() || divides_by_number()) return f(a, b);
    const Name by_zero = of("Equal", b, 0);
    return where(by_zero, number(0), f(a, where(by_zero, number(1), b)));
  }

  Name atan2(const Name& y, const Name& x) const {
    const Name infinite = of("And", of("IsInf", y), of("IsInf", x));
    const Name zero = of("And", of("Equal", y, 0), of("Equal", x, 0));
    const Name one = number(1);
    const Name ratio =
        of("Div", where(infinite, one, of("Abs", y)), where(of("Or", infinite, zero), one, of("Abs", x)));
    const Name steep = of("Atan", ratio);
    const Name angle = where(is_negative(x), of("Sub", std::numbers::pi, steep), steep);
    return where(is_negative(y), of("Neg", angle), angle);
  }
  Name hypot(const Name& a, const Name& b) const {
    const Name x = of("Abs", a), y = of("Abs", b), larger = of("Max", x, y);
    const Name ratio = of("Div", of("Min", x, y), where(of("Equal", larger, 0), number(1), larger));
    const Name length = of("Mul", larger, of("Sqrt", of("Add", of("Mul", ratio, ratio), 1)));
    return where(of("Or", of("IsInf", x), of("IsInf", y)), number(std::numeric_limits<double>::infinity()),
                 length);
  }
  Name logaddexp(const Name& a, const Name& b) const {
    const Name apart = of("Neg", of("Abs", of("Sub", a, b)));
    return of("Add", of("Max", a, b), of("Softplus", where(of("Equal", a, b), number(0), apart)));
  }
  Name xlogy(const Name& x, const Name& y) const {
    const Name nothing = of("And", of("Equal", x, 0), of("Not", of("IsNaN", y)));
    return where(nothing, number(0), of("Mul", x, of("Log", y)));
  }
  Name heaviside(const Name& x, const Name& at_zero) const {
    return where(of("Equal", x, 0), at_zero, where(of("Greater", x, 0), number(1), number(0)));
  }

  /// x within ±1000, where a slope of the form share(x) (1 + x (1 - share(x))) has its limits.
  Name bounded(const Name& x) const { return of("Max", of("Min", x, 1000), -1000); }
  Name gelu_slope(const Name& given) const {
    const Name x = bounded(given);
    const Name below = of("Mul", of("Add", of("Erf", of("Mul", x, std::numbers::sqrt2 / 2)), 1), 0.5);
    const Name density = of("Mul", of("Exp", of("Mul", of("Mul", x, x), -0.5)),
                            std::numbers::inv_sqrtpi / std::numbers::sqrt2);
    return of("Add", below, of("Mul", x, density));
  }
  Name gelu_tanh_slope(const Name& given) const {
    constexpr double c = 0.044715, k = 2 * std::numbers::sqrt2 * std::numbers::inv_sqrtpi;
    const Name x = bounded(given), squares = of("Mul", x, x);
    const Name share = of("Sigmoid", of("Mul", x, of("Add", of("Mul", squares, c * k), k)));
    const Name angle = of("Mul", x, of("Add", of("Mul", squares, 3 * c * k), k));
    return of("Add", share, of("Mul", of("Mul", share, of("Sub", 1, share)), angle));
  }
  Name silu_slope(const Name& given) const {
    const Name x = bounded(given), share = of("Sigmoid", x);
    return of("Mul", share, of("Add", of("Mul", x, of("Sub", 1, share)), 1));
  }
  /// With t = tanh(softplus(x)): t + x (1 - t²) sigmoid(x).
  Name mish_slope(const Name& given) const {
    const Name x = bounded(given), t = of("Tanh", of("Softplus", x));
    return of("Add", t, of("Mul", of("Mul", x, of("Sub", 1, of("Mul", t, t))), of("Sigmoid", x)));
  }

 private:
  /// Of reals: whether a rest with the sign of a is not the one with the sign of b.
  Name is_moved(const Name& rest, const Name& b) const {
    return of("And", of("Not", of("Equal", rest, 0)), signs_differ(rest, b));
  }
  /// Also for -0.
  Name is_negative(const Name& x) const {
    return of("Or", of("Less", x, 0), of("Less", of("Reciprocal", x), 0));
  }
  bool divides_by_number() const {
    const Edge& divisor = call_.node.inputs[1];
    return is_constant(divisor.node()->op()) && divisor.spec().shape.elements() == 1 &&
           w_.number_of(divisor, call_.op) != 0;
  }

  GraphWriter& w_;
  const GraphWriter::Call& call_;
  DType dtype_;
};

/// Whether reals are finite, NaN, infinite.
Name class_of_number(const Formula& f, std::string_view op, const GraphWriter::Names& in, GraphWriter& w) {
  if (f.integer()) {
    const Name finite = f.of("Equal", in[0], in[0]);
    return op == "isfinite" ? finite : f.of("Not", finite);
  }
  if (op == "isfinite") return f.of("Not", f.of("Or", f.of("IsInf", in[0]), f.of("IsNaN", in[0])));
  if (op == "isnan") return f.of("IsNaN", in[0]);
  pb::NodeProto& node = w.begin("IsInf", in);
  if (op != "isinf") w.set(node, op == "isposinf" ? "detect_negative" : "detect_positive", int64_t{0});
  return w.last_output(node);
}

/// x above 0, and x times a number below, or a slope of each channel.
Name leaky(const Formula& f, const GraphWriter::Call& call, GraphWriter& w) {
  const auto& in = call.inputs;
  const Edge& slope = call.node.inputs[1];
  if (is_constant(slope.node()->op()) && slope.spec().shape.elements() == 1) {
    pb::NodeProto& node = w.begin("LeakyRelu", {in[0]});
    w.set(node, "alpha", w.number_of(slope, call.op));
    return w.last_output(node);
  }
  if (call.output().shape == call.input(0).shape) return w.add("PRelu", in);
  return f.where(f.of("Greater", in[0], 0), in[0], f.of("Mul", in[0], in[1]));
}

Name slope_of(const Formula& f, std::string_view op, const GraphWriter::Names& in) {
  const auto from_zero = [&](double above, const Name& below) {
    return f.where(f.of("Greater", in[0], 0), f.number(above), below);
  };
  if (op == "relu_gradient") return f.where(f.of("Greater", in[1], 0), in[0], f.number(0));
  if (op == "gelu_gradient") return f.of("Mul", in[0], f.gelu_slope(in[1]));
  if (op == "gelu_tanh_slope") return f.gelu_tanh_slope(in[0]);
  if (op == "silu_slope") return f.silu_slope(in[0]);
  if (op == "mish_slope") return f.mish_slope(in[0]);
  if (op == "elu_slope") return from_zero(1, f.of("Mul", f.of("Exp", in[0]), in[1]));
  if (op == "celu_slope") return from_zero(1, f.of("Exp", f.of("Div", in[0], in[1])));
  if (op == "selu_slope") {
    constexpr double scale = 1.0507009873554804934, alpha = 1.6732632423543772848;
    return from_zero(scale, f.of("Mul", f.of("Exp", in[0]), scale * alpha));
  }
  return {};
}

}  // namespace

std::string write_functions(GraphWriter& w, const GraphWriter::Call& call) {
  if (call.node.inputs.empty()) return {};
  const std::string_view op = call.op.name();
  const auto& in = call.inputs;
  const Formula f(w, call);
  if (op == "isfinite" || op == "isnan" || op == "isinf" || op == "isposinf" || op == "isneginf")
    return class_of_number(f, op, in, w);
  if (op == "fmod")
    return f.unless_by_zero([&](const Name& a, const Name& b) { return f.truncated_rest(a, b); });
  if (op == "remainder")
    return f.unless_by_zero([&](const Name& a, const Name& b) { return f.floored_rest(a, b); });
  if (op == "floor_divide")
    return f.unless_by_zero([&](const Name& a, const Name& b) { return f.floored_quotient(a, b); });
  if (op == "atan2") return f.atan2(in[0], in[1]);
  if (op == "hypot") return f.hypot(in[0], in[1]);
  if (op == "logaddexp") return f.logaddexp(in[0], in[1]);
  if (op == "xlogy") return f.xlogy(in[0], in[1]);
  if (op == "heaviside") return f.heaviside(in[0], in[1]);
  if (op == "leaky_relu") return leaky(f, call, w);
  if (op == "gelu_tanh") {
    pb::NodeProto& node = w.begin("Gelu", in);
    w.set_text(node, "approximate", "tanh");
    return w.last_output(node);
  }
  // Shrink would make 0 of NaN.
  if (op == "softshrink")
    return f.of("Sub", in[0], f.of("Max", f.of("Min", in[0], in[1]), f.of("Neg", in[1])));
  if (op == "hardshrink") return f.where(f.of("LessOrEqual", f.of("Abs", in[0]), in[1]), f.number(0), in[0]);
  if (op == "log_sigmoid") return f.of("Neg", f.of("Softplus", f.of("Neg", in[0])));
  if (op == "tanhshrink") return f.of("Sub", in[0], f.of("Tanh", in[0]));
  return slope_of(f, op, in);
}

}  // namespace espalier::onnx
