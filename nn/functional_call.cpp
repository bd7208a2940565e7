#include "espalier/nn/functional_call.h"

#include <fmt/format.h>

#include <set>
#include <string_view>

#include "espalier/core/error.h"
#include "espalier/core/node.h"
#include "espalier/ops/ops.h"

namespace espalier::nn {

LeafSubstitutes GivenParameters::of(const Module& module) const {
  return located(where_, [&] {
    LeafSubstitutes result;
    std::set<std::string_view> names;
    std::unordered_map<std::string, Variable> parameters;
    for (const auto& list : {module.parameters(), module.buffers()})
      for (const auto& [path, leaf] : list) parameters.emplace(path, leaf);
    for (const auto& [path, given] : list_) {
      const auto known = parameters.find(path);
      const Variable parameter = known != parameters.end() ? known->second : module.parameter(path, where_);
      if (!given.defined())
        throw Error(fmt::format("functional_call: what is given as '{}' is undefined", path));
      if (!(given.shape() == parameter.shape()))
        throw ShapeError(fmt::format("functional_call: '{}' is of shape {}; what is given is of {}", path,
                                     parameter.shape().str(), given.shape().str()));
      if (given.dtype() != parameter.dtype())
        throw TypeError(fmt::format("functional_call: '{}' is {}; what is given is {}", path,
                                    name(parameter.dtype()), name(given.dtype())));
      if (given.device() != parameter.device())
        throw DeviceError(fmt::format("functional_call: '{}' is on {}; what is given is on {}", path,
                                      parameter.device().str(), given.device().str()));
      const auto [at, fresh] = result.emplace(parameter.node(), given);
      // A parameter of several paths may be given as each of them.
      const bool same = at->second.node() == given.node() && at->second.output() == given.output();
      if (!names.insert(path).second || (!fresh && !same))
        throw Error(fmt::format("functional_call: '{}' is given twice", path));
    }
    // A leaf that is replaced itself is read behind a node of its own, else it would be replaced again.
    LeafSubstitutes read = result;
    for (auto& [leaf, given] : read)
      if (given.node() != leaf && result.contains(given.node()))
        given = reshape(unsqueeze(given, 0), given.shape());
    return read;
  });
}

}  // namespace espalier::nn
