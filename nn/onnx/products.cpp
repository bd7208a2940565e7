// Products of matrices and tensors.
#include <fmt/format.h>

#include "espalier/nn/onnx/translate.h"

namespace espalier::onnx {

namespace {

/// Integers are multiplied in float64, which has all sums below 2^53.
Variable product_of(const Variable& a, const Variable& b) {
  if (is_real(a.dtype())) return matmul(a, b);
  return cast(matmul(cast(a, float64), cast(b, float64)), a.dtype());
}

/// A vector is a row on the left and a column on the right, and that axis goes.
Variable any_product(const FileNode& node, const Variable& a, const Variable& b) {
  if (a.rank() == 0 || b.rank() == 0) node.fail("it multiplies a scalar");
  const bool row = a.rank() == 1, column = b.rank() == 1;
  Variable y = product_of(row ? unsqueeze(a, 0) : a, column ? unsqueeze(b, 1) : b);
  if (column) y = squeeze(y, -1);
  if (row) y = squeeze(y, column ? -1 : -2);
  return y;
}

Outputs general_product(FileNode& node) {
  Variable a = node[0], b = node[1];
  if (node.integer("transA", 0)) a = transpose(a);
  if (node.integer("transB", 0)) b = transpose(b);
  const double alpha = node.real("alpha", 1), beta = node.real("beta", 1);
  const bool real = is_real(a.dtype());
  const auto scaled = [&](const Variable& x, double factor) {
    if (factor == 1) return x;
    return real ? x * factor : x * static_cast<int64_t>(factor);
  };
  Variable y = scaled(product_of(a, b), alpha);
  if (node.has(2)) y = y + scaled(node[2], beta);
  return {y};
}

Outputs einstein(FileNode& node) { return {einsum(node.text("equation", ""), node.all())}; }

}  // namespace

void add_products(Registry& all) {
  all.add("MatMul", 1, [](FileNode& n) { return Outputs{any_product(n, n[0], n[1])}; });
  all.add("Gemm", 7, general_product);
  all.add("Einsum", 12, einstein);
  all.add("Det", 11, [](FileNode& n) { return Outputs{det(n[0])}; });
}

}  // namespace espalier::onnx
