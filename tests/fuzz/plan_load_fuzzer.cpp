// Plan files with right checksums, of which trees are made and run.
#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "espalier/core/device.h"
#include "espalier/core/error.h"
#include "espalier/core/tensor.h"
#include "espalier/executor/load.h"
#include "fuzz_file.h"
#include "sealed_plan.h"

using namespace espalier;
using Json = nlohmann::json;

extern "C" size_t LLVMFuzzerMutate(uint8_t* bytes, size_t size, size_t most);

namespace {

constexpr size_t prefix_bytes = testing::plan_prefix_bytes, alignment = testing::plan_alignment;

uint64_t number_at(const uint8_t* bytes, size_t at) {
  uint64_t number = 0;
  std::memcpy(&number, bytes + at, sizeof number);
  return number;
}

/// The text and the tensors of a file.
struct Parts {
  std::string text;
  std::vector<uint8_t> tensors;
};
std::optional<Parts> parts_of(const uint8_t* bytes, size_t size) {
  if (size < prefix_bytes) return std::nullopt;
  const uint64_t text = std::min<uint64_t>(number_at(bytes, 16), size - prefix_bytes);
  const uint64_t data =
      std::min<uint64_t>((prefix_bytes + text + alignment - 1) / alignment * alignment, size);
  return Parts{{reinterpret_cast<const char*>(bytes) + prefix_bytes, text}, {bytes + data, bytes + size}};
}

using Random = std::minstd_rand;

Json& any_of(std::vector<Json*>& list, Random& random) { return *list[random() % list.size()]; }

/// All values within one.
std::vector<Json*> values_in(Json& json) {
  std::vector<Json*> all{&json};
  for (size_t i = 0; i < all.size(); ++i)
    if (all[i]->is_structured())
      for (Json& child : *all[i]) all.push_back(&child);
  return all;
}

/// Another number, text or list somewhere.
void change_value(Json& json, Random& random) {
  std::vector<Json*> all = values_in(json);
  Json& chosen = any_of(all, random);
  if (chosen.is_number() && random() % 2) {
    constexpr int64_t numbers[] = {-1,           0,         1,        2, 3, 5, 17, 1 << 20, INT32_MAX,
                                   uint32_t(-1), INT64_MAX, INT64_MIN};
    chosen = numbers[random() % std::size(numbers)];
  } else if (chosen.is_number_integer()) {
    const auto even = static_cast<uint64_t>(chosen.get<int64_t>() / 2 * 2);  // which wraps around
    chosen = static_cast<int64_t>(even + (random() % 2 ? 1 : ~uint64_t{0}));
  } else if (chosen.is_boolean()) {
    chosen = !chosen.get<bool>();
  } else if (chosen.is_array() && !chosen.empty() && random() % 2) {
    chosen.erase(random() % chosen.size());
  } else if (chosen.is_array() && !chosen.empty() && random() % 2) {
    chosen.push_back(Json(chosen[random() % chosen.size()]));
  } else {
    chosen = Json(any_of(all, random));
  }
}

/// Ops with the inputs of others, and inputs in another order: what no function of the library makes.
void change_node(Json& text, Random& random) {
  std::vector<Json*> ops, leaves;
  for (Json& node : text["nodes"])
    if (node.is_object() && node.contains("op") && node.contains("inputs") && node["inputs"].is_array())
      ops.push_back(&node);
    else if (node.is_object() && node.contains("tensor"))
      leaves.push_back(&node);
  if (ops.empty()) return;
  Json &node = any_of(ops, random), &other = any_of(ops, random);
  Json& inputs = node["inputs"];
  switch (random() % 5) {
    case 0: inputs = Json(other["inputs"]); break;
    case 1:
      if (!inputs.empty()) inputs[random() % inputs.size()] = random() % text["nodes"].size();
      break;
    case 2:
      inputs.push_back(random() % text["nodes"].size());
      inputs.push_back(0);
      break;
    case 3:
      if (node.contains("attributes")) change_value(node["attributes"], random);
      break;
    default:
      if (leaves.size() > 1) std::swap(any_of(leaves, random)["tensor"], any_of(leaves, random)["tensor"]);
  }
}

/// Another shape or type of a tensor, which the bytes of others may fill.
void change_tensor(Json& text, Random& random) {
  Json& tensors = text["tensors"];
  if (!tensors.is_array() || tensors.empty()) return;
  change_value(tensors[random() % tensors.size()], random);
}

std::string changed(const std::string& text, Random& random) {
  Json json = Json::parse(text, nullptr, false);
  if (!json.is_object() || !json["nodes"].is_array()) return text;
  for (unsigned left = 1 + random() % 3; left > 0; --left) try {
      switch (random() % 4) {
        case 0: change_value(json, random); break;
        case 1: change_tensor(json, random); break;
        default: change_node(json, random);
      }
    } catch (const Json::exception&) {  // an earlier change has made another kind of value of it
    }
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

void load_and_run(const std::filesystem::path& path) {
  const Executor executor = load_executor(path, {.tune = false});
  Feeds feeds;
  for (const ValueInfo& input : executor.inputs()) {
    Shape shape = input.shape;
    for (int64_t& size : shape.dims())
      if (size == -1) size = 2;
    if (shape.elements() > 1 << 12) return;
    feeds.emplace_back(input.name, zeros(shape, input.dtype));
  }
  (void)executor.run(feeds);
}

}  // namespace

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* bytes, size_t size, size_t most, unsigned seed) {
  Random random(seed + 1);
  std::optional<Parts> parts = parts_of(bytes, size);
  if (!parts) return LLVMFuzzerMutate(bytes, size, most);
  if (random() % 8 == 0 && !parts->tensors.empty())
    parts->tensors.resize(
        LLVMFuzzerMutate(parts->tensors.data(), parts->tensors.size(), parts->tensors.size()));
  else
    parts->text = changed(parts->text, random);
  const std::vector<uint8_t> file = testing::sealed_plan(3, parts->text, parts->tensors);
  if (file.size() > most) return size;
  std::copy(file.begin(), file.end(), bytes);
  return file.size();
}

// Any Error is an answer. A plan may ask for much memory: OutOfMemory answers that.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  static const bool limited = [] {
    set_memory_limit(cpu(), int64_t{1} << 26);
    return true;
  }();
  const std::optional<Parts> parts = parts_of(bytes, size);
  if (!limited || !parts) return 0;
  const std::vector<uint8_t> file = testing::sealed_plan(3, parts->text, parts->tensors);
  try {
    load_and_run(testing::fuzz_file(file.data(), file.size()));
  } catch (const Error&) {
  }
  return 0;
}
