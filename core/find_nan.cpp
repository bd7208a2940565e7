#include "espalier/core/find_nan.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <variant>
#include <vector>

#include "espalier/core/deferred/waiting.h"
#include "espalier/core/error.h"
#include "espalier/core/nan_check.h"

namespace espalier {

namespace {

Content content_of(double x) {
  return std::isnan(x) ? Content::nan : std::isinf(x) ? Content::infinite : Content::finite;
}

bool has_content(const Tensor& value) {
  return value.defined() && is_real(value.dtype()) && value.elements() > 0;
}

Tensor as_doubles(const Tensor& value) { return value.to(cpu()).to(float64).contiguous_copy(); }

/// Of the settings of an op, which a program writes down itself.
Content content_of(const Attributes& attributes) {
  Content content = Content::finite;
  for (const auto& [name, value] : attributes)
    if (const double* number = std::get_if<double>(&value)) content = std::max(content, content_of(*number));
  return content;
}

/// What a kernel made of operands that do not have it.
struct Fault {
  Content made = Content::finite, given = Content::finite;

  void add(Content result, Content operands) {
    if (result > operands && result > made) *this = {result, operands};
  }
};

/// Every operand meets every result.
Fault fault_of_all(const KernelCall& call, const Op& op, Content made, Content given) {
  Fault fault;
  for (size_t i = 0; i < call.inputs.size(); ++i)
    if (op.reads_elements(i)) given = std::max(given, content_of(*call.inputs[i]));
  fault.add(made, given);
  return fault;
}

/// Operands meet the results at their own places.
Fault fault_of_elements(const KernelCall& call, const Op& op, Content setting) {
  Fault fault;
  const Shape& shape = call.outputs[0]->shape();
  std::vector<Content> given(static_cast<size_t>(shape.elements()), setting);
  for (size_t i = 0; i < call.inputs.size(); ++i) {
    if (!op.reads_elements(i) || !has_content(*call.inputs[i])) continue;
    const Tensor own = as_doubles(*call.inputs[i]);
    const Tensor all =
        Tensor(own.storage(), broadcast_layout(own.layout(), shape), float64).contiguous_copy();
    const auto elements = all.span<double>();
    for (size_t k = 0; k < given.size(); ++k) given[k] = std::max(given[k], content_of(elements[k]));
  }
  const Tensor results = as_doubles(*call.outputs[0]);
  const auto made = results.span<double>();
  for (size_t k = 0; k < given.size(); ++k) fault.add(content_of(made[k]), given[k]);
  return fault;
}

}  // namespace

Content content_of(const Tensor& value) {
  Content content = Content::finite;
  if (!has_content(value)) return content;
  const Tensor here = as_doubles(value);
  for (const double x : here.span<double>()) {
    if (std::isnan(x)) return Content::nan;
    content = std::max(content, content_of(x));
  }
  return content;
}

void check_finite(const Node& node, const KernelCall& call) {
  // Kernels have further outputs for gradients, as the logarithms of sums in attention: of nothing these are
  // infinite, which is no fault. All outputs of loops and custom ops are results.
  Content made = content_of(*call.outputs[0]);
  for (size_t k = 1; k < call.outputs.size(); ++k)
    if (const Content further = content_of(*call.outputs[k]);
        further == Content::nan || node.op().traits().runs_on_host)
      made = std::max(made, further);
  if (made == Content::finite) return;
  const Op& op = node.op();
  const Content setting = content_of(op.attributes());
  const bool apart = op.is_pointwise() && call.outputs.size() == 1;
  const Fault fault = apart ? fault_of_elements(call, op, setting) : fault_of_all(call, op, made, setting);
  if (fault.made == Content::finite) return;
  const char* const pass = node.tag == Tag::forward    ? "in the forward pass"
                           : node.tag == Tag::backward ? "in the backward pass"
                                                       : "in the update";
  throw NumericError(fmt::format("FindNan: '{}' has made {} {} out of {} operands", op.name(),
                                 fault.made == Content::nan ? "NaN" : "infinity", pass,
                                 fault.given == Content::finite ? "finite" : "infinite"));
}

FindNan::FindNan() : before_(std::exchange(kernels_here().find_nan, true)) {}
FindNan::~FindNan() { kernels_here().find_nan = before_; }

}  // namespace espalier
