#include "espalier/nn/onnx/host_unique.h"

#include <algorithm>
#include <map>
#include <vector>

#include "espalier/ops/ops.h"

namespace espalier::onnx {

UniqueSlices unique_slices(const Tensor& x, std::optional<int64_t> axis, bool sorted) {
  // Slices as rows of numbers; elements of all types have an exact float64 but for large int64.
  const Tensor front = axis ? movedim(Variable(x), {*axis}, {0}).value().contiguous_copy() : x.reshape({-1});
  const int64_t count = front.shape()[0], width = count ? front.elements() / count : 0;
  const Tensor wide = front.dtype() == int64 ? front : front.to(float64);
  const auto number = [&](int64_t i) {
    return wide.dtype() == int64 ? static_cast<double>(wide.data<int64_t>()[i]) : wide.data<double>()[i];
  };
  std::map<std::vector<double>, int64_t> known;  // the number of its first slice
  std::vector<int64_t> leader, order;
  for (int64_t i = 0; i < count; ++i) {
    std::vector<double> slice;
    for (int64_t j = 0; j < width; ++j) slice.push_back(number(i * width + j));
    const auto [place, added] = known.try_emplace(slice, i);
    leader.push_back(place->second);
    if (added && !sorted) order.push_back(i);
  }
  if (sorted)
    for (const auto& [slice, i] : known) order.push_back(i);
  std::vector<int64_t> rank(static_cast<size_t>(count)), inverse, counts(order.size());
  for (size_t i = 0; i < order.size(); ++i) rank[static_cast<size_t>(order[i])] = static_cast<int64_t>(i);
  for (const int64_t i : leader) {
    inverse.push_back(rank[static_cast<size_t>(i)]);
    ++counts[static_cast<size_t>(inverse.back())];
  }
  const Shape found{static_cast<int64_t>(order.size())};
  const Tensor first = tensor_from(order, found);
  const Variable values = gather(axis ? Variable(x) : Variable(front), first, axis.value_or(0));
  return {values.value().contiguous_copy(), first, tensor_from(inverse, {count}), tensor_from(counts, found)};
}

}  // namespace espalier::onnx
