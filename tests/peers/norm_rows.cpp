// Normalization layers, of which the parameters are inputs of the case.
#include "bridge.h"
#include "espalier/nn/layer_state.h"
#include "espalier/ops/widened.h"

namespace peers {
namespace {

using namespace espalier;

/// A layer whose parameters are Variables of another's, so that there are gradients with respect to these.
template <class Base>
struct Given : Base {
  using Base::Base;

  void give(const std::string& name, const Variable& value) {
    this->layer_state().reparametrize(
        "peers", {.name = name,
                  .original = "declared_" + name,
                  .parts = {},
                  .make = [value](const std::vector<Variable>&, bool) { return widened(value); }});
  }
};

template <class Base>
Outputs normalized(const Case& c, Given<Base> layer) {
  if (c.inputs().size() > 1) layer.give("weight", c[1]);
  if (c.inputs().size() > 2) layer.give("bias", c[2]);
  return layer(c[0]);
}

DType wide_dtype(const Case& c) { return is_half(c[0].dtype()) ? float32 : c[0].dtype(); }

/// By running statistics, or in training mode by those of the batch: then also what running ones become.
template <class Base>
Outputs by_statistics(const Case& c, Given<Base> layer) {
  const bool training = c.flag("training");
  for (const char* name : {"running_mean", "running_var"})
    set_value(layer.buffer(name), tensor_from(c.reals(name), Shape{c[0].shape()[1]}).to(wide_dtype(c)));
  layer.train(training);
  Outputs outputs = normalized(c, layer);
  if (training)
    for (const char* name : {"running_mean", "running_var"})
      outputs.push_back(Variable(rounded(layer.buffer(name), c[0].dtype()).value()));
  return outputs;
}

std::optional<double> momentum(const Case& c) {
  return c.has("momentum") ? std::optional(c.real("momentum")) : std::nullopt;
}

bool affine(const Case& c) { return c.inputs().size() > 1; }

Outputs batch_norm(const Case& c) {
  return normalized(c, Given<nn::BatchNorm>(nn::BatchNormOptions{
                           .epsilon = c.real("epsilon"), .affine = affine(c), .running_statistics = false}));
}

Outputs running_batch_norm(const Case& c) {
  const nn::BatchNormOptions options{
      .epsilon = c.real("epsilon"), .momentum = momentum(c), .affine = affine(c), .dtype = wide_dtype(c)};
  return by_statistics(c, Given<nn::BatchNorm>(c[0].shape()[1], options));
}

Outputs instance_norm(const Case& c) {
  return normalized(
      c, Given<nn::InstanceNorm>(nn::InstanceNormOptions{.epsilon = c.real("epsilon"), .affine = affine(c)}));
}

Outputs running_instance_norm(const Case& c) {
  const nn::InstanceNormOptions options{.epsilon = c.real("epsilon"),
                                        .affine = affine(c),
                                        .running_statistics = true,
                                        .momentum = momentum(c),
                                        .channels = c[0].shape()[1],
                                        .dtype = wide_dtype(c)};
  return by_statistics(c, Given<nn::InstanceNorm>(options));
}

Outputs group_norm(const Case& c) {
  const nn::ChannelNormOptions options{.epsilon = c.real("epsilon"), .affine = affine(c)};
  return normalized(c, Given<nn::GroupNorm>(c.integer("groups"), options));
}

Outputs rms_norm(const Case& c) { return normalized(c, Given<nn::RmsNorm>(c.real("epsilon"))); }

}  // namespace

std::vector<Row> norm_rows() {
  return {{"batch_norm", batch_norm},
          {"batch_norm_running", running_batch_norm},
          {"batch_norm_training", running_batch_norm},
          {"group_norm", group_norm},
          {"instance_norm", instance_norm},
          {"instance_norm_running", running_instance_norm},
          {"instance_norm_training", running_instance_norm},
          {"rms_norm", rms_norm}};
}

}  // namespace peers
