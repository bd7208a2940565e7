// Connectionist temporal classification: against all paths written out, and PyTorch's figures.
#include "espalier/ops/functions/ctc.h"

#include <boost/test/unit_test.hpp>

#include <cmath>
#include <limits>

#include "espalier/core/error.h"
#include "espalier/data/distributor.h"
#include "espalier/executor/executor.h"
#include "espalier/nn/ctc_loss.h"
#include "espalier/ops/ops.h"
#include "espalier/optim/sgd.h"
#include "replica_programs.h"
#include "testing.h"

namespace esp = espalier;
using namespace espalier::testing;
using esp::LossReduction;
using esp::Tensor;
using esp::Variable;

namespace {

constexpr double inf = std::numeric_limits<double>::infinity();

/// Labels without repetitions and blanks.
std::vector<int64_t> merged(const std::vector<int64_t>& path, int64_t blank) {
  std::vector<int64_t> labels;
  for (size_t t = 0; t < path.size(); ++t)
    if (path[t] != blank && (t == 0 || path[t] != path[t - 1])) labels.push_back(path[t]);
  return labels;
}

/// −log of the sum over all paths that give the labels; x [steps, batch, classes].
Reference over_all_paths(int64_t blank) {
  return [=](const std::vector<Array>& in) {
    const auto count = [&](size_t input, int64_t i) { return static_cast<int64_t>(in[input]({i})); };
    const int64_t classes = in[0].shape[2];
    return Array({in[0].shape[1]}, [&](const Index& row) {
      const int64_t steps = count(2, row[0]);
      std::vector<int64_t> labels, path(static_cast<size_t>(steps), 0);
      for (int64_t i = 0; i < count(3, row[0]); ++i)
        labels.push_back(static_cast<int64_t>(in[1]({row[0], i})));
      double sum = 0;
      for (bool more = true; more;) {
        double log_p = 0;
        for (int64_t t = 0; t < steps; ++t) log_p += in[0]({t, row[0], path[static_cast<size_t>(t)]});
        if (merged(path, blank) == labels) sum += std::exp(log_p);
        more = false;
        for (int64_t& c : path) {
          c = (c + 1) % classes;
          if (c != 0) {
            more = true;
            break;
          }
        }
      }
      return -std::log(sum);
    });
  };
}

struct Figures {
  Variable x = esp::variable(log_probabilities());
  Tensor targets = esp::tensor_from(std::vector<int64_t>{1, 2, 3, 2, 2, 0, 3, 0, 0, 1, 1, 1}, {4, 3});
  Tensor steps = esp::tensor_from(std::vector<int64_t>{5, 4, 3, 4}, {4});
  Tensor labels = esp::tensor_from(std::vector<int64_t>{3, 2, 0, 3}, {4});

  static Tensor log_probabilities() {
    Tensor x(esp::Shape{5, 4, 4}, esp::float64);
    for (int64_t i = 0; i < x.elements(); ++i)
      x.span<double>()[static_cast<size_t>(i)] = 2 * std::sin(0.7 * static_cast<double>(i));
    return x;
  }
  Variable loss(const esp::CtcOptions& options) const {
    return esp::ctc_loss(log_softmax(x, 2), targets, steps, labels, options);
  }
};

}  // namespace

BOOST_AUTO_TEST_SUITE(ctc)

BOOST_AUTO_TEST_CASE(sums_over_all_alignments) {
  for (const int64_t blank : {0, 2})
    check_op(
        {.name = "ctc_loss",
         .op =
             [=](const Variables& in) {
               return esp::ctc_loss(in[0], in[1], in[2], in[3],
                                    {.blank = blank, .reduction = LossReduction::none});
             },
         .inputs = {numbers({4, 3, 3}, -2, -0.2),
                    esp::tensor_from(std::vector<int64_t>{1, blank ? 0 : 2, 1, 1, blank ? 0 : 2, 1}, {3, 2}),
                    esp::tensor_from(std::vector<int64_t>{4, 4, 2}, {3}),
                    esp::tensor_from(std::vector<int64_t>{2, 2, 0}, {3})},
         .reference = over_all_paths(blank),
         .tolerance32 = 4e-6,
         .roundings = 0});
}

BOOST_AUTO_TEST_CASE(figures_of_pytorch) {
  const Figures f;
  const Tensor none = f.loss({.reduction = LossReduction::none}).value();
  const double expected[] = {5.5483, 5.3788, 6.4442, inf};
  for (int64_t i = 0; i < 4; ++i)
    if (i < 3)
      BOOST_TEST(std::abs(none.at<double>({i}) - expected[i]) < 6e-5);
    else
      BOOST_TEST(none.at<double>({i}) == inf);
  BOOST_TEST(f.loss({}).item() == inf);
  const Variable mean = f.loss({.zero_infinity = true});
  BOOST_TEST(std::abs(mean.item() - 2.7458) < 6e-5);
  BOOST_TEST(std::abs(f.loss({.reduction = LossReduction::sum, .zero_infinity = true}).item() - 17.3713) <
             6e-5);
  const Tensor g = mean.gradient(f.x).value();
  const double first[] = {0.003920702785771031, -0.06512500725586075, 0.03432444849315263,
                          0.026879855976937084, 0.05690335996327711,  0.02241336304554659,
                          -0.08565317238109453, 0.006336449372270825, -0.24422782497238854};
  for (int64_t i = 0; i < 9; ++i) BOOST_TEST(std::abs(g.at<double>({0, i / 4, i % 4}) - first[i]) < 1e-14);
  for (int64_t c = 0; c < 4; ++c) {
    BOOST_TEST(g.at<double>({1, 3, c}) == 0);  // no alignment
    BOOST_TEST(g.at<double>({3, 2, c}) == 0);  // behind the last step
  }
  BOOST_TEST(std::abs(g.at<double>({4, 0, 0}) - -0.02682459725872021) < 1e-14);
  // Without zero_infinity: NaN where the row has steps.
  const Tensor wild = f.loss({}).gradient(f.x).value();
  BOOST_TEST(std::isnan(wild.at<double>({0, 3, 2})));
  BOOST_TEST(wild.at<double>({4, 3, 2}) == 0);
}

BOOST_AUTO_TEST_CASE(rows_that_are_left_out_have_no_second_derivatives) {
  const Figures f;
  const Tensor along = numbers({5, 4, 4}, -1, 1);
  const auto second = [&](int64_t rows) {  // of the first `rows`; no labels fit row 3
    const Variable loss = esp::ctc_loss(
        log_softmax(esp::slice(f.x, 1, 0, rows), 2), f.targets.slice(0, 0, rows), f.steps.slice(0, 0, rows),
        f.labels.slice(0, 0, rows), {.reduction = LossReduction::sum, .zero_infinity = true});
    return esp::sum(loss.gradient(f.x) * along).gradient(f.x).value();
  };
  const Tensor all = second(4), others = second(3);
  BOOST_TEST(difference(all, others) < 1e-13);
  for (int64_t t = 0; t < 5; ++t)
    for (int64_t c = 0; c < 4; ++c) BOOST_TEST(all.at<double>({t, 3, c}) == 0);
  BOOST_TEST(std::abs(all.at<double>({0, 0, 0})) > 1e-3);
}

BOOST_AUTO_TEST_CASE(labels_behind_each_other_and_single_sequences) {
  const Figures f;
  const Variable x = log_softmax(f.x, 2);
  const esp::CtcOptions options{.reduction = LossReduction::none};
  const Tensor all = esp::tensor_from(std::vector<int32_t>{1, 2, 3, 2, 2, 1, 1, 1}, {8});
  const Tensor rows = f.loss(options).value();
  BOOST_TEST(difference(esp::ctc_loss(x, all, f.steps, f.labels, options).value(), rows) < 1e-15);
  const Tensor nothing = esp::zeros({4}, esp::int64);
  BOOST_TEST(difference(esp::ctc_loss(x, esp::zeros({0}, esp::int64), f.steps, nothing, options).value(),
                        esp::ctc_loss(x, f.targets, f.steps, nothing, options).value()) < 1e-15);
  const Variable one = esp::nn::CtcLoss(options)(squeeze(slice(x, 1, 0, 1), 1), esp::tensor({1, 2, 3}),
                                                 esp::tensor(int64_t{5}), esp::tensor(int64_t{3}));
  BOOST_TEST(one.rank() == 0u);
  BOOST_TEST(std::abs(one.value().item<double>() - rows.at<double>({0})) < 1e-15);
}

BOOST_AUTO_TEST_CASE(long_rows_keep_their_precision) {
  const int64_t steps = 400;
  const Tensor x = numbers({steps, 1, 30}, -6, 0);
  std::vector<int64_t> labels;
  for (int64_t i = 0; i < 150; ++i) labels.push_back(1 + (i * 7) % 29);
  const auto loss = [&](esp::DType dtype) {
    const Variable v = esp::variable(x.to(dtype));
    const Variable l = esp::ctc_loss(log_softmax(v, 2), esp::tensor_from(labels, {1, 150}),
                                     esp::tensor_from(std::vector<int64_t>{steps}, {1}),
                                     esp::tensor_from(std::vector<int64_t>{150}, {1}));
    return std::pair(l.item(), l.gradient(v).value().to(esp::float64));
  };
  const auto [exact, slopes] = loss(esp::float64);
  const auto [rounded, rounded_slopes] = loss(esp::float32);
  BOOST_TEST(std::abs(rounded - exact) < 1e-5 * exact);
  BOOST_TEST(difference(slopes, rounded_slopes) < 2e-7);
}

BOOST_AUTO_TEST_CASE(trains_alike_eagerly_in_plans_and_on_replicas) {
  const auto train = [](int replicas) {
    std::vector<int64_t> targets;
    for (int64_t i = 0; i < 8; ++i) targets.insert(targets.end(), {1 + i % 3, 1 + (i + 1) % 3});
    esp::data::Distributor feed(
        {numbers({8, 6, 5}, -1, 1), esp::tensor_from(targets, {8, 2}), esp::full({8}, int64_t{6}, esp::int64),
         esp::full({8}, int64_t{2}, esp::int64)},
        {.batch_size = 4});
    const auto [x, labels, steps, counts] = feed.get_output_graphs<4>();
    const Variable w = esp::parameter(numbers({5, 4}), "w");
    const Variable loss =
        esp::ctc_loss(esp::log_softmax(esp::permute(esp::matmul(x, w), {1, 0, 2}), 2), labels, steps, counts);
    if (replicas == 0) {
      for (int i = 0; i < 4; ++i) {
        if (i == 2) feed.reset();
        loss.forward().update(esp::optim::Sgd(0.5));
      }
    } else {
      const auto executor = loss.get_executor(
          {.mode = esp::Mode::training, .optimizer = esp::optim::Sgd(0.5), .devices = cpus(replicas)});
      (void)executor.execute({.epochs = 2, .progress = false});
    }
    return w.value().clone();
  };
  const Tensor eager = train(0);
  BOOST_TEST(difference(train(1), eager) < 1e-12);
  BOOST_TEST(difference(train(2), eager) < 1e-12);
}

BOOST_AUTO_TEST_CASE(wrong_operands) {
  const Figures f;
  const auto loss = [&](const Tensor& targets, const Tensor& steps, const Tensor& labels, int64_t blank = 0) {
    return esp::ctc_loss(f.x, targets, steps, labels, {.blank = blank});
  };
  BOOST_CHECK_THROW(loss(f.targets.to(esp::float32), f.steps, f.labels), esp::TypeError);
  BOOST_CHECK_THROW(loss(f.targets, f.steps, esp::tensor({1, 2})), esp::ShapeError);
  BOOST_CHECK_THROW(loss(f.targets, esp::tensor({5, 4, 6, 4}), f.labels), esp::IndexError);
  BOOST_CHECK_THROW(loss(f.targets, f.steps, esp::tensor({4, 1, 1, 1})), esp::IndexError);
  BOOST_CHECK_THROW(loss(f.targets, f.steps, f.labels, 3), esp::IndexError);  // label 3 is the blank
  BOOST_CHECK_THROW(loss(esp::full({4, 3}, int64_t{4}, esp::int64), f.steps, f.labels), esp::IndexError);
  BOOST_CHECK_THROW(loss(f.targets, f.steps, f.labels, 4), esp::Error);
  BOOST_CHECK_THROW(esp::ctc_loss(f.steps, f.targets, f.steps, f.labels), esp::TypeError);
  try {
    loss(esp::tensor({1, 2}), f.steps, esp::tensor({1, 1, 1, 1}));
    BOOST_ERROR("too few labels are accepted");
  } catch (const esp::ShapeError& error) {
    BOOST_TEST(std::string(error.what()).find("ctc_loss: 2 labels") != std::string::npos);
  }
  // Of one row too many for all of them, and too many behind the last.
  BOOST_CHECK_THROW(loss(esp::tensor({1, 2, 1, 2, 2, 2}), f.steps, esp::tensor({1, 1, 1, 1})),
                    esp::ShapeError);
  BOOST_CHECK_THROW(loss(esp::tensor({1, 2}), f.steps, esp::tensor({3, -1, 0, 0})), esp::IndexError);
  BOOST_CHECK_THROW(loss(esp::tensor({1, 2}), f.steps, esp::full({4}, INT64_MAX, esp::int64)),
                    esp::ShapeError);
}

BOOST_AUTO_TEST_SUITE_END()
