#include "espalier/executor/plan/compile_options.h"

#include <fmt/format.h>

#include "espalier/core/error.h"

namespace espalier {

void CompileOptions::check_names(const std::vector<std::string>& passes) const {
  for (const std::string& name : without)
    if (!std::ranges::count(passes, name))
      throw Error(fmt::format("get_executor: there is no pass '{}'; the passes are {}", name,
                              fmt::join(passes, ", ")));
}

}  // namespace espalier
