#include "espalier/nn/onnx/model.h"

#include <fmt/format.h>

#include "espalier/core/files/file.h"
#include "espalier/nn/onnx/errors.h"
#include "espalier/nn/onnx/model_reader.h"

namespace espalier::onnx {

namespace {

const Variable& named(const NamedVariables& list, std::string_view name, const char* kind,
                      const std::source_location& where) {
  for (const auto& [known, variable] : list)
    if (known == name) return variable;
  return located(
      where, [&]() -> const Variable& { throw Error(fmt::format("the model has no {} '{}'", kind, name)); });
}

}  // namespace

const Variable& Model::input(std::string_view name, Where where) const {
  return named(inputs_, name, "input", where);
}
const Variable& Model::output(std::string_view name, Where where) const {
  return named(outputs_, name, "output", where);
}
const Variable& Model::output(Where where) const {
  if (outputs_.size() == 1) return outputs_[0].second;
  return located(where, [&]() -> const Variable& {
    throw Error(fmt::format("the model has {} outputs; name the one that is meant", outputs_.size()));
  });
}

Model load(const std::filesystem::path& file, const LoadOptions& options, std::source_location where) {
  return with_line(where, [&] {
    return with_prefix(fmt::format("'{}'", file.string()), [&] {
      pb::ModelProto proto;
      {
        const std::string bytes = read_file(file);
        if (bytes.size() > size_t{INT32_MAX})
          throw FileError("it has more than 2 GiB; its weights belong in a file of their own");
        if (!proto.ParseFromArray(bytes.data(), static_cast<int>(bytes.size())))
          throw FileError("it is no ONNX file, or damaged: its bytes are no message of ONNX");
      }
      if (!proto.has_graph() || proto.ir_version() <= 0)
        throw FileError("it is no ONNX file: it has no graph");
      return ModelReader(proto, file, options, where).read();
    });
  });
}

}  // namespace espalier::onnx
