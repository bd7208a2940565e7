#include "espalier/optim/serialize.h"

#include <fmt/format.h>

#include <cmath>

#include "espalier/core/error.h"
#include "espalier/core/files/safetensors.h"
#include "espalier/core/node.h"
#include "espalier/optim/state.h"

namespace espalier::optim {

namespace {

constexpr const char* kind_key = "optimizer";

std::string state_key(const std::string& path, const std::string& name) {
  return fmt::format("state/{}/{}", path, name);
}
std::string own_key(const std::string& name) { return fmt::format("own/{}", name); }
std::string setting_key(const std::string& name) { return fmt::format("setting/{}", name); }

/// Checks a file against an optimizer and its parameters, and collects what it says.
class Reader {
 public:
  Reader(const Optimizer& optimizer, const std::filesystem::path& file)
      : optimizer_(optimizer), file_(file.string()) {
    FileNotes notes;
    tensors_ = read_safetensors(file, &notes, {});
    if (!notes.contains(kind_key))
      throw FileError(
          fmt::format("{} has no state of an optimizer: no note in it names one. Parameters of a module are "
                      "read by nn::load",
                      file_));
    if (notes[kind_key] != optimizer.name())
      throw FileError(fmt::format("{} has the state of '{}', and the optimizer is {}", file_, notes[kind_key],
                                  optimizer.name()));
  }

  void settings() {
    for (const auto& [name, value] : optimizer_.settings()) {
      const Tensor tensor = take(setting_key(name), {float64, {}});
      if (!is_valid_setting(name, tensor.item()))
        throw FileError(fmt::format("{} has {} as the setting '{}'", file_, tensor.item(), name));
      settings_.emplace_back(name, tensor.item());
    }
  }
  void own() {
    for (const auto& [name, leaf] : optimizer_.state())
      own_.emplace_back(leaf, take(own_key(name), {leaf.dtype(), leaf.shape()}));
  }
  void parameter(const std::string& path, const Variable& parameter) {
    for (const auto& [name, leaf] : optimizer_.state_of(parameter))
      states_.push_back({parameter, name, take(state_key(path, name), {leaf.dtype(), leaf.shape()})});
    const std::string prefix = state_key(path, "");
    for (auto& [key, tensor] : tensors_) {
      if (!key.starts_with(prefix) || key.find('/', prefix.size()) != std::string::npos) continue;
      const std::string name = key.substr(prefix.size());
      const DType dtype = is_half(parameter.dtype()) ? float32 : parameter.dtype();
      check(key, tensor, {dtype, tensor.rank() == 0 ? Shape() : optimizer_.state_shape(parameter, name)});
      states_.push_back({parameter, name, std::exchange(tensor, {})});
      key.clear();
    }
    std::erase_if(tensors_, [](const auto& named) { return named.first.empty(); });
  }
  void nothing_is_left() const {
    if (!tensors_.empty())
      throw FileError(fmt::format("{} has '{}', which belongs to no parameter that is given", file_,
                                  tensors_.front().first));
  }

  void apply() {
    Optimizer optimizer = optimizer_;
    for (const auto& [name, value] : settings_) optimizer.set(name, value);
    for (const auto& [leaf, value] : own_) set_value(leaf, value);
    for (const auto& [parameter, name, value] : states_) optimizer.set_state(parameter, name, value);
  }

 private:
  struct State {
    Variable parameter;
    std::string name;
    Tensor value;
  };

  void check(const std::string& key, const Tensor& tensor, const Spec& spec) const {
    if (!(tensor.spec() == spec))
      throw FileError(fmt::format("{} has '{}' as {} {}, and the optimizer as {} {}", file_, key,
                                  espalier::name(tensor.dtype()), tensor.shape().str(),
                                  espalier::name(spec.dtype), spec.shape.str()));
  }
  Tensor take(const std::string& key, const Spec& spec) {
    for (auto named = tensors_.begin(); named != tensors_.end(); ++named) {
      if (named->first != key) continue;
      check(key, named->second, spec);
      Tensor tensor = std::move(named->second);
      tensors_.erase(named);
      return tensor;
    }
    throw FileError(fmt::format("{} has no '{}', which the optimizer has", file_, key));
  }

  const Optimizer& optimizer_;
  std::string file_;
  NamedTensors tensors_;
  std::vector<std::pair<std::string, double>> settings_;
  std::vector<std::pair<Variable, Tensor>> own_;
  std::vector<State> states_;
};

}  // namespace

void save(const Optimizer& optimizer, const NamedParameters& parameters, const std::filesystem::path& file,
          std::source_location where) {
  located(where, [&] {
    NamedTensors tensors;
    for (const auto& [path, parameter] : parameters)
      for (const auto& [name, leaf] : optimizer.state_of(parameter)) {
        if (name.find('/') != std::string::npos)
          throw Error(fmt::format("save: '{}' cannot name a state in a file: a slash separates names", name));
        tensors.emplace_back(state_key(path, name), leaf.value());
      }
    for (const auto& [name, leaf] : optimizer.state()) tensors.emplace_back(own_key(name), leaf.value());
    for (const auto& [name, value] : optimizer.settings())
      tensors.emplace_back(setting_key(name), full({}, value, float64));
    write_safetensors(file, tensors, {{kind_key, std::string(optimizer.name())}}, {});
  });
}

void load(const Optimizer& optimizer, const NamedParameters& parameters, const std::filesystem::path& file,
          std::source_location where) {
  located(where, [&] {
    Reader reader(optimizer, file);
    reader.settings();
    reader.own();
    for (const auto& [path, parameter] : parameters) reader.parameter(path, parameter);
    reader.nothing_is_left();
    reader.apply();  // nothing can fail in it
  });
}

}  // namespace espalier::optim
