// Ops that nodes with the same settings share: making one costs more than the rest of a small node.
#pragma once
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "espalier/core/op.h"

namespace espalier {

namespace detail {
template <class T>
struct KeptAs {
  using type = T;
};
template <>
struct KeptAs<std::string_view> {
  using type = std::string;
};
}  // namespace detail

/// The op T(settings...). A thread makes it once, as long as it uses few with other settings.
template <class T, class... Settings>
OpPtr kept_op(const Settings&... settings) {
  using Key = std::tuple<typename detail::KeptAs<Settings>::type...>;
  constexpr size_t most = 16;
  static thread_local std::vector<std::pair<Key, OpPtr>> ops;  // what is used often comes to the front
  const auto wanted = std::tie(settings...);
  for (size_t i = 0; i < ops.size(); ++i) {
    if (!(ops[i].first == wanted)) continue;
    if (i == 0) return ops[0].second;
    std::swap(ops[i], ops[i / 2]);
    return ops[i / 2].second;
  }
  OpPtr op = std::make_shared<T>(typename detail::KeptAs<Settings>::type(settings)...);
  if (ops.size() == most) ops.pop_back();
  ops.emplace_back(Key(settings...), op);
  return op;
}

}  // namespace espalier
