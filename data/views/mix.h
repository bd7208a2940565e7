// Images mixed with each other, and their labels.
#pragma once
#include <cstdint>
#include <source_location>

#include "espalier/data/views/row_view.h"

namespace espalier::data {

struct MixOptions {
  int64_t classes = 0;     ///< of the labels
  double alpha = 0.2;      ///< shares are drawn from the beta distribution of (alpha, alpha)
  double probability = 1;  ///< of a row to be mixed at all
};

// Each row is mixed with one that is drawn at random from all rows of the dataset, so that what it becomes
// follows from seed, epoch and row alone, and not from its batch. Both are augmented below, with numbers of
// their own; reading takes twice as long. The dataset has two columns: images and labels, which are int32 or
// int64 [rows], or float32 shares [rows, classes]. Labels become such shares, which softmax_cross_entropy
// takes as targets. Throw DataError: a null dataset, no rows, open sizes, other columns, or options that make
// no sense; and, when rows are read, IndexError for a label that is no class.

/// s a + (1 - s) b of both columns, of float32 images (TypeError for others). Zhang et al., mixup: Beyond
/// empirical risk minimization, 2018.
DatasetPtr mixup(DatasetPtr dataset, const MixOptions& options,
                 std::source_location where = std::source_location::current());

/// A part of the other image, whose area is 1 - s of the image and which is cut off at its border, replaces
/// that of the row; labels are mixed by what areas are left. Images are [rows, channels, height, width] of
/// any dtype. Yun et al., CutMix, 2019, with an alpha of 1.
DatasetPtr cutmix(DatasetPtr dataset, const MixOptions& options,
                  std::source_location where = std::source_location::current());

}  // namespace espalier::data
