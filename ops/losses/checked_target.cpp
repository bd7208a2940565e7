#include "espalier/ops/losses/checked_target.h"

#include <fmt/format.h>

#include <string>

#include "espalier/core/error.h"
#include "espalier/core/first_input.h"
#include "espalier/core/node.h"
#include "espalier/core/op_registry.h"
#include "espalier/ops/registered_ops.h"

namespace espalier {

namespace {

/// Shows the first input, a target, and reads the shape of the second.
class CheckedTarget : public FirstInput {
 public:
  CheckedTarget(std::string function, bool labels) : function_(std::move(function)), labels_(labels) {}
  std::string_view name() const override { return "checked_target"; }
  Attributes attributes() const override { return {{"function", function_}, {"labels", labels_}}; }
  Specs infer(const InputSpecs& in) const override {
    const Shape &target = in[0]->shape, &scores = in[1]->shape;
    if (labels_ && (scores.rank() == 0 || !(target == Shape(Dims(scores.begin(), scores.end() - 1)))))
      throw ShapeError(fmt::format(
          "{}: labels of shape {} do not go with scores of shape {}: there is one for each row of scores",
          function_, target.str(), scores.str()));
    if (!labels_ && !(target == scores))
      throw ShapeError(
          fmt::format("{}: operands of shapes {} and {} differ", function_, scores.str(), target.str()));
    return FirstInput::infer(in);
  }

 private:
  std::string function_;  // that the user called
  bool labels_;
};

void check_weights(const Shape& weights, const Shape& losses, std::string_view function) {
  const Dims &some = weights.dims(), &all = losses.dims();
  bool fits = some.size() <= all.size();
  for (size_t i = 1; fits && i <= some.size(); ++i)
    fits = some[some.size() - i] == 1 || some[some.size() - i] == all[all.size() - i];
  if (!fits)
    throw ShapeError(fmt::format("{}: weights of shape {} cannot be broadcast to losses of shape {}",
                                 function, weights.str(), losses.str()));
}

/// Shows the first input, weights, and reads the shape of the second, losses.
class CheckedWeights : public FirstInput {
 public:
  explicit CheckedWeights(std::string function) : function_(std::move(function)) {}
  std::string_view name() const override { return "checked_weights"; }
  Attributes attributes() const override { return {{"function", function_}}; }
  Specs infer(const InputSpecs& in) const override {
    check_weights(in[0]->shape, in[1]->shape, function_);
    return FirstInput::infer(in);
  }

 private:
  std::string function_;  // that the user called
};

bool is_known_later(const Variable& a, const Variable& b) { return a.node()->lazy || b.node()->lazy; }

Variable checked(const Variable& target, const Variable& scores, std::string_view function, bool labels) {
  if (!is_known_later(target, scores)) return target;
  return apply(std::make_shared<CheckedTarget>(std::string(function), labels), {&target, &scores},
               std::source_location::current());
}

}  // namespace

Variable checked_target(const Variable& target, const Variable& scores, std::string_view function) {
  return checked(target, scores, function, false);
}
Variable checked_labels(const Variable& labels, const Variable& scores, std::string_view function) {
  return checked(labels, scores, function, true);
}
Variable checked_weights(const Variable& weights, const Variable& losses, std::string_view function) {
  if (is_known_later(weights, losses))
    return apply(std::make_shared<CheckedWeights>(std::string(function)), {&weights, &losses},
                 std::source_location::current());
  check_weights(weights.shape(), losses.shape(), function);
  return weights;
}

void add_target_check_ops(OpRegistry& ops) {
  ops.add("checked_target", 2, [](AttributeReader& a) {
    return std::make_shared<CheckedTarget>(a.text("function"), a.flag("labels"));
  });
  ops.add("checked_weights", 2,
          [](AttributeReader& a) { return std::make_shared<CheckedWeights>(a.text("function")); });
}

}  // namespace espalier
