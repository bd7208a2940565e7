#include "espalier/data/npy.h"

#include "espalier/core/error.h"
#include "espalier/core/files/file.h"
#include "espalier/data/files/npy_array.h"
#include "espalier/data/files/npy_header.h"

namespace espalier::data {

Tensor read_npy(const std::filesystem::path& path, const NpyReadOptions& options,
                std::source_location where) {
  return located(where, [&] {
    InputFile file(path);
    FileSource source(file);
    return read_npy_array(source, options.small_integers);
  });
}

void write_npy(const std::filesystem::path& path, const Tensor& tensor, std::source_location where) {
  located(where, [&] {
    if (!tensor.defined()) throw TypeError("write_npy: the tensor is undefined");
    const Tensor plain = tensor.to(cpu()).contiguous_copy();
    const std::string header = npy_header(npy_descr(plain.dtype(), "write_npy"), plain.shape());
    AtomicFile file(path);
    file.write(header);
    if (plain.bytes()) file.write(plain.address(), plain.bytes());
    file.commit();
  });
}

}  // namespace espalier::data
