// functional_call: a module with other Variables in place of its parameters and buffers.
#pragma once
#include <concepts>
#include <functional>
#include <initializer_list>
#include <source_location>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "espalier/core/leaf_substitutes.h"
#include "espalier/nn/module.h"

namespace espalier::nn {

/// Variables by the paths of parameters and buffers: {{"0.weight", w}, {"0.bias", b}}. Any Variable, as the
/// result of another network or of a step of descent; in place of a buffer that the call writes, such as a
/// running mean in training mode, a state(), which is written then.
class GivenParameters {
 public:
  using Named = std::pair<std::string, Variable>;

  GivenParameters(std::initializer_list<Named> list,
                  std::source_location where = std::source_location::current())
      : list_(list), where_(where) {}
  GivenParameters(std::vector<Named> list, std::source_location where = std::source_location::current())
      : list_(std::move(list)), where_(where) {}

  const std::source_location& where() const { return where_; }
  /// Of the leaves of that module. Throws Error if it has no such leaf yet or one is given twice,
  /// ShapeError, TypeError or DeviceError if a Variable is not as the parameter is.
  LeafSubstitutes of(const Module& module) const;

 private:
  std::vector<Named> list_;
  std::source_location where_;
};

/// module(inputs…), whose operations read the given Variables in place of those leaves. Gradients reach
/// what was given. The module's parameters are unchanged; buffers that its call writes and that are not given
/// are written as by any call. Calls by other names go into a
/// function: functional_call(net, given, [&] { return net.encode(x); }). Throws what GivenParameters::of and
/// the module throw.
template <class M, class... Inputs>
decltype(auto) functional_call(M&& module, const GivenParameters& given, Inputs&&... inputs) requires(
    std::derived_from<std::remove_cvref_t<M>, Module>&& std::invocable<M&, Inputs...>) {
  const SubstitutesScope scope(given.of(module));
  if constexpr (std::invocable<M&, Inputs..., const std::source_location&>)
    return module(std::forward<Inputs>(inputs)..., given.where());
  else  // a module of one's own, with lines of its own
    return std::invoke(module, std::forward<Inputs>(inputs)...);
}
template <std::invocable F>
decltype(auto) functional_call(const Module& module, const GivenParameters& given, F&& call) {
  const SubstitutesScope scope(given.of(module));
  return std::invoke(std::forward<F>(call));
}

}  // namespace espalier::nn
