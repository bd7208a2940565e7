#include "espalier/core/files/safetensors_header.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>
#include <utility>

#include "espalier/core/error.h"

namespace espalier {

namespace {

using Json = nlohmann::json;

constexpr std::pair<std::string_view, std::string_view> safetensors_types[] = {
    {"F32", "f4"}, {"F64", "f8"}, {"I32", "i4"},   {"I64", "i8"},       {"BOOL", "b1"},
    {"F16", "f2"}, {"I8", "i1"},  {"BF16", "bf2"}, {"U8", "u1"},        {"I16", "i2"},
    {"U16", "u2"}, {"U32", "u4"}, {"U64", "u8"},   {"F8_E4M3", "e4m3"}, {"F8_E5M2", "e5m2"}};

const ElementType* type_in_file(std::string_view text) {
  for (const auto& [known, type] : safetensors_types)
    if (known == text) return element_type(type);
  return nullptr;
}

constexpr uint64_t largest_header = 100'000'000;  // the limit of the format's own implementation

/// Refuses what a DOM would hide or pay for: names that come twice, and deep nesting.
class Watch {
 public:
  explicit Watch(const InputFile& file) : file_(file) {}

  bool operator()(int depth, Json::parse_event_t event, Json& parsed) {
    using Event = Json::parse_event_t;
    if ((event == Event::object_start || event == Event::array_start) && depth > 2)
      file_.fail("has a header nested more deeply than the format allows");
    if (event == Event::object_start && depth < 2) names_[depth].clear();
    if (event == Event::key && depth <= 2 && !names_[depth - 1].insert(parsed.get<std::string>()).second)
      file_.fail(fmt::format("has the name '{}' twice", parsed.get<std::string>()));
    return true;
  }

 private:
  const InputFile& file_;
  std::set<std::string> names_[2];
};

Json read_header(InputFile& file) {
  uint64_t length = 0;
  if (file.size() < sizeof length)
    file.fail(fmt::format("is too short for a safetensors file: {} bytes", file.size()));
  file.read(&length, sizeof length);
  if (length > file.remaining())
    file.fail(fmt::format("claims a header of {} bytes, but only {} follow", length, file.remaining()));
  if (length > largest_header)
    file.fail(fmt::format("has a header of {} bytes, more than the format allows", length));
  std::string text(length, '\0');
  file.read(text.data(), text.size());
  if (!text.starts_with('{')) file.fail("is no safetensors file: its header is no JSON object");
  try {
    return Json::parse(text, Watch(file));
  } catch (const Json::exception& error) {
    file.fail(fmt::format("has a malformed header: {}", error.what()));
  }
}

/// A JSON number as a size: an integer that is not negative.
bool get_size(const Json& json, int64_t& size) {
  if (!json.is_number_unsigned() || json.get<uint64_t>() > INT64_MAX) return false;
  size = json.get<int64_t>();
  return true;
}

SafetensorsEntry read_entry(const InputFile& file, const std::string& name, const Json& json,
                            uint64_t data_bytes) {
  auto fail = [&](const std::string& reason) {
    file.fail(fmt::format("has a tensor '{}' {}", name, reason));
  };
  if (!json.is_object() || !json.contains("dtype") || !json.contains("shape") ||
      !json.contains("data_offsets"))
    fail("without dtype, shape or data_offsets");
  const Json &dtype = json["dtype"], &shape = json["shape"], &offsets = json["data_offsets"];
  if (!dtype.is_string() || !shape.is_array() || !offsets.is_array()) fail("with a field of the wrong kind");

  SafetensorsEntry entry{.name = name};
  entry.type = type_in_file(dtype.get_ref<const std::string&>());
  if (!entry.type) fail(fmt::format("of the type {}, which is not supported", dtype.dump()));
  entry.spec.dtype = entry.type->dtype;

  int64_t size = 0, begin = 0, end = 0;
  for (const Json& axis : shape) {
    if (!get_size(axis, size)) fail(fmt::format("with {} in its shape", axis.dump()));
    entry.spec.shape.dims().push_back(size);
  }
  uint64_t bytes = 0, converted = 0;
  if (!bytes_of_elements(entry.spec.shape, entry.type->bytes, bytes) ||
      !bytes_of_elements(entry.spec.shape, size_of(entry.spec.dtype), converted))
    fail(fmt::format("of shape {}, which no memory holds", entry.spec.shape.str()));

  if (offsets.size() != 2 || !get_size(offsets[0], begin) || !get_size(offsets[1], end))
    fail(fmt::format("with data_offsets {}", offsets.dump()));
  if (begin > end || static_cast<uint64_t>(end) > data_bytes)
    fail(
        fmt::format("with data_offsets {}, outside the file's {} bytes of data", offsets.dump(), data_bytes));
  if (static_cast<uint64_t>(end - begin) != bytes)
    fail(fmt::format("of {} bytes, though its type and shape {} take {}", end - begin, entry.spec.shape.str(),
                     bytes));
  entry.begin = static_cast<uint64_t>(begin);
  entry.end = static_cast<uint64_t>(end);
  return entry;
}

void read_notes(const InputFile& file, const Json& json, FileNotes* notes) {
  if (!json.is_object()) file.fail("has a __metadata__ which is no object");
  for (const auto& [key, value] : json.items()) {
    if (!value.is_string()) file.fail(fmt::format("has a __metadata__ '{}' which is no string", key));
    if (notes) (*notes)[key] = value.get<std::string>();
  }
}

}  // namespace

std::vector<SafetensorsEntry> read_safetensors_entries(InputFile& file, FileNotes* notes) {
  const Json header = read_header(file);
  const uint64_t data_bytes = file.remaining();
  std::vector<SafetensorsEntry> entries;
  for (const auto& [name, json] : header.items()) {
    if (name == safetensors_notes)
      read_notes(file, json, notes);
    else
      entries.push_back(read_entry(file, name, json, data_bytes));
  }
  std::stable_sort(entries.begin(), entries.end(), [](const SafetensorsEntry& a, const SafetensorsEntry& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  // One after another without gaps: then no byte is shared, none is hidden, and memory is bounded by the
  // file's size.
  uint64_t expected = 0;
  for (const SafetensorsEntry& entry : entries) {
    if (entry.begin != expected)
      file.fail(fmt::format(
          "has a tensor '{}' that starts at byte {} of the data, not where the one before it ends, at {}",
          entry.name, entry.begin, expected));
    expected = entry.end;
  }
  if (expected != data_bytes)
    file.fail(fmt::format("has {} bytes of data, of which its tensors take {}", data_bytes, expected));

  return entries;
}

}  // namespace espalier
