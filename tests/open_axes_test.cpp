// Axes of -1: placeholders and batches of any size, the plans for them, and trees that embed a size.
#include <boost/test/unit_test.hpp>

#include <cmath>
#include <thread>

#include "espalier/core/error.h"
#include "espalier/core/feed.h"
#include "espalier/espalier.h"
#include "espalier/ops/matmul/gemm_choice.h"
#include "testing.h"

namespace esp = espalier;
using namespace espalier::testing;
using esp::Variable;

namespace {

/// Sequences of numbers: row r has 1 + r % 4 of them, all r + 1. Shorter ones are padded with zeros.
struct Sequences : esp::data::Dataset {
  int64_t rows() const override { return 10; }
  std::vector<esp::Spec> specs() const override {
    return {{esp::float32, {10, -1, 2}}, {esp::float32, {10}}};
  }
  static int64_t length(int64_t row) { return 1 + row % 4; }
  std::vector<int64_t> open_sizes(std::span<const int64_t> rows) const override {
    int64_t longest = 0;
    for (const int64_t row : rows) longest = std::max(longest, length(row));
    return {longest};
  }
  void read(std::span<const int64_t> rows, std::span<esp::Tensor> outputs) const override {
    const int64_t longest = outputs[0].shape()[1];
    const auto x = outputs[0].span<float>(), y = outputs[1].span<float>();
    for (size_t r = 0; r < rows.size(); ++r) {
      for (int64_t i = 0; i < 2 * longest; ++i)
        x[r * static_cast<size_t>(2 * longest) + static_cast<size_t>(i)] =
            i < 2 * length(rows[r]) ? static_cast<float>(rows[r] + 1) : 0.0f;
      y[r] = static_cast<float>(rows[r]);
    }
  }
};

}  // namespace

BOOST_AUTO_TEST_SUITE(open_axes)

BOOST_AUTO_TEST_CASE(any_axis_of_a_placeholder) {
  const esp::nn::Dense dense(2, {.initializer = esp::nn::init::Ones()});
  const Variable in = esp::placeholder("x", {-1, -1, 3});
  const auto executor = esp::sum(dense(in), {1}).get_executor({.mode = esp::Mode::inference});
  std::vector<std::thread> threads;
  std::vector<int> wrong(4, 0);
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 200; ++i) {
        const int64_t rows = 1 + (t + i) % 3, length = 1 + i % 5;
        const esp::Tensor out = executor.run({{"x", esp::full({rows, length, 3}, t)}});
        if (!(out.shape() == esp::Shape({rows, 2})) ||
            out.at<float>({0, 0}) != static_cast<float>(3 * t * length))
          ++wrong[static_cast<size_t>(t)];
      }
    });
  for (auto& thread : threads) thread.join();
  for (const int count : wrong) BOOST_TEST(count == 0);
  BOOST_CHECK_EXCEPTION(executor.run({{"x", esp::ones({2, 2, 4})}}), esp::ShapeError,
                        says({"[-1, -1, 3]", "[2, 2, 4]"}));
  BOOST_CHECK_EXCEPTION(executor.run({{"x", esp::ones({2, 3})}}), esp::ShapeError, says({"[-1, -1, 3]"}));
}

BOOST_AUTO_TEST_CASE(training_agrees_with_eager) {
  const auto grow = [](const Variable& x, const Variable& mask, const Variable& w) {
    const Variable h = esp::tanh(esp::matmul(x, w)) * esp::unsqueeze(mask, -1);
    return esp::mean(esp::square(esp::sum(h, {1}) - esp::mean(x, {1})));
  };
  const Variable x = esp::placeholder("x", {-1, -1, 3}, esp::float64),
                 mask = esp::placeholder("mask", {-1, -1}, esp::float64);
  const Variable w = esp::parameter(numbers({3, 3})), w2 = esp::parameter(numbers({3, 3}));
  const esp::Executor executor = grow(x, mask, w).get_executor({.optimizer = esp::optim::Sgd(0.1)});
  for (const auto& [rows, length] : {std::pair<int64_t, int64_t>{2, 5}, {4, 1}, {1, 7}, {2, 5}}) {
    const esp::Tensor in = numbers({rows, length, 3}, -1, 1, 4), by = numbers({rows, length}, 0, 1, 5);
    const Variable loss = grow(in, by, w2);
    BOOST_TEST(executor.run({{"x", in}, {"mask", by}}).item() == loss.item(),
               boost::test_tools::tolerance(1e-12));
    loss.update(esp::optim::Sgd(0.1));
    BOOST_TEST(difference(w.value(), w2.value()) < 1e-12);
  }
}

BOOST_AUTO_TEST_CASE(replicas_share_the_rows_of_open_batches) {
  const Variable x = esp::placeholder("x", {-1, -1, 3}, esp::float64), w = esp::parameter(numbers({3, 2}));
  const Variable y = esp::sum(esp::tanh(esp::matmul(x, w)), {1});
  const esp::Executor one = y.get_executor(), two = y.get_executor({.devices = {esp::cpu(0), esp::cpu(1)}});
  for (const int64_t rows : {1, 3, 4})
    for (const int64_t length : {2, 5}) {
      const esp::Tensor value = numbers({rows, length, 3}, -1, 1, static_cast<uint64_t>(rows));
      BOOST_TEST(difference(two.run({{"x", value}}), one.run({{"x", value}})) < 1e-12);
    }
}

BOOST_AUTO_TEST_CASE(feeds_with_batches_of_other_lengths) {
  for (const bool shuffle : {false, true}) {
    const auto data = std::make_shared<Sequences>();
    esp::data::Distributor feed(data, {.batch_size = 3, .shuffle = shuffle}),
        again(data, {.batch_size = 3, .shuffle = shuffle});
    const auto grow = [](esp::data::Distributor& from, const Variable& w) {
      const auto [x, y] = from.get_output_graphs<2>();
      return esp::mean(esp::square(esp::sum(esp::matmul(x, w), {1, 2}) - y));
    };
    const Variable w = esp::parameter(esp::full({2, 1}, 0.5)), w2 = esp::parameter(esp::full({2, 1}, 0.5));
    const esp::optim::Sgd sgd(1e-4);
    const esp::Executor executor = grow(feed, w).get_executor(
        {.optimizer = sgd, .validation = esp::data::Distributor(data, {.batch_size = 4})});
    const esp::History history = executor.execute({.epochs = 2, .progress = false});
    const Variable loss = grow(again, w2);
    for (int epoch = 0; epoch < 2; ++epoch, again.reset()) {
      double sum = 0;
      for (int64_t step = 0; step < again.steps(); ++step) {
        sum += loss.forward().item();
        loss.update(sgd);
      }
      BOOST_TEST(history.epochs[static_cast<size_t>(epoch)].loss_sum == sum,
                 boost::test_tools::tolerance(1e-5));
    }
    BOOST_TEST(difference(w.value(), w2.value()) < 1e-6);
    BOOST_TEST(std::isfinite(history.epochs[1].validation_loss));
  }
}

BOOST_AUTO_TEST_CASE(columns_beside_open_ones_keep_their_sizes) {
  const esp::Tensor labels = numbers({10, 3}).to(esp::float32);
  const esp::data::Distributor feed(
      esp::data::zip({std::make_shared<Sequences>(),
                      std::make_shared<esp::data::TensorDataset>(std::vector<esp::Tensor>{labels})}),
      {.batch_size = 4});
  const auto [x, y, label] = feed.get_output_graphs<3>();
  const esp::Executor executor =
      esp::sum(x).get_executor({.mode = esp::Mode::inference, .outputs = {{"twice", label * 2.0}}});
  for (const auto& [begin, end] : {std::pair{0, 4}, {4, 8}, {8, 10}}) {  // the longest have 4, 4 and 2
    double sum = 0;
    for (int64_t row = begin; row < end; ++row)
      sum += static_cast<double>(2 * Sequences::length(row) * (row + 1));
    BOOST_TEST(executor.step().loss == sum);
    BOOST_TEST(difference(executor.output("twice"), (labels.slice(0, begin, end) * 2.0).value()) == 0);
  }
}

BOOST_AUTO_TEST_CASE(sharded_feeds_with_batches_of_other_lengths) {
  const auto train = [](std::vector<esp::Device> devices, int parts) {
    esp::data::Distributor feed(std::make_shared<Sequences>(), {.batch_size = 4});
    const auto [x, y] = feed.get_output_graphs<2>();
    const Variable w = esp::parameter(esp::full({2, 1}, 0.5));
    esp::mean(esp::square(esp::sum(esp::matmul(x, w), {1, 2}) - y))
        .get_executor({.optimizer = esp::optim::Sgd(1e-4), .devices = devices, .accumulate = parts})
        .execute({.epochs = 2, .progress = false});
    return w.value();
  };
  const esp::Tensor one = train({}, 1);
  BOOST_TEST(difference(train({esp::cpu(0), esp::cpu(1)}, 1), one) < 1e-6);
  BOOST_TEST(difference(train({}, 2), one) < 1e-6);
}

BOOST_AUTO_TEST_CASE(trees_that_embed_a_size) {
  const Variable x = esp::placeholder("x", {-1, -1, 3});
  const int64_t rows = esp::nominal_size, length = esp::nominal_size;  // as functions see them
  const auto refused = [](const Variable& tree, const std::string& op, int line) {
    BOOST_CHECK_EXCEPTION(tree.get_executor(), esp::UnsupportedError,
                          says({"'" + op + "'", "open axis", "open_axes_test.cpp:" + std::to_string(line)}));
  };
  refused(esp::reshape(x, {rows * length, 3}), "reshape", __LINE__);
  refused(esp::reshape(x, {-1, length, 3}), "reshape", __LINE__);
  refused(esp::slice(x, 1, 0, length - 1), "slice", __LINE__);
  refused(x + Variable(esp::ones({length, 3})), "constant", __LINE__);
  refused(esp::sum(x, {1}) / static_cast<double>(length), "constant", __LINE__);
  refused(esp::sum(x, {1}) * (1.0 / static_cast<double>(length)), "constant", __LINE__);
  refused(x * (1 / std::sqrt(static_cast<double>(length))), "constant", __LINE__);
  const auto size = static_cast<double>(length);
  refused(x * std::log(size), "constant", __LINE__);
  refused(x / std::log2(size), "constant", __LINE__);
  refused(x * std::sqrt(2 / size), "constant", __LINE__);
  refused(x * static_cast<float>(1 / (size * size)), "constant", __LINE__);
  const Variable part = esp::slice(x, 1, 1, -2);
  refused(esp::sum(part, {1}) / static_cast<double>(length - 3), "constant", __LINE__);
  refused(esp::matmul(esp::transpose(x), esp::parameter(esp::ones({rows, 2}), "w")), "w", __LINE__);
  const Variable whole = esp::placeholder("n", {-1, 3}, esp::int64);
  refused(whole * Variable(esp::tensor(rows)), "constant", __LINE__);
  refused(whole - Variable(esp::tensor(-2 * rows)), "constant", __LINE__);
  BOOST_CHECK_NO_THROW((void)(whole * Variable(esp::tensor(int64_t{1000}))).get_executor());
  // Numbers that users write are none of these.
  for (const double number : {1e-12,   1e-8,    1e-6,  1e-5,   1e-4,
                              1e-3,    0.01,    0.1,   0.25,   0.5,
                              0.9,     0.95,    0.99,  0.999,  3.14159265358979,
                              9.81,    100.0,   255.0, 1000.0, 4096.0,
                              10000.0, 65504.0, 1e5,   1e6,    1e8,
                              1e9,     1e30})
    BOOST_CHECK_NO_THROW((void)(x * number).get_executor());
  BOOST_CHECK_EXCEPTION(esp::unflatten(esp::flatten(x, 0, 1), 0, {rows, length}).get_executor(),
                        esp::UnsupportedError, says({"unflatten_like", "axis_size"}));
  // What takes its sizes from Variables, or from the end, is right.
  const esp::Tensor in = numbers({2, 4, 3}).to(esp::float32);
  const auto agrees = [&](const std::function<Variable(const Variable&)>& f) {
    BOOST_TEST(difference(f(x).get_executor().run({{"x", in}}), f(in).value()) < 1e-6);
  };
  agrees([](const Variable& v) { return esp::reshape(v, {-1, 3}); });
  agrees([](const Variable& v) { return esp::flatten(v); });
  agrees([](const Variable& v) { return esp::slice(v, 1, 1, -1); });
  agrees([](const Variable& v) { return esp::unflatten_like(esp::flatten(v, 0, 1), 0, v); });
  agrees([](const Variable& v) { return esp::unflatten_like(esp::flatten(v), 0, v, {1, 0, 2}); });
  agrees([](const Variable& v) { return esp::mean(v, {1}) + esp::sum(esp::ones_like(v), {1}); });
  agrees([](const Variable& v) { return esp::softmax(esp::matmul(v, esp::transpose(v))); });
  // A fixed number that does not fit a batch is an error of that operation.
  const Variable fixed = esp::slice(x, 1, 0, 5);
  const int line = __LINE__ - 1;
  BOOST_CHECK_EXCEPTION(fixed.get_executor().run({{"x", in}}), esp::IndexError,
                        says({"slice", "open_axes_test.cpp:" + std::to_string(line)}));
}

// Three of them stand for more rows than libraries can index.
BOOST_AUTO_TEST_CASE(products_of_merged_open_axes) {
  const Variable x = esp::placeholder("x", {-1, -1, -1, 3}), w = esp::ones({3, 2});
  const Variable y = esp::sum(esp::matmul(esp::reshape(x, {-1, 3}), w));
  BOOST_TEST(y.get_executor().run({{"x", esp::ones({2, 4, 5, 3})}}).item() == 240);
  BOOST_TEST(y.gradient(x).get_executor().run({{"x", esp::ones({2, 4, 5, 3})}}).shape() ==
             esp::Shape({2, 4, 5, 3}));
}

BOOST_AUTO_TEST_CASE(eager_trees_embed_no_size_either) {
  esp::data::Distributor feed(std::make_shared<Sequences>(), {.batch_size = 2});
  const auto [x, y] = feed.get_output_graphs<2>();
  const Variable mean = esp::sum(x, {1}) / static_cast<double>(esp::nominal_size);
  const int line = __LINE__ - 1;
  const auto refused = says({"'constant'", "open axis", "open_axes_test.cpp:" + std::to_string(line)});
  BOOST_CHECK_EXCEPTION(mean.forward(), esp::UnsupportedError, refused);
  BOOST_CHECK_EXCEPTION((void)mean.value(), esp::UnsupportedError, refused);
  BOOST_CHECK_EXCEPTION((void)esp::sum(mean).item(), esp::UnsupportedError, refused);
  BOOST_TEST(esp::mean(x, {1}).forward().value().at<float>({1, 0}) ==
             2);  // both elements are the row's number
}

BOOST_AUTO_TEST_CASE(errors_show_open_axes_as_they_were_written) {
  const Variable x = esp::placeholder("x", {-1, -1, 3}), y = esp::placeholder("y", {-1, 5});
  const auto says_open = [](std::initializer_list<std::string> parts) {
    return [shows = says(parts)](const esp::Error& error) {
      return shows(error) && std::string(error.what()).find("17389") == std::string::npos &&
             std::string(error.what()).find(std::to_string(esp::nominal_size * 3)) == std::string::npos;
    };
  };
  BOOST_CHECK_EXCEPTION(x + y, esp::ShapeError, says_open({"[-1, -1, 3]", "[-1, 5]", here()}));
  BOOST_CHECK_EXCEPTION(esp::matmul(x, y), esp::ShapeError, says_open({"[-1, -1, 3]", "3 and -1", here()}));
  BOOST_CHECK_EXCEPTION(esp::concat({x, y}), esp::ShapeError, says_open({"[-1, 5]", here()}));
  BOOST_CHECK_EXCEPTION(esp::flatten(x, 1) + y, esp::ShapeError, says_open({"[-1, -1]", "[-1, 5]", here()}));
  BOOST_CHECK_EXCEPTION(esp::mean_squared_error(x, y), esp::ShapeError, says_open({"[-1, 5]", here()}));
  BOOST_CHECK_EXCEPTION(esp::squeeze(x, 1), esp::ShapeError, says_open({here()}));
  BOOST_CHECK_EXCEPTION(esp::reshape(x, {-1, 7}), esp::ShapeError, says_open({"[-1, 7]", here()}));
  BOOST_CHECK_EXCEPTION(esp::broadcast_to(y, {2, 5}), esp::ShapeError, says_open({"[-1, 5]", here()}));
  BOOST_CHECK_EXCEPTION(esp::pick(x, esp::cast(y, esp::int64)), esp::ShapeError,
                        says_open({"[-1, 5]", here()}));
}

BOOST_AUTO_TEST_CASE(plans_of_open_trees) {
  const Variable x = esp::placeholder("x", {-1, 3});
  const esp::Executor executor = (x * 2).get_executor();
  BOOST_CHECK_EXCEPTION(executor.plan(), esp::Error, says({"open axes"}));
  executor.warm_up({{"x", {5, 3}}});
  BOOST_TEST(executor.plan().str().find("[5, 3]") != std::string::npos);
  BOOST_CHECK_THROW(executor.warm_up({{"y", {5, 3}}}), esp::DataError);
  BOOST_CHECK_THROW(executor.warm_up({{"x", {5, 4}}}), esp::ShapeError);
  BOOST_CHECK_THROW(executor.warm_up({{"x", {-1, 3}}}), esp::ShapeError);
  BOOST_CHECK_THROW(executor.warm_up({{"x", {5, 3}}}, 0), esp::Error);
  BOOST_CHECK_THROW((x * 2).plan_for({}), esp::UnsupportedError);
}

BOOST_AUTO_TEST_CASE(a_bounded_number_of_plans) {
  const Variable x = esp::placeholder("x", {-1, 3});
  int made = 0;
  const auto counts = esp::custom_op({.name = "counts",
                                      .forward = [](const auto& inputs) { return inputs[0].clone(); },
                                      .infer =
                                          [&](const auto& specs) {
                                            ++made;
                                            return specs[0];
                                          }});
  const esp::Executor executor = counts({x}).get_executor({.mode = esp::Mode::inference, .plan_cache = 2});
  const auto makes = [&](int64_t rows) {
    const int before = made;
    const esp::Tensor in = numbers({rows, 3}).to(esp::float32);
    BOOST_TEST(difference(executor.run({{"x", in}}), in) == 0);
    return made > before;
  };
  BOOST_TEST(makes(1));
  BOOST_TEST(makes(2));
  BOOST_TEST(!makes(1));
  BOOST_TEST(makes(3));
  BOOST_TEST(!makes(1));  // 2 had not been used for longest
  BOOST_TEST(makes(4));
  BOOST_TEST(!makes(1));
  BOOST_TEST(makes(2));
  const esp::Executor one = counts({x}).get_executor({.mode = esp::Mode::inference, .plan_cache = 1});
  for (int64_t rows = 1; rows < 5; ++rows) {
    (void)one.run({{"x", esp::full({rows, 3}, rows)}});
    BOOST_TEST(one.value().at<float>({rows - 1, 2}) == static_cast<float>(rows));
  }
  BOOST_CHECK_THROW(x.get_executor({.plan_cache = 0}), esp::Error);
}

BOOST_AUTO_TEST_CASE(nothing_is_measured_while_serving) {
  const Variable x = esp::placeholder("x", {-1, 37}), w = esp::parameter(esp::ones({37, 41}));
  const esp::Executor executor =
      esp::matmul(x, w).get_executor({.mode = esp::Mode::inference, .tune = false});
  const auto measured = [](auto&& f) {
    const int64_t before = esp::gemm_choices().measurements();
    f();
    return esp::gemm_choices().measurements() - before;
  };
  BOOST_TEST(measured([&] { (void)executor.run({{"x", esp::ones({19, 37})}}); }) == 0);
  BOOST_TEST(measured([&] { executor.warm_up({{"x", {23, 37}}}); }) == 1);
  BOOST_TEST(measured([&] {
               const esp::Tensor out = executor.run({{"x", esp::ones({23, 37})}});
               BOOST_TEST(out.at<float>({22, 40}) == 37);
             }) == 0);
}

BOOST_AUTO_TEST_CASE(batches_of_ever_new_sizes_are_measured_no_more) {
  const Variable x = esp::placeholder("x", {-1, 39}), w = esp::parameter(esp::ones({39, 43}));
  const esp::Executor executor = esp::matmul(x, w).get_executor({.mode = esp::Mode::inference});
  int64_t before = esp::gemm_choices().measurements();
  for (int64_t rows = 100; rows < 116; ++rows) (void)executor.run({{"x", esp::ones({rows, 39})}});
  BOOST_TEST(esp::gemm_choices().measurements() == before + 16);
  before = esp::gemm_choices().measurements();
  for (int64_t rows = 116; rows < 120; ++rows)
    BOOST_TEST(executor.run({{"x", esp::ones({rows, 39})}}).at<float>({rows - 1, 0}) == 39);
  BOOST_TEST(esp::gemm_choices().measurements() == before);
  executor.warm_up({{"x", {120, 39}}});
  BOOST_TEST(esp::gemm_choices().measurements() == before + 1);
}

BOOST_AUTO_TEST_CASE(names_given_twice) {
  const Variable x = esp::placeholder("x", {2}), y = esp::placeholder("x", {2});
  BOOST_CHECK_EXCEPTION((x + y).get_executor(), esp::DataError,
                        says({"two placeholders are named 'x'", "open_axes_test.cpp"}));
  const esp::Executor executor = (x * 2).get_executor();
  BOOST_CHECK_EXCEPTION(executor.run({{"x", esp::ones({2})}, {"x", esp::zeros({2})}}), esp::DataError,
                        says({"'x' was given twice"}));
}

/// The sizes that stand for open ones are larger than any machine's memory.
BOOST_AUTO_TEST_CASE(an_open_placeholder_has_no_value) {
  const Variable x = esp::placeholder("img", {-1, 3, -1, -1}), y = esp::mean(esp::square(x));
  const auto none = says({"placeholder 'img' has no value of its own", "open_axes_test.cpp"});
  BOOST_CHECK_EXCEPTION((void)x.value(), esp::DataError, none);
  BOOST_CHECK_EXCEPTION((void)y.value(), esp::DataError, none);
  BOOST_CHECK_EXCEPTION(y.forward(), esp::DataError, none);
}

/// Products of open sizes are more than libraries can index, and those of batches are not.
BOOST_AUTO_TEST_CASE(many_open_axes) {
  const esp::nn::Dense dense(8, 3);
  const esp::nn::Conv3d conv(2, 3, {.kernel = 3}), again(3, 2, {.kernel = 3});
  const esp::nn::Lstm lstm(8, 5);
  const auto check = [](const auto& layer, const esp::Shape& open, const esp::Shape& shape) {
    const esp::Executor executor = layer(esp::placeholder("x", open)).get_executor();
    const esp::Tensor x = esp::testing::numbers(shape, -1, 1, 5).to(esp::float32);
    const esp::Tensor y = executor.run({{"x", x}});
    BOOST_TEST(esp::testing::difference(y, layer(Variable(x)).value()) < 1e-5);
  };
  check(dense, {-1, -1, -1, 8}, {2, 3, 4, 8});
  check(dense, {16, -1, -1, 8}, {16, 3, 4, 8});
  check([&](const Variable& x) { return again(conv(x)); }, {-1, 2, -1, -1, -1}, {2, 2, 6, 7, 5});
  check(
      [&](const Variable& x) {
        return lstm(esp::reshape(x, {-1, 4, 8})).outputs;
      },
      {16, -1, -1, 8}, {16, 3, 4, 8});
}

BOOST_AUTO_TEST_CASE(open_axes_in_a_scan) {
  const esp::nn::Dense dense(8, 8);
  const auto tree = [&](const Variable& x) {
    return esp::mean(esp::scan(
                         [&](const auto& s, const auto& in) -> esp::ScanResult {
                           return {{esp::tanh(dense(dense(in[0]))) + s[0]}, {}};
                         },
                         {x[0] * 0}, {x})
                         .state[0]);
  };
  const esp::Tensor x = esp::testing::numbers({3, 4, 5, 8}, -1, 1, 5).to(esp::float32);
  const esp::Executor executor = tree(esp::placeholder("x", {3, 4, -1, 8})).get_executor();
  BOOST_TEST(std::abs(executor.run({{"x", x}}).item() - tree(Variable(x)).item()) < 1e-5);
}

/// Their gradients are joined, and have the batch on another axis than the first.
BOOST_AUTO_TEST_CASE(gathers_along_another_axis_than_the_batch) {
  const auto loss_of = [](const Variable& x, const Variable& w) {
    const Variable v = esp::transpose(x * w);
    const auto at = [&](const esp::Tensor& i) { return esp::gather(v, i, 0); };
    return esp::mean(at(esp::tensor({1, 3})) * at(esp::tensor({2, 0})) *
                     esp::mean(at(esp::tensor({{1, 2, 3}, {2, 3, 0}})), {0, 1})) +
           esp::mean(at(esp::tensor(int64_t{2})) * at(esp::tensor(int64_t{1})));
  };
  const auto trained = [&](bool open, int replicas, int accumulate) {
    const Variable w = esp::parameter(esp::testing::numbers({4}, 0.5, 1, 2), "w");
    const esp::Tensor data = esp::testing::numbers({7, 4}, -1, 1, 1);
    const esp::ExecutorOptions how{
        .optimizer = esp::optim::Sgd(0.5),
        .devices = std::vector<esp::Device>(static_cast<size_t>(replicas), esp::cpu()),
        .accumulate = accumulate};
    if (open) {
      const esp::Executor executor =
          loss_of(esp::placeholder("x", {-1, 4}, esp::float64), w).get_executor(how);
      for (const int64_t begin : {0, 4})
        (void)executor.run({{"x", data.slice(0, begin, std::min<int64_t>(7, begin + 4))}});
    } else {
      const esp::data::Distributor feed({data}, {.batch_size = 4});
      (void)loss_of(feed.get_output_graphs()[0], w).get_executor(how).execute({.progress = false});
    }
    return w.value().clone();
  };
  const Variable w = esp::parameter(esp::testing::numbers({4}, 0.5, 1, 2), "w");
  for (const int64_t begin : {0, 4}) {
    const esp::Tensor data = esp::testing::numbers({7, 4}, -1, 1, 1);
    const Variable loss = loss_of(data.slice(0, begin, std::min<int64_t>(7, begin + 4)), w);
    loss.backward();
    loss.update(esp::optim::Sgd(0.5));
  }
  BOOST_TEST(esp::testing::difference(trained(true, 1, 1), w.value()) < 1e-14);
  BOOST_TEST(esp::testing::difference(trained(false, 1, 1), w.value()) < 1e-14);
  BOOST_TEST(esp::testing::difference(trained(false, 2, 1), w.value()) < 1e-14);
  BOOST_TEST(esp::testing::difference(trained(false, 1, 2), w.value()) < 1e-14);
}

BOOST_AUTO_TEST_CASE(a_dataset_must_tell_a_size_for_each_open_axis) {
  struct Wrong : Sequences {
    explicit Wrong(std::vector<int64_t> told) : told(std::move(told)) {}
    std::vector<int64_t> open_sizes(std::span<const int64_t>) const override { return told; }
    std::vector<int64_t> told;
  };
  for (const std::vector<int64_t>& told : {std::vector<int64_t>{}, {2, 2}, {-1}}) {
    const esp::data::Distributor feed(std::make_shared<Wrong>(told), {.batch_size = 3});
    const Variable total = esp::sum(feed.get_output_graphs()[0]);
    BOOST_CHECK_EXCEPTION(total.forward(), esp::DataError,
                          says({"1 open axes gave " + std::to_string(told.size()) + " sizes"}));
  }
}

BOOST_AUTO_TEST_SUITE_END()
