// Random numbers, which each step draws anew. Seeds of the file are not those of this generator.
#include <fmt/format.h>

#include "espalier/nn/onnx/tensors.h"
#include "espalier/nn/onnx/translate.h"

namespace espalier::onnx {

namespace {

DType dtype_of_attribute(const FileNode& node, DType otherwise) {
  if (!node.has("dtype")) return otherwise;
  return need_dtype(static_cast<int32_t>(node.integer("dtype", 1)), node.label());
}

DType real_dtype(const FileNode& node, DType otherwise) {
  const DType dtype = dtype_of_attribute(node, otherwise);
  if (!is_real(dtype)) node.fail("it draws numbers of no real type");
  return dtype;
}

template <bool normal>
Variable scaled(FileNode& node, const Variable& drawn) {
  node.set_random();
  node.ignore("seed");
  if (normal) return drawn * node.real("scale", 1) + node.real("mean", 0);
  const double low = node.real("low", 0), high = node.real("high", 1);
  return drawn * (high - low) + low;
}

template <bool normal>
Outputs of_shape(FileNode& node) {
  const DType dtype = real_dtype(node, float32);
  const Shape shape(node.integers("shape"));
  if (static_cast<double>(shape.elements()) > 1e9) node.refuse("it draws too many numbers");
  return {scaled<normal>(node, normal ? espalier::normal(shape, dtype) : uniform(shape, dtype))};
}

template <bool normal>
Outputs like(FileNode& node) {
  const Variable& x = node[0];
  const DType dtype = real_dtype(node, is_real(x.dtype()) ? x.dtype() : float32);
  const Variable shaped = zeros_like(cast(x, dtype));
  return {scaled<normal>(node, normal ? randn_like(shaped) : rand_like(shaped))};
}

Outputs coins(FileNode& node) {
  node.set_random();
  node.ignore("seed");
  return {cast(bernoulli(node[0]), dtype_of_attribute(node, node[0].dtype()))};
}

/// Rows of unnormalized log-probabilities.
Outputs classes(FileNode& node) {
  node.set_random();
  node.ignore("seed");
  return {cast(multinomial(softmax(node[0], -1), node.integer("sample_size", 1), true),
               dtype_of_attribute(node, int32))};
}

}  // namespace

void add_random(Registry& all) {
  all.add("RandomNormal", 1, of_shape<true>);
  all.add("RandomUniform", 1, of_shape<false>);
  all.add("RandomNormalLike", 1, like<true>);
  all.add("RandomUniformLike", 1, like<false>);
  all.add("Bernoulli", 15, coins);
  all.add("Multinomial", 7, classes);
}

}  // namespace espalier::onnx
