// What the ops of pooling share: the windows, and which axes they are over.
#pragma once
#include <utility>

#include "espalier/core/op_registry.h"
#include "espalier/ops/pooling/pool_windows.h"

namespace espalier {

class PoolOp : public Op {
 public:
  PoolOp(PoolForm form, OpTraits traits) : Op(traits), form_(std::move(form)) {}
  Attributes attributes() const override { return form_.attributes(); }
  bool mixes(size_t input, size_t axis, const InputSpecs& in) const override {
    const size_t first = form_.first_axis(in[0]->shape);
    return input == 0 && axis >= first && axis < first + form_.axes();
  }
  ChannelsLastOp with_channels_last(const InputSpecs& in, const Spec&) const override {
    if (form_.channels_last || in[0]->shape.rank() != form_.axes() + 2) return {};
    return {.op = with_attribute(*this, "channels_last", true)};
  }

 protected:
  const PoolForm& form() const { return form_; }
  /// The channels of an element of a plane.
  int64_t width_of(const Shape& x) const { return form_.channels_last ? x[-1] : 1; }

 private:
  PoolForm form_;
};

}  // namespace espalier
