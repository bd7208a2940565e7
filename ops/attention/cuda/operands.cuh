// The operands of an attention on a device: contiguous matrices, and masks where they are.
#pragma once
#include "espalier/core/kernel_registry.h"
#include "espalier/ops/attention/cuda/device_attention.cuh"
#include "espalier/ops/cuda/contiguous_input.h"

namespace espalier::cu {

class DeviceOperands {
 public:
  /// `first`: the number of q, which k and v follow; `options`: that of the first optional input.
  DeviceOperands(const AttentionForm& form, const KernelCall& call, size_t first, size_t options)
      : form_(form),
        sizes_(call.inputs[first]->shape(), call.inputs[first + 1]->shape(), call.inputs[first + 2]->shape()),
        q_(*call.inputs[first]),
        k_(*call.inputs[first + 1]),
        v_(*call.inputs[first + 2]) {
    if (form.masked) mask_ = call.inputs[form.mask_at(options)];
    if (form.keys_masked) key_mask_.emplace(*call.inputs[form.key_mask_at(options)]);
    if (form.dropout > 0) keys_.emplace(*call.inputs[form.keys_at(options)]);
    scores_ = call.inputs[first]->shape();
    scores_.dims()[scores_.rank() - 1] = sizes_.keys;
  }

  /// Renews the copies.
  DeviceAttention refresh() {
    DeviceAttention a{};
    a.batch = sizes_.batch, a.heads = sizes_.heads, a.key_heads = sizes_.key_heads;
    a.queries = sizes_.queries, a.keys = sizes_.keys;
    a.width = sizes_.width, a.value_width = sizes_.value_width;
    a.scale = form_.scale, a.causal = form_.causal, a.past = form_.past;
    a.drops = form_.dropout > 0;
    a.kept = 1 / (1 - form_.dropout);
    a.threshold = philox::keep_threshold(1 - form_.dropout);
    for (ContiguousInput* operand : {&q_, &k_, &v_}) operand->refresh();
    if (key_mask_) {
      key_mask_->refresh();
      a.key_mask = static_cast<const bool*>(key_mask_->address());
    }
    if (keys_) {
      keys_->refresh();
      a.dropout_keys = static_cast<const int64_t*>(keys_->address());
    }
    if (mask_) {
      const Layout layout = broadcast_layout(mask_->layout(), scores_);
      const size_t rank = scores_.rank();
      Layout heads = layout;
      heads.shape = Shape(Dims(scores_.begin(), scores_.end() - 2));
      heads.strides = Dims(layout.strides.begin(), layout.strides.end() - 2);
      a.mask = mask_->address();
      a.mask_is_real = mask_->dtype() != DType::boolean;
      a.mask_heads = StridedWalk(heads);
      a.mask_of_query = layout.strides[rank - 2];
      a.mask_of_key = layout.strides[rank - 1];
    }
    return a;
  }
  template <class T>
  const T* q() const {
    return static_cast<const T*>(q_.address());
  }
  template <class T>
  const T* k() const {
    return static_cast<const T*>(k_.address());
  }
  template <class T>
  const T* v() const {
    return static_cast<const T*>(v_.address());
  }

 private:
  AttentionForm form_;
  AttentionSizes sizes_;
  ContiguousInput q_, k_, v_;
  const Tensor* mask_ = nullptr;
  std::optional<ContiguousInput> key_mask_, keys_;
  Shape scores_;
};

/// The kernels of whole matrices of weights and of dropout, and of its keys.
void add_attention_matrix_kernels(KernelRegistry& kernels);

}  // namespace espalier::cu
