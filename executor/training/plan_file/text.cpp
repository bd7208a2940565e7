#include "espalier/executor/training/plan_file/text.h"

#include <fmt/format.h>

#include <bit>
#include <charconv>

#include "espalier/core/files/element_types.h"

namespace espalier {

using Json = nlohmann::json;

namespace {

constexpr int deepest = 16;

/// Whether arrays and objects are nested more deeply than any plan's.
bool is_nested_deeply(std::string_view text) {
  int depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string && c == '\\') ++i;
    if (c == '"') in_string = !in_string;
    if (in_string) continue;
    if ((c == '[' || c == '{') && ++depth > deepest) return true;
    if (c == ']' || c == '}') --depth;
  }
  return false;
}

}  // namespace

void PlanText::wrong(const Json& json, std::string_view what) const {
  std::string shown = json.dump(-1, ' ', true, Json::error_handler_t::replace);
  if (shown.size() > 60) shown.replace(60, shown.npos, "…");
  fail(fmt::format("has {} for {}", shown, what));
}

Json PlanText::parse(std::string_view text) const {
  if (is_nested_deeply(text)) fail("has a text that is nested too deeply");
  try {
    Json json = Json::parse(text);
    if (!json.is_object()) fail("has a text that is no object");
    return json;
  } catch (const Json::exception& error) {
    fail(fmt::format("has a text that is no JSON: {}", error.what()));
  }
}

const Json& PlanText::member(const Json& object, const char* name) const {
  if (!object.is_object()) wrong(object, "an object");
  const auto found = object.find(name);
  if (found == object.end()) fail(fmt::format("lacks '{}'", name));
  return *found;
}

bool PlanText::flag(const Json& json, std::string_view what) const {
  if (!json.is_boolean()) wrong(json, what);
  return json.get<bool>();
}

int64_t PlanText::integer(const Json& json, std::string_view what, int64_t least, int64_t most) const {
  if (!json.is_number_integer()) wrong(json, what);
  if (json.is_number_unsigned() && json.get<uint64_t>() > uint64_t{INT64_MAX}) wrong(json, what);
  const auto value = json.get<int64_t>();
  if (value < least || value > most) wrong(json, what);
  return value;
}

const std::string& PlanText::text(const Json& json, std::string_view what) const {
  if (!json.is_string()) wrong(json, what);
  return json.get_ref<const std::string&>();
}

const Json& PlanText::list(const Json& json, std::string_view what) const {
  if (!json.is_array()) wrong(json, what);
  return json;
}

const Json& PlanText::array(const Json& json, std::string_view what, size_t size) const {
  if (list(json, what).size() != size) wrong(json, what);
  return json;
}

Shape PlanText::shape(const Json& json, std::string_view what, int64_t least) const {
  constexpr size_t largest_rank = 64;
  Shape shape;
  if (list(json, what).size() > largest_rank) wrong(json, what);
  int64_t product = 1;
  for (const Json& size : json) {
    shape.dims().push_back(integer(size, what, least, INT64_MAX));
    const int64_t counted = std::max<int64_t>(shape.dims().back(), 1);
    if (__builtin_mul_overflow(product, counted, &product)) wrong(json, what);
  }
  return shape;
}

Spec PlanText::spec(const Json& json, std::string_view what, int64_t least) const {
  const std::string& dtype = text(array(json, what, 2)[0], what);
  for (const DType known : all_dtypes)
    if (name(known) == dtype) return {known, shape(json[1], what, least)};
  wrong(json, what);
}

double PlanText::real(const Json& json, std::string_view what) const {
  const std::string& digits = text(json, what);
  uint64_t bits = 0;
  const char* end = digits.data() + digits.size();
  const auto [stop, failed] = std::from_chars(digits.data(), end, bits, 16);
  if (failed != std::errc() || stop != end || digits.size() != 16) wrong(json, what);
  return std::bit_cast<double>(bits);
}

Attributes PlanText::attributes(const Json& json) const {
  constexpr const char* what = "an attribute";
  Attributes attributes;
  for (const Json& entry : list(json, "attributes")) {
    const std::string& name = text(array(entry, what, 3)[0], what);
    const std::string& kind = text(entry[1], what);
    const Json& value = entry[2];
    AttributeValue made;
    if (kind == "flag") {
      made = flag(value, what);
    } else if (kind == "integer") {
      made = integer(value, what, INT64_MIN, INT64_MAX);
    } else if (kind == "real") {
      made = real(value, what);
    } else if (kind == "text") {
      made = text(value, what);
    } else if (kind == "integers") {
      std::vector<int64_t> integers;
      for (const Json& i : list(value, what)) integers.push_back(integer(i, what, INT64_MIN, INT64_MAX));
      made = std::move(integers);
    } else {
      wrong(entry, what);
    }
    attributes.emplace_back(name, std::move(made));
  }
  return attributes;
}

Json plan_text_of(const Spec& spec) {
  return {name(spec.dtype), std::vector<int64_t>(spec.shape.begin(), spec.shape.end())};
}

Json plan_text_of(double real) { return fmt::format("{:016x}", std::bit_cast<uint64_t>(real)); }

Json plan_text_of(const Attributes& attributes) {
  Json list = Json::array();
  for (const auto& [name, value] : attributes) {
    struct Kind {
      const char* operator()(bool) const { return "flag"; }
      const char* operator()(int64_t) const { return "integer"; }
      const char* operator()(double) const { return "real"; }
      const char* operator()(const std::string&) const { return "text"; }
      const char* operator()(const std::vector<int64_t>&) const { return "integers"; }
    };
    const Json text = std::visit(
        [](const auto& v) -> Json {
          if constexpr (std::is_same_v<std::decay_t<decltype(v)>, double>)
            return plan_text_of(v);
          else
            return v;
        },
        value);
    list.push_back(Json::array({name, std::visit(Kind(), value), text}));
  }
  return list;
}

}  // namespace espalier
