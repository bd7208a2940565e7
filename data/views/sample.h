// Rows in another order in each epoch, and drawn by weights or classes.
#pragma once
#include <cstdint>
#include <source_location>

#include "espalier/core/tensor.h"
#include "espalier/data/views/row_view.h"

namespace espalier::data {

// What these views show in an epoch follows from their `seed`, the epoch and the feed's seed, so it is the
// same in every run, on any number of replicas and from a checkpoint. A Distributor over them keeps their
// order unless it shuffles itself. A row that is shown several times in an epoch is augmented with other
// numbers each time. Over open sizes, batches are as long as the longest row of the dataset, not of the
// batch. All throw DataError where the dataset is null.

/// All rows in a new order in each epoch, below other views: `batch(shuffle(d), 4)` makes other groups each
/// time. A Distributor or `batches` over `d` itself needs no more than its option `shuffle`.
DatasetPtr shuffle(DatasetPtr dataset, uint64_t seed = 0,
                   std::source_location where = std::source_location::current());

struct WeightedSampleOptions {
  int64_t rows = 0;         ///< in an epoch; 0: as many as the dataset has
  bool replacement = true;  ///< whether a row can be drawn again in the epoch
  uint64_t seed = 0;
};

/// Rows drawn at random, each as often as its weight says: `weights` are numbers [rows], of any sum. Without
/// replacement, rows are drawn one after the other by the weights of those that are left. (Efraimidis and
/// Spirakis, Weighted random sampling with a reservoir, 2006.) Throws DataError: another number of weights
/// than rows, a negative or infinite one, none above 0, or without replacement more rows than weights above
/// 0.
DatasetPtr weighted_sample(DatasetPtr dataset, const Tensor& weights,
                           const WeightedSampleOptions& options = {},
                           std::source_location where = std::source_location::current());

/// All rows in a new order in each epoch, in which every part has the classes in the proportions of the
/// whole, to one row or two of each class. `labels` are integers or booleans [rows]. Throws DataError for
/// another number of labels than rows, and TypeError for reals.
DatasetPtr stratified(DatasetPtr dataset, const Tensor& labels, uint64_t seed = 0,
                      std::source_location where = std::source_location::current());

struct BalancedOptions {
  int64_t rows = 0;  ///< in an epoch; 0: as many that each row of the largest class is shown once
  uint64_t seed = 0;
};

/// Classes equally often: as many rows in a row as there are classes have one of each. A class whose rows
/// have all been shown starts again, in a new order. Throws as `stratified` does.
DatasetPtr balanced(DatasetPtr dataset, const Tensor& labels, const BalancedOptions& options = {},
                    std::source_location where = std::source_location::current());

namespace detail {
/// The rows of each class, in the order of the labels.
std::vector<std::vector<int64_t>> rows_of_classes(const Tensor& labels, int64_t rows, std::string_view call);
/// All rows, in the order that `stratified` has.
std::vector<int64_t> stratified_order(const std::vector<std::vector<int64_t>>& classes, uint64_t seed,
                                      int64_t epoch);
}  // namespace detail

}  // namespace espalier::data
