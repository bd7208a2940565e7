// Module: the base of layers and networks, with named parameters.
#pragma once
#include <concepts>
#include <iosfwd>
#include <memory>
#include <source_location>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "espalier/core/variable.h"

namespace espalier::nn {

class Layer;
class ModuleState;

/// A network of one's own derives from Module, and holds its layers as members:
///
///     struct Net : esp::nn::Module {
///       esp::Variable operator()(const esp::Variable& x) { return out(esp::relu(hidden(x))); }
///       esp::nn::Dense hidden = add("hidden", esp::nn::Dense(100));
///       esp::nn::Dense out = add("out", esp::nn::Dense(10));
///     };
///
/// A Module is a handle: copies share parameters, children and mode. Assigning another layer to a member does
/// not replace the added one: see `replace`.
class Module {
 public:
  using Where = std::source_location;

  Module();
  // No moves: a moved-from Module stays valid, as a copy.
  Module(const Module&) = default;
  Module& operator=(const Module&) & = default;
  /// `net["fc"] = other` would change nothing but what net["fc"] has just returned: see `replace`.
  Module& operator=(const Module&) && = delete;

  /// Makes `module` a part of this one, and returns it. Throws Error if the name is empty, taken or has a
  /// dot, or if this is a part of `module`.
  template <std::derived_from<Module> M>
  M add(std::string name, M module, Where where = Where::current()) {
    add_child(std::move(name), module, where);
    return module;
  }
  /// Puts `module` in place of the part of that name, and returns it, for the member that holds the part:
  ///
  ///     net.out = net.replace("out", esp::nn::Dense(3));
  ///
  /// Also by the path of a part below a Sequential or a vision model, which calls the new one from then on:
  /// `resnet.replace("layer4.1.conv2", …)`. Trees and executors that were made before keep the old one.
  /// Throws Error if there is no such part, if it is a layer and `module` is none, if this is a part of
  /// `module`, and for a path below a module that holds its parts as members, which replaces them itself.
  template <std::derived_from<Module> M>
  M replace(std::string_view path, M module, Where where = Where::current()) const {
    replace_part(path, module.state(), where);
    return module;
  }
  /// A parameter of one's own, with that initial value (of a real type). Throws Error as `add`, or
  /// TypeError.
  Variable add_parameter(std::string name, const Tensor& value, Where where = Where::current());
  /// The same parameter as another module's: they train as one. Throws Error if it is not a parameter.
  Variable add_parameter(std::string name, const Variable& parameter, Where where = Where::current());

  /// Ties the parameter of a layer to another module's: they train as one, and the layer's former value is
  /// dropped. `net.tie("head.weight", net.wte.parameter("weight"))` for a Dense head that has not learned its
  /// width, too. Trees and executors that were made before keep the old one. Throws Error if there is no
  /// such parameter, if it is a member of a module of one's own (see add_parameter), and if the other is no
  /// parameter; ShapeError, TypeError and DeviceError unless it fits.
  void tie(std::string_view path, const Variable& parameter, Where where = Where::current()) const;

  /// A buffer with that initial value: a state() that is saved, loaded, moved and cloned with the parameters,
  /// and not trained. A forward pass writes it by `with_assignment`. Throws Error as `add`.
  Variable add_buffer(std::string name, const Tensor& value, Where where = Where::current());

  /// All parameters in the order of adding, by path: "hidden.weight". A parameter that can be reached by
  /// several paths is listed once, by the first. Parameters of a layer that has not
  /// learned its input width are missing.
  std::vector<std::pair<std::string, Variable>> parameters() const;
  /// The parameter of that path. Throws Error.
  Variable parameter(std::string_view path, Where where = Where::current()) const;
  /// The same for buffers.
  std::vector<std::pair<std::string, Variable>> buffers() const;
  Variable buffer(std::string_view path, Where where = Where::current()) const;

  /// Its parts by name, and all parts below it by path, "layer4.1.conv2", in the order of adding. One that
  /// can be reached by several paths is listed once, by the first.
  std::vector<std::pair<std::string, Module>> children() const;
  std::vector<std::pair<std::string, Module>> modules() const;
  /// The part of that path. Throws Error.
  Module get_module(std::string_view path, Where where = Where::current()) const;
  /// The same as a Layer, to be called or given a hook: `net.get_layer("layer4.1.conv2")`. Throws Error also
  /// if it is a module that is not called with one Variable alone.
  Layer get_layer(std::string_view path, Where where = Where::current()) const;
  /// "Conv2d" of a layer of that kind; "layer" and "module" of those without a name of their own.
  std::string_view kind_name() const;

  /// Moves all parameters and buffers to a device; handles on them stay valid, and optimizers bring their
  /// states along. Trees that were written before keep to the old device. A layer that still has to learn its
  /// input width starts where its first input is. Initial values are the same numbers on every device. Throws
  /// DeviceError or OutOfMemory; then all parameters are where they were.
  void to(Device device, Where where = Where::current()) const;

  /// Training mode, or inference mode (`train(false)`), for this and all its parts.
  /// Dropout acts in training mode only. What a module builds when it is called is for the mode that it is
  /// in: trees written before stay what they are.
  void train(bool on = true) const;
  void eval() const { train(false); }
  bool training() const;
  /// Freezes all parameters of this and its parts (`false`), also those that layers have yet to create, or
  /// releases them (see set_trainable). A frozen parameter has no gradient, update or decay; a parameter of
  /// two modules is one, and follows the last call. Executors keep to what was trainable when they were made.
  void trainable(bool on) const;
  /// Whether this module's parameters are trained.
  bool trainable() const;

  /// For writers of layers: see layer_state.h.
  const std::shared_ptr<ModuleState>& state() const { return state_; }

 protected:
  explicit Module(std::shared_ptr<ModuleState> state) : state_(std::move(state)) {}
  void replace_part(std::string_view path, std::shared_ptr<ModuleState> part, const Where& where) const;

 private:
  void add_child(std::string name, const Module& child, const Where& where);
  std::vector<std::pair<std::string, Variable>> list(bool buffers) const;
  Variable find(std::string_view path, bool buffer, const Where& where) const;

  std::shared_ptr<ModuleState> state_;
};

/// The tree of modules, a line each: name and kind; below it a line for each parameter and buffer: name,
/// dtype, shape, and what it is if no trained parameter; at the end how many numbers they have.
std::ostream& operator<<(std::ostream& out, const Module& module);

}  // namespace espalier::nn
