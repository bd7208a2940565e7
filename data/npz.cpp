#include "espalier/data/npz.h"

#include <fmt/format.h>

#include <set>
#include <string>
#include <string_view>

#include "espalier/core/error.h"
#include "espalier/data/files/npy_array.h"
#include "espalier/data/files/npy_header.h"
#include "espalier/data/files/zip_archive.h"
#include "espalier/data/files/zlib_source.h"

namespace espalier::data {

NamedTensors read_npz(const std::filesystem::path& path, const NpyReadOptions& options,
                      std::source_location where) {
  return located(where, [&] {
    ZipReader archive(path);
    NamedTensors tensors;
    std::set<std::string> names;
    for (const ZipEntry& entry : archive.entries()) {
      std::string name = entry.name;
      if (name.ends_with(".npy")) name.resize(name.size() - 4);
      if (!names.insert(name).second)
        throw FileError(fmt::format("{} has two arrays named '{}'", path.string(), name));
      const auto source = archive.open(entry);
      Tensor array = read_npy_array(*source, options.small_integers);
      tensors.emplace_back(std::move(name), std::move(array));
    }
    return tensors;
  });
}

void write_npz(const std::filesystem::path& path, const NamedTensors& tensors, const NpzOptions& options,
               std::source_location where) {
  located(where, [&] {
    require_zlib(path.string());
    std::set<std::string_view> names;
    for (const auto& [name, tensor] : tensors) {
      if (!names.insert(name).second)
        throw FileError(fmt::format("{} cannot hold two arrays named '{}'", path.string(), name));
      if (!tensor.defined()) throw TypeError(fmt::format("write_npz: the tensor '{}' is undefined", name));
    }
    ZipWriter archive(path);
    for (const auto& [name, tensor] : tensors) {
      const Tensor plain = tensor.to(cpu()).contiguous_copy();
      std::string bytes = npy_header(npy_descr(plain.dtype(), "write_npz"), plain.shape());
      if (plain.bytes()) bytes.append(static_cast<const char*>(plain.address()), plain.bytes());
      archive.add(name + ".npy", bytes, options.compress);
    }
    archive.commit();
  });
}

}  // namespace espalier::data
