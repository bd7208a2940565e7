// Tensors as text: nested brackets, long axes shortened.
#include <fmt/format.h>

#include <cmath>
#include <ostream>
#include <string>

#include "espalier/core/tensor.h"

namespace espalier {

namespace {

constexpr int64_t shown = 3;  // elements at each end of a long axis

/// The sign of a NaN means nothing.
template <class T>
std::string number_text(T x, int digits) {
  return std::isnan(x) ? "nan" : fmt::format("{:.{}g}", x, digits);
}

template <class T>
void print_axis(std::string& out, const Tensor& tensor, size_t axis, int64_t offset, bool shorten) {
  const T* data = static_cast<const T*>(tensor.storage()->data);
  if (axis == tensor.rank()) {
    if constexpr (std::is_same_v<T, bool>)
      out += data[offset] ? "true" : "false";
    else if constexpr (std::is_same_v<T, double>)
      out += number_text(data[offset], 10);
    else if constexpr (std::is_same_v<T, float>)
      out += number_text(data[offset], 6);
    else if constexpr (is_half_type<T>)
      out += number_text(static_cast<float>(data[offset]), 4);
    else
      out += fmt::format("{}", data[offset]);
    return;
  }
  const int64_t size = tensor.shape().dims()[axis];
  const bool rows = axis + 1 < tensor.rank();
  out += '[';
  for (int64_t i = 0; i < size; ++i) {
    if (i) out += rows ? ",\n" + std::string(axis + 1, ' ') : ", ";
    if (shorten && size > 2 * shown && i == shown) {
      out += "…";
      i = size - shown - 1;
      continue;
    }
    print_axis<T>(out, tensor, axis + 1, offset + i * tensor.strides()[axis], shorten);
  }
  out += ']';
}

}  // namespace

std::ostream& operator<<(std::ostream& out, const Tensor& tensor) {
  if (!tensor.defined()) return out << "undefined";
  Tensor host = tensor.to(cpu());
  if (is_small_integer(host.dtype())) host = host.to(int32);
  std::string text;
  visit_all(host.dtype(), [&]<class T>(TypeTag<T>) {
    print_axis<T>(text, host, 0, host.layout().offset, host.elements() > 1000 || host.elements() == 0);
  });
  return out << text;
}

}  // namespace espalier
