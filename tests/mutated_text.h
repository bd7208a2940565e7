// Changed texts of plan files.
#pragma once
#include <cstdint>
#include <iterator>
#include <nlohmann/json.hpp>
#include <random>
#include <vector>

namespace espalier::testing {

/// Changes a number, a text or a list somewhere in a text, or puts one node in the place of another.
inline void mutate(nlohmann::json& json, std::mt19937& random) {
  std::vector<nlohmann::json*> all{&json};
  for (size_t i = 0; i < all.size(); ++i)
    if (all[i]->is_structured())
      for (nlohmann::json& child : *all[i]) all.push_back(&child);
  if (all.size() < 2) return;
  nlohmann::json& chosen = *all[1 + random() % (all.size() - 1)];
  if (chosen.is_number()) {
    constexpr int64_t numbers[] = {-1, 0, 1, 2, 3, 5, 17, 1 << 20, INT64_MAX, INT64_MIN};
    chosen = numbers[random() % std::size(numbers)];
  } else if (chosen.is_boolean()) {
    chosen = !chosen.get<bool>();
  } else if (chosen.is_array() && !chosen.empty() && random() % 2) {
    chosen.erase(random() % chosen.size());
  } else {
    chosen = *all[1 + random() % (all.size() - 1)];
  }
}

}  // namespace espalier::testing
