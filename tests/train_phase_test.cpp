// What training trees become in inference: running statistics stand for those of batches, in validation, fit,
// predict, evaluate, served plans and on replicas.
#include "espalier/core/train_phase.h"

#include <boost/test/unit_test.hpp>

#include <cmath>
#include <optional>
#include <vector>

#include "espalier/core/deferred/deferred.h"
#include "espalier/core/error.h"
#include "espalier/core/with_assignment.h"
#include "espalier/executor/kit/fit.h"
#include "espalier/nn/activation.h"
#include "espalier/nn/batch_norm.h"
#include "espalier/nn/builders.h"
#include "espalier/nn/container.h"
#include "espalier/nn/dense.h"
#include "espalier/nn/instance_norm.h"
#include "espalier/nn/losses.h"
#include "espalier/nn/recurrent.h"
#include "espalier/nn/simplex.h"
#include "espalier/ops/reductions/sample_correction.h"
#include "replica_programs.h"
#include "testing.h"

namespace esp = espalier;
namespace nn = espalier::nn;
using namespace espalier::testing;
using esp::Variable;

namespace {

struct NormTask {
  esp::Tensor x = numbers({22, 6}, -1, 3, 1).to(esp::float32),
              y = numbers({22, 3}, -1, 1, 2).to(esp::float32),
              held_x = numbers({9, 6}, -2, 1, 3).to(esp::float32),
              held_y = numbers({9, 3}, -1, 1, 4).to(esp::float32);
};

nn::Sequential normalizing_net() {
  esp::seed(5);
  return nn::Sequential{nn::Dense(4), nn::BatchNorm(), nn::Tanh(), nn::Dense(3)};
}

/// The loss of held-out samples with running statistics, computed eagerly.
double held_out_loss(nn::Sequential net, const NormTask& t) {
  net.train(false);
  const double loss = nn::MeanSquared()(net(t.held_x), t.held_y).item();
  net.train();
  return loss;
}

size_t times_in_text(const std::string& text, const std::string& part) {
  size_t found = 0;
  for (size_t at = text.find(part); at != text.npos; at = text.find(part, at + 1)) ++found;
  return found;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(train_phase)

BOOST_AUTO_TEST_CASE(plans_of_training_and_inference_compute_their_branches) {
  const esp::data::Distributor feed({numbers({10, 3}, -1, 1, 1)}, {.batch_size = 4});
  const Variable w = esp::parameter(numbers({3}, 0.5, 1, 2), "w"),
                 s = esp::state(esp::tensor(0.0, esp::float64), "s");
  const auto loss_of = [&](const Variable& x) {
    const Variable training = esp::with_assignment(x * w, s, s + 1.0);
    return esp::sum(esp::in_train_phase(training, [&] { return esp::sinh(x * w); }));
  };
  const Variable loss = loss_of(feed.get_output_graphs()[0]);
  const esp::Tensor x = feed.get_output_graphs()[0].value();
  const double training = esp::sum(x * w).item(), inference = esp::sum(esp::sinh(x * w)).item();
  BOOST_TEST(loss.forward().item() == training, boost::test_tools::tolerance(1e-14));
  BOOST_TEST(s.item() == 1);
  BOOST_TEST(difference(loss.gradient(w).value(), esp::sum(x, 0).value()) < 1e-14);
  const esp::Executor trained = loss.get_executor({.optimizer = esp::optim::Sgd(0.0)}),
                      served = loss.get_executor();
  BOOST_TEST(trained.step().loss == training, boost::test_tools::tolerance(1e-14));
  BOOST_TEST(s.item() == 2);
  BOOST_TEST(served.step().loss == inference, boost::test_tools::tolerance(1e-14));
  BOOST_TEST(s.item() == 2);
  // The branch that is not computed is not in the plan.
  BOOST_TEST(times_in_text(trained.plan().str(), "sinh") == 0u);
  BOOST_TEST(times_in_text(served.plan().str(), "sinh") > 0u);
  // Without a feed, too; the branch for inference is not computed eagerly.
  const Variable eager = loss_of(x);
  BOOST_TEST(eager.item() == training, boost::test_tools::tolerance(1e-14));
  BOOST_TEST(s.item() == 3);
  const Variable squares = esp::square(eager);
  BOOST_TEST(difference(squares.gradient(w).value(), (2 * training * esp::sum(x, 0)).value()) < 1e-13);
  BOOST_TEST(eager.get_executor().step().loss == inference, boost::test_tools::tolerance(1e-14));
  {
    const esp::NoGrad no_grad;
    BOOST_TEST(loss_of(x).item() == training, boost::test_tools::tolerance(1e-14));
  }
  BOOST_TEST(s.item() == 4);
}

BOOST_AUTO_TEST_CASE(branches_must_be_alike) {
  const Variable x = esp::ones({2, 3});
  const auto with = [&](const Variable& other) {
    return [&x, other] { (void)esp::in_train_phase(x, [&] { return other; }); };
  };
  BOOST_CHECK_EXCEPTION(with(esp::ones({3}))(), esp::ShapeError,
                        says({"in_train_phase", "[2, 3]", "[3]", "train_phase_test.cpp"}));
  BOOST_CHECK_EXCEPTION(with(esp::ones({2, 3}, esp::float64))(), esp::TypeError, says({"float64"}));
  BOOST_CHECK_EXCEPTION(with({})(), esp::Error, says({"inference is undefined"}));
  BOOST_CHECK_EXCEPTION((void)esp::in_train_phase({}, [&] { return x; }), esp::Error,
                        says({"training is undefined"}));
}

BOOST_AUTO_TEST_CASE(validation_takes_running_statistics) {
  const NormTask t;
  for (const auto& devices : replica_places())
    for (const bool local : {false, true}) {
      const nn::Sequential net = normalizing_net();
      const esp::data::Distributor feed({t.x, t.y}, {.batch_size = 5}),
          held({t.held_x, t.held_y}, {.batch_size = 4});  // the last batch has one row
      const auto [x, y] = feed.get_output_graphs<2>();
      const Variable loss = nn::MeanSquared()(net(x), y);
      const esp::Executor executor = loss.get_executor({.optimizer = esp::optim::Sgd(0.05),
                                                        .devices = devices,
                                                        .replicas = {.local_statistics = local},
                                                        .validation = held});
      for (int epoch = 0; epoch < 2; ++epoch) {
        const auto record = executor.execute({.progress = false}).epochs.front();
        BOOST_TEST(record.validation_loss == held_out_loss(net, t), boost::test_tools::tolerance(1e-5));
      }
      BOOST_TEST(net.buffer("1.num_batches_tracked").value().item<int64_t>() == 10);
    }
}

BOOST_AUTO_TEST_CASE(fit_predict_and_evaluate_agree) {
  const NormTask t;
  const nn::Sequential net = normalizing_net();
  const esp::History history =
      esp::fit(net, nn::MeanSquared(), {t.x, t.y},
               {.epochs = 2, .batch_size = 8, .validation = {t.held_x, t.held_y}, .progress = false});
  const double expected = held_out_loss(net, t);
  BOOST_TEST(history.epochs.back().validation_loss == expected, boost::test_tools::tolerance(1e-5));
  BOOST_TEST(esp::evaluate(net, nn::MeanSquared(), {t.held_x, t.held_y}).loss_mean == expected,
             boost::test_tools::tolerance(1e-5));
  BOOST_TEST(nn::MeanSquared()(esp::predict(net, t.held_x, {.batch_size = 2}), t.held_y).item() == expected,
             boost::test_tools::tolerance(1e-5));
}

BOOST_AUTO_TEST_CASE(a_served_training_tree_takes_running_statistics) {
  const NormTask t;
  const nn::Sequential net = normalizing_net();
  (void)esp::fit(net, nn::MeanSquared(), {t.x, t.y}, {.epochs = 1, .batch_size = 8, .progress = false});
  const Variable x = esp::placeholder("x", {-1, 6});
  const esp::Executor served = net(x).get_executor();  // written in training mode
  const esp::Tensor before = net.buffer("1.running_mean").value().clone(),
                    expected = esp::predict(net, t.held_x);
  BOOST_TEST(difference(served.run({{"x", t.held_x}}), expected) < 1e-6);
  BOOST_TEST(difference(served.run({{"x", t.held_x.slice(0, 3, 4)}}), expected.slice(0, 3, 4)) < 1e-6);
  const esp::Executor shared = net(x).get_executor({.devices = cpus(2)});
  BOOST_TEST(difference(shared.run({{"x", t.held_x}}), expected) < 1e-6);
  BOOST_TEST(times_in_text(shared.plan().str(), "reduce_over_replicas") == 0u);
  BOOST_TEST(difference(net.buffer("1.running_mean").value(), before) == 0);
}

BOOST_AUTO_TEST_CASE(gradients_of_inference_are_those_of_running_statistics) {
  const NormTask t;
  const nn::Sequential net = normalizing_net();
  (void)esp::fit(net, nn::MeanSquared(), {t.x, t.y}, {.epochs = 1, .batch_size = 8, .progress = false});
  const auto forces = [&](const Variable& x) { return esp::sum(net(x)).gradient(x); };
  const auto slope = [&](const Variable& x) {  // a derivative of derivatives
    return esp::mean(esp::square(forces(x))).gradient(net.parameter("0.weight"));
  };
  const auto in_eval = [&](const auto& f) {
    nn::Sequential own = net;
    own.eval();
    const esp::Tensor value = f(esp::variable(t.held_x)).value();
    own.train();
    return value;
  };
  const auto check = [&](const auto& f, const Variable& x, const esp::Feeds& feeds) {
    const esp::Executor executor = f(x).get_executor();  // eager training moves the running statistics
    BOOST_TEST(difference(executor.run(feeds), in_eval(f)) < 1e-5);
  };
  const Variable x = esp::placeholder("x", {-1, 6}), held = esp::variable(t.held_x);
  const esp::Feeds feeds{{"x", t.held_x}};
  check(forces, x, feeds);
  check(forces, held, {});
  check(slope, x, feeds);
  check(slope, held, {});
  // A state that inference alone reads.
  check([&](const Variable& v) { return esp::sum(net(v)).gradient(net.buffer("1.running_mean")); }, x, feeds);
  {
    const esp::Deferred waits;
    check(forces, held, {});
  }
  BOOST_TEST(difference(forces(held).value(), in_eval(forces)) > 1e-2);  // eagerly those of the batch
}

BOOST_AUTO_TEST_CASE(penalties_on_gradients_are_validated_by_running_statistics) {
  const NormTask t;
  const nn::Sequential net = normalizing_net();
  const auto loss_of = [&](const Variable& x, const Variable& y) {
    const Variable made = net(x);
    return nn::MeanSquared()(made, y) + esp::mean(esp::square(esp::sum(made).gradient(x)));
  };
  const esp::data::Distributor feed({t.x, t.y}, {.batch_size = 11}),
      held({t.held_x, t.held_y}, {.batch_size = 9});
  const auto [x, y] = feed.get_output_graphs<2>();
  const Variable loss = loss_of(x, y);
  const esp::Executor executor = loss.get_executor({.optimizer = esp::optim::Sgd(0.05), .validation = held});
  const double first = loss_of(esp::variable(t.x.slice(0, 0, 11)), t.y.slice(0, 0, 11)).item();
  const auto record = executor.execute({.progress = false}).epochs.front();
  nn::Sequential own = net;
  own.eval();
  BOOST_TEST(record.validation_loss == loss_of(esp::variable(t.held_x), t.held_y).item(),
             boost::test_tools::tolerance(1e-5));
  own.train();
  BOOST_TEST(executor.step().loss < first);
}

BOOST_AUTO_TEST_CASE(local_statistics_keep_running_ones) {
  // The means of what the replicas see, each counted by its rows.
  const esp::Tensor rows = numbers({8, 2}, -1, 3, 1);
  const esp::data::Distributor feed({rows}, {.batch_size = 8});
  const Variable w = esp::parameter(esp::tensor(1.0, esp::float64), "w");
  std::vector<std::vector<esp::Device>> places{cpus(2)};
  for (const esp::Device& gpu : gpus_to_test()) places.push_back({gpu, gpu});
  for (const std::optional<double> momentum : {std::optional(0.25), std::optional<double>()})
    for (const auto& devices : places) {
      const nn::BatchNorm norm({.momentum = momentum});
      const Variable loss = esp::mean(esp::square(norm(feed.get_output_graphs()[0] * w) - 0.5));
      const esp::Executor executor = loss.get_executor(
          {.optimizer = esp::optim::Sgd(0.0), .devices = devices, .replicas = {.local_statistics = true}});
      (void)executor.execute({.progress = false});
      const double moved = momentum.value_or(1);
      const Array in(rows);
      for (int64_t f = 0; f < 2; ++f) {
        double mean = 0, variance = 0;
        for (int64_t part = 0; part < 2; ++part) {
          double m = 0, v = 0;
          for (int64_t i = 4 * part; i < 4 * part + 4; ++i) m += in({i, f}) / 4;
          for (int64_t i = 4 * part; i < 4 * part + 4; ++i) v += std::pow(in({i, f}) - m, 2) / 3;
          mean += m / 2, variance += v / 2;
        }
        BOOST_TEST(norm.buffer("running_mean").value().at<double>({f}) == moved * mean,
                   boost::test_tools::tolerance(1e-12));
        BOOST_TEST(norm.buffer("running_var").value().at<double>({f}) == 1 + (variance - 1) * moved,
                   boost::test_tools::tolerance(1e-12));
      }
      BOOST_TEST(norm.buffer("num_batches_tracked").value().item<int64_t>() == 1);
    }
  // A part's own sum is none of the batch's.
  const Variable s = esp::state(esp::zeros({2}, esp::float64), "s"), x = feed.get_output_graphs()[0] * w;
  const Variable sums = esp::mean(esp::with_assignment(x, s, esp::sqrt(esp::sum(esp::square(x), 0))));
  BOOST_CHECK_EXCEPTION(
      sums.get_executor(
          {.optimizer = esp::optim::Sgd(0.1), .devices = cpus(2), .replicas = {.local_statistics = true}}),
      esp::UnsupportedError, says({"'sqrt'", "train_phase_test.cpp"}));
}

BOOST_AUTO_TEST_CASE(noise_is_for_training_alone) {
  const Variable rows = numbers({4, 6}, -1, 1), steps = numbers({5, 4, 3}, -1, 1);
  nn::Lstm lstm(3, 4, {.weight_noise = 0.5, .dtype = esp::float64});
  nn::GruBuilder builder(6, 4, {.cell = {.dtype = esp::float64}, .weight_noise = 0.5});
  nn::GumbelSoftmax gumbel;
  const auto check = [](auto& layer, const Variable& x, auto&& call) {
    const Variable in = esp::placeholder("x", x.shape(), esp::float64);
    const esp::Executor served = call(in).get_executor();  // written in training mode
    BOOST_TEST(difference(call(x).value(), call(x).value()) > 1e-3);
    layer.eval();
    const esp::Tensor expected = call(x).value();
    layer.train();
    for (int run = 0; run < 2; ++run)
      BOOST_TEST(difference(served.run({{"x", x.value()}}), expected) < 1e-12);
  };
  check(lstm, steps, [&](const Variable& x) { return lstm(x).outputs; });
  check(gumbel, rows, [&](const Variable& x) { return gumbel(x); });
  check(builder, rows, [&](const Variable& x) {
    builder.start();
    builder.add_input(x);
    return builder.add_input(x);
  });
}

BOOST_AUTO_TEST_CASE(the_sample_correction_is_bessel_s) {
  check_op(
      {.name = "sample_correction",
       .op = [](const Variables& x) { return esp::sample_correction(x[0], x[1]); },
       .inputs = {numbers({4, 3}), numbers({3})},
       .reference = [](const std::vector<Array>&) { return Array({}, [](const Index&) { return 4.0 / 3; }); },
       .order = 0});
  BOOST_TEST(esp::sample_correction(esp::ones({1, 3}), esp::ones({3})).item() == 1);
}

BOOST_AUTO_TEST_SUITE_END()
