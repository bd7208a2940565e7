// Pointwise ops as expressions in C.
#pragma once
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "espalier/core/dtype.h"
#include "espalier/executor/c_export/function.h"

namespace espalier::c_export {

/// An op of operands of that type as an expression of type `to`, in which names or literals stand for the
/// operands; nothing if there is none. Adds the functions that it calls.
std::optional<std::string> scalar_text(std::string_view op, DType from, DType to,
                                       std::span<const std::string> operands, Helpers& helpers);
/// The ops of which it knows an expression.
std::vector<std::string_view> scalar_ops();

}  // namespace espalier::c_export
