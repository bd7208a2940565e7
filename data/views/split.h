// A dataset in parts, for training and testing.
#pragma once
#include <cstdint>
#include <source_location>
#include <vector>

#include "espalier/core/tensor.h"
#include "espalier/data/views/row_view.h"

namespace espalier::data {

struct SplitOptions {
  uint64_t seed = 0;
  /// Integers or booleans [rows]: each part has their classes in the proportions of the whole, to one row or
  /// two of each class. Undefined: rows are drawn without regard to classes.
  Tensor labels = {};
};

/// Parts that share no row, drawn at random, which have these fractions of the rows, rounded; what the sum
/// lacks of 1 is in no part. One seed always draws the same ones: `random_split(d, {0.8, 0.1, 0.1})`. Throws
/// DataError: a null dataset, no fraction, a negative one, a sum above 1, or another number of labels than
/// rows; TypeError for labels that are reals.
std::vector<DatasetPtr> random_split(DatasetPtr dataset, const std::vector<double>& fractions,
                                     const SplitOptions& options = {},
                                     std::source_location where = std::source_location::current());

struct Fold {
  DatasetPtr train, test;
};

/// Cross-validation: `folds` pairs, each of which tests on other rows and trains on all that are left; every
/// row is in one test. Numbers of rows differ by one at most. Throws as random_split does, and DataError
/// unless there are two folds or more, and no more than rows.
std::vector<Fold> k_fold(DatasetPtr dataset, int64_t folds, const SplitOptions& options = {},
                         std::source_location where = std::source_location::current());

}  // namespace espalier::data
