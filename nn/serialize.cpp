#include "espalier/nn/serialize.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstring>
#include <map>
#include <optional>
#include <unordered_map>

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
          "{}: the {} {} of shape {} is {}, and {} in the file{}", file_, kind_of(slot), named.path,
          pattern.str(), allowed ? name(dtype) : "float32 (or another real type)", name(tensor.dtype()),
          is_real(dtype) && is_real(tensor.dtype()) ? "; {.convert = true} converts it" : ""));
  }

 private:
  std::string file_;
  std::map<std::pair<const ModuleState*, int64_t>, int64_t> sizes_;
  std::map<const ModuleState*, DType> dtypes_;
};

/// The tensors of a file whose names begin with `prefix`, by what follows it.
std::map<std::string, Tensor> tensors_in(const std::filesystem::path& file, const std::string& prefix) {
  std::map<std::string, Tensor> tensors;
  for (auto& [path, tensor] : read_safetensors(file, nullptr, {}))
    if (path.starts_with(prefix)) tensors.emplace(path.substr(prefix.size()), std::move(tensor));
  return tensors;
}

/// Integers of files that a buffer has in int32, and with `convert` reals, in the dtype of the slot.
Tensor converted_for(const ParameterSlot& slot, const Tensor& tensor, bool convert) {
  const std::optional<DType> dtype = slot.value.defined() ? slot.value.dtype() : slot.dtype;
  if (dtype == int32 && is_small_integer(tensor.dtype())) return tensor.to(int32);
  const DType wanted = dtype.value_or(float32);
  return convert && is_real(wanted) && is_real(tensor.dtype()) ? tensor.to(wanted) : tensor;
}

void require_all(const LoadReport& report, const std::vector<std::string>& missing, const std::string& file) {
  if (!missing.empty())
    throw FileError(fmt::format("{} does not have the parameters {}", file, fmt::join(missing, ", ")));
  if (!report.unexpected.empty())
    throw FileError(fmt::format("{} has tensors which the module does not: {}", file,
                                fmt::join(report.unexpected, ", ")));
}

/// The values that slots are to have.
class NewValues {
 public:
  explicit NewValues(const std::source_location& where) : where_(where) {}

  void add(const Slot& named, const Tensor& value) {
    if (const Variable& leaf = named.slot->value; leaf.defined())
      assigned_.emplace_back(leaf.node(), value.to(leaf.device()));
    else
      created_.emplace_back(named, named.slot->make(value, last_name(named.path), where_));
  }
  /// Nothing can fail any more.
  void apply() {
    for (auto& [named, variable] : created_) named.owner->fill(*named.slot, std::move(variable));
    assign(assigned_);
  }

 private:
  const std::source_location& where_;
  std::vector<std::pair<Slot, Variable>> created_;
  std::vector<std::pair<Node*, Tensor>> assigned_;
};

/// Where a tensor waits until its path is written.
struct Place {
  ContainerState* scope;
  std::string path;  ///< in the scope
};

/// None where the module has no scope for it, or a scope has something else there.
std::optional<Place> unwritten_place(ModuleState& module, std::string_view path) {
  const size_t dot = path.find('.');
  for (const ModuleState::Entry& entry : module.parts()) {
    if (entry.child && entry.name.empty()) return unwritten_place(*entry.child, path);
    if (entry.name != path.substr(0, dot)) continue;
    if (!entry.child || dot == path.npos) return {};
    return unwritten_place(*entry.child, path.substr(dot + 1));
  }
  auto* const scope = dynamic_cast<ContainerState*>(&module);
  return scope && scope->is_scope ? std::optional(Place{scope, std::string(path)}) : std::nullopt;
}

bool has_scope(ModuleState& module) {
  bool found = false;
  for_each_scope(module, [&](const std::string&, const ContainerState&) { found = true; });
  return found;
}

/// A parameter of several paths has the first one here. In files it may have another one, or all.
void use_first_paths(ModuleState& module, std::map<std::string, Tensor>& tensors) {
  const auto identity = [](const ParameterSlot& slot) {
    return slot.value.defined() ? static_cast<const void*>(slot.value.node()) : &slot;
  };
  std::unordered_map<const void*, std::string> first;
  for (const Slot& named : module.slots()) first.emplace(identity(*named.slot), named.path);
  const auto equal = [](const Tensor& a, const Tensor& b) {
    return a.spec() == b.spec() && std::memcmp(a.address(), b.address(), a.bytes()) == 0;
  };
  for (auto next = tensors.begin(); next != tensors.end();) {
    const auto at = next++;
    const ParameterSlot* slot = module.slot(at->first).first;
    const auto known = slot ? first.find(identity(*slot)) : first.end();
    if (known == first.end() || known->second == at->first) continue;
    if (const auto listed = tensors.find(known->second); listed == tensors.end()) {
      auto renamed = tensors.extract(at);
      renamed.key() = known->second;
      tensors.insert(std::move(renamed));
    } else if (equal(listed->second, at->second)) {
      tensors.erase(at);
    }
  }
}

LoadReport load_slots(ModuleState& module, const std::filesystem::path& file, const LoadOptions& options,
                      const std::source_location& where) {
  std::map<std::string, Tensor> tensors = tensors_in(file, options.prefix);
  const size_t tensors_found = tensors.size();
  use_first_paths(module, tensors);
  NewValues values(where);
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
    found.mapped() = converted_for(*named.slot, found.mapped(), options.convert);
    fit.check(named, found.mapped());
    values.add(named, found.mapped());
  }
  std::vector<std::pair<Place, Tensor>> waiting;
  for (const auto& [path, tensor] : tensors)
    if (auto place = unwritten_place(module, path))
      waiting.emplace_back(std::move(*place), tensor);
    else
      report.unexpected.push_back(options.prefix + path);
  if (options.strict) {
    require_all(report, required, file.string());
    if (tensors_found == 0 && !options.prefix.empty() && has_scope(module))  // of which nothing is missing
      throw FileError(
          fmt::format("{} has no tensors whose names begin with {:?}", file.string(), options.prefix));
  }

  compute_all_waiting();
  values.apply();
  for (auto& [place, tensor] : waiting)
    place.scope->loaded.insert_or_assign(place.path, LoadedTensor{tensor, file.string(), options.convert});
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
    for_each_scope(*module.state(), [&](const std::string& path, const ContainerState& scope) {
      for (const auto& [name, tensor] : scope.loaded) tensors.emplace_back(path + name, tensor.value);
    });
    write_safetensors(file, tensors, {}, {});
  });
}

void take_loaded(ModuleState& part, const std::string& name, const LoadedTensors& loaded,
                 const std::source_location& where) {
  if (loaded.empty()) return;
  LoadedTensors rest = loaded;
  const std::string& file = loaded.begin()->second.file;
  NewValues values(where);
  LoadReport report;
  Fit fit(file);
  for (Slot named : part.slots()) {
    const auto found = rest.extract(named.path);
    if (!name.empty()) named.path = name + "." + named.path;
    if (found) {
      const Tensor value = converted_for(*named.slot, found.mapped().value, found.mapped().convert);
      fit.check(named, value);
      values.add(named, value.clone());  // clones of the scope have been given the same
    } else if (!named.slot->optional) {
      report.missing.push_back(named.path);
    }
  }
  for (const auto& [path, tensor] : rest) report.unexpected.push_back(name + "." + path);
  require_all(report, report.missing, file);
  values.apply();
}

LoadReport load(const Module& module, const std::filesystem::path& file, const LoadOptions& options,
                std::source_location where) {
  return located(where, [&] { return load_slots(*module.state(), file, options, where); });
}

}  // namespace espalier::nn
