#include "espalier/nn/parameters.h"

#include <fmt/format.h>

#include "espalier/core/error.h"
#include "espalier/core/node.h"
#include "espalier/nn/module_state.h"

namespace espalier::nn {

struct Parameters::Contents {
  struct Layer {
    std::any layer;
    std::string settings;
    CloneLayer clone;
  };
  std::map<std::string, Parameters, std::less<>> scopes;
  std::map<std::string, Layer> layers;
  std::map<std::string, Variable> parameters;
};

namespace {

ContainerState& scope_state(const std::shared_ptr<ModuleState>& state) {
  return static_cast<ContainerState&>(*state);
}

}  // namespace

Parameters::Parameters() : contents_(std::make_shared<Contents>()) { scope_state(state()).is_scope = true; }

Parameters Parameters::operator[](std::string_view path) const {
  const size_t dot = path.find('.');
  const std::string name(path.substr(0, dot));
  auto found = contents_->scopes.find(name);
  if (found == contents_->scopes.end()) {
    Parameters part;
    state()->add_child(name, part.state());
    scope_state(part.state()).loaded = scope_state(state()).loaded_for(name);
    scope_state(state()).forget_loaded(name);
    part.train(training());
    if (!trainable()) part.trainable(false);
    found = contents_->scopes.emplace(name, std::move(part)).first;
  }
  return dot == path.npos ? found->second : found->second[path.substr(dot + 1)];
}

Variable Parameters::parameter(const std::string& name, const Shape& shape, const Initializer& initializer,
                               DType dtype, Where where) const {
  return located(where, [&] {
    if (const auto known = contents_->parameters.find(name); known != contents_->parameters.end()) {
      const Variable& p = known->second;
      if (!(p.shape() == shape))
        throw ShapeError(
            fmt::format("the parameter '{}' has shape {}, not {}", name, p.shape().str(), shape.str()));
      if (p.dtype() != dtype)
        throw TypeError(fmt::format("the parameter '{}' is {}, not {}", name, espalier::name(p.dtype()),
                                    espalier::name(dtype)));
      return p;
    }
    ContainerState& own = scope_state(state());
    const auto loaded = own.loaded.find(name);
    ModuleState alone;  // so that what was loaded is checked as that of a layer
    alone.add_slot(name, {shape, dtype, {}});
    if (loaded != own.loaded.end()) take_loaded(alone, {}, {*loaded}, where);
    const Variable known = alone.parts()[0].slot.value,
                   made =
                       known.defined() ? known : espalier::parameter(initializer(shape, dtype), name, where);
    own.add_slot(name, {shape, dtype, made});
    own.loaded.erase(name);
    contents_->parameters.emplace(name, made);
    return made;
  });
}

const std::any* Parameters::find(const std::string& name, const std::string& settings,
                                 const std::type_info& type, const Where& where) const {
  return located(where, [&]() -> const std::any* {
    const auto known = contents_->layers.find(name);
    if (known == contents_->layers.end()) return nullptr;
    if (known->second.layer.type() != type)
      throw Error(fmt::format("this scope has another kind of layer named '{}'", name));
    if (known->second.settings != settings)
      throw Error(
          fmt::format("this scope has '{}' with {}, not with {}", name, known->second.settings, settings));
    return &known->second.layer;
  });
}

void Parameters::keep(const std::string& name, const std::string& settings, std::any layer,
                      const Module& module, CloneLayer clone, const Where& where) const {
  located(where, [&] {
    ContainerState& own = scope_state(state());
    module.state()->train(training());
    if (!trainable()) module.state()->set_trainable(false);
    take_loaded(*module.state(), name, own.loaded_for(name), where);
    own.add_child(name, module.state());
    own.forget_loaded(name);
    contents_->layers.emplace(name, Contents::Layer{std::move(layer), settings, clone});
  });
}

Parameters Parameters::with_parts(const ClonedParts& parts) const {
  Parameters copy(*this);
  parts.reset(copy);
  copy.contents_ = std::make_shared<Contents>();
  for (const auto& [name, scope] : contents_->scopes) copy.contents_->scopes.emplace(name, parts.of(scope));
  for (const auto& [name, known] : contents_->layers)
    copy.contents_->layers.emplace(
        name, Contents::Layer{known.clone(known.layer, parts), known.settings, known.clone});
  for (const ModuleState::Entry& entry : copy.state()->parts())
    if (!entry.child) copy.contents_->parameters.emplace(entry.name, entry.slot.value);
  return copy;
}

Variable dense(const Parameters& scope, const Variable& x, int64_t out, const DenseOptions& options,
               Module::Where where) {
  const CallScope call(where);
  const Dense layer = scope.layer<Dense>(
      "dense", fmt::format("{} outputs, {} bias", out, options.bias ? "with" : "without"),
      [&] { return Dense(out, options, where); }, where);
  return layer(x, where);
}

namespace {

std::string text_of(const PerAxis& numbers) {
  std::string text = std::to_string(numbers[0]);
  for (size_t i = 1; i < numbers.size(); ++i) text += "×" + std::to_string(numbers[i]);
  return text;
}

std::string text_of(const ConvolutionPadding& padding) {
  if (padding.keeps_sizes()) return "that keeps sizes";
  std::string text;
  for (size_t i = 0; i < padding.size(); ++i)
    text += fmt::format("{}({}, {})", i ? "×" : "", padding[i].before, padding[i].after);
  return text;
}

Layer convolution_layer(size_t axes, int64_t out, const ConvOptions& options, const Module::Where& where) {
  if (axes == 1) return Conv1d(out, options, where);
  if (axes == 2) return Conv2d(out, options, where);
  return Conv3d(out, options, where);
}

}  // namespace

Variable convolution(const Parameters& scope, const Variable& x, int64_t out, const ConvOptions& options,
                     Module::Where where) {
  const CallScope call(where);
  if (x.rank() < 3 || x.rank() > 5)
    located(where, [&] {
      throw ShapeError(fmt::format("convolution: takes [batch, channels] and one to three more axes, not {}",
                                   x.shape().str()));
    });
  const size_t axes = x.rank() - 2;
  const Layer layer = scope.layer<Layer>(
      "convolution",
      fmt::format("{} axes, {} channels, kernels {}, strides {}, padding {}, dilation {}, {} groups, {} bias",
                  axes, out, text_of(options.kernel), text_of(options.stride), text_of(options.padding),
                  text_of(options.dilation), options.groups, options.bias ? "with" : "without"),
      [&] { return convolution_layer(axes, out, options, where); }, where);
  return layer(x, where);
}

Variable embedding(const Parameters& scope, const Variable& indices, int64_t count, int64_t width,
                   const EmbeddingOptions& options, Module::Where where) {
  const CallScope call(where);
  const Embedding layer = scope.layer<Embedding>(
      "embedding",
      fmt::format("{} vectors of width {}, padding index {}, norms of at most {}", count, width,
                  options.padding_index.value_or(-1), options.max_norm.value_or(0)),
      [&] { return Embedding(count, width, options, where); }, where);
  return layer(indices, where);
}

Variable layer_norm(const Parameters& scope, const Variable& x, double epsilon, Module::Where where) {
  const CallScope call(where);
  const LayerNorm layer = scope.layer<LayerNorm>(
      "layer_norm", fmt::format("epsilon {}", epsilon), [&] { return LayerNorm(epsilon, where); }, where);
  return layer(x, where);
}

Variable batch_norm(const Parameters& scope, const Variable& x, const BatchNormOptions& options,
                    Module::Where where) {
  const CallScope call(where);
  const BatchNorm layer = scope.layer<BatchNorm>(
      "batch_norm",
      fmt::format("epsilon {}, momentum {}, affine {}, running statistics {}", options.epsilon,
                  options.momentum.value_or(-1), options.affine, options.running_statistics),
      [&] { return BatchNorm(options, where); }, where);
  return layer(x, where);
}

}  // namespace espalier::nn
