// LayerState: the parameters of a layer, declared by name, and its computation. For writers of layers.
#pragma once
#include <initializer_list>
#include <string_view>
#include <utility>

#include "espalier/nn/module_state.h"

namespace espalier::nn {

/// How a parameter is computed from others: see WeightNorm.
struct Reparametrization {
  /// What stands beside the parameter, with an initial value made of its value.
  struct Part {
    std::string name;
    Shape pattern;
    bool buffer = false;
    std::function<Tensor(const Tensor& value)> derive;
  };
  std::string name;      ///< of the parameter: "weight"
  std::string original;  ///< its name from now on: "weight_v"
  std::vector<Part> parts;
  /// The parameter, from the values of `original` and of the parts.
  std::function<Variable(const std::vector<Variable>& values, bool training)> make;
  /// Whether it writes states: then a step computes it once, however often it calls the layer.
  bool writes_states = false;
};

/// What the handles of one layer share. A layer declares its parameters in its constructor, and calls `fit`
/// in `forward` before it reads them:
///
///     ScaleState() : LayerStateOf("Scale") { declare("weight", {-1}, init::Ones()); }
///     Variable forward(const Variable& x) override {
///       fit(x, {{-1, x.shape()[-1]}});
///       return x * parameter("weight");
///     }
class LayerState : public ModuleState {
 public:
  using Hook = std::function<Variable(const Variable& x, const Variable& y)>;

  virtual Variable forward(const Variable& x) = 0;
  /// `forward` and the hooks, which a LayerTrace of this thread hears of. Containers call their layers by it.
  Variable call(const Variable& x);
  /// What the hooks make of a result, in the order of adding.
  Variable after_hooks(const Variable& x, Variable y) const;
  int64_t add_hook(Hook hook);
  bool remove_hook(int64_t id);
  std::string_view kind() const override { return kind_; }
  virtual std::shared_ptr<LayerState> clone(Clones& made) const = 0;
  /// The sizes of a declared parameter, open ones negative. Throws Error, which begins with `norm`, if it is
  /// none.
  const Shape& pattern_of(std::string_view name, std::string_view norm) const;
  /// An axis of a declared parameter, from 0. Throws as pattern_of, and ShapeError if there is no such axis.
  int64_t axis_of(std::string_view name, int64_t axis, std::string_view norm) const;
  /// Has a declared parameter computed from others. Throws Error, which begins with `norm`, if it is none, or
  /// a name is taken.
  void reparametrize(std::string_view norm, Reparametrization change);

 protected:
  /// Open sizes of the declared shapes, and what they are: {{-1, x.shape()[-1]}}.
  using Sizes = std::initializer_list<std::pair<int64_t, int64_t>>;

  /// `kind` names the layer in errors: "Dense".
  explicit LayerState(std::string_view kind = "layer") : kind_(kind) {}

  /// Declares a parameter. Negative sizes are open: equal ones are one size throughout the layer. Without a
  /// dtype it takes that of the first input.
  void declare(std::string name, Shape shape, ParameterSlot::Initialize initialize,
               std::optional<DType> dtype = {});
  /// The same for a buffer: a state that the layer writes by `with_assignment`.
  void declare_buffer(std::string name, Shape shape, ParameterSlot::Initialize initialize,
                      std::optional<DType> dtype = {});
  /// Checks that an input of the layer's own dtype fits; the first one creates the parameters. Throws
  /// TypeError or ShapeError naming the layer, the input and the parameter, and what check_known throws.
  void fit(const Variable& x, Sizes sizes);
  /// Throws UnsupportedError if a parameter is to be created with the size of an open axis of this input,
  /// whose size no batch has told. `fit` calls it; so do layers for a further input.
  void check_known(const Variable& x, Sizes sizes) const;
  /// Creates the parameters unless they exist: all, or none if one fails. `dtype` is for those declared
  /// without one. Throws Error for a size that stays open.
  void create(Device device, DType dtype, Sizes sizes = {});
  /// Creates the parameters of a layer that is told its open size −1, on the CPU. Throws Error unless the
  /// size, which `what` names, is positive, and TypeError unless the dtype is real.
  void create_with(std::string_view what, int64_t size, DType dtype);
  /// Notes the input of a call that `call` and `fit` do not see.
  void note_input(const Variable& x);
  /// A declared parameter or buffer; undefined before it has been created.
  Variable parameter(std::string_view name) const;

 private:
  /// What writes states is one node for all calls of a step: the last one, and what it was made of.
  struct Computed {
    Reparametrization how;
    mutable Variable last = {};
    mutable std::vector<const Node*> last_of = {};
    mutable bool last_training = false;
  };
  const ParameterSlot* find_slot(std::string_view name) const;
  [[noreturn]] void refuse_parameter(std::string_view name, std::string_view norm) const;
  std::string title() const;
  int64_t resolve(const Entry& entry, int64_t size, Sizes sizes) const;
  Tensor initial_value(const Entry& entry, DType dtype, Sizes sizes,
                       const std::vector<std::pair<ParameterSlot*, Variable>>& created) const;
  Variable computed(const Computed& parameter) const;

  std::string_view kind_;
  std::vector<std::pair<int64_t, Hook>> hooks_;
  int64_t next_hook_ = 0;
  std::vector<Computed> computed_;
  bool fed_ = false;  // whether the last input is downstream of a feed
};

/// Clones a layer by its copy constructor; parameters and children are cloned here.
template <class Self, class Base = LayerState>
class LayerStateOf : public Base {
 public:
  std::shared_ptr<LayerState> clone(ModuleState::Clones& made) const override {
    auto copy = std::make_shared<Self>(static_cast<const Self&>(*this));
    made.modules.emplace(this, copy);
    copy->own_entries(made);
    return copy;
  }

 protected:
  using Base::Base;
};

}  // namespace espalier::nn
