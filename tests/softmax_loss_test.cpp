// Softmax, losses, and ops that draw random numbers.
#include <boost/test/unit_test.hpp>

#include <cmath>

#include "espalier/core/error.h"
#include "espalier/core/node.h"
#include "espalier/core/random.h"
#include "espalier/data/distributor.h"
#include "espalier/executor/executor.h"
#include "espalier/nn/losses.h"
#include "espalier/ops/ops.h"
#include "espalier/optim/sgd.h"
#include "testing.h"

namespace esp = espalier;
using namespace espalier::testing;

namespace {

/// log softmax along an axis by definition; for small inputs only.
Array log_softmax(const Array& x, size_t axis) {
  return Array(x.shape, [&](const Index& at) {
    double sum = 0;
    for (int64_t k = 0; k < x.shape.dims()[axis]; ++k) {
      Index i = at;
      i[axis] = k;
      sum += std::exp(x(i));
    }
    return x(at) - std::log(sum);
  });
}
Array softmax(const Array& x, size_t axis) {
  const Array logs = log_softmax(x, axis);
  return Array(x.shape, [&](const Index& i) { return std::exp(logs(i)); });
}

double sum_of(const esp::Tensor& x) {
  double sum = 0;
  for (double v : Array(x).values) sum += v;
  return sum;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(softmax_and_losses)

BOOST_AUTO_TEST_CASE(softmaxes) {
  for (const auto& [shape, axis, place] : {std::tuple<esp::Shape, int64_t, size_t>{{3, 5}, -1, 1},
                                           {{3, 5}, 0, 0},
                                           {{2, 3, 4}, 1, 1},
                                           {{40}, 0, 0},
                                           {{2, 1}, 1, 1},
                                           {{0, 3}, 1, 1},
                                           {{3, 0}, 1, 1}}) {
    check_op({.name = "softmax",
              .op = [&](const Variables& x) { return esp::softmax(x[0], axis); },
              .inputs = {numbers(shape)},
              .reference = [&](const std::vector<Array>& in) { return softmax(in[0], place); }});
    check_op({.name = "log_softmax",
              .op = [&](const Variables& x) { return esp::log_softmax(x[0], axis); },
              .inputs = {numbers(shape)},
              .reference = [&](const std::vector<Array>& in) { return log_softmax(in[0], place); }});
  }
}

BOOST_AUTO_TEST_CASE(large_inputs_do_not_overflow) {
  const esp::Tensor x = esp::tensor({{1000.0f, 1001.0f}, {-1000.0f, -1001.0f}, {0.0f, -INFINITY}});
  const double e = std::exp(1.0);
  const esp::Tensor y = esp::softmax(x).value();
  BOOST_TEST(y.at<float>({0, 1}) == e / (1 + e), boost::test_tools::tolerance(1e-6));
  BOOST_TEST(y.at<float>({1, 0}) == e / (1 + e), boost::test_tools::tolerance(1e-6));
  BOOST_TEST(y.at<float>({2, 0}) == 1);
  BOOST_TEST(y.at<float>({2, 1}) == 0);
  const esp::Tensor logs = esp::log_softmax(x).value();
  BOOST_TEST(logs.at<float>({0, 0}) == -std::log(1 + e), boost::test_tools::tolerance(1e-6));
  BOOST_TEST(logs.at<float>({2, 1}) == -INFINITY);
  BOOST_TEST(std::isnan(esp::softmax(esp::tensor({1.0f, NAN})).value().at<float>({0})));
  BOOST_CHECK_EXCEPTION(esp::softmax(1.0), esp::ShapeError, says({"softmax", here()}));
  BOOST_CHECK_EXCEPTION(esp::softmax(x, 2), esp::ShapeError, says({"softmax", "axis 2", here()}));
  BOOST_CHECK_EXCEPTION(esp::log_softmax(x, -3), esp::ShapeError, says({"log_softmax", "axis -3", here()}));
  BOOST_CHECK_EXCEPTION(esp::softmax(esp::tensor({1, 2})), esp::TypeError,
                        says({"softmax", "int64", here()}));
}

BOOST_AUTO_TEST_CASE(mean_squared_error) {
  for (const esp::Shape& shape : {esp::Shape{3, 4}, {5}, {}})
    check_op({.name = "mean_squared_error",
              .op = [](const Variables& x) { return esp::mean_squared_error(x[0], x[1]); },
              .inputs = {numbers(shape), numbers(shape, -2, 2, 1)},
              .reference =
                  [](const std::vector<Array>& in) {
                    double sum = 0;
                    for (size_t i = 0; i < in[0].values.size(); ++i)
                      sum += std::pow(in[0].values[i] - in[1].values[i], 2);
                    return Array(
                        {}, [&](const Index&) { return sum / static_cast<double>(in[0].values.size()); });
                  }});
  const esp::Variable a = esp::ones({2, 1}), b = esp::ones({2});
  BOOST_CHECK_EXCEPTION(esp::mean_squared_error(a, b), esp::ShapeError,
                        says({"mean_squared_error", "[2, 1]", "[2]", here()}));
  BOOST_CHECK_EXCEPTION(esp::mean_squared_error(b, esp::ones({2}, esp::float64)), esp::TypeError,
                        says({"float32", "float64", here()}));
}

BOOST_AUTO_TEST_CASE(softmax_cross_entropy) {
  const Reference by_label = [](const std::vector<Array>& in) {
    const Array logs = log_softmax(in[0], 1);
    double sum = 0;
    for (size_t i = 0; i < in[1].values.size(); ++i)
      sum -= logs({static_cast<int64_t>(i), static_cast<int64_t>(in[1].values[i])});
    return Array({}, [&](const Index&) { return sum / static_cast<double>(in[1].values.size()); });
  };
  const auto op = [](const Variables& x) { return esp::softmax_cross_entropy(x[0], x[1]); };
  check_op({.name = "softmax_cross_entropy",
            .op = op,
            .inputs = {numbers({3, 4}), esp::tensor({2, 0, 3})},
            .reference = by_label});
  check_op({.name = "softmax_cross_entropy, labels in a column",
            .op = op,
            .inputs = {numbers({3, 4}), esp::tensor({{2}, {0}, {3}}, esp::int32)},
            .reference = by_label});
  check_op({.name = "softmax_cross_entropy, one row",
            .op = op,
            .inputs = {numbers({1, 4}), esp::tensor({2})},
            .reference = by_label});
  const Variables row{numbers({1, 4}), esp::tensor({2})};
  BOOST_TEST(op(row).node()->op().name() == "log_softmax_pick");
  check_op({.name = "softmax_cross_entropy, sequences",
            .op =
                [](const Variables& x) {
                  return esp::softmax_cross_entropy(x[0], x[1], {.reduction = esp::LossReduction::none});
                },
            .inputs = {numbers({2, 3, 4}), esp::tensor({{2, 0, 3}, {1, 1, 0}})},
            .reference =
                [](const std::vector<Array>& in) {
                  const Array logs = log_softmax(in[0], 2);
                  return Array({2, 3}, [&](const Index& i) {
                    return -logs({i[0], i[1], static_cast<int64_t>(in[1](i))});
                  });
                }});
  check_op({.name = "softmax_cross_entropy, probabilities",
            .op = op,
            .inputs = {numbers({3, 4}), numbers({3, 4}, 0, 1, 1)},
            .reference = [](const std::vector<Array>& in) {
              const Array logs = log_softmax(in[0], 1);
              double sum = 0;
              for (size_t i = 0; i < logs.values.size(); ++i) sum -= logs.values[i] * in[1].values[i];
              return Array({}, [&](const Index&) { return sum / 3; });
            }});
  const esp::Variable x = esp::ones({3, 4});
  BOOST_CHECK_EXCEPTION(esp::softmax_cross_entropy(x, esp::tensor({1, 4, 0})), esp::IndexError,
                        says({"softmax_cross_entropy: label 4 of row 1", here()}));
  BOOST_CHECK_EXCEPTION(esp::softmax_cross_entropy(x, esp::tensor({1, -1, 0})), esp::IndexError,
                        says({"softmax_cross_entropy: label -1 of row 1", here()}));
  BOOST_CHECK_EXCEPTION(esp::softmax_cross_entropy(x, esp::tensor({true, false, true})), esp::TypeError,
                        says({"softmax_cross_entropy", "bool", here()}));
  const esp::Variable labels = esp::placeholder("labels", {3}, esp::int64),
                      w = esp::parameter(esp::ones({3, 4}));
  const esp::Variable loss = esp::softmax_cross_entropy(w, labels);
  for (const esp::Executor& executor : {loss.get_executor({.mode = esp::Mode::inference}),
                                        loss.get_executor({.optimizer = esp::optim::Sgd(0.1)})})
    BOOST_CHECK_EXCEPTION(executor.run({{"labels", esp::tensor({1, 4, 0})}}), esp::IndexError,
                          says({"softmax_cross_entropy: label 4 of row 1", "softmax_loss_test.cpp"}));
  BOOST_CHECK_EXCEPTION(esp::softmax_cross_entropy(x, esp::tensor({1, 2})), esp::ShapeError,
                        says({"softmax_cross_entropy", "[2]", "[3, 4]", here()}));
  BOOST_CHECK_EXCEPTION(esp::softmax_cross_entropy(x, esp::ones({3})), esp::ShapeError,
                        says({"softmax_cross_entropy", "[3]", here()}));
  BOOST_TEST(std::abs(esp::softmax_cross_entropy(esp::ones({4}), 1).item() - std::log(4)) < 1e-6);
  BOOST_CHECK_EXCEPTION(esp::softmax_cross_entropy(1.5, 1), esp::ShapeError, says({"[]", here()}));
  BOOST_CHECK_EXCEPTION(esp::softmax_cross_entropy(x, esp::tensor({true, true, false})), esp::TypeError,
                        says({"bool", here()}));
}

/// The cross entropy of every row as PyTorch defines it, and by how much the row counts in the mean.
struct Row {
  double loss, count;
};
Row cross_entropy_of(const Array& logs, const std::vector<double>& weights, const std::vector<double>& target,
                     size_t row, double smoothing, double count) {
  const size_t classes = weights.size();
  double loss = 0;
  for (size_t k = 0; k < classes; ++k) {
    const double p = target[k] * (1 - smoothing) + smoothing / static_cast<double>(classes);
    loss -= weights[k] * p * logs.values[row * classes + k];
  }
  return {loss, count};
}

BOOST_AUTO_TEST_CASE(cross_entropy_with_options) {
  const std::vector<double> weights = {0.5, 2, 1.5, 0};
  const esp::Tensor w = esp::tensor({0.5, 2.0, 1.5, 0.0}, esp::float64);
  const std::vector<int64_t> labels = {2, 0, -7, 1, 3, 2};
  for (const double smoothing : {0.0, 0.3})
    for (const bool weighted : {false, true})
      for (const bool ignoring : {false, true})
        for (const auto reduction :
             {esp::LossReduction::mean, esp::LossReduction::sum, esp::LossReduction::none}) {
          const esp::Tensor y =
              esp::tensor_from(ignoring ? labels : std::vector<int64_t>{2, 0, 1, 1, 3, 2}, {3, 2});
          const auto options = [=](const esp::Variable& class_weights) {
            return esp::CrossEntropyOptions{
                .class_weights = class_weights,
                .ignored_label = ignoring ? std::optional<int64_t>(-7) : std::nullopt,
                .label_smoothing = smoothing,
                .reduction = reduction};
          };
          const Reference reference = [=](const std::vector<Array>& in) {
            const Array logs = log_softmax(in[0], 2);
            const std::vector<double> each = weighted ? weights : std::vector<double>(4, 1.0);
            std::vector<double> losses;
            double total = 0, count = 0;
            for (size_t r = 0; r < 6; ++r) {
              const double label = in[1].values[r];
              std::vector<double> target(4, 0.0);
              if (label >= 0) target[static_cast<size_t>(label)] = 1;
              const Row row = label < 0 ? Row{0, 0}
                                        : cross_entropy_of(logs, each, target, r, smoothing,
                                                           each[static_cast<size_t>(label)]);
              losses.push_back(row.loss), total += row.loss, count += row.count;
            }
            if (reduction == esp::LossReduction::none)
              return Array({3, 2},
                           [&](const Index& i) { return losses[static_cast<size_t>(i[0] * 2 + i[1])]; });
            return Array({}, [&](const Index&) {
              return reduction == esp::LossReduction::sum ? total : total / count;
            });
          };
          // A fold of the rows rounds once more where float32 sums are compared with 16 bits.
          check_op(
              {.name = "softmax_cross_entropy with options",
               .op =
                   [=](const Variables& x) {
                     return esp::softmax_cross_entropy(
                         x[0], x[1],
                         options(weighted ? esp::cast(w, x[0].dtype()).to(x[0].device()) : esp::Variable()));
                   },
               .inputs = {numbers({3, 2, 4}), y},
               .reference = reference,
               .roundings = 2});
        }
}

BOOST_AUTO_TEST_CASE(cross_entropy_options_are_checked) {
  const esp::Variable x = esp::ones({3, 4}), y = esp::tensor({1, 2, 3});
  const auto refused = [&]<class E>(const esp::CrossEntropyOptions& options,
                                    std::initializer_list<std::string> words, const E*) {
    BOOST_CHECK_EXCEPTION(esp::softmax_cross_entropy(x, y, options), E, says(words));
  };
  refused({.label_smoothing = 1.5}, {"label_smoothing", "1.5"}, static_cast<esp::Error*>(nullptr));
  refused({.label_smoothing = NAN}, {"label_smoothing", "nan"}, static_cast<esp::Error*>(nullptr));
  refused({.class_weights = esp::ones({3})}, {"[3]", "[3, 4]"}, static_cast<esp::ShapeError*>(nullptr));
  refused({.class_weights = esp::ones({4}, esp::int64)}, {"int64"}, static_cast<esp::TypeError*>(nullptr));
  for (const float weight : {-0.5f, NAN, INFINITY})
    refused({.class_weights = esp::tensor({1.0f, 1.0f, weight, 1.0f})},
            {"softmax_cross_entropy", "class weight",
             std::isnan(weight)   ? "nan"
             : std::isinf(weight) ? "inf"
                                  : "-0.5"},
            static_cast<esp::Error*>(nullptr));
  BOOST_CHECK_EXCEPTION(esp::softmax_cross_entropy(x, x, {.ignored_label = 0}), esp::Error,
                        says({"ignored_label", here()}));
  BOOST_TEST(std::isnan(esp::softmax_cross_entropy(x, y * 0, {.ignored_label = 0}).item()));
  const esp::Variable logits = esp::variable(numbers({2, 3})), nothing = esp::zeros({2}, esp::int64);
  const auto slope = [&](esp::LossReduction reduction) {
    const esp::Variable loss =
        esp::softmax_cross_entropy(logits, nothing, {.ignored_label = 0, .reduction = reduction});
    loss.backward();
    return esp::sum(loss.gradient(logits)).item();
  };
  BOOST_TEST(std::isnan(slope(esp::LossReduction::mean)));
  BOOST_TEST(slope(esp::LossReduction::sum) == 0);
  const esp::nn::SoftmaxCrossEntropy smooth({.label_smoothing = 0.1});
  BOOST_TEST(smooth(x, y).item() == esp::softmax_cross_entropy(x, y, {.label_smoothing = 0.1}).item());
}

BOOST_AUTO_TEST_CASE(sixteen_bit_losses_round_once) {
  const esp::Variable x = esp::cast(esp::tensor({{1.0f, 2.0f, 3.0f}}), esp::bfloat16);
  const double exact = std::log(std::exp(-2.0) + std::exp(-1.0) + 1) + 0;
  const esp::Tensor loss = esp::softmax_cross_entropy(x, esp::tensor({2})).value();
  BOOST_TEST((loss.dtype() == esp::bfloat16));
  BOOST_TEST(loss.item() == esp::tensor(exact, esp::bfloat16).item());
  const esp::Variable large = esp::cast(esp::tensor({200.0f, 300.0f}), esp::float16);
  BOOST_TEST(esp::mean_squared_error(large, large - 100.0).item() == 10000);
  BOOST_TEST(esp::mean_squared_error(large, large * 0.5).item() == 16248);  // 16250 between 16240 and 16256
}

// The logarithm of the sum of a long row has three digits in 16 bits: gradients would be wrong by percents.
BOOST_AUTO_TEST_CASE(sixteen_bit_gradients_of_long_rows_are_exact_to_16_bits) {
  constexpr int64_t classes = 3000;
  const esp::Tensor logits = numbers({4, classes}, -1, 1, 3).to(esp::bfloat16);
  const esp::Tensor labels = esp::tensor({5, 0, 2999, 17});
  const auto slope = [&](esp::DType dtype, esp::Device device) {
    const esp::Variable x = esp::parameter(logits.to(dtype).to(device), "x");
    const esp::Variable loss = esp::sum(esp::pick(esp::log_softmax(x), labels.to(device)));
    const esp::Variable both = loss.gradient(x) + loss * 0.0;  // one kernel needs the statistics of the other
    const esp::Executor executor = both.get_executor({.mode = esp::Mode::inference, .devices = {device}});
    executor.execute({.progress = false});
    BOOST_TEST(executor.plan().str().find("log_softmax_pick_gradient") != std::string::npos);
    return executor.value().to(esp::cpu()).to(esp::float64).contiguous_copy();
  };
  const esp::Tensor exact = slope(esp::float64, esp::cpu());
  std::vector<esp::Device> devices = esp::all_gpus();
  devices.push_back(esp::cpu());
  for (const esp::Device device : devices) {
    const esp::Tensor found = slope(esp::bfloat16, device);
    double worst = 0;
    for (size_t i = 0; i < 4 * classes; ++i)
      worst = std::max(worst, std::abs(found.span<double>()[i] / exact.span<double>()[i] - 1));
    BOOST_TEST(worst < 1.0 / 256, device);  // half a unit of bfloat16
  }
}

BOOST_AUTO_TEST_CASE(dropout_zeroes_and_scales) {
  for (esp::DType dtype : {esp::float32, esp::float64})
    for (double rate : {0.1, 0.5, 0.9}) {
      esp::seed(5);
      const esp::Tensor y = esp::dropout(esp::ones({200, 500}, dtype), rate).value();
      double zeros = 0, n = 100'000;
      for (double v : Array(y).values) {
        zeros += v == 0;
        if (v != 0) BOOST_REQUIRE_CLOSE(v, 1 / (1 - rate), 1e-4);
      }
      BOOST_TEST(std::abs(zeros / n - rate) < 5 * std::sqrt(rate * (1 - rate) / n));
    }
  const esp::Variable x = esp::variable(numbers({50}));
  BOOST_TEST(esp::dropout(x, 0).node() == x.node());
  BOOST_TEST(esp::dropout(esp::zeros({0, 3}), 0.5).shape() == esp::Shape({0, 3}));
  BOOST_CHECK_EXCEPTION(esp::dropout(x, 1), esp::Error, says({"dropout", "1", here()}));
  BOOST_CHECK_EXCEPTION(esp::dropout(x, -0.1), esp::Error, says({"dropout", "-0.1", here()}));
  BOOST_CHECK_THROW(esp::dropout(x, NAN), esp::Error);
  BOOST_CHECK_EXCEPTION(esp::dropout(esp::tensor({1, 2}), 0.5), esp::TypeError,
                        says({"dropout", "int64", here()}));
}

BOOST_AUTO_TEST_CASE(dropout_has_one_mask_for_value_and_gradient) {
  esp::seed(6);
  const esp::Variable x = esp::variable(numbers({64}, 1, 2));
  const esp::Variable y = esp::dropout(x, 0.5);
  const esp::Tensor mask = (y / x).value();
  BOOST_TEST(difference(mask, y.gradient(x).value()) < 1e-14);
  const esp::Variable s = esp::sum(esp::square(esp::dropout(x * 1.5, 0.5)));
  const esp::Variable g = s.gradient(x);  // a released mask is drawn again with the same numbers
  BOOST_TEST(sum_of((g * x).value()) == 2 * s.item(), boost::test_tools::tolerance(1e-12));
}

BOOST_AUTO_TEST_CASE(dropout_draws_the_same_eagerly_and_frozen) {
  const esp::Tensor data = numbers({30, 7});
  esp::seed(7);
  std::vector<esp::Tensor> eager;
  for (int step = 0; step < 3; ++step)
    eager.push_back(esp::dropout(esp::dropout(data, 0.3) * 2, 0.5).value());
  esp::seed(7);
  const esp::Variable x = esp::placeholder("x", {30, 7}, esp::float64),
                      w = esp::parameter(esp::ones({7}, esp::float64));
  const esp::Variable y = esp::dropout(esp::dropout(x * w, 0.3) * 2, 0.5);
  const esp::Executor training =
      y.get_executor({.mode = esp::Mode::training, .optimizer = esp::optim::Sgd(0.0)});
  for (int step = 0; step < 3; ++step)
    BOOST_TEST(difference(eager[static_cast<size_t>(step)], training.run({{"x", data}})) == 0);
  const esp::Executor inference = y.get_executor({.mode = esp::Mode::inference});
  BOOST_TEST(difference((esp::Variable(data) * 2).value(), inference.run({{"x", data}})) == 0);
  // Inference has not drawn any numbers.
  const esp::Tensor next = esp::dropout(data, 0.3).value();
  esp::seed(7);
  for (int i = 0; i < 6; ++i) (void)esp::dropout(data, 0.3);
  BOOST_TEST(difference(next, esp::dropout(data, 0.3).value()) == 0);
}

BOOST_AUTO_TEST_CASE(losses_of_probabilities_and_of_many_labels) {
  const std::vector<int64_t> labels{2, 0, 3};
  check_op({.name = "categorical_cross_entropy",
            .op =
                [=](const Variables& v) {
                  return esp::categorical_cross_entropy(v[0],
                                                        esp::tensor_from(labels, {3}).to(v[0].device()));
                },
            .inputs = {numbers({3, 4}, 0.1, 0.9)},
            .reference =
                [=](const std::vector<Array>& in) {
                  double sum = 0;
                  for (int64_t row = 0; row < 3; ++row)
                    sum -= std::log(in[0]({row, labels[static_cast<size_t>(row)]}));
                  return Array({}, [&](const Index&) { return sum / 3; });
                },
            .roundings = 3});
  check_op({.name = "multilabel_soft_margin_loss",
            .op = [](const Variables& v) { return esp::multilabel_soft_margin_loss(v[0], v[1]); },
            .inputs = {numbers({2, 3}), numbers({2, 3}, 0.1, 0.9, 1)},
            .reference =
                [](const std::vector<Array>& in) {
                  double sum = 0;
                  each_index(in[0].shape, [&](const Index& i) {
                    sum += std::log1p(std::exp(-in[0](i))) + (1 - in[1](i)) * in[0](i);
                  });
                  return Array({}, [&](const Index&) { return sum / 6; });
                },
            .differentiable = {0},
            .roundings = 3});
}

BOOST_AUTO_TEST_CASE(labels_that_do_not_fit) {
  const esp::Variable y(numbers({4, 3}, -1, 1));
  BOOST_CHECK_EXCEPTION(esp::softmax_cross_entropy(y, esp::zeros({4, 3}, esp::int64)), esp::ShapeError,
                        says({"cast(labels, float64)", "argmax(labels, -1)", here()}));
  BOOST_CHECK_EXCEPTION(esp::categorical_cross_entropy(esp::softmax(y), esp::zeros({4}, esp::float64)),
                        esp::ShapeError, says({"cast(labels, int64)", here()}));
  const esp::Tensor outside = esp::tensor({0, 1, 12, 2});
  const esp::data::Distributor feed({y.value(), outside}, {.batch_size = 4});
  const auto [a, b] = feed.get_output_graphs<2>();
  BOOST_CHECK_EXCEPTION(esp::softmax_cross_entropy(y, outside), esp::IndexError,
                        says({"label 12 of row 2 is outside the 3 classes", here()}));
  BOOST_CHECK_EXCEPTION(esp::softmax_cross_entropy(a, b).get_executor().step(), esp::IndexError,
                        says({"softmax_cross_entropy: label 12 of row 2", here()}));
  BOOST_CHECK_EXCEPTION(esp::pick(y, outside), esp::IndexError, says({"pick: index 12", here()}));
}

BOOST_AUTO_TEST_SUITE_END()
