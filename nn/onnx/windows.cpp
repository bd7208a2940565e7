#include "espalier/nn/onnx/windows.h"

#include <fmt/format.h>

#include <algorithm>

namespace espalier::onnx {

bool Windows::symmetric() const {
  return std::ranges::all_of(padding, [](const Padding& p) { return p.before == p.after; });
}
bool Windows::any_padding() const {
  return std::ranges::any_of(padding, [](const Padding& p) { return p.before || p.after; });
}
bool Windows::dilated() const {
  return std::ranges::any_of(dilation, [](int64_t d) { return d != 1; });
}
std::vector<int64_t> Windows::before() const {
  std::vector<int64_t> list;
  for (const Padding& p : padding) list.push_back(p.before);
  return list;
}

Windows windows_of(FileNode& node, const Variable& x, std::vector<int64_t> kernel) {
  Windows windows;
  const std::vector<int64_t> attribute = node.integers("kernel_shape");
  windows.kernel = kernel.empty() ? attribute : kernel;
  const size_t axes = windows.kernel.size();
  if (!attribute.empty() && attribute != windows.kernel)
    node.fail("its kernel_shape is not that of its weights");
  if (axes == 0 || x.rank() != axes + 2)
    node.fail(fmt::format("windows of {} axes cannot slide over {}", axes, x.shape().str()));
  windows.stride = node.integers("strides", std::vector<int64_t>(axes, 1));
  windows.dilation = node.integers("dilations", std::vector<int64_t>(axes, 1));
  const std::vector<int64_t> pads = node.integers("pads", std::vector<int64_t>(2 * axes, 0));
  if (windows.stride.size() != axes || windows.dilation.size() != axes || pads.size() != 2 * axes)
    node.fail(fmt::format("its strides, dilations or pads are not those of {} axes", axes));
  for (size_t i = 0; i < axes; ++i) {
    if (windows.kernel[i] < 1 || windows.stride[i] < 1 || windows.dilation[i] < 1)
      node.fail("its windows have sizes or steps below 1");
    if (windows.kernel[i] > 1'000'000 || windows.dilation[i] > 1'000'000 || windows.stride[i] > 1'000'000)
      node.fail("its windows have sizes or steps out of range");
    windows.padding.push_back({pads[i], pads[i + axes]});
  }
  const std::string kind = node.text("auto_pad", "NOTSET");
  if (kind == "VALID") std::ranges::fill(windows.padding, Padding{});
  if (kind == "SAME_UPPER" || kind == "SAME_LOWER")
    for (size_t i = 0; i < axes; ++i) {
      const auto axis = static_cast<int64_t>(i) + 2;
      if (is_open_axis(x, axis)) node.refuse("auto_pad needs the size of an open axis");
      const int64_t size = x.shape()[axis], stride = windows.stride[i], count = (size + stride - 1) / stride;
      const int64_t span = windows.dilation[i] * (windows.kernel[i] - 1) + 1;
      const int64_t all = std::max<int64_t>(0, (count - 1) * stride + span - size), less = all / 2;
      windows.padding[i] = kind == "SAME_UPPER" ? Padding{less, all - less} : Padding{all - less, less};
    }
  else if (kind != "NOTSET" && kind != "VALID")
    node.fail(fmt::format("there is no auto_pad '{}'", kind));
  for (const Padding& p : windows.padding)
    if (p.before < -1'000'000 || p.after < -1'000'000 || p.before > 1'000'000 || p.after > 1'000'000)
      node.fail("its pads are out of range");
  return windows;
}

}  // namespace espalier::onnx
