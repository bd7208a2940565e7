// NetOfVariables: a Module that gives a Variable for one or several.
#pragma once
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <type_traits>
#include <utility>

#include "espalier/nn/container.h"

namespace espalier {

namespace internal {

inline constexpr size_t most_inputs = 8;

template <size_t>
using OneVariable = const Variable&;

template <class Net, class Numbers>
constexpr bool takes_variables = false;
template <class Net, size_t... i>
constexpr bool takes_variables<Net, std::index_sequence<i...>> =
    std::is_invocable_r_v<Variable, Net&, OneVariable<i>...>;
template <class Net, size_t count>
constexpr bool takes_inputs = (count == 1 && std::derived_from<Net, nn::Layer>) ||
                              takes_variables<Net, std::make_index_sequence<count>>;

template <class Net, size_t... i>
Variable call_with(Net& net, std::span<const Variable> inputs, std::index_sequence<i...>) {
  if constexpr (takes_variables<Net, std::index_sequence<i...>>)
    return net(inputs[i]...);
  else  // a layer whose own call gives more
    return static_cast<const nn::Layer&>(net)(inputs[0]);
}

/// How a net is called, and with how many Variables it can be.
struct NetCall {
  std::function<Variable(std::span<const Variable>)> call;
  uint32_t counts = 0;  ///< bit n: with n of them

  bool takes(size_t count) const { return count <= most_inputs && (counts >> count & 1); }
};

template <class Net, size_t... i>
constexpr uint32_t counts_of(std::index_sequence<i...>) {
  return (0u | ... | (takes_inputs<Net, i + 1> ? 2u << i : 0u));
}
template <class Net>
constexpr uint32_t input_counts = counts_of<Net>(std::make_index_sequence<most_inputs>());
template <class Net>
constexpr bool takes_one_input_alone = input_counts<Net> == 2u;

template <class Net>
NetCall net_call(Net& net) {
  const auto call = [&net]<size_t... i>(std::span<const Variable> inputs, std::index_sequence<i...>) {
    Variable y;
    const auto try_count = [&]<size_t count>(std::integral_constant<size_t, count>) {
      if constexpr (takes_inputs<Net, count>)
        if (inputs.size() == count) y = call_with(net, inputs, std::make_index_sequence<count>());
    };
    (try_count(std::integral_constant<size_t, i + 1>()), ...);
    return y;
  };
  return {[call](std::span<const Variable> inputs) {
            return call(inputs, std::make_index_sequence<most_inputs>());
          },
          input_counts<Net>};
}

}  // namespace internal

/// A Module that gives a Variable when it is called with one to eight of them.
template <class Net>
concept NetOfVariables = std::derived_from<Net, nn::Module> && internal::input_counts<Net>
!= 0;

}  // namespace espalier
