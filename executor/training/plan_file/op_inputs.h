// How many inputs ops have.
#pragma once
#include <cstddef>
#include <string_view>

namespace espalier {

/// Whether nodes of a tree may have an op of that name with so many inputs. Inference of shapes relies on it:
/// functions that users call give an op its inputs, and a file might give others. False for ops that only
/// passes make. A new op is added to the list in op_inputs.cpp; without, trees with it cannot be saved.
bool takes_inputs(std::string_view op, size_t inputs);

}  // namespace espalier
