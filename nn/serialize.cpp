#include "espalier/nn/serialize.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>

#include "espalier/core/deferred/waiting.h"
#include "espalier/core/error.h"
#include "espalier/core/eval.h"
#include "espalier/core/files/safetensors.h"
#include "espalier/nn/module_state.h"

namespace espalier::nn {

namespace {

using Slot = ModuleState::NamedSlot;

std::string_view kind_of(const ParameterSlot& slot) { return slot.buffer ? "buffer" : "parameter"; }

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
      throw FileError(fmt::format("{}: the {} {} has shape {}, and {} in the file", file_, kind_of(slot),
                                  named.path, pattern.str(), tensor.shape().str()));
    const DType dtype = slot.value.defined() ? slot.value.dtype()
                        : slot.dtype         ? *slot.dtype
                                             : dtypes_.emplace(named.owner, tensor.dtype()).first->second;
    const bool allowed = slot.buffer || is_real(dtype);
    if (dtype != tensor.dtype() || !allowed)
      throw FileError(fmt::format(
          "{}: the {} {} of shape {} is {}, and {} in the file", file_, kind_of(slot), named.path,
          pattern.str(), allowed ? name(dtype) : "float32 (or another real type)", name(tensor.dtype())));
  }

 private:
  std::string file_;
  std::map<std::pair<const ModuleState*, int64_t>, int64_t> sizes_;
  std::map<const ModuleState*, DType> dtypes_;
};

/// The tensors of a file whose names begin with `prefix`, by what follows it.
std::map<std::string, Tensor> tensors_in(const std::filesystem::path& file, const std::string& prefix) {
  std::map<std::string, Tensor> tensors;
  for (auto& [path, tensor] : read_safetensors(file))
    if (path.starts_with(prefix)) tensors.emplace(path.substr(prefix.size()), std::move(tensor));
  return tensors;
}

/// Integers of files that a buffer has in int32.
Tensor widened_for(const ParameterSlot& slot, const Tensor& tensor) {
  const bool widens = slot.value.defined() ? slot.value.dtype() == int32 : slot.dtype == int32;
  return widens && is_small_integer(tensor.dtype()) ? tensor.to(int32) : tensor;
}

void require_all(const LoadReport& report, const std::vector<std::string>& missing, const std::string& file) {
  if (!missing.empty())
    throw FileError(fmt::format("{} does not have the parameters {}", file, fmt::join(missing, ", ")));
  if (!report.unexpected.empty())
    throw FileError(fmt::format("{} has tensors which the module does not: {}", file,
                                fmt::join(report.unexpected, ", ")));
}

LoadReport load_slots(ModuleState& module, const std::filesystem::path& file, const LoadOptions& options,
                      const std::source_location& where) {
  std::map<std::string, Tensor> tensors = tensors_in(file, options.prefix);
  std::vector<std::pair<Slot, Variable>> created;
  std::vector<std::pair<Node*, Tensor>> assigned;
  LoadReport report;
  std::vector<std::string> required;  // of those that are missing
  Fit fit(file.string());
  for (const Slot& named : module.slots()) {
    auto found = tensors.extract(named.path);
    if (!found) {
      report.missing.push_back(options.prefix + named.path);
      if (!named.slot->optional) required.push_back(report.missing.back());
      continue;
    }
    found.mapped() = widened_for(*named.slot, found.mapped());
    fit.check(named, found.mapped());
    Variable& value = named.slot->value;
    if (!value.defined())
      created.emplace_back(named, named.slot->make(found.mapped(), last_name(named.path), where));
    else
      assigned.emplace_back(value.node(), found.mapped().to(value.device()));
  }
  for (const auto& [path, tensor] : tensors) report.unexpected.push_back(options.prefix + path);
  if (options.strict) require_all(report, required, file.string());

  compute_all_waiting();
  // From here on nothing can fail.
  for (auto& [named, variable] : created) named.owner->fill(*named.slot, std::move(variable));
  assign(assigned);
  return report;
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

LoadReport load(const Module& module, const std::filesystem::path& file, const LoadOptions& options,
                std::source_location where) {
  return located(where, [&] { return load_slots(*module.state(), file, options, where); });
}

}  // namespace espalier::nn
