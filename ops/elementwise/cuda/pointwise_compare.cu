// Comparisons, logic and selection.
#include "espalier/ops/elementwise/cuda/pointwise_kernels.cuh"

namespace espalier::cu {

namespace {

/// A selection moves elements and depends only on their size.
template <class... T>
void add_select(PointwiseTable& table, Types<T...>) {
  PointwiseFunction& f = table[type_name<scalar::Select>()];
  f.inputs = 3;
  ((f.template of<T>() = pointwise_kernel_of<scalar::Select, Bits<T>, bool, Bits<T>, Bits<T>>()), ...);
}

}  // namespace

void add_comparisons(PointwiseTable& table) {
  add_binary<scalar::Equal>(table, StoredTypes());
  add_binary<scalar::NotEqual>(table, StoredTypes());
  add_binary<scalar::Less>(table, NumberTypes());
  add_binary<scalar::LessEqual>(table, NumberTypes());
  add_binary<scalar::Greater>(table, NumberTypes());
  add_binary<scalar::GreaterEqual>(table, NumberTypes());
  add_binary<scalar::LogicalAnd>(table, Types<bool>());
  add_binary<scalar::LogicalOr>(table, Types<bool>());
  add_unary<scalar::LogicalNot>(table, Types<bool>());
  add_select(table, StoredTypes());
}

}  // namespace espalier::cu
