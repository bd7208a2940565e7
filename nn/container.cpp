#include "espalier/nn/container.h"

#include <fmt/format.h>

#include "espalier/core/error.h"
#include "espalier/nn/layer_state.h"

namespace espalier::nn {

namespace {

class SequentialState : public LayerStateOf<SequentialState> {
 public:
  using Call = std::function<Variable(const Variable&)>;

  SequentialState() : LayerStateOf("Sequential") {}

  void push(std::string name, std::shared_ptr<ModuleState> element, Call call) {
    add_child(std::move(name), std::move(element));
    calls_.push_back(std::move(call));
  }
  size_t size() const { return calls_.size(); }

  Variable forward(const Variable& x) override {
    Variable y = x;
    for (size_t i = 0; i < calls_.size(); ++i)
      y = calls_[i] ? calls_[i](y) : static_cast<LayerState&>(*entries()[i].child).call(y);
    return y;
  }

  std::shared_ptr<LayerState> clone(Clones& made) const override {
    for (size_t i = 0; i < calls_.size(); ++i)
      if (calls_[i])
        throw UnsupportedError(fmt::format(
            "clone: element {} is a module of your own, or one made of parts as TransformerEncoder "
            "is; make another one, and copy the parameters by saving and loading",
            i));
    return LayerStateOf::clone(made);
  }

 private:
  std::vector<Call> calls_;  // empty for the library's layers, which are called through their state
};

}  // namespace

Sequential::Sequential() : LayerOf(std::make_shared<SequentialState>()) {}

size_t Sequential::size() const { return static_cast<const SequentialState&>(layer_state()).size(); }

void Sequential::push(std::string name, const Module& element, Call call) {
  static_cast<SequentialState&>(layer_state()).push(std::move(name), element.state(), std::move(call));
}

}  // namespace espalier::nn
