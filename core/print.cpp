// Tensors as text: nested brackets, long axes shortened.
#include <fmt/format.h>

#include <cmath>
#include <optional>
#include <ostream>
#include <string>

#include "espalier/core/tensor.h"

namespace espalier {

namespace {

constexpr int64_t shown = 3;  // elements at each end of a long axis

/// How a stream writes reals.
struct Style {
  explicit Style(const std::ios_base& stream) {
    const auto floating = stream.flags() & std::ios_base::floatfield;
    if (floating == std::ios_base::fixed) form = 'f';
    if (floating == std::ios_base::scientific) form = 'e';
    constexpr int by_default = 6;
    if (form != 'g' || stream.precision() != by_default) digits = static_cast<int>(stream.precision());
  }
  char form = 'g';
  std::optional<int> digits = {};  // as the stream says
};

/// The sign of a NaN means nothing.
template <class T>
std::string number_text(T x, int digits, const Style& style) {
  if (std::isnan(x)) return "nan";
  const int wanted = style.digits.value_or(digits);
  if (style.form == 'f') return fmt::format("{:.{}f}", x, wanted);
  if (style.form == 'e') return fmt::format("{:.{}e}", x, wanted);
  return fmt::format("{:.{}g}", x, wanted);
}

template <class T>
void print_axis(std::string& out, const Tensor& tensor, size_t axis, int64_t offset, bool shorten,
                const Style& style) {
  const T* data = static_cast<const T*>(tensor.storage()->data);
  if (axis == tensor.rank()) {
    if constexpr (std::is_same_v<T, bool>)
      out += data[offset] ? "true" : "false";
    else if constexpr (std::is_same_v<T, double>)
      out += number_text(data[offset], 10, style);
    else if constexpr (std::is_same_v<T, float>)
      out += number_text(data[offset], 6, style);
    else if constexpr (is_half_type<T>)
      out += number_text(static_cast<float>(data[offset]), 4, style);
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
    print_axis<T>(out, tensor, axis + 1, offset + i * tensor.strides()[axis], shorten, style);
  }
  out += ']';
}

}  // namespace

std::ostream& operator<<(std::ostream& out, const Tensor& tensor) {
  if (!tensor.defined()) return out << "undefined";
  Tensor host = tensor.to(cpu());
  if (is_small_integer(host.dtype())) host = host.to(int32);
  const Style style(out);
  std::string text;
  visit_all(host.dtype(), [&]<class T>(TypeTag<T>) {
    print_axis<T>(text, host, 0, host.layout().offset, host.elements() > 1000 || host.elements() == 0, style);
  });
  return out << text;
}

}  // namespace espalier
