#include "espalier/nn/container.h"

#include <fmt/format.h>

#include "espalier/core/error.h"
#include "espalier/nn/layer_state.h"

namespace espalier::nn {

namespace {

class SequentialState : public LayerStateOf<SequentialState> {
 public:
  SequentialState() : LayerStateOf("Sequential") {}

  bool calls_parts() const override { return true; }
  size_t size() const { return entries().size(); }
  LayerState& layer(size_t i) const { return static_cast<LayerState&>(*entries()[i].child); }

  Variable forward(const Variable& x) override {
    Variable y = x;
    for (size_t i = 0; i < size(); ++i) y = layer(i).call(y);
    return y;
  }
};

}  // namespace

/// A module with a call of its own, as a layer of a Sequential.
class ElementState : public LayerStateOf<ElementState> {
 public:
  using Called = Sequential::Called;

  ElementState(std::string name, std::shared_ptr<ModuleState> module, Called called)
      : name_(std::move(name)), called_(std::move(called)) {
    stand_for(std::move(module));
  }
  Variable forward(const Variable& x) override { return called_.call(x); }

  std::shared_ptr<LayerState> clone(Clones& made) const override {
    if (!called_.clone)
      throw UnsupportedError(fmt::format(
          "clone: element {} is a module of your own, which holds handles on its parts; derive it from "
          "nn::ModuleOf and say by with_parts how they are cloned (nn/cloned_parts.h)",
          name_));
    auto copy = LayerStateOf::clone(made);
    static_cast<ElementState&>(*copy).called_ = called_.clone(ClonedParts(made));
    return copy;
  }

 private:
  std::string name_;
  Called called_;
};

Sequential::Sequential() : LayerOf(std::make_shared<SequentialState>()) {}

size_t Sequential::size() const { return static_cast<const SequentialState&>(layer_state()).size(); }

Layer Sequential::operator[](const NumberAt& element) const {
  return located(element.where, [&] {
    const int64_t number = element.number;
    const auto count = static_cast<int64_t>(size()), at = number < 0 ? number + count : number;
    if (at < 0 || at >= count)
      throw IndexError(fmt::format("Sequential: there is no element {} among {}", number, count));
    return get_layer(state()->parts()[static_cast<size_t>(at)].name);
  });
}

Layer Sequential::operator[](const NameAt& name) const {
  return located(name.where, [&] {
    for (const ModuleState::Entry& entry : state()->parts())
      if (entry.name == name.text) return get_layer(entry.name);
    throw IndexError(fmt::format("Sequential: there is no element '{}'", name.text));
  });
}

void Sequential::push(std::string name, const Module& layer) {
  layer_state().add_child(std::move(name), layer.state());
}

void Sequential::push(std::string name, const Module& element, Called called) {
  std::shared_ptr<ModuleState> layer = as_layer(name, element, std::move(called));
  layer_state().add_child(std::move(name), std::move(layer));
}

std::shared_ptr<ModuleState> Sequential::as_layer(std::string_view name, const Module& element,
                                                  Called called) {
  return std::make_shared<ElementState>(std::string(name), element.state(), std::move(called));
}

}  // namespace espalier::nn
