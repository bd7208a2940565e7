// How Executor::export_c writes C code.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "espalier/core/variable.h"

namespace espalier {

struct ExportOptions {
  /// Before all that other files see: `name`_run and so on. Unless it is given: the file's name without its
  /// suffix. An identifier of C.
  std::string name = {};
  /// Where parameters and states go. Empty: into the same file. A path that ends in ".c": into that file, as
  /// tables that are linked. Another path: into that file in the form that `name`_load reads; the code has no
  /// values then, and all of them lie in memory that can be written.
  std::filesystem::path weights = {};
  /// The rows of a batch from feeds with data of their own; 0: those of the feed's whole batches.
  int64_t rows = 0;
  /// The shapes of placeholders, by name, for trees that only placeholders feed. Needed where an axis is
  /// open.
  std::vector<std::pair<std::string, Shape>> shapes = {};
  /// Training: what `name`_run computes beside `name`_step, in inference, with the same parameters.
  /// Undefined: there is no `name`_run.
  Variable predict = {};
};

/// What the code takes of a device, in bytes.
struct ExportedSizes {
  int64_t arena = 0;      ///< values between the steps of the computation, and copies of inputs
  int64_t constants = 0;  ///< tables that are only read
  int64_t states = 0;     ///< parameters and states that are written
};

}  // namespace espalier
