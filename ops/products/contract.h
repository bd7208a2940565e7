// Sums of products over labelled axes: what einsum, tensordot and others are made of.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "espalier/core/variable.h"

namespace espalier {

using AxisLabels = std::vector<int>;

/// An operand, with a label for each axis. Labels of one operand differ; axes of one label have one size.
struct Labelled {
  Variable x;
  AxisLabels labels;
};

/// The sum over all labels that are not in `output` of the products of the operands; its axes are those of
/// `output`, each of which is a label of some operand. Several operands are multiplied in pairs, in the order
/// with the fewest multiplications (`contraction_path`).
Variable contract(std::vector<Labelled> operands, const AxisLabels& output);

/// The sum of x · y over axes; all axes if none are given. Products of 16-bit types are not rounded before
/// they are added.
Variable summed_products(const Variable& x, const Variable& y, const Axes& axes = {});

/// Two operands or results of earlier pairs: k is operand k, operands + i the result of pair i.
struct ContractionStep {
  size_t first, second;
};
/// The pairs in which to multiply operands with such labels, where `sizes` has the size of each label. Up to
/// eight operands: the order with the fewest multiplications. More: always the pair whose product is smallest
/// beside its factors.
std::vector<ContractionStep> contraction_path(const std::vector<AxisLabels>& operands,
                                              const AxisLabels& output, const std::vector<int64_t>& sizes);

}  // namespace espalier
