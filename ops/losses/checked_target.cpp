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

Variable checked(const Variable& target, const Variable& scores, std::string_view function, bool labels) {
  if (!target.node()->lazy && !scores.node()->lazy) return target;
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

void add_target_check_ops(OpRegistry& ops) {
  ops.add("checked_target", 2, [](AttributeReader& a) {
    return std::make_shared<CheckedTarget>(a.text("function"), a.flag("labels"));
  });
}

}  // namespace espalier
