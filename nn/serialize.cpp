#include "espalier/nn/serialize.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>

#include "espalier/core/error.h"
#include "espalier/core/eval.h"
#include "espalier/core/files/safetensors.h"
#include "espalier/nn/module_state.h"

namespace espalier::nn {

namespace {

using Slot = ModuleState::NamedSlot;

std::string last_name(const std::string& path) { return path.substr(path.rfind('.') + 1); }

/// Compares tensors with slots, and binds open sizes and dtypes to those of the first tensor.
class Fit {
 public:
  explicit Fit(std::string file) : file_(std::move(file)) {}

  void check(const Slot& named, const Tensor& tensor) {
    const ParameterSlot& slot = *named.slot;
    const Shape& pattern = slot.value.defined() ? slot.value.shape() : slot.pattern;
    bool fits = pattern.rank() == tensor.rank();
    for (size_t axis = 0; fits && axis < pattern.rank(); ++axis) {
      const int64_t size = pattern.dims()[axis], given = tensor.shape().dims()[axis];
      fits = given == (size < 0 ? sizes_.emplace(std::pair(named.owner, size), given).first->second : size);
    }
    if (!fits)
      throw FileError(fmt::format("{}: the parameter {} has shape {}, and {} in the file", file_, named.path,
                                  pattern.str(), tensor.shape().str()));
    const DType dtype = slot.value.defined() ? slot.value.dtype()
                        : slot.dtype         ? *slot.dtype
                                             : dtypes_.emplace(named.owner, tensor.dtype()).first->second;
    if (dtype != tensor.dtype() || !is_real(dtype))
      throw FileError(fmt::format(
          "{}: the parameter {} of shape {} is {}, and {} in the file", file_, named.path, pattern.str(),
          is_real(dtype) ? name(dtype) : "float32 (or another real type)", name(tensor.dtype())));
  }

 private:
  std::string file_;
  std::map<std::pair<const ModuleState*, int64_t>, int64_t> sizes_;
  std::map<const ModuleState*, DType> dtypes_;
};

void load_parameters(ModuleState& module, const std::filesystem::path& file,
                     const std::source_location& where) {
  std::map<std::string, Tensor> tensors;
  for (auto& [path, tensor] : read_safetensors(file)) tensors.emplace(path, tensor);

  std::vector<std::pair<ParameterSlot*, Variable>> created;
  std::vector<std::pair<Node*, Tensor>> assigned;
  std::vector<std::string> missing, unknown;
  Fit fit(file.string());
  for (const Slot& named : module.slots()) {
    auto found = tensors.extract(named.path);
    if (!found) {
      missing.push_back(named.path);
      continue;
    }
    fit.check(named, found.mapped());
    Variable& value = named.slot->value;
    if (!value.defined())
      created.emplace_back(named.slot, parameter(found.mapped(), last_name(named.path), where));
    else
      assigned.emplace_back(value.node(), found.mapped().to(value.value().device()));
  }
  for (const auto& [path, tensor] : tensors) unknown.push_back(path);
  if (!missing.empty())
    throw FileError(
        fmt::format("{} does not have the parameters {}", file.string(), fmt::join(missing, ", ")));
  if (!unknown.empty())
    throw FileError(
        fmt::format("{} has tensors which the module does not: {}", file.string(), fmt::join(unknown, ", ")));

  // From here on nothing can fail.
  for (auto& [slot, variable] : created) slot->value = std::move(variable);
  for (auto& [leaf, tensor] : assigned) assign(*leaf, tensor);
}

}  // namespace

void save(const Module& module, const std::filesystem::path& file, std::source_location where) {
  located(where, [&] {
    NamedTensors tensors;
    for (const Slot& named : module.state()->slots()) {
      if (!named.slot->value.defined())
        throw Error(
            fmt::format("save: the shape of {} is not known before its layer has been called", named.path));
      tensors.emplace_back(named.path, named.slot->value.value());
    }
    write_safetensors(file, tensors);
  });
}

void load(const Module& module, const std::filesystem::path& file, std::source_location where) {
  located(where, [&] { load_parameters(*module.state(), file, where); });
}

}  // namespace espalier::nn
