// A fused program as loops in C.
#pragma once
#include "espalier/executor/c_export/function.h"
#include "espalier/executor/fused/program.h"

namespace espalier::c_export {

/// Writes a program over inputs and outputs of the function. Each row of the domain runs through one loop, or
/// through one more after each fold of a row that later values need.
void write_program(Function& f, const Program& program);
/// The same for one pointwise op.
void write_pointwise(Function& f);
/// softmax and log_softmax of rows that lie side by side. Adds their function and returns its name.
std::string softmax_function(Function& f, std::string_view op, DType dtype);

}  // namespace espalier::c_export
