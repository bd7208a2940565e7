// What an attention op computes, and the sizes of a call.
#pragma once
#include <algorithm>
#include <cstdint>
#include <string_view>

#include "espalier/core/op.h"
#include "espalier/core/op_registry.h"

namespace espalier {

/// The settings of an attention and of its gradients. Optional inputs follow the others in this order.
struct AttentionForm {
  double scale = 1;
  bool causal = false;
  int64_t past = 0;  ///< bounded
  double dropout = 0;
  bool masked = false;       ///< has an input `mask`
  bool keys_masked = false;  ///< has an input `key_mask`
  bool keyed = false;        ///< has an input with the keys of dropout, which is read unless dropout is 0

  /// More keys than there can be, as any greater number; queries and keys are added to it.
  static int64_t bounded(int64_t past) { return std::min(past, int64_t{1} << 61); }

  Attributes attributes() const;
  static AttentionForm read(AttributeReader& reader);
  /// That of an op with these attributes.
  static AttentionForm of(const Op& op);

  size_t options() const { return size_t{masked} + size_t{keys_masked} + size_t{keyed}; }
  /// The numbers of the optional inputs behind `first` others; meaningful if there are such inputs.
  size_t mask_at(size_t first) const { return first; }
  size_t key_mask_at(size_t first) const { return first + size_t{masked}; }
  size_t keys_at(size_t first) const { return first + size_t{masked} + size_t{keys_masked}; }

  /// Throws ShapeError unless q, k and v go together, TypeError unless q is real.
  static void check_operands(const Spec& q, const Shape& k, const Shape& v, std::string_view op);
  /// Throws ShapeError unless there is a key, int64, for each head of q, which has at least two axes.
  static void check_keys(const Spec& keys, const Shape& q, std::string_view op);
  /// The shape [..., heads, queries, value width] of the result. Throws ShapeError and TypeError unless q, k
  /// and v, the first three of `in`, and the options behind `first` inputs fit, and are all.
  Shape output(const InputSpecs& in, size_t first, std::string_view op) const;
};

/// The sizes of a call. Axes before the heads are one, `batch`.
struct AttentionSizes {
  int64_t batch = 1, heads = 1, key_heads = 1, queries = 0, keys = 0, width = 0, value_width = 0;

  AttentionSizes(const Shape& q, const Shape& k, const Shape& v);
  int64_t group() const { return key_heads ? heads / key_heads : 0; }
  /// Multiplications and additions of one of the products of all queries with all keys.
  double product_flops(int64_t along) const {
    return 2.0 * static_cast<double>(batch * heads * queries) * static_cast<double>(keys * along);
  }
};

}  // namespace espalier
