// What the operators that exporters write between Shape and Reshape make of sizes.
#pragma once
#include <vector>

#include "espalier/nn/onnx/registry.h"
#include "espalier/nn/onnx/size.h"

namespace espalier::onnx {

/// The inputs of a node that computes with open sizes as numbers, beside what a batch has or in comparisons:
/// there they are read from each batch. Empty for other nodes.
std::vector<Value> with_sizes_read(const FileNode& node);

/// The elements of each of the outputs `made`, constants, of a node that has sizes among its inputs. Empty
/// for one that holds none. Moved sizes stay what they are, products are products, and what is computed in
/// another way says so.
std::vector<std::vector<Size>> sizes_after(const FileNode& node, Translate translate, const Outputs& made);

}  // namespace espalier::onnx
