// The name of a type, as one would write it inside our namespace: what functors are found by.
#pragma once
#include <string_view>

namespace espalier {

/// "scalar::Add"; "scalar::Cast<float>". Compilers agree on it where it names no more than classes of ours,
/// float, double, int and bool: names are compared within one build only, and by the host's compiler.
template <class T>
constexpr std::string_view type_name() {
  constexpr std::string_view text = __PRETTY_FUNCTION__, ours = "espalier::";
  constexpr size_t found = text.find_first_not_of(' ', text.find("T =") + 3);
  constexpr size_t begin = found + (text.substr(found).starts_with(ours) ? ours.size() : 0);
  return text.substr(begin, text.find_first_of(";]", begin) - begin);
}

}  // namespace espalier
