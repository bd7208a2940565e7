// Convolutions and their gradients, as direct loops: the innermost runs along the last axis of the result.
#include "espalier/executor/c_export/emitters.h"
#include "espalier/ops/convolution/sizes.h"

namespace espalier::c_export {

namespace {

struct Names {
  std::string x, kernels, y;
};

/// What stands around the innermost loop.
class ConvolutionText {
 public:
  ConvolutionText(Function& f, ConvolutionSizes sizes) : f_(f), s_(sizes) {}

  /// Loops over kernels: batch n, group g, channels o and i, and the places kz, ky, kx of a kernel.
  void each_kernel(bool batch) {
    if (batch) f_.loop("n", s_.batch);
    f_.loop("g", s_.groups);
    f_.loop("o", s_.out_channels);
    f_.loop("i", s_.in_channels);
    f_.loop("kz", s_.kernel[0]);
    f_.loop("ky", s_.kernel[1]);
    f_.loop("kx", s_.kernel[2]);
    blocks_ = batch ? 7 : 6;
  }
  /// Defines the places `first` to `last` of a row of y at which that place of a kernel is over x, and
  /// `shift`, the element of a row of x under the first place.
  void range() {
    const int64_t stride = s_.stride[2], size = s_.in[2], out = s_.out[2];
    f_.line(fmt::format("const long shift = kx * {} - {};", s_.dilation[2], s_.before[2]));
    f_.line(fmt::format("const long first = shift < 0 ? ({} - shift) / {} : 0;", stride - 1, stride));
    f_.line(fmt::format("const long inside = {} - shift <= 0 ? 0 : ({} - shift) / {};", size,
                        size + stride - 1, stride));
    f_.line(fmt::format("const long last = inside < {0} ? inside : {0};", out));
  }
  /// Loops over the rows of y over which a kernel's place lies, with iz and iy the row of x.
  void each_row() {
    f_.loop("z", s_.out[0]);
    f_.line(
        fmt::format("const long iz = z * {} + kz * {} - {};", s_.stride[0], s_.dilation[0], s_.before[0]));
    f_.line(fmt::format("if (iz < 0 || iz >= {}) continue;", s_.in[0]));
    f_.loop("y", s_.out[1]);
    f_.line(
        fmt::format("const long iy = y * {} + ky * {} - {};", s_.stride[1], s_.dilation[1], s_.before[1]));
    f_.line(fmt::format("if (iy < 0 || iy >= {}) continue;", s_.in[1]));
  }
  void close_rows() {
    f_.close();
    f_.close();
  }
  void close_kernels() {
    while (blocks_-- > 0) f_.close();
  }

  std::string x_row(const std::string& x) const {
    return fmt::format("{} + (((n * {} + g * {} + i) * {} + iz) * {} + iy) * {}", x,
                       s_.groups * s_.in_channels, s_.in_channels, s_.in[0], s_.in[1], s_.in[2]);
  }
  std::string y_row(const std::string& y) const {
    return fmt::format("{} + (((n * {} + g * {} + o) * {} + z) * {} + y) * {}", y,
                       s_.groups * s_.out_channels, s_.out_channels, s_.out[0], s_.out[1], s_.out[2]);
  }
  std::string kernel(const std::string& kernels) const {
    return fmt::format("{}[((((g * {} + o) * {} + i) * {} + kz) * {} + ky) * {} + kx]", kernels,
                       s_.out_channels, s_.in_channels, s_.kernel[0], s_.kernel[1], s_.kernel[2]);
  }
  std::string x_place() const {
    return s_.stride[2] == 1 ? "l + shift" : fmt::format("l * {} + shift", s_.stride[2]);
  }

 private:
  Function& f_;
  ConvolutionSizes s_;
  int blocks_ = 0;
};

ConvolutionForm convolution_form(Function& f) {
  f.only({DType::float32});
  ConvolutionForm form;
  const auto numbers = [&](std::string_view name) {
    const auto list = attribute<std::vector<int64_t>>(f.op(), name);
    return Dims(list.begin(), list.end());
  };
  form.stride = numbers("stride");
  form.dilation = numbers("dilation");
  form.before = numbers("before");
  form.after = numbers("after");
  form.groups = attribute<int64_t>(f.op(), "groups");
  form.channels_last = attribute<bool>(f.op(), "channels_last");
  if (form.channels_last) f.refuse("there is no C code for channels as the last axis");
  return form;
}

}  // namespace

void write_convolution(Function& f) {
  ConvolutionText text(f, convolution_form(f).sizes(f.input_shape(0), f.input_shape(1), f.output_shape()));
  const Names names{f.dense(0), f.dense(1), f.out()};
  f.fill_with_zeros(names.y, f.output_shape().elements());
  text.each_kernel(true);
  f.line(fmt::format("const float w = {};", text.kernel(names.kernels)));
  text.range();
  text.each_row();
  f.line(fmt::format("const float *restrict from = {};", text.x_row(names.x)));
  f.line(fmt::format("float *restrict to = {};", text.y_row(names.y)));
  f.line(fmt::format("for (long l = first; l < last; ++l) to[l] += w * from[{}];", text.x_place()));
  text.close_rows();
  text.close_kernels();
}

void write_convolution_transpose(Function& f) {
  ConvolutionText text(f, convolution_form(f).sizes(f.output_shape(), f.input_shape(1), f.input_shape(0)));
  const Names names{f.out(), f.dense(1), f.dense(0)};
  f.fill_with_zeros(names.x, f.output_shape().elements());
  text.each_kernel(true);
  f.line(fmt::format("const float w = {};", text.kernel(names.kernels)));
  text.range();
  text.each_row();
  f.line(fmt::format("const float *restrict from = {};", text.y_row(names.y)));
  f.line(fmt::format("float *restrict to = {};", text.x_row(names.x)));
  f.line(fmt::format("for (long l = first; l < last; ++l) to[{}] += w * from[l];", text.x_place()));
  text.close_rows();
  text.close_kernels();
}

void write_convolution_kernels(Function& f) {
  const ConvolutionSizes sizes =
      convolution_form(f).sizes(f.input_shape(0), f.output_shape(), f.input_shape(1));
  ConvolutionText text(f, sizes);
  const Names names{f.dense(0), f.out(), f.dense(1)};
  text.each_kernel(false);
  text.range();
  f.line("float total = 0;");
  f.loop("n", sizes.batch);
  f.line("float sum = 0;");
  text.each_row();
  f.line(fmt::format("const float *restrict from = {};", text.x_row(names.x)));
  f.line(fmt::format("const float *restrict slope = {};", text.y_row(names.y)));
  f.line(fmt::format("for (long l = first; l < last; ++l) sum += slope[l] * from[{}];", text.x_place()));
  text.close_rows();
  f.line("total += sum;");
  f.close();
  f.line(fmt::format("{} = total;", text.kernel(names.kernels)));
  text.close_kernels();
}

}  // namespace espalier::c_export
