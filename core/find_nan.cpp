#include "espalier/core/find_nan.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <variant>

#include "espalier/core/deferred/waiting.h"
#include "espalier/core/error.h"
#include "espalier/core/nan_check.h"

namespace espalier {

namespace {

Content content_of(double x) {
  return std::isnan(x) ? Content::nan : std::isinf(x) ? Content::infinite : Content::finite;
}

/// Of the numbers that an op was made with, such as that of full_like.
Content content_of_settings(const Op& op) {
  Content content = Content::finite;
  for (const auto& [name, value] : op.attributes())
    if (const double* const number = std::get_if<double>(&value))
      content = std::max(content, content_of(*number));
  return content;
}

}  // namespace

Content content_of(const Tensor& value) {
  if (!value.defined() || !is_real(value.dtype()) || value.elements() == 0) return Content::finite;
  const Tensor here = value.to(cpu()).to(float64).contiguous_copy();
  Content content = Content::finite;
  for (const double x : here.span<double>()) content = std::max(content, content_of(x));
  return content;
}

void check_finite(const Node& node, const KernelCall& call) {
  Content made = Content::finite;
  for (const Tensor* result : call.outputs) made = std::max(made, content_of(*result));
  if (made == Content::finite) return;
  Content given = content_of_settings(node.op());
  for (size_t i = 0; i < call.inputs.size(); ++i)
    if (node.op().reads_elements(i)) given = std::max(given, content_of(*call.inputs[i]));
  if (made <= given) return;
  const char* const pass = node.tag == Tag::forward    ? "in the forward pass"
                           : node.tag == Tag::backward ? "in the backward pass"
                                                       : "in the update";
  throw NumericError(fmt::format("FindNan: '{}' has made {} {} out of {} operands", node.op().name(),
                                 made == Content::nan ? "NaN" : "infinity", pass,
                                 given == Content::finite ? "finite" : "infinite"));
}

FindNan::FindNan() : before_(std::exchange(kernels_here().find_nan, true)) {}
FindNan::~FindNan() { kernels_here().find_nan = before_; }

}  // namespace espalier
