// Gradients of which few rows are not zero, as those of a table that gather looks rows up in, and what
// updates need to change these rows alone.
#pragma once
#include <span>

#include "espalier/core/op.h"
#include "espalier/core/variable.h"

namespace espalier {

/// A gradient that is zero but for some rows (positions of its first axis).
struct RowGradient {
  Variable values;  ///< [n, …]: their gradients; zeros where `rows` names none
  Variable rows;    ///< [n], int64: each row once, in any order; elsewhere the number of all rows
};

/// Whether a gradient is what scatter_add_like computes along the first axis.
bool is_row_gradient(const Variable& gradient);
/// Whether it is, and its rows with repetitions are so few that work on them is less than on the table.
bool has_few_rows(const Variable& gradient);
/// The rows of such a gradient. Terms of one row are added up in the order of the indices.
RowGradient row_gradient(const Variable& gradient);
/// Several such gradients of one table as one.
Variable joined_row_gradients(std::span<const Variable> gradients);
/// Whether an op computes such gradients; values and indices are its first inputs.
bool scatters_rows(const Op& op);
/// Such a gradient times a scalar, which is one, too.
Variable scaled_row_gradient(const Variable& gradient, const Variable& factor);

/// The rows of a table: [n, …], zeros where `rows` names none. It has no gradient.
Variable take_rows(const Variable& table, const Variable& rows);
/// A table in which these rows have new values; a row stands in `rows` once at most, and a number outside
/// stands for none. It has no gradient.
Variable put_rows(const Variable& table, const Variable& rows, const Variable& values);
bool puts_rows(const Variable& v);
/// Whether an op adds up the values of a RowGradient: its inputs are values, indices and the table.
bool sums_rows(const Op& op);
/// Such an op that plans on the CPU may write over the values.
OpPtr sum_rows_in_place();

}  // namespace espalier
