// What follows the sizes of each batch: axis_size, arange_like, expand_as, and layers on axes of any size.
#include <boost/test/unit_test.hpp>

#include <cmath>
#include <tuple>
#include <vector>

#include "espalier/core/error.h"
#include "espalier/espalier.h"
#include "testing.h"

namespace esp = espalier;
using namespace espalier::testing;
using esp::Tensor;
using esp::Variable;

namespace {

/// Batches of 4, 4 and 2 rows of [3].
esp::data::Distributor short_last() {
  return esp::data::Distributor({esp::arange(30).reshape({10, 3})}, {.batch_size = 4});
}

Tensor run(const Variable& tree, const Tensor& x, const char* name = "x") {
  return tree.get_executor({.mode = esp::Mode::inference}).run({{name, x}});
}

void check_close(const Tensor& a, const Tensor& b, double tolerance = 1e-5) {
  BOOST_TEST_REQUIRE(a.shape() == b.shape());
  BOOST_TEST(difference(a, b) <= tolerance);
}

bool same(const Tensor& x, const std::vector<double>& expected) { return Array(x).values == expected; }

bool located_here(const esp::Error& error) {
  return std::string(error.what()).find("batch_sizes_test.cpp") != std::string::npos;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(batch_sizes)

BOOST_AUTO_TEST_CASE(a_mean_by_the_rows_of_each_batch) {
  auto feed = short_last();
  const auto [x] = feed.get_output_graphs<1>();
  const Variable mean = esp::sum(x, 0) / esp::axis_size(x, 0), usual = esp::mean(x, 0);
  for (int i = 0; i < 3; ++i) check_close(mean.forward().value(), usual.forward().value());
  auto executor = esp::sum(esp::square(mean)).get_executor({.mode = esp::Mode::inference});
  auto expected = esp::sum(esp::square(usual)).get_executor({.mode = esp::Mode::inference});
  for (int i = 0; i < 3; ++i)
    BOOST_TEST(executor.step().loss == expected.step().loss, boost::test_tools::tolerance(1e-6));
}

BOOST_AUTO_TEST_CASE(replicas_add_up_the_rows) {
  std::vector<double> losses;
  for (const int replicas : {1, 2}) {
    Variable w = esp::parameter(esp::ones({3, 1}));
    auto feed = short_last();
    const auto [x] = feed.get_output_graphs<1>();
    const Variable loss = esp::sum(esp::square(esp::matmul(x, w))) / esp::axis_size(x, 0);
    auto executor = loss.get_executor({.optimizer = esp::optim::Sgd(1e-4),
                                       .devices = std::vector<esp::Device>(static_cast<size_t>(replicas))});
    for (int i = 0; i < 3; ++i) losses.push_back(executor.step().loss);
  }
  for (size_t i = 0; i < 3; ++i) BOOST_TEST(losses[i] == losses[i + 3], boost::test_tools::tolerance(1e-6));
}

BOOST_AUTO_TEST_CASE(sizes_and_positions_of_tensors_and_of_open_axes) {
  const Variable fixed = esp::zeros({2, 5}, esp::float64);
  BOOST_TEST(esp::axis_size(fixed, -1).item() == 5);
  BOOST_TEST((esp::axis_size(fixed, -1).dtype() == esp::float64));
  BOOST_TEST((esp::axis_size(esp::greater(fixed, 0), 0).dtype() == esp::int64));
  BOOST_TEST(esp::axis_size(esp::zeros({3, 0}), 0).item() == 3);
  BOOST_TEST(same(esp::arange_like(fixed, 1, esp::float32).value(), {0, 1, 2, 3, 4}));
  BOOST_CHECK_THROW((void)esp::axis_size(fixed, 2), esp::ShapeError);
  BOOST_CHECK_THROW((void)esp::arange_like(fixed, -3), esp::ShapeError);

  const Variable x = esp::placeholder("x", {-1, -1});
  const Variable sizes = esp::stack({esp::axis_size(x, 0), esp::axis_size(x, 1)}, 0);
  BOOST_TEST(same(run(sizes, esp::ones({3, 7})), {3, 7}));
  BOOST_TEST(same(run(sizes, esp::ones({0, 2})), {0, 2}));
  const Variable causal =
      esp::cast(esp::arange_like(x, 1) <= esp::unsqueeze(esp::arange_like(x, 1), 1), esp::float32);
  BOOST_TEST(same(run(causal + esp::sum(x) * 0, esp::ones({1, 3})), {1, 0, 0, 1, 1, 0, 1, 1, 1}));
}

BOOST_AUTO_TEST_CASE(a_token_before_the_rows_of_each_batch) {
  auto feed = short_last();
  const auto [x] = feed.get_output_graphs<1>();
  const Variable steps = esp::unsqueeze(x, 1);
  Variable token = esp::parameter(esp::full({1, 1, 3}, 7));
  const Variable joined = esp::concat({esp::expand_as(token, steps), steps}, 1);
  auto executor = esp::sum(joined, esp::Axes{1, 2}).get_executor({.mode = esp::Mode::inference});
  for (int i = 0; i < 3; ++i) executor.step();
  BOOST_TEST(same(executor.value(), {21 + 24 + 25 + 26, 21 + 27 + 28 + 29}));
  BOOST_TEST(esp::sum(joined).gradient(token).shape() == token.shape());
  BOOST_CHECK_EXCEPTION((void)esp::expand_as(esp::zeros({2, 3}), esp::zeros({3, 3})), esp::ShapeError,
                        located_here);
}

// The batch may be any axis of what a layer is given.
BOOST_AUTO_TEST_CASE(dense_with_the_batch_behind_the_time) {
  const esp::nn::Dense dense(6, 7);
  esp::seed(3);
  const Tensor data = esp::rand({3, 4, 6});
  esp::data::Distributor feed({data}, {.batch_size = 2});
  const auto [rows] = feed.get_output_graphs<1>();
  const Variable tree = dense(esp::permute(rows, {1, 0, 2}));
  auto executor = tree.get_executor({.mode = esp::Mode::inference});
  executor.step();
  executor.step();
  const Tensor expected = dense(esp::permute(data.slice(0, 2, 3), {1, 0, 2})).value();
  check_close(executor.value(), expected);
  (void)tree.forward();
  check_close(tree.forward().value(), expected);

  const Variable x = esp::placeholder("x", {8, -1, 6});
  const Tensor four = esp::rand({4, 5, 6});
  check_close(run(dense(esp::permute(x, {1, 0, 2})), four), dense(esp::permute(four, {1, 0, 2})).value());
}

BOOST_AUTO_TEST_CASE(layers_on_parts_of_an_open_axis) {
  esp::seed(4);
  const esp::nn::Dense dense(6, 6);
  const Variable x = esp::placeholder("x", {-1, -1, 6});
  const Tensor data = esp::rand({2, 5, 6});
  const auto checked = [&](auto&& f) { check_close(run(f(x), data), f(Variable(data)).value(), 1e-4); };
  checked([&](const Variable& v) { return dense(esp::slice(v, 1, 1, esp::open_end)); });
  checked([&](const Variable& v) { return dense(esp::concat({v, v}, 1)); });
  checked([&](const Variable& v) { return dense(esp::pad(v, {{1, 2}, {}})); });
  esp::nn::TransformerEncoder encoder(1, 6, 2, {.feedforward = 8});
  (void)encoder(data);
  encoder.train(false);
  checked([&](const Variable& v) { return encoder(esp::slice(v, 1, 1, esp::open_end)); });
}

BOOST_AUTO_TEST_CASE(positions_of_an_open_time) {
  esp::seed(5);
  const Variable x = esp::placeholder("x", {-1, -1, 6});
  for (const int64_t steps : {1, 5, 9}) {
    const Tensor data = esp::rand({2, steps, 6});
    const auto checked = [&](auto&& f) { check_close(run(f(x), data), f(Variable(data)).value(), 1e-6); };
    checked([](const Variable& v) { return esp::nn::rotary(v); });
    checked([](const Variable& v) {
      return esp::nn::rotary(v, {.base = 100, .offset = 3, .interleaved = true});
    });
    checked([](const Variable& v) { return esp::nn::SinusoidalPositions(2)(v); });
    // An odd width has a sine more.
    checked([](const Variable& v) { return esp::nn::SinusoidalPositions()(esp::slice(v, -1, 0, 5)); });
  }
}

BOOST_AUTO_TEST_CASE(axes_merged_and_divided_by_those_of_another) {
  check_op({.name = "unflatten_like",
            .op =
                [](const Variables& x) {
                  return esp::unflatten_like(x[0], -1, x[1], {2, 0});
                },
            .inputs = {numbers({2, 6}), esp::ones({3, 4, 2}, esp::float64)},
            .reference =
                [](const std::vector<Array>& in) {
                  return Array({2, 2, 3}, [&](const Index& i) { return in[0]({i[0], 3 * i[1] + i[2]}); });
                },
            .differentiable = {0}});
  check_op(
      {.name = "flatten",
       .op = [](const Variables& x) { return esp::flatten(x[0], 1, -2); },
       .inputs = {numbers({2, 3, 2, 2})},
       .reference =
           [](const std::vector<Array>& in) {
             return Array({2, 6, 2}, [&](const Index& i) { return in[0]({i[0], i[1] / 2, i[1] % 2, i[2]}); });
           }});
  BOOST_CHECK_EXCEPTION(esp::unflatten_like(esp::ones({6, 2}), 0, esp::ones({2, 4, 5})), esp::ShapeError,
                        says({"unflatten_like", "axis 0", "[6, 2]", "[2, 4]", "[2, 4, 5]", here()}));
  BOOST_CHECK_EXCEPTION(esp::flatten(esp::ones({2, 3}), 1, 0), esp::ShapeError,
                        says({"flatten", "axis 0", "[2, 3]", here()}));
}

/// Words of letters, merged to rows for a layer over the letters, and divided again.
Variable of_words(const esp::nn::Lstm& letters, const Variable& x) {
  const Variable last = letters(esp::flatten(x, 0, 1)).state.h[0];  // [batch · words, 5]
  return esp::unflatten_like(last, 0, x);                           // [batch, words, 5]
}

BOOST_AUTO_TEST_CASE(a_layer_over_the_letters_of_open_words) {
  esp::seed(7);
  const esp::nn::Lstm letters(4, 5, {.batch_first = true, .dtype = esp::float64});
  const Variable x = esp::placeholder("x", {-1, -1, -1, 4}, esp::float64);
  const Variable w = esp::parameter(numbers({5, 5}, -1, 1, 2));
  const auto loss = [&](const Variable& v) {
    return esp::mean(esp::square(esp::matmul(of_words(letters, v), w)));
  };
  const auto plan = loss(x).get_executor({.mode = esp::Mode::inference});
  const auto slope = loss(x).gradient(w).get_executor({.mode = esp::Mode::inference});
  const auto two = of_words(letters, x).get_executor({.devices = {esp::cpu(0), esp::cpu(1)}});
  for (const auto& [rows, words, size] : {std::tuple{3, 2, 6}, {2, 5, 1}, {1, 1, 3}}) {
    const Tensor data = numbers({rows, words, size, 4}, -1, 1, 3);
    check_close(plan.run({{"x", data}}), loss(data).value(), 1e-12);
    check_close(slope.run({{"x", data}}), loss(data).gradient(w).value(), 1e-12);
    check_close(two.run({{"x", data}}), of_words(letters, data).value(), 1e-12);
  }
}

BOOST_AUTO_TEST_CASE(divided_rows_train_on_replicas_and_in_micro_batches) {
  std::vector<std::vector<double>> losses;
  for (const int way : {0, 1, 2}) {
    esp::seed(8);
    const esp::nn::Lstm letters(4, 5, {.batch_first = true, .dtype = esp::float64});
    esp::data::Distributor feed({numbers({10, 3, 6, 4}, -1, 1)}, {.batch_size = 4});
    const auto [x] = feed.get_output_graphs<1>();
    const Variable loss = esp::mean(esp::square(of_words(letters, x)));
    esp::ExecutorOptions options{.optimizer = esp::optim::Sgd(0.1)};
    if (way == 1) options.devices = {esp::cpu(0), esp::cpu(1)};
    if (way == 2) options.accumulate = 2;
    auto executor = loss.get_executor(options);
    losses.emplace_back();
    for (const auto& epoch : executor.execute({.epochs = 3, .progress = false}).epochs)
      losses.back().push_back(epoch.loss_mean);
  }
  for (const size_t way : {1, 2})
    for (size_t i = 0; i < 3; ++i)
      BOOST_TEST(losses[0][i] == losses[way][i], boost::test_tools::tolerance(1e-9));
}

// Strides and pooling halve the sizes of images, which transposed convolutions double again.
BOOST_AUTO_TEST_CASE(images_of_open_sizes_go_down_and_up) {
  esp::seed(6);
  esp::nn::vision::UNet net({.classes = 2, .channels = 1, .width = 4, .levels = 3});
  (void)net(esp::zeros({1, 1, 16, 16}));
  net.train(false);
  const Variable x = esp::placeholder("x", {-1, 1, -1, -1});
  const auto executor = net(x).get_executor({.mode = esp::Mode::inference});
  for (const auto& [height, width] : {std::pair{16, 24}, {8, 8}, {32, 16}}) {
    const Tensor image = esp::rand({1, 1, height, width});
    check_close(executor.run({{"x", image}}), net(image).value(), 1e-4);
  }
  const Variable pairs = esp::placeholder("pairs", {-1, 4});
  const Variable twos = esp::reshape(pairs, {-1, 2, 4});
  BOOST_TEST(run(esp::sum(twos, 1), esp::ones({6, 4}), "pairs").shape() == esp::Shape({3, 4}));
  const Variable between = pairs[{esp::range(0, esp::end, 2)}] + pairs[{esp::range(1, esp::end, 2)}];
  BOOST_TEST(run(between, esp::ones({6, 4}), "pairs").shape() == esp::Shape({3, 4}));
}

BOOST_AUTO_TEST_CASE(resizing_of_open_sizes) {
  esp::seed(7);
  using esp::Interpolation;
  const Variable x = esp::placeholder("x", {-1, 2, -1, -1});
  const Variable kernel = esp::parameter(esp::randn({2, 2, 3, 3}));
  const auto checked = [&](auto&& f) {
    for (const auto& [height, width] : {std::pair{6, 10}, {4, 4}, {12, 2}}) {
      const Tensor image = esp::rand({1, 2, height, width});
      check_close(run(f(x), image), f(Variable(image)).value(), 1e-5);
    }
  };
  for (const auto mode :
       {Interpolation::nearest, Interpolation::nearest_exact, Interpolation::linear, Interpolation::cubic})
    for (const bool aligned : {false, true}) {
      if (aligned && mode != Interpolation::linear && mode != Interpolation::cubic) continue;
      for (const double scale : {2.0, 1.0, 3.0, 0.5}) {
        BOOST_TEST_CONTEXT("mode " << static_cast<int>(mode) << " scale " << scale << " aligned " << aligned)
        checked([&](const Variable& v) {
          return esp::interpolate(v, {.scale = {scale}, .mode = mode, .align_corners = aligned});
        });
      }
      for (const int64_t size : {1, 5, 16})
        checked([&](const Variable& v) {
          return esp::interpolate(v, {.size = {size, 7}, .mode = mode, .align_corners = aligned});
        });
    }
  // Behind a stride, and with a gradient.
  checked([&](const Variable& v) {
    const Variable half = esp::conv(v, kernel, {.stride = 2, .padding = 1});
    return v + esp::interpolate(half, {.scale = {2}, .mode = Interpolation::linear});
  });
  const Variable up = esp::interpolate(x, {.scale = {2}, .mode = Interpolation::cubic});
  const Tensor image = esp::rand({1, 2, 4, 6});
  const Variable fixed(image);
  check_close(run(esp::sum(esp::square(up)).gradient(x), image),
              esp::sum(esp::square(esp::interpolate(fixed, {.scale = {2}, .mode = Interpolation::cubic})))
                  .gradient(fixed)
                  .value());
  BOOST_CHECK_EXCEPTION((void)esp::interpolate(x, {.scale = {1.5}}), esp::UnsupportedError, located_here);
}

BOOST_AUTO_TEST_CASE(parts_of_each_batch) {
  esp::data::Distributor feed({esp::arange(5).reshape({5, 1})}, {.batch_size = 2});
  const auto [x] = feed.get_output_graphs<1>();
  const Variable middle = esp::sum(esp::chunk(esp::concat({x, x * 10, x * 100}), 3)[1]);
  for (const double expected : {10.0, 50.0, 40.0}) BOOST_TEST(middle.forward().item() == expected);
  for (const int replicas : {1, 2}) {
    feed.reset();
    auto executor = esp::mean(esp::chunk(esp::concat({x, x * 10, x * 100}), 3)[1])
                        .get_executor({.mode = esp::Mode::inference,
                                       .devices = std::vector<esp::Device>(static_cast<size_t>(replicas))});
    BOOST_TEST(executor.step().loss == 5.0, replicas);
    BOOST_TEST(executor.step().loss == 25.0, replicas);
  }
  const Variable open = esp::placeholder("x", {-1, 4});
  BOOST_TEST(
      same(run(esp::chunk(open, 2)[1], esp::arange(16).reshape({4, 4})), {8, 9, 10, 11, 12, 13, 14, 15}));
  BOOST_CHECK_THROW(run(esp::chunk(open, 2)[1], esp::ones({3, 4})), esp::ShapeError);
  BOOST_CHECK_EXCEPTION((void)esp::split(open, 2), esp::UnsupportedError, located_here);
}

BOOST_AUTO_TEST_SUITE_END()
