// Convolutions and their transposes.
#include "espalier/ops/functions/convolution.h"

#include <boost/test/unit_test.hpp>

#include <algorithm>

#include "espalier/core/error.h"
#include "espalier/executor/executor.h"
#include "espalier/ops/convolution/convolution_primitive.h"
#include "espalier/ops/convolution/window_products.h"
#include "espalier/ops/ops.h"
#include "testing.h"

namespace esp = espalier;
using namespace espalier::testing;

namespace {

/// What a convolution of up to three axes computes, as loops.
struct Sliding {
  std::vector<int64_t> stride, before, after, dilation;
  int64_t groups = 1;

  int64_t axes() const { return static_cast<int64_t>(stride.size()); }
  esp::ConvolutionOptions options() const {
    std::vector<esp::Padding> ends;
    for (size_t i = 0; i < before.size(); ++i) ends.push_back({before[i], after[i]});
    return {.stride = stride, .padding = ends, .dilation = dilation, .groups = groups};
  }
  esp::Shape result(const esp::Shape& x, const esp::Shape& kernels) const {
    esp::Shape shape{x[0], kernels[0]};
    for (int64_t i = 0; i < axes(); ++i) {
      const auto a = static_cast<size_t>(i);
      shape.dims().push_back(
          (x[i + 2] + before[a] + after[a] - dilation[a] * (kernels[i + 2] - 1) - 1) / stride[a] + 1);
    }
    return shape;
  }
  /// The index of what element `k` of the kernel at `o` reads, behind batch and channel; empty in the
  /// padding.
  Index read(const Index& o, const Index& k, const esp::Shape& x) const {
    Index at;
    for (size_t a = 0; a < stride.size(); ++a) {
      const int64_t i = o[a + 2] * stride[a] + k[a + 2] * dilation[a] - before[a];
      if (i < 0 || i >= x.dims()[a + 2]) return {};
      at.push_back(i);
    }
    return at;
  }
  Array of(const Array& x, const Array& kernels) const {
    return Array(result(x.shape, kernels.shape), [&](const Index& o) {
      const int64_t group = o[1] / (kernels.shape[0] / groups), channels = kernels.shape[1];
      double sum = 0;
      esp::Shape window = kernels.shape;
      window.dims()[0] = 1;
      each_index(window, [&](const Index& k) {
        const Index at = read(o, k, x.shape);
        if (at.empty()) return;
        Index from{o[0], group * channels + k[1]}, weight = k;
        from.insert(from.end(), at.begin(), at.end());
        weight[0] = o[1];
        sum += x(from) * kernels(weight);
      });
      return sum;
    });
  }
};

struct Row {
  std::string name;
  Sliding form;
  esp::Shape x, kernels;
};
const Row rows[] = {
    {"one axis", {{1}, {0}, {0}, {1}}, {2, 3, 5}, {4, 3, 2}},
    {"stride, padding and dilation", {{2}, {2}, {1}, {3}}, {1, 2, 7}, {3, 2, 3}},
    {"two axes", {{1, 1}, {1, 1}, {1, 1}, {1, 1}}, {2, 3, 4, 5}, {2, 3, 3, 3}},
    {"two axes unlike", {{2, 1}, {0, 2}, {1, 0}, {1, 2}}, {1, 2, 5, 4}, {3, 2, 2, 3}},
    {"what no window reads", {{3, 2}, {0, 0}, {0, 0}, {1, 1}}, {1, 1, 5, 4}, {1, 1, 2, 1}},
    {"groups", {{1, 2}, {1, 0}, {0, 1}, {1, 1}, 2}, {2, 4, 3, 4}, {6, 2, 2, 2}},
    {"depthwise", {{1}, {1}, {1}, {1}, 3}, {2, 3, 4}, {6, 1, 3}},
    {"points", {{1, 1}, {0, 0}, {0, 0}, {1, 1}}, {2, 5, 2, 3}, {4, 5, 1, 1}},
    {"three axes", {{1, 2, 1}, {0, 1, 1}, {1, 0, 1}, {1, 1, 2}}, {1, 2, 2, 3, 4}, {2, 2, 2, 2, 2}},
    {"kernels that reach beyond both ends", {{2}, {1}, {1}, {1}}, {1, 2, 1}, {2, 2, 3}},
    {"no batch", {{1}, {0}, {0}, {1}}, {0, 2, 3}, {2, 2, 2}},
    {"no channels", {{1}, {0}, {0}, {1}}, {2, 0, 3}, {2, 0, 2}},
};

/// Small whole numbers, so that neither operands nor sums are rounded.
esp::Tensor whole_numbers(const esp::Shape& shape, double most, uint64_t seed) {
  return esp::round(numbers(shape, -most, most, seed)).value().clone();
}
/// y, and for a gradient `g` of it those of x and the kernels.
Variables results(const Row& row, const esp::Tensor& x, const esp::Tensor& kernels, const esp::Tensor& g) {
  const esp::Variable a = esp::parameter(x), b = esp::parameter(kernels);
  const esp::Variable y = esp::conv(a, b, row.form.options()), loss = esp::sum(y * g);
  return {y, loss.gradient(a), loss.gradient(b)};
}

/// Checks the three convolutions of few windows, which are exact.
void check_products_of_windows(const Row& row) {
  esp::ConvolutionForm form;
  for (size_t i = 0; i < row.form.stride.size(); ++i) {
    form.stride.push_back(row.form.stride[i]);
    form.dilation.push_back(row.form.dilation[i]);
    form.before.push_back(row.form.before[i]);
    form.after.push_back(row.form.after[i]);
  }
  const esp::Tensor x = whole_numbers(row.x, 2.5, 1), kernels = whole_numbers(row.kernels, 2.5, 2),
                    g = whole_numbers(row.form.result(row.x, row.kernels), 2.5, 3);
  const Variables exact = results(row, x, kernels, g);

  const int64_t axes = row.form.axes();
  std::vector<int64_t> to_last{0}, from_last{0, axes + 1};
  for (int64_t i = 0; i < axes; ++i) to_last.push_back(i + 2), from_last.push_back(i + 1);
  to_last.push_back(1);
  const auto last = [&](const esp::Tensor& t) {
    return esp::permute(t.to(esp::float32), to_last).value().contiguous_copy();
  };
  form.channels_last = true;
  using Result = esp::ConvolutionResult;
  for (const Result result : {Result::y, Result::x, Result::kernels}) {
    const esp::Tensor own_x = last(x), own_y = last(g), own_kernels = kernels.to(esp::float32);
    const esp::Tensor& written = result == Result::y ? own_y : result == Result::x ? own_x : own_kernels;
    std::fill_n(static_cast<float*>(written.address()), written.elements(), 7.f);  // is overwritten
    const esp::ConvolutionSizes sizes = form.sizes(own_x.shape(), own_kernels.shape(), own_y.shape());
    const auto strides =
        esp::convolution_strides(form, esp::float32, own_x.layout(), own_kernels.layout(), own_y.layout());
    BOOST_TEST(esp::window_products::is_faster(sizes, result, strides, {}), row.name);
    esp::ConvolutionPrimitive(sizes, result, strides, {})
        .run(own_x.address(), own_kernels.address(), own_y.address());
    const auto k = static_cast<size_t>(result);
    const esp::Tensor got = result == Result::kernels ? written : esp::permute(written, from_last).value();
    BOOST_TEST(difference(exact[k].value(), got) == 0, row.name << ", result " << k);
  }
}

}  // namespace

BOOST_AUTO_TEST_SUITE(convolutions)

BOOST_AUTO_TEST_CASE(table) {
  for (const Row& row : rows)
    check_op({.name = "conv, " + row.name,
              .op = [&](const Variables& v) { return esp::conv(v[0], v[1], row.form.options()); },
              .inputs = {numbers(row.x), numbers(row.kernels, -1, 1, 1)},
              .reference = [&](const std::vector<Array>& in) { return row.form.of(in[0], in[1]); },
              .tolerance32 = 1e-5,
              .roundings = 2});
}

BOOST_AUTO_TEST_CASE(plans_of_bfloat16_are_exact_where_nothing_is_rounded) {
  for (const Row& row : rows) {
    const esp::Tensor x = whole_numbers(row.x, 1.5, 1), kernels = whole_numbers(row.kernels, 1.5, 2),
                      g = whole_numbers(row.form.result(row.x, row.kernels), 1.5, 3);
    const Variables exact = results(row, x, kernels, g);
    const Variables single = results(row, x.to(esp::float32), kernels.to(esp::float32), g.to(esp::float32));
    for (size_t k = 0; k < exact.size(); ++k) {
      const esp::Executor executor =
          single[k].get_executor({.mode = esp::Mode::inference, .precision = esp::Precision::bfloat16});
      executor.execute({.progress = false});
      BOOST_TEST(difference(exact[k].value(), executor.value()) == 0, row.name << ", result " << k);
    }
  }
}

/// With the channels last, as between the convolutions of a plan, they are one product.
BOOST_AUTO_TEST_CASE(few_windows_of_many_channels) {
  const Row few[] = {
      {"one axis", {{1}, {1}, {1}, {1}}, {2, 64, 3}, {64, 64, 3}},
      {"two axes", {{1, 1}, {1, 1}, {1, 1}, {1, 1}}, {2, 64, 2, 2}, {96, 64, 3, 3}},
      {"stride, dilation and one end", {{2, 1}, {0, 2}, {1, 0}, {1, 2}}, {1, 96, 5, 3}, {64, 96, 2, 3}},
      {"points", {{2, 2}, {0, 0}, {0, 0}, {1, 1}}, {4, 64, 3, 3}, {128, 64, 1, 1}},
      {"three axes", {{1, 2, 1}, {0, 1, 1}, {1, 0, 1}, {1, 1, 1}}, {1, 64, 2, 3, 2}, {64, 64, 2, 2, 3}},
      {"one window", {{1, 1}, {0, 0}, {0, 0}, {1, 1}}, {1, 128, 3, 2}, {64, 128, 3, 2}},
  };
  for (const Row& row : few) check_products_of_windows(row);
}

/// Which convolutions these products are taken for: of few windows, of tensors without gaps.
BOOST_AUTO_TEST_CASE(products_of_windows_are_for_few) {
  using Result = esp::ConvolutionResult;
  using After = esp::ConvolutionAfter;
  struct Call {
    esp::ConvolutionSizes sizes;
    esp::ConvolutionStrides strides;
    After after;
  };
  // `windows` of 1 × `kernel` places along the last axis, of as many channels on both sides.
  const auto call = [](int64_t windows, int64_t channels, int64_t kernel, int64_t batch = 1) {
    esp::ConvolutionSizes s;
    s.batch = batch;
    s.in_channels = s.out_channels = channels;
    s.out[2] = windows;
    s.kernel[2] = kernel;
    s.in[2] = windows + kernel - 1;
    return Call{s,
                {{s.in[2] * channels, 1, s.in[2] * channels, channels},
                 {kernel * channels, kernel, kernel, 1},
                 {windows * channels, 1, windows * channels, channels}},
                {}};
  };
  const auto takes = [](const Call& c, Result result) {
    return esp::window_products::is_faster(c.sizes, result, c.strides, c.after);
  };
  const struct {
    int64_t channels;
    Result result;
    int64_t most;
  } limits[] = {{64, Result::y, 16},   {64, Result::x, 16},  {64, Result::kernels, 64},
                {512, Result::y, 256}, {512, Result::x, 64}, {512, Result::kernels, 256}};
  for (const auto& limit : limits) {
    BOOST_TEST(takes(call(limit.most, limit.channels, 1), limit.result));
    BOOST_TEST(!takes(call(limit.most + 1, limit.channels, 1), limit.result));
    BOOST_TEST(takes(call(limit.most / 2, limit.channels, 1, 2), limit.result));
    BOOST_TEST(!takes(call(limit.most / 2 + 1, limit.channels, 1, 2), limit.result));
  }
  BOOST_TEST(takes(call(256, 512, 16), Result::y));  // 8 MiB of windows
  BOOST_TEST(!takes(call(256, 512, 17), Result::y));

  const Call good = call(4, 64, 3, 2);
  BOOST_TEST(takes(good, Result::y));
  for (const auto& change : std::initializer_list<void (*)(Call&)>{
           [](Call& c) { c.after.bias = true; }, [](Call& c) { c.after.residual = true; },
           [](Call& c) { c.after.packed = true; },
           [](Call& c) { c.after.activation = After::Activation::relu; },
           [](Call& c) { c.strides.dtype = esp::bfloat16; }, [](Call& c) { c.sizes.groups = 2; },
           [](Call& c) { c.strides.x[0] += 64; }, [](Call& c) { c.strides.y[0] += 64; },
           [](Call& c) { c.strides.x[1] = 2; }, [](Call& c) { c.strides.y[1] = 2; },
           [](Call& c) { c.strides.x[3] += 64; }, [](Call& c) { c.strides.y[3] += 64; },
           [](Call& c) { c.strides.kernels[0] += 3; }, [](Call& c) { c.strides.kernels[1] += 3; },
           [](Call& c) { c.strides.kernels[3] = 64; }}) {
    Call other = good;
    change(other);
    BOOST_TEST(!takes(other, Result::y));
  }
  for (const auto& same : std::initializer_list<void (*)(Call&)>{
           [](Call& c) { c.strides.x[2] = c.strides.y[2] = 7; },  // along axes of size 1
           [](Call& c) { c.strides.kernels[2] = 7; }}) {
    Call other = good;
    same(other);
    BOOST_TEST(takes(other, Result::y));
  }
  Call one = call(4, 64, 3);
  one.strides.x[0] = one.strides.y[0] = 7;
  BOOST_TEST(takes(one, Result::y));
}

BOOST_AUTO_TEST_CASE(axes_of_size_1_have_the_strides_of_dense_tensors) {
  esp::ConvolutionForm form;
  form.stride = form.dilation = {1, 1};
  form.channels_last = true;
  esp::Layout x(esp::Shape{1, 3, 1, 4}), kernels(esp::Shape{5, 4, 1, 1}), y(esp::Shape{2, 3, 1, 5});
  x.strides = {1, 4, 1, 1};
  kernels.strides = {4, 1, 9, 9};
  y.strides = {30, 10, 1, 1};  // with gaps
  const esp::ConvolutionStrides strides = esp::convolution_strides(form, esp::float32, x, kernels, y);
  BOOST_TEST((strides.x == esp::Dims{12, 1, 4, 4}));
  BOOST_TEST((strides.kernels == esp::Dims{4, 1, 1, 1}));
  BOOST_TEST((strides.y == esp::Dims{30, 1, 10, 1}));
  BOOST_TEST(strides.channels_last);
}

BOOST_AUTO_TEST_CASE(the_transpose_is_the_gradient_of_a_convolution) {
  for (const Row& row : rows) {
    if (row.form.before != row.form.after) continue;
    const esp::Variable x = esp::variable(numbers(row.x)), kernels = numbers(row.kernels, -1, 1, 1);
    const esp::Variable y = esp::conv(x, kernels, row.form.options());
    const esp::Tensor g = numbers(y.shape(), -1, 1, 2);
    const esp::Tensor expected = esp::sum(y * g).gradient(x).value();
    std::vector<int64_t> more;
    for (size_t i = 0; i < row.form.stride.size(); ++i)
      more.push_back((row.x.dims()[i + 2] + 2 * row.form.before[i] -
                      row.form.dilation[i] * (row.kernels.dims()[i + 2] - 1) - 1) %
                     row.form.stride[i]);
    const esp::Variable own = esp::conv_transpose(g, kernels,
                                                  {.stride = row.form.stride,
                                                   .padding = row.form.before,
                                                   .output_padding = more,
                                                   .dilation = row.form.dilation,
                                                   .groups = row.form.groups});
    BOOST_TEST(difference(expected, own.value()) < 1e-13, row.name);
  }
}

BOOST_AUTO_TEST_CASE(transposes) {
  struct Case {
    esp::Shape x, kernels;
    std::vector<int64_t> stride, padding, output_padding, dilation, sizes;
    int64_t groups = 1;
  };
  const Case cases[] = {
      {{2, 3, 3, 2}, {3, 2, 3, 2}, {2, 1}, {1, 0}, {1, 0}, {1, 1}, {6, 3}},
      // Longer by more than a stride, with and without zeros behind the last kernel.
      {{2, 3, 3, 2}, {3, 2, 3, 2}, {2, 1}, {1, 0}, {2, 1}, {3, 2}, {11, 5}},
      {{2, 3, 3, 2}, {3, 2, 3, 2}, {1, 1}, {2, 1}, {1, 2}, {2, 3}, {4, 5}},
      {{2, 4, 3, 2}, {4, 2, 2, 3}, {2, 1}, {1, 1}, {1, 1}, {3, 2}, {7, 5}, 2},
      {{2, 2, 4}, {2, 3, 3}, {3}, {1}, {2}, {1}, {12}},
      {{1, 3, 4}, {3, 1, 2}, {2}, {0}, {1}, {2}, {10}, 3},
      {{1, 2, 2, 3, 2}, {2, 2, 2, 1, 3}, {2, 1, 2}, {0, 0, 1}, {1, 0, 1}, {1, 1, 1}, {5, 3, 4}},
      {{1, 2, 2, 2, 2}, {2, 1, 2, 1, 2}, {1, 2, 1}, {0, 0, 1}, {1, 1, 1}, {2, 1, 2}, {5, 4, 3}, 2},
  };
  for (const Case& c : cases)
    check_op({.name = "conv_transpose",
              .op =
                  [&](const Variables& v) {
                    return esp::conv_transpose(v[0], v[1],
                                               {.stride = c.stride,
                                                .padding = c.padding,
                                                .output_padding = c.output_padding,
                                                .dilation = c.dilation,
                                                .groups = c.groups});
                  },
              .inputs = {numbers(c.x), numbers(c.kernels, -1, 1, 1)},
              .reference =
                  [&](const std::vector<Array>& in) {
                    const size_t axes = c.stride.size();
                    const int64_t inputs = c.x[1] / c.groups, outputs = c.kernels[1];  // of a group
                    esp::Shape y{c.x[0], outputs * c.groups}, terms{inputs};
                    for (const int64_t size : c.sizes) y.dims().push_back(size);
                    for (const esp::Shape* shape : {&c.x, &c.kernels})
                      for (size_t a = 0; a < axes; ++a) terms.dims().push_back(shape->dims()[a + 2]);
                    return Array(y, [&](const Index& i) {
                      double sum = 0;
                      each_index(terms, [&](const Index& at) {  // channel, places, places in the kernel
                        const int64_t channel = i[1] / outputs * inputs + at[0];
                        Index from{i[0], channel}, kernel{channel, i[1] % outputs};
                        for (size_t a = 0; a < axes; ++a) {
                          from.push_back(at[1 + a]);
                          kernel.push_back(at[1 + axes + a]);
                          const int64_t reached = from.back() * c.stride[a] + kernel.back() * c.dilation[a];
                          if (reached - c.padding[a] != i[2 + a]) return;
                        }
                        sum += in[0](from) * in[1](kernel);
                      });
                      return sum;
                    });
                  },
              .tolerance32 = 1e-5,
              .roundings = 2});
}

BOOST_AUTO_TEST_CASE(without_a_batch_and_with_a_bias) {
  const esp::Variable x = numbers({2, 5}), kernels = numbers({3, 2, 2}, -1, 1, 1),
                      bias = numbers({3}, -1, 1, 2);
  const esp::Tensor one = esp::conv(x, kernels, bias).value();
  const esp::Tensor many = esp::conv(esp::unsqueeze(x, 0), kernels).value();
  BOOST_TEST(one.shape().str() == "[3, 4]");
  const esp::Variable sum = esp::squeeze(many, 0) + esp::unsqueeze(bias, 1);
  BOOST_TEST(difference(one, sum.value()) == 0);
}

BOOST_AUTO_TEST_CASE(padding_that_keeps_the_sizes) {
  const esp::Variable x = numbers({1, 1, 6, 5}), kernels = numbers({1, 1, 3, 4});
  const esp::Tensor same =
      esp::conv(x, kernels, {.padding = esp::ConvolutionPadding::same(), .dilation = {2, 1}}).value();
  const esp::Tensor explicitly =
      esp::conv(x, kernels, {.padding = {esp::Padding{2, 2}, esp::Padding{1, 2}}, .dilation = {2, 1}})
          .value();
  BOOST_TEST(same.shape().str() == "[1, 1, 6, 5]");
  BOOST_TEST(difference(same, explicitly) == 0);
}

BOOST_AUTO_TEST_CASE(a_window_in_the_padding_reads_nothing) {
  for (const esp::Shape& shape : {esp::Shape{1, 1, 1, 2}, esp::Shape{1, 1, 1, 1, 2}}) {
    const esp::Variable x = esp::full(shape, 3);
    const esp::Shape kernel(std::vector<int64_t>(shape.rank(), 1));
    const esp::Variable y = esp::conv(x, esp::full(kernel, 2), {.stride = 4, .padding = 1});
    BOOST_TEST(y.shape() == kernel);
    BOOST_TEST(y.value().item() == 0);
  }
}

BOOST_AUTO_TEST_CASE(mistakes_name_op_and_line) {
  const esp::Variable x = numbers({1, 4, 5, 5}), kernels = numbers({6, 4, 3, 3});
  const auto refuses = [&](auto&& call, std::initializer_list<std::string> words) {
    BOOST_CHECK_EXCEPTION(call(), esp::Error, says(words));
  };
  const auto same = esp::ConvolutionPadding::same();
  const esp::ConvolutionPadding behind{esp::Padding{0, -1}, esp::Padding{0, 0}};
  const esp::Variable integers = esp::ones({1, 4, 5, 5}, esp::int64), five = numbers({5}),
                      flat = numbers({4, 4});
  const auto kernel = [](int64_t out, int64_t in, int64_t size) { return numbers({out, in, size, size}); };
  refuses([&] { esp::conv(x, kernel(6, 3, 3)); }, {"conv: ", "4 channels", "read 3", here()});
  refuses([&] { esp::conv(x, kernel(5, 2, 3), {.groups = 2}); }, {"conv: 5 kernels", "2 groups", here()});
  refuses([&] { esp::conv(x, kernel(6, 4, 6)); }, {"conv: ", "axis 2", "reaches over 6", here()});
  refuses([&] { esp::conv(x, kernels, {.dilation = 3}); }, {"conv: ", "reaches over 7", here()});
  refuses([&] { esp::conv(x, kernels, {.stride = 0}); }, {"conv: a stride of 0", here()});
  refuses([&] { esp::conv(x, kernels, {.dilation = -1}); }, {"conv: a dilation of -1", here()});
  refuses([&] { esp::conv(x, kernels, {.groups = 0}); }, {"conv: ", "groups of 0", here()});
  refuses([&] { esp::conv(x, kernels, {.padding = -1}); }, {"conv: a padding of -1", here()});
  refuses([&] { esp::conv(x, kernels, {.padding = behind}); }, {"conv: a padding of -1", here()});
  refuses([&] { esp::conv(x, kernels, {.stride = {1, 2, 3}}); }, {"conv: 3 stride", here()});
  refuses([&] { esp::conv(x, kernels, {.stride = 2, .padding = same}); }, {"conv: ", "keeps", here()});
  refuses([&] { esp::conv(five, kernels); }, {"conv: ", "[5]", here()});
  refuses([&] { esp::conv(x, flat); }, {"conv: ", "[4, 4]", here()});
  refuses([&] { esp::conv(x, kernels, five); }, {"conv: a bias of shape [5]", "6 channels", here()});
  refuses([&] { esp::conv(x, kernels, numbers({6, 1})); }, {"conv: a bias of shape [6, 1]", here()});
  refuses([&] { esp::conv(x, kernels, numbers({})); }, {"conv: a bias of shape []", here()});
  refuses([&] { esp::conv_transpose(x, kernels); }, {"conv_transpose: ", "[6, 4, 3, 3]", here()});
  refuses([&] { esp::conv_transpose(x, kernel(4, 2, 1), {.padding = 3}); }, {"axis 2", here()});
  refuses([&] { esp::conv_transpose(x, kernel(4, 2, 3), {.output_padding = 1}); }, {"stride 1", here()});
  refuses([&] { esp::conv(integers, integers); }, {"conv: takes real numbers", here()});
}

/// Libraries count the elements of an image, of a window and of all kernels with 31 bits.
BOOST_AUTO_TEST_CASE(sizes_that_libraries_cannot_index) {
  constexpr int64_t most = 0x7fffffff, root = 1 << 16;
  const auto refused = [](const esp::Shape& x, const esp::Shape& kernels, const esp::ConvolutionOptions& o) {
    BOOST_CHECK_EXCEPTION(esp::conv(esp::placeholder("x", x), esp::placeholder("kernels", kernels), o),
                          esp::UnsupportedError, says({"conv: ", "can index"}));
  };
  refused({1, 1, most + 1}, {1, 1, 1}, {.stride = 2});
  refused({1, 1, most}, {1, 1, 1}, {.padding = 1});
  refused({1, root, root / 2}, {1, root, root / 2}, {});
  refused({1, 1, 1}, {most + 1, 1, 1}, {});
}

BOOST_AUTO_TEST_SUITE_END()
