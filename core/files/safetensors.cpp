#include "espalier/core/files/safetensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <nlohmann/json.hpp>
#include <set>

#include "espalier/core/error.h"
#include "espalier/core/files/file.h"

namespace espalier {

namespace {

using Json = nlohmann::json;
static_assert(std::endian::native == std::endian::little, "safetensors files are little-endian");

constexpr std::pair<DType, std::string_view> dtype_names[] = {
    {float32, "F32"},  {float64, "F64"}, {int32, "I32"},    {int64, "I64"},
    {boolean, "BOOL"}, {float16, "F16"}, {bfloat16, "BF16"}};

constexpr uint64_t largest_header = 100'000'000;  // the limit of the format's own implementation
constexpr const char* notes_key = "__metadata__";

struct Entry {
  std::string name;
  Spec spec;
  uint64_t begin = 0;
  uint64_t end = 0;
};

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

Entry read_entry(const InputFile& file, const std::string& name, const Json& json, uint64_t data_bytes) {
  auto fail = [&](const std::string& reason) {
    file.fail(fmt::format("has a tensor '{}' {}", name, reason));
  };
  if (!json.is_object() || !json.contains("dtype") || !json.contains("shape") ||
      !json.contains("data_offsets"))
    fail("without dtype, shape or data_offsets");
  const Json &dtype = json["dtype"], &shape = json["shape"], &offsets = json["data_offsets"];
  if (!dtype.is_string() || !shape.is_array() || !offsets.is_array()) fail("with a field of the wrong kind");

  Entry entry{name, {}, 0, 0};
  const auto* known = std::find_if(std::begin(dtype_names), std::end(dtype_names), [&](const auto& pair) {
    return pair.second == dtype.get_ref<const std::string&>();
  });
  if (known == std::end(dtype_names))
    fail(fmt::format("of the type {}, which is not supported", dtype.dump()));
  entry.spec.dtype = known->first;

  // The elements are counted here, since sizes of zero would hide others that are out of bounds.
  int64_t bytes = static_cast<int64_t>(size_of(entry.spec.dtype)), size = 0, begin = 0, end = 0;
  bool overflow = false, empty = false;
  for (const Json& axis : shape) {
    if (!get_size(axis, size)) fail(fmt::format("with {} in its shape", axis.dump()));
    entry.spec.shape.dims().push_back(size);
    if (size == 0)
      empty = true;
    else
      overflow |= __builtin_mul_overflow(bytes, size, &bytes);
  }
  if (overflow) fail(fmt::format("of shape {}, which no memory holds", entry.spec.shape.str()));
  if (empty) bytes = 0;

  if (offsets.size() != 2 || !get_size(offsets[0], begin) || !get_size(offsets[1], end))
    fail(fmt::format("with data_offsets {}", offsets.dump()));
  if (begin > end || static_cast<uint64_t>(end) > data_bytes)
    fail(
        fmt::format("with data_offsets {}, outside the file's {} bytes of data", offsets.dump(), data_bytes));
  if (end - begin != bytes)
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

Tensor read_tensor(InputFile& file, const Spec& spec) {
  Tensor tensor(spec.shape, spec.dtype);
  file.read(tensor.address(), tensor.bytes());
  if (spec.dtype == boolean) {
    // A bool that is neither 0 nor 1 would be undefined behaviour.
    auto* bytes = static_cast<unsigned char*>(tensor.address());
    for (int64_t i = 0; i < tensor.elements(); ++i) bytes[i] = bytes[i] != 0;
  }
  return tensor;
}

std::string_view name_of(DType dtype) {
  for (const auto& [known, name] : dtype_names)
    if (known == dtype) return name;
  return {};
}

/// The header, padded so that the data after it is aligned.
std::string header_of(const std::vector<const std::pair<std::string, Tensor>*>& tensors,
                      const FileNotes& notes) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!notes.empty()) header[notes_key] = notes;
  uint64_t offset = 0;
  for (const auto* named : tensors) {
    const Tensor& tensor = named->second;
    const uint64_t end = offset + tensor.bytes();
    header[named->first] = {{"dtype", name_of(tensor.dtype())},
                            {"shape", std::vector<int64_t>(tensor.shape().begin(), tensor.shape().end())},
                            {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  return text;
}

}  // namespace

NamedTensors read_safetensors(const std::filesystem::path& path, FileNotes* notes) {
  InputFile file(path);
  const Json header = read_header(file);
  const uint64_t data_bytes = file.remaining();
  std::vector<Entry> entries;
  for (const auto& [name, json] : header.items()) {
    if (name == notes_key)
      read_notes(file, json, notes);
    else
      entries.push_back(read_entry(file, name, json, data_bytes));
  }
  std::stable_sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  // One after another without gaps: then no byte is shared, none is hidden, and memory is bounded by the
  // file's size.
  uint64_t expected = 0;
  for (const Entry& entry : entries) {
    if (entry.begin != expected)
      file.fail(fmt::format(
          "has a tensor '{}' that starts at byte {} of the data, not where the one before it ends, at {}",
          entry.name, entry.begin, expected));
    expected = entry.end;
  }
  if (expected != data_bytes)
    file.fail(fmt::format("has {} bytes of data, of which its tensors take {}", data_bytes, expected));

  NamedTensors tensors;
  for (Entry& entry : entries) tensors.emplace_back(std::move(entry.name), read_tensor(file, entry.spec));
  return tensors;
}

void write_safetensors(const std::filesystem::path& path, const NamedTensors& tensors,
                       const FileNotes& notes) {
  std::set<std::string_view> names{notes_key};
  std::vector<const std::pair<std::string, Tensor>*> order;
  for (const auto& named : tensors) {
    if (!names.insert(named.first).second)
      throw FileError(fmt::format("{} cannot hold two tensors named '{}'", path.string(), named.first));
    if (!named.second.defined())
      throw FileError(fmt::format("{} cannot hold '{}': it is undefined", path.string(), named.first));
    order.push_back(&named);
  }
  // Larger elements first: then each is aligned in a mapped file.
  std::stable_sort(order.begin(), order.end(), [](const auto* a, const auto* b) {
    return size_of(a->second.dtype()) > size_of(b->second.dtype());
  });
  std::string header;
  try {
    header = header_of(order, notes);
  } catch (const Json::exception& error) {
    throw FileError(fmt::format("{} cannot be written: {}", path.string(), error.what()));
  }
  AtomicFile file(path);
  const uint64_t length = header.size();
  file.write(&length, sizeof length);
  file.write(header);
  for (const auto* named : order) {
    const Tensor host = named->second.to(cpu()).contiguous_copy();
    file.write(host.address(), host.bytes());
  }
  file.commit();
}

}  // namespace espalier
