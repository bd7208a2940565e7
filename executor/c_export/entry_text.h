// The functions of a plan's nodes, and the function that calls them.
#pragma once
#include <set>

#include "espalier/executor/c_export/function.h"
#include "espalier/executor/c_export/leaves.h"

namespace espalier::c_export {

/// The name of a parameter: the given one as an identifier that is no other name of the file.
std::string parameter_name(std::string_view name, std::string_view prefix, std::set<std::string>& taken);

/// What the entry points of a file have in common.
struct FileParts {
  const CodeOptions& options;
  const Leaves& leaves;
  Helpers helpers = {};
  std::map<std::string, std::string> functions = {};  ///< names by texts: nodes of equal texts share one
  std::string text = {};                              ///< of these functions
  std::map<std::string, std::string> constants = {};  ///< names by texts
  std::string tables = {};                            ///< of these constants
  int64_t constant_bytes = 0;
  int64_t scratch_begin = 0;  ///< in the arena, behind the values of all plans
  int64_t scratch_bytes = 0;  ///< the most that a function takes
  bool random = false;        ///< whether a step draws numbers
};

struct EntryText {
  std::string prototype;  ///< without a semicolon
  std::string comment;    ///< what goes in and out
  std::string body;       ///< with its braces
  int calls = 0;
};
EntryText write_entry(const EntryPoint& entry, const MemoryPlan& memory, FileParts& parts);

}  // namespace espalier::c_export
