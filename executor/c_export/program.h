// From plans to a file of C.
#pragma once
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "espalier/executor/export_options.h"
#include "espalier/executor/plan/plan_data.h"

namespace espalier::c_export {

/// A function of the file: one run of a plan.
struct EntryPoint {
  std::string name;  ///< "run" or "step"
  std::shared_ptr<const PlanData> plan;
  /// What it hands out: names, and positions in the graph's results.
  std::vector<std::pair<std::string, size_t>> results;
  std::vector<Variable> rates = {};  ///< learning rates
};

struct CodeOptions {
  std::string name;         ///< before all names with external linkage
  std::string file;         ///< for comments
  std::string weight_file;  ///< the same, if values lie elsewhere
  bool linked_weights = false, loaded_weights = false;
};

/// The random numbers that steps draw first.
struct RandomStart {
  uint64_t seed = 0, stream = 0;
};

struct Code {
  std::string text;
  std::string weights;  ///< of the other file: C, or bytes
  ExportedSizes sizes;
};

/// Writes C99 for these plans on one device, which share leaves. Throws UnsupportedError, with the user's
/// line, for an op or a type of which there is no C code.
Code write_code(const std::vector<EntryPoint>& entries, const CodeOptions& options, RandomStart random);

}  // namespace espalier::c_export
