// Pooling, as functions and as layers.
#include "espalier/nn/pooling.h"

#include <boost/test/unit_test.hpp>

#include <cmath>
#include <limits>

#include "espalier/core/error.h"
#include "espalier/ops/ops.h"
#include "layer_training.h"

namespace esp = espalier;
using namespace espalier::nn;
using namespace espalier::testing;
using esp::Variable;

namespace {

struct Window {
  int64_t begin, end, step, padded;  // `padded`: elements with those of the padding
};
/// The windows of one axis.
using Windows = std::vector<Window>;

Windows sliding(int64_t size, int64_t kernel, int64_t stride, int64_t padding, int64_t dilation,
                int64_t count) {
  Windows all;
  for (int64_t i = 0; i < count; ++i) {
    int64_t begin = i * stride - padding, padded = 0;
    const int64_t end = begin + dilation * (kernel - 1) + 1;
    for (int64_t at = begin; at < end; at += dilation) padded += at < size + padding;
    while (begin < 0) begin += dilation;
    all.push_back({begin, std::min(end, size), dilation, padded});
  }
  return all;
}
Windows parts(int64_t size, int64_t count) {
  Windows all;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t begin = i * size / count, end = ((i + 1) * size + count - 1) / count;
    all.push_back({begin, end, 1, end - begin});
  }
  return all;
}

/// What `f(sum, largest, elements, elements with padding)` makes of each window of [n, c, …].
Array pooled(const Array& x, const std::vector<Windows>& axes,
             const std::function<double(double, double, double, double)>& f) {
  esp::Shape shape{x.shape[0], x.shape[1]};
  for (const Windows& axis : axes) shape.dims().push_back(static_cast<int64_t>(axis.size()));
  return Array(shape, [&](const Index& o) {
    double sum = 0, largest = -std::numeric_limits<double>::infinity(), count = 1, padded = 1;
    esp::Shape window;
    for (size_t a = 0; a < axes.size(); ++a) {
      const Window& w = axes[a][static_cast<size_t>(o[a + 2])];
      window.dims().push_back((w.end - w.begin + w.step - 1) / w.step);
      count *= static_cast<double>(window.dims().back());
      padded *= static_cast<double>(w.padded);
    }
    each_index(window, [&](const Index& k) {
      Index at{o[0], o[1]};
      for (size_t a = 0; a < axes.size(); ++a) {
        const Window& w = axes[a][static_cast<size_t>(o[a + 2])];
        at.push_back(w.begin + k[a] * w.step);
      }
      sum += x(at);
      largest = std::max(largest, x(at));
    });
    return f(sum, largest, count, padded);
  });
}
double largest_of_window(double, double largest, double, double) { return largest; }
double mean_of_window(double sum, double, double count, double) { return sum / count; }
double mean_with_padding(double sum, double, double, double padded) { return sum / padded; }

using Function = std::function<Variable(const Variable&)>;
struct PoolRow {
  std::string name;
  Function function;
  esp::Shape input;
  std::vector<Windows> axes;
  double (*of)(double, double, double, double);
};
const PoolRow pool_rows[] = {
    {"max_pool",
     [](const Variable& x) { return esp::max_pool(x, {.kernel = 2}); },
     {2, 2, 5},
     {sliding(5, 2, 2, 0, 1, 2)},
     largest_of_window},
    {"max_pool with padding and dilation",
     [](const Variable& x) {
       return esp::max_pool(x, {.kernel = {2, 3}, .stride = 1, .padding = {1, 0}, .dilation = {2, 1}});
     },
     {1, 2, 4, 5},
     {sliding(4, 2, 1, 1, 2, 4), sliding(5, 3, 1, 0, 1, 3)},
     largest_of_window},
    {"max_pool, ceil",
     [](const Variable& x) { return esp::max_pool(x, {.kernel = 2, .padding = 1, .ceil = true}); },
     {1, 1, 4},
     {sliding(4, 2, 2, 1, 1, 3)},
     largest_of_window},
    {"max_pool, ceil, no window in the padding",
     [](const Variable& x) { return esp::max_pool(x, {.kernel = 2, .padding = 1, .ceil = true}); },
     {1, 1, 3},
     {sliding(3, 2, 2, 1, 1, 2)},
     largest_of_window},
    {"max_pool of three axes",
     [](const Variable& x) {
       return esp::max_pool(x, {.kernel = {1, 2, 2}, .stride = 1});
     },
     {1, 1, 2, 3, 2},
     {sliding(2, 1, 1, 0, 1, 2), sliding(3, 2, 1, 0, 1, 2), sliding(2, 2, 1, 0, 1, 1)},
     largest_of_window},
    {"avg_pool",
     [](const Variable& x) {
       return esp::avg_pool(x, {.kernel = {2, 2}});
     },
     {2, 1, 4, 5},
     {sliding(4, 2, 2, 0, 1, 2), sliding(5, 2, 2, 0, 1, 2)},
     mean_of_window},
    {"avg_pool over the padding",
     [](const Variable& x) { return esp::avg_pool(x, {.kernel = 3, .stride = 2, .padding = 1}); },
     {1, 2, 6},
     {sliding(6, 3, 2, 1, 1, 3)},
     mean_with_padding},
    {"avg_pool over the padding, ceil",
     [](const Variable& x) {
       return esp::avg_pool(x, {.kernel = 3, .stride = 2, .padding = 1, .ceil = true});
     },
     {1, 2, 6},
     {sliding(6, 3, 2, 1, 1, 4)},
     mean_with_padding},
    {"avg_pool without the padding",
     [](const Variable& x) {
       return esp::avg_pool(x, {.kernel = 3, .stride = 2, .padding = 1, .count_padding = false});
     },
     {1, 2, 6},
     {sliding(6, 3, 2, 1, 1, 3)},
     mean_of_window},
    {"adaptive_max_pool",
     [](const Variable& x) {
       return esp::adaptive_max_pool(x, {3, 2});
     },
     {1, 2, 7, 4},
     {parts(7, 3), parts(4, 2)},
     largest_of_window},
    {"adaptive_avg_pool",
     [](const Variable& x) {
       return esp::adaptive_avg_pool(x, {2, 3, 1});
     },
     {1, 1, 3, 5, 2},
     {parts(3, 2), parts(5, 3), parts(2, 1)},
     mean_of_window},
    {"adaptive_avg_pool to more parts than elements",
     [](const Variable& x) { return esp::adaptive_avg_pool(x, 5); },
     {2, 1, 3},
     {parts(3, 5)},
     mean_of_window},
    {"max_pool_with_indices",
     [](const Variable& x) {
       const auto [values, indices] = esp::max_pool_with_indices(x, {.kernel = 2, .stride = 1});
       return esp::gather(esp::flatten(x), indices);
     },
     {1, 1, 5},
     {sliding(5, 2, 1, 0, 1, 4)},
     largest_of_window},
    {"adaptive_max_pool_with_indices",
     [](const Variable& x) {
       const auto [values, indices] = esp::adaptive_max_pool_with_indices(x, {2, 3});
       return values + esp::gather(esp::flatten(x), indices);
     },
     {1, 1, 3, 5},
     {parts(3, 2), parts(5, 3)},
     [](double, double largest, double, double) { return 2 * largest; }},
    {"global_max_pool",
     [](const Variable& x) { return esp::global_max_pool(x); },
     {2, 1, 2, 3},
     {parts(2, 1), parts(3, 1)},
     largest_of_window},
    {"global_avg_pool",
     [](const Variable& x) { return esp::global_avg_pool(x); },
     {2, 1, 2, 3},
     {parts(2, 1), parts(3, 1)},
     mean_of_window},
    {"max_pool without a batch",
     [](const Variable& x) { return esp::max_pool(x, {.kernel = 2}); },
     {0, 2, 4},
     {sliding(4, 2, 2, 0, 1, 2)},
     largest_of_window},
};

}  // namespace

BOOST_AUTO_TEST_SUITE(pooling)

BOOST_AUTO_TEST_CASE(table) {
  for (const PoolRow& row : pool_rows)
    check_op({.name = row.name,
              .op = [&](const Variables& v) { return row.function(v[0]); },
              .inputs = {numbers(row.input)},
              .reference = [&](const std::vector<Array>& in) { return pooled(in[0], row.axes, row.of); },
              .roundings = 2});
}

BOOST_AUTO_TEST_CASE(indices_count_in_the_plane) {
  const esp::Tensor x = esp::tensor_from(std::vector<double>{1, 5, 2, 5, 3, 5, 8, 0}, {1, 1, 2, 4});
  const auto [values, indices] = esp::max_pool_with_indices(x, {.kernel = 2});
  BOOST_TEST(difference(esp::tensor_from(std::vector<double>{5, 8}, {1, 1, 1, 2}), values.value()) == 0);
  BOOST_TEST(difference(esp::tensor_from(std::vector<int64_t>{1, 6}, {1, 1, 1, 2}), indices.value()) == 0);
}

BOOST_AUTO_TEST_CASE(a_nan_is_larger_than_all_numbers) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const esp::Tensor x = esp::tensor_from(std::vector<double>{1, nan, 7, nan, 2, 3}, {1, 1, 6});
  const auto [values, indices] = esp::max_pool_with_indices(x, {.kernel = 3});
  BOOST_TEST(difference(esp::tensor_from(std::vector<double>{nan, nan}, {1, 1, 2}), values.value()) == 0);
  BOOST_TEST(difference(esp::tensor_from(std::vector<int64_t>{1, 3}, {1, 1, 2}), indices.value()) == 0);
}

/// Windows side by side, some over the padding: the first of equal elements, or the first NaN.
BOOST_AUTO_TEST_CASE(many_windows_in_a_row) {
  const int64_t sizes[] = {6, 13, 14, 17, 28, 64, 65, 130};
  const std::tuple<int64_t, int64_t, int64_t, int64_t> settings[] = {
      // kernel, stride, padding, dilation
      {1, 1, 0, 1}, {2, 2, 0, 1}, {2, 1, 1, 1}, {3, 1, 1, 1}, {3, 2, 1, 1},
      {3, 1, 1, 2}, {2, 2, 1, 3}, {4, 3, 2, 1}, {5, 1, 2, 1}};
  const auto check = [&](const Variable& x) {
    const esp::Tensor values = x.value().to(esp::float64);
    const int64_t height = x.shape()[2], width = x.shape()[3];
    for (const auto& [kernel, stride, padding, dilation] : settings) {
      if ((kernel - 1) * dilation + 1 > std::min(height, width) + 2 * padding) continue;
      const auto [largest, places] = esp::max_pool_with_indices(
          x, {.kernel = kernel, .stride = stride, .padding = padding, .dilation = dilation});
      const esp::Tensor found = places.value();
      const esp::Tensor alone =
          esp::max_pool(x, {.kernel = kernel, .stride = stride, .padding = padding, .dilation = dilation})
              .value();
      BOOST_TEST(alone.dtype() == x.dtype());
      BOOST_REQUIRE(difference(alone, largest.value()) == 0);
      for (int64_t i = 0; i < found.shape()[2]; ++i)
        for (int64_t j = 0; j < found.shape()[3]; ++j) {
          int64_t best = -1;
          double most = 0;
          for (int64_t a = 0; a < kernel; ++a)
            for (int64_t b = 0; b < kernel; ++b) {
              const int64_t row = i * stride - padding + a * dilation,
                            column = j * stride - padding + b * dilation;
              if (row < 0 || column < 0 || row >= height || column >= width) continue;
              const double value = values.at<double>({0, 0, row, column});
              if (best >= 0 && (std::isnan(most) || value <= most)) continue;
              best = row * width + column;
              most = value;
            }
          BOOST_REQUIRE(found.at<int64_t>({0, 0, i, j}) == best);
        }
    }
  };
  for (const int64_t width : sizes) {
    esp::Tensor x({1, 1, 9, width}, esp::float32);
    uint32_t state = 7;
    for (float& value : x.span<float>()) {
      state = state * 1664525 + 1013904223;
      value = state >> 28 == 0 ? NAN : static_cast<float>(state >> 24 & 3) - 1;
    }
    for (const esp::DType dtype :
         {esp::float32, esp::float64, esp::bfloat16, esp::float16, esp::int32, esp::int64})
      check(Variable(x.to(dtype)));
  }
}

/// The place is found where a gradient is asked for.
BOOST_AUTO_TEST_CASE(the_gradient_goes_to_the_first_of_equal_elements) {
  const Variable x = esp::parameter(esp::tensor_from(std::vector<double>{1, 5, 5, 5, 3, 8, 0, 8}, {1, 1, 8}));
  const Variable largest = esp::max_pool(x, {.kernel = 4, .stride = 2, .padding = 1});
  const Variable g =
      esp::sum(largest * esp::tensor_from(std::vector<double>{1, 2, 4, 8}, {1, 1, 4})).gradient(x);
  BOOST_TEST(
      difference(esp::tensor_from(std::vector<double>{0, 3, 0, 0, 0, 12, 0, 0}, {1, 1, 8}), g.value()) == 0);
}

BOOST_AUTO_TEST_CASE(integers_have_a_largest_element) {
  const esp::Tensor x = esp::tensor_from(std::vector<int64_t>{1, 4, 3, 2}, {1, 1, 4});
  const Variable largest = esp::max_pool(x, {.kernel = 2});
  BOOST_TEST(difference(esp::tensor_from(std::vector<int64_t>{4, 3}, {1, 1, 2}), largest.value()) == 0);
}

BOOST_AUTO_TEST_CASE(sums_of_halves_do_not_overflow) {
  const esp::Tensor x = esp::full({1, 1, 64, 64}, 30, esp::float16);
  BOOST_TEST(esp::avg_pool(x, {.kernel = 64}).value().item() == 30);
  BOOST_TEST(esp::adaptive_avg_pool(x, 1).value().item() == 30);
}

BOOST_AUTO_TEST_CASE(micro_batches_pool_means) {
  esp::data::Distributor feed({numbers({9, 2, 4}), numbers({9, 2}, -1, 1, 1)}, {.batch_size = 4});
  const auto losses = [&](int micro_batches) {
    const auto [x, y] = feed.get_output_graphs<2>();
    const Variable w = esp::parameter(esp::tensor(1.5, esp::float64), "w");
    const Variable pooled = esp::avg_pool(x * w, {.kernel = 3, .stride = 2, .padding = 1});
    const Variable spread = esp::std(pooled, -1);
    const auto executor = esp::mean(esp::square(spread - y))
                              .get_executor({.optimizer = esp::optim::Sgd(0.1), .accumulate = micro_batches});
    std::vector<double> all;
    for (const auto& epoch : executor.execute({.epochs = 3, .progress = false}).epochs)
      all.push_back(epoch.loss_mean);
    feed.reset();
    return all;
  };
  const auto whole = losses(1), parts = losses(2);
  for (size_t i = 0; i < whole.size(); ++i)
    BOOST_TEST(whole[i] == parts[i], boost::test_tools::tolerance(1e-12));
}

BOOST_AUTO_TEST_CASE(layers_train_alike_eagerly_in_plans_and_on_replicas) {
  const std::function<MaxPool2d()> largest = [] { return MaxPool2d({.kernel = 2, .stride = 1}); };
  BOOST_TEST(training_differences(largest, {2, 4, 3}) < 1e-12);
  const std::function<AvgPool1d()> mean = [] { return AvgPool1d({.kernel = 2, .padding = 1}); };
  BOOST_TEST(training_differences(mean, {2, 4}) < 1e-12);
  const std::function<AdaptiveAvgPool2d()> part = [] { return AdaptiveAvgPool2d({2, 1}); };
  BOOST_TEST(training_differences(part, {2, 3, 4}) < 1e-12);
}

BOOST_AUTO_TEST_CASE(mistakes_name_function_and_line) {
  const auto refuses = [](auto&& call, std::initializer_list<std::string> words) {
    BOOST_CHECK_EXCEPTION(call(), esp::Error, says(words));
  };
  const Variable x = numbers({1, 2, 4, 4}), integers = esp::ones({1, 2, 4, 4}, esp::int64);
  const Variable flat = numbers({3, 4}), empty = numbers({1, 1, 0});
  refuses([&] { esp::max_pool(x, {.kernel = 5}); }, {"max_pool: ", "axis 2 of [1, 2, 4, 4]", here()});
  refuses([&] { esp::max_pool(x, {.kernel = 0}); }, {"max_pool: a kernel of 0", here()});
  refuses([&] { esp::max_pool(x, {.kernel = 2, .stride = 0}); }, {"max_pool: a stride of 0", here()});
  refuses([&] { esp::max_pool(x, {.kernel = 2, .padding = 2}); }, {"max_pool: ", "half", here()});
  refuses([&] { esp::max_pool(x, {.kernel = {1, 2, 3}}); }, {"max_pool: 3 kernel numbers", here()});
  refuses([&] { esp::avg_pool(flat, {.kernel = 2}); }, {"avg_pool: ", "[3, 4]", here()});
  refuses([&] { esp::adaptive_avg_pool(x, 0); }, {"adaptive_avg_pool: an axis cannot have 0 parts", here()});
  refuses([&] { esp::avg_pool(integers, {.kernel = 2}); }, {"avg_pool: takes real numbers", here()});
  refuses([&] { esp::max_pool(empty, {.kernel = 1}); }, {"max_pool: axis 2", "empty", here()});
  const esp::MaxPoolOptions beyond{.kernel = 2, .stride = 1, .padding = 1, .dilation = 3};
  refuses([&] { esp::max_pool(numbers({1, 1, 2}), beyond); }, {"max_pool: ", "reads nothing", here()});
  refuses([&] { esp::max_pool(esp::cast(x, esp::uint8), {.kernel = 2}); }, {"max_pool: ", "uint8", here()});
  refuses([&] { MaxPool1d({.kernel = 2})(x); }, {"MaxPool1d", "[1, 2, 4, 4]", here()});
}

BOOST_AUTO_TEST_SUITE_END()
