#include "espalier/executor/training/plan_file/container.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <string>

#include "espalier/core/error.h"
#include "espalier/core/files/crc64.h"
#include "espalier/core/files/element_types.h"
#include "espalier/core/files/mapped_file.h"
#include "espalier/core/storage.h"
#include "espalier/executor/training/plan_file/text.h"

namespace espalier {

namespace {

using Json = nlohmann::json;
constexpr char magic[] =
    "\x89"
    "ESPLAN\n";
constexpr uint64_t largest_text = uint64_t{1} << 28;
constexpr uint64_t alignment = buffer_alignment;

struct Prefix {
  char magic[8] = {};
  uint32_t version = plan_format_version;
  uint32_t zero = 0;
  uint64_t text_bytes = 0;
  uint64_t data_begin = 0;
  uint64_t file_bytes = 0;
  uint64_t text_crc = 0;
  uint64_t rest_crc = 0;
  uint64_t prefix_crc = 0;

  uint64_t crc_of_this() const {
    Crc64 crc;
    crc.add(this, offsetof(Prefix, prefix_crc));
    return crc.value();
  }
};
static_assert(sizeof(Prefix) == 64);

uint64_t crc_of(const void* from, size_t bytes) {
  Crc64 crc;
  crc.add(from, bytes);
  return crc.value();
}

uint64_t aligned(uint64_t offset) { return (offset + alignment - 1) / alignment * alignment; }

/// The bytes of a file behind its text, in order, for their checksum and for writing.
template <class F>
void for_each_piece(uint64_t gap, const std::vector<Tensor>& tensors, const F& f) {
  static constexpr char zeros[alignment] = {};
  f(zeros, gap);
  for (const Tensor& tensor : tensors) {
    f(tensor.address(), tensor.bytes());
    f(zeros, aligned(tensor.bytes()) - tensor.bytes());
  }
}

Prefix read_prefix(InputFile& file) {
  Prefix prefix;
  if (file.size() < sizeof prefix)
    file.fail(fmt::format("is no plan file: it has {} bytes, and the smallest has more", file.size()));
  file.read(&prefix, sizeof prefix);
  if (std::memcmp(prefix.magic, magic, sizeof prefix.magic) != 0) file.fail("is no plan file");
  if (prefix.crc_of_this() != prefix.prefix_crc)
    file.fail("is damaged: the checksum of its first bytes is another");
  if (prefix.version > plan_format_version)
    file.fail(
        fmt::format("was written by a newer Espalier, in version {} of the format; this one reads versions "
                    "up to {}",
                    prefix.version, plan_format_version));
  if (prefix.version == 0 || prefix.zero != 0) file.fail("is no plan file of a version that there is");
  if (prefix.file_bytes != file.size())
    file.fail(fmt::format("is incomplete: it has {} bytes of {}", file.size(), prefix.file_bytes));
  if (prefix.text_bytes > largest_text)
    file.fail(fmt::format("claims a text of {} bytes, more than there may be", prefix.text_bytes));
  if (prefix.text_bytes > file.size() - sizeof prefix ||
      prefix.data_begin != aligned(sizeof prefix + prefix.text_bytes) || prefix.data_begin > file.size())
    file.fail("has a text that does not end where its tensors begin");
  return prefix;
}

/// A tensor that the text lists. `begin` is where it may begin, and becomes its end.
Tensor listed_tensor(const InputFile& file, const Json& entry, const std::shared_ptr<MappedFile>& mapped,
                     const Prefix& prefix, uint64_t& begin) {
  const PlanText in(file);
  const Json& tensor = in.array(entry, "a tensor", 3);
  const Spec spec = in.spec({tensor[0], tensor[1]}, "the type and shape of a tensor", 0);
  const auto offset = static_cast<uint64_t>(in.integer(tensor[2], "the offset of a tensor", 0, INT64_MAX));
  uint64_t bytes = 0;
  const uint64_t room = file.size() - prefix.data_begin;
  if (!bytes_of_elements(spec.shape, size_of(spec.dtype), bytes) || bytes > room || offset > room - bytes)
    file.fail(
        fmt::format("has a tensor of {} {}, which ends behind the file", name(spec.dtype), spec.shape.str()));
  if (offset % alignment != 0 || offset < begin)
    file.fail(fmt::format("has a tensor at {}, where none may begin", offset));
  begin = offset + bytes;
  if (bytes == 0) return Tensor(spec.shape, spec.dtype);
  char* data = mapped->at(prefix.data_begin + offset);
  if (spec.dtype == DType::boolean && std::any_of(data, data + bytes, [](char c) { return c & ~1; }))
    file.fail("has a tensor of bool with an element that is neither 0 nor 1");
  return mapped_tensor(mapped, data, spec, MappedUse::owned);
}

}  // namespace

void write_plan_container(const std::filesystem::path& path, const PlanContainer& container) {
  Json text = container.text;
  Json& list = text["tensors"] = Json::array();
  uint64_t offset = 0;
  for (const Tensor& tensor : container.tensors) {
    list.push_back(
        {name(tensor.dtype()), std::vector<int64_t>(tensor.shape().begin(), tensor.shape().end()), offset});
    offset += aligned(tensor.bytes());
  }
  std::string written;
  try {
    written = text.dump();
  } catch (const Json::exception& error) {  // a name that is not UTF-8
    throw FileError(fmt::format("{} cannot be written: {}", path.string(), error.what()));
  }
  if (written.size() > largest_text)
    throw FileError(fmt::format("{} cannot be written: the tree has too many nodes", path.string()));
  Prefix prefix;
  std::memcpy(prefix.magic, magic, sizeof prefix.magic);
  prefix.version = container.version;
  prefix.text_bytes = written.size();
  prefix.data_begin = aligned(sizeof prefix + written.size());
  prefix.file_bytes = prefix.data_begin + offset;
  prefix.text_crc = crc_of(written.data(), written.size());
  const uint64_t gap = prefix.data_begin - sizeof prefix - written.size();
  Crc64 rest;
  for_each_piece(gap, container.tensors, [&](const void* from, size_t bytes) { rest.add(from, bytes); });
  prefix.rest_crc = rest.value();
  prefix.prefix_crc = prefix.crc_of_this();

  AtomicFile file(path);
  file.write(&prefix, sizeof prefix);
  file.write(written);
  for_each_piece(gap, container.tensors, [&](const void* from, size_t bytes) { file.write(from, bytes); });
  file.commit();
}

PlanContainer read_plan_container(const std::filesystem::path& path) {
  InputFile file(path);
  const Prefix prefix = read_prefix(file);
  const auto mapped = std::make_shared<MappedFile>(file);
  const std::string_view text(mapped->at(sizeof prefix), prefix.text_bytes);
  const uint64_t text_end = sizeof prefix + prefix.text_bytes;
  if (crc_of(text.data(), text.size()) != prefix.text_crc)
    file.fail("is damaged: the checksum of its text is another");
  if (crc_of(mapped->at(text_end), prefix.file_bytes - text_end) != prefix.rest_crc)
    file.fail("is damaged: the checksum of its tensors is another");
  PlanContainer container{PlanText(file).parse(text), {}, prefix.version};
  uint64_t begin = 0;
  PlanText in(file);
  for (const Json& tensor : in.list(in.member(container.text, "tensors"), "the list of tensors"))
    container.tensors.push_back(listed_tensor(file, tensor, mapped, prefix, begin));
  return container;
}

}  // namespace espalier
