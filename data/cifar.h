// The binary files of CIFAR-10 and CIFAR-100. https://www.cs.toronto.edu/~kriz/cifar.html
#pragma once
#include <filesystem>
#include <source_location>

#include "espalier/core/tensor.h"

namespace espalier::data {

struct CifarOptions {
  /// Of a folder: the images for testing, not those for training.
  bool test = false;
};

struct Cifar10 {
  Tensor images;  ///< uint8 [rows, 3, 32, 32]: red, green and blue
  Tensor labels;  ///< int64 [rows], 0 to 9
};

/// A file of CIFAR-10's binary version, or the folder of them: its files data_batch_1.bin to
/// data_batch_5.bin one after the other, or test_batch.bin. Files may have any number of images. Throws
/// FileError naming the file and what is wrong with it: it is no whole number of records, or a label is out
/// of range.
Cifar10 read_cifar10(const std::filesystem::path& path, const CifarOptions& options = {},
                     std::source_location where = std::source_location::current());

struct Cifar100 {
  Tensor images;         ///< uint8 [rows, 3, 32, 32]: red, green and blue
  Tensor labels;         ///< int64 [rows], the fine ones, 0 to 99
  Tensor coarse_labels;  ///< int64 [rows], 0 to 19: groups of five fine ones
};

/// The same of CIFAR-100's binary version; a folder has train.bin and test.bin.
Cifar100 read_cifar100(const std::filesystem::path& path, const CifarOptions& options = {},
                       std::source_location where = std::source_location::current());

}  // namespace espalier::data
