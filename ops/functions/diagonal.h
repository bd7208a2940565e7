// Diagonals and triangles of matrices.
#pragma once
#include <source_location>
#include <vector>

#include "espalier/core/variable.h"

namespace espalier {

// Diagonals are counted from the main one, 0: positive numbers are above it, negative ones below.
/// The elements (i, i + offset) of the matrices on two axes, along a new last axis in place of both. A view.
/// ShapeError.
Variable diagonal(const Operand& x, int64_t offset = 0, int64_t axis1 = 0, int64_t axis2 = 1);
/// Matrices [..., n + |offset|, n + |offset|] with `x` [..., n] on a diagonal and zeros elsewhere. ShapeError
/// for a scalar.
Variable diag_embed(const Operand& x, int64_t offset = 0);
/// The diagonal of a matrix, or the matrix with a vector on its diagonal. ShapeError for other ranks.
Variable diag(const Operand& x, int64_t offset = 0);
/// Zeros with these matrices one after the other along the diagonal: [rows of all, columns of all]. A vector
/// is a matrix of one row, a scalar one of one element. PyTorch's block_diag. ShapeError for other ranks,
/// TypeError for several dtypes, Error for none.
Variable block_diag(const std::vector<Variable>& matrices,
                    std::source_location where = std::source_location::current());
/// The sum of the diagonal of the matrices on two axes: a scalar for a matrix. Numbers, no bool. ShapeError.
Variable trace(const Operand& x, int64_t offset = 0, int64_t axis1 = 0, int64_t axis2 = 1);
/// The matrices on the last two axes with zeros above, or below, a diagonal. ShapeError.
Variable tril(const Operand& x, int64_t diagonal = 0);
Variable triu(const Operand& x, int64_t diagonal = 0);

}  // namespace espalier
