// Scans on replicas and in micro-batches: training is that of one device.
#include <boost/test/unit_test.hpp>

#include "espalier/core/error.h"
#include "espalier/data/distributor.h"
#include "espalier/executor/executor.h"
#include "espalier/nn/recurrent.h"
#include "espalier/ops/functions/loop.h"
#include "espalier/ops/ops.h"
#include "espalier/optim/sgd.h"
#include "testing.h"

namespace esp = espalier;
using namespace espalier::testing;
using esp::Tensor;
using esp::Variable;

namespace {

constexpr int64_t steps = 5, features = 3, hidden = 4;

struct Network {
  Variable u = esp::parameter(numbers({features, hidden}, -1, 1, 1), "u"),
           w = esp::parameter(numbers({hidden, hidden}, -1, 1, 2), "w");
};
/// A loss of sequences [steps, rows, features], and of one number for each row.
using Loss = std::function<Variable(const Network&, const Variable&, const Variable&)>;

Variable first_state(const Network& net, const Variable& x) {
  return zeros_like(matmul(squeeze(slice(x, 0, 0, 1), 0), net.u));
}
/// h' = tanh(x·u + h·w), which is an output, too.
esp::ScanStep step_of(const Network& net) {
  return [=](const Variables& h, const Variables& x) -> esp::ScanResult {
    const Variable next = tanh(matmul(x[0], net.u) + matmul(h[0], net.w));
    return {{next}, {next}};
  };
}
Variable error_of(const Variable& h, const Variable& y) { return square(sum(h, -1, true) - y); }

struct Trained {
  std::vector<double> losses;
  Tensor u, w;
};
/// After two epochs of batches of 6 and 5 rows.
Trained trained(const Loss& loss_of, int replicas, int micro_batches, bool local_statistics = false) {
  esp::data::Distributor feed({numbers({11, steps, features}, -1, 1, 3), numbers({11, 1}, -1, 1, 4)},
                              {.batch_size = 6});
  const auto [x, y] = feed.get_output_graphs<2>();
  const Network net;
  const Variable loss = loss_of(net, permute(x, {1, 0, 2}), y);
  std::vector<esp::Device> devices;
  for (int i = 0; i < replicas; ++i) devices.push_back(esp::cpu(i));
  const esp::Executor executor = loss.get_executor({.optimizer = esp::optim::Sgd(0.1),
                                                    .devices = devices,
                                                    .replicas = {.local_statistics = local_statistics},
                                                    .accumulate = micro_batches});
  const esp::History history = executor.execute({.epochs = 2, .progress = false});
  Trained result{{}, net.u.value().clone(), net.w.value().clone()};
  for (const esp::EpochRecord& epoch : history.epochs) result.losses.push_back(epoch.loss_sum);
  return result;
}

const std::vector<std::pair<std::string, Loss>> losses = {
    {"last state",
     [](const Network& net, const Variable& x, const Variable& y) {
       return mean(error_of(esp::scan(step_of(net), {first_state(net, x)}, {x}).state[0], y));
     }},
    {"outputs, backwards, summed",
     [](const Network& net, const Variable& x, const Variable& y) {
       const esp::ScanResult r = esp::scan(step_of(net), {first_state(net, x)}, {x}, {.reverse = true});
       return sum(error_of(r.outputs[0], y)) * 0.01;
     }},
    {"by segments",
     [](const Network& net, const Variable& x, const Variable& y) {
       const esp::ScanResult r = esp::scan(step_of(net), {first_state(net, x)}, {x}, {.segment = 2});
       return mean(error_of(r.state[0], y)) + mean(error_of(r.outputs[0], y));
     }},
    {"a loss in each step",
     [](const Network& net, const Variable& x, const Variable& y) {
       const esp::ScanStep step = step_of(net);
       const auto with_loss = [&](const Variables& h, const Variables& e) -> esp::ScanResult {
         const esp::ScanResult r = step(h, e);
         return {r.state, {mean(error_of(r.state[0], y))}};
       };
       return mean(esp::scan(with_loss, {first_state(net, x)}, {x}).outputs[0]);
     }},
    {"a state of weights",
     [](const Network& net, const Variable& x, const Variable& y) {
       const auto step = [&](const Variables& s, const Variables& e) -> esp::ScanResult {
         const Variable next = tanh(matmul(e[0], net.u) + matmul(s[0], s[1]));
         return {{next, s[1] * 0.9}, {}};
       };
       return mean(error_of(esp::scan(step, {first_state(net, x), net.w}, {x}).state[0], y));
     }},
    {"features with the rows last",
     [](const Network& net, const Variable& x, const Variable& y) {
       const auto step = [&](const Variables& s, const Variables& e) -> esp::ScanResult {
         const Variable next = tanh(matmul(transpose(net.u), e[0]) + matmul(net.w, s[0]));
         return {{next}, {}};
       };
       const Variable turned = permute(x, {0, 2, 1});
       const Variable h = esp::scan(step, {transpose(first_state(net, x))}, {turned}).state[0];
       return mean(error_of(transpose(h), y));
     }},
};

}  // namespace

BOOST_AUTO_TEST_SUITE(loop_replicas)

BOOST_AUTO_TEST_CASE(training_is_that_of_one_device) {
  for (const auto& [name, loss] : losses) {
    const Trained one = trained(loss, 1, 1);
    BOOST_TEST(difference(one.w, Network().w.value()) > 1e-4, name);
    for (const auto& [replicas, micro_batches] : {std::pair(2, 1), {3, 1}, {1, 2}, {2, 2}}) {
      const Trained other = trained(loss, replicas, micro_batches);
      BOOST_TEST(difference(one.u, other.u) < 1e-12, name << ", " << replicas << ", " << micro_batches);
      BOOST_TEST(difference(one.w, other.w) < 1e-12, name << ", " << replicas << ", " << micro_batches);
      BOOST_REQUIRE(one.losses.size() == other.losses.size());
      for (size_t i = 0; i < one.losses.size(); ++i)
        BOOST_TEST(std::abs(one.losses[i] - other.losses[i]) < 1e-12, name);
    }
  }
}

BOOST_AUTO_TEST_CASE(outputs_have_the_rows_of_all_replicas) {
  const Network net;
  const Variable x = esp::placeholder("x", {7, steps, features}, esp::float64),
                 by_steps = permute(x, {1, 0, 2});
  const esp::ScanResult r = esp::scan(step_of(net), {first_state(net, by_steps)}, {by_steps});
  const Variable y = permute(r.outputs[0], {1, 0, 2});
  const Tensor values = numbers({7, steps, features}, -1, 1, 5);
  const auto run = [&](std::vector<esp::Device> devices) {
    return y.get_executor({.mode = esp::Mode::inference, .devices = std::move(devices)})
        .run({{"x", values}})
        .clone();
  };
  BOOST_TEST(difference(run({esp::cpu(0)}), run({esp::cpu(0), esp::cpu(1)})) == 0);
}

/// Second derivatives, of a loop over the gradient of a loop.
BOOST_AUTO_TEST_CASE(gradients_in_a_loss) {
  const Loss penalty = [](const Network& net, const Variable& x, const Variable& y) {
    const Variable h = esp::scan(step_of(net), {first_state(net, x)}, {x}).state[0];
    const Variable g = sum(error_of(h, y)).gradient(x);
    return mean(sum(square(g), {0, 2})) + mean(error_of(h, y));
  };
  const Trained one = trained(penalty, 1, 1), two = trained(penalty, 2, 1);
  BOOST_TEST(difference(one.w, two.w) < 1e-12);
  BOOST_TEST(difference(one.u, two.u) < 1e-12);
}

/// The sums over steps of a weight's gradient begin with zeros, which are a sum over the rows, too.
BOOST_AUTO_TEST_CASE(gradients_of_weights_in_a_loss) {
  const Loss penalty = [](const Network& net, const Variable& x, const Variable& y) {
    const Variable h = esp::scan(step_of(net), {first_state(net, x)}, {x}).state[0];
    return sum(square(sum(error_of(h, y)).gradient(net.w))) * 1e-3;
  };
  const Trained one = trained(penalty, 1, 1), two = trained(penalty, 2, 1);
  BOOST_TEST(difference(one.w, two.w) < 1e-12);
  BOOST_TEST(difference(one.w, Network().w.value()) > 1e-6);
}

/// What has no meaning for a part of the rows.
BOOST_AUTO_TEST_CASE(other_scans_are_refused) {
  const std::pair<const char*, Loss> refused[] = {
      {"rows that meet each other in a step",
       [](const Network& net, const Variable& x, const Variable& y) {
         const auto step = [&](const Variables& s, const Variables& e) -> esp::ScanResult {
           return {{tanh(esp::cumsum(matmul(e[0], net.u) + s[0], 0))}, {}};
         };
         return mean(error_of(esp::scan(step, {first_state(net, x)}, {x}).state[0], y));
       }},
      {"steps along the rows",
       [](const Network& net, const Variable& x, const Variable& y) {
         const auto step = [](const Variables& s, const Variables& e) -> esp::ScanResult {
           return {{s[0]}, {sum(e[0])}};
         };
         const Variable number = sum(net.u) * 0;
         const Variable sums = esp::scan(step, {number}, {permute(x, {1, 0, 2})}).outputs[0];
         return mean(square(sums - squeeze(y, {1})));
       }},
      {"a sum that is not of zeros",
       [](const Network& net, const Variable& x, const Variable& y) {
         const auto step = [&](const Variables& s, const Variables& e) -> esp::ScanResult {
           return {{s[0] + matmul(transpose(matmul(e[0], net.u)), matmul(e[0], net.u))}, {}};
         };
         return mean(esp::scan(step, {net.w * 2}, {x}).state[0]) + mean(y);
       }},
      {"random numbers", [](const Network& net, const Variable& x, const Variable& y) {
         const auto step = [&](const Variables& s, const Variables& e) -> esp::ScanResult {
           return {{tanh(matmul(dropout(e[0], 0.5), net.u) + s[0])}, {}};
         };
         return mean(error_of(esp::scan(step, {first_state(net, x)}, {x}).state[0], y));
       }}};
  for (const auto& [name, loss] : refused) BOOST_TEST_CONTEXT(name) {
      BOOST_CHECK_EXCEPTION((void)trained(loss, 2, 1), esp::UnsupportedError,
                            says({"2 replicas", "'scan", "loop_replicas_test.cpp"}));
      BOOST_CHECK_EXCEPTION((void)trained(loss, 1, 2), esp::UnsupportedError,
                            says({"2 micro-batches cannot compute", "'scan", "loop_replicas_test.cpp"}));
      (void)trained(loss, 1, 1);
    }
}

/// Sums begin with zeros; statistics of a replica's rows may take the place of those of the batch.
BOOST_AUTO_TEST_CASE(local_statistics) {
  const Loss loss = [](const Network& net, const Variable& x, const Variable& y) {
    const auto step = [&](const Variables& s, const Variables& e) -> esp::ScanResult {
      const Variable z = matmul(e[0], net.u) + matmul(s[0], net.w);
      return {{tanh(z - mean(z, 0, true))}, {}};
    };
    return mean(error_of(esp::scan(step, {first_state(net, x)}, {x}).state[0], y));
  };
  BOOST_CHECK_EXCEPTION((void)trained(loss, 2, 1), esp::UnsupportedError, says({"2 replicas", "'scan"}));
  const Trained local = trained(loss, 2, 1, true);
  BOOST_TEST(difference(local.w, trained(loss, 1, 1).w) > 1e-6);
}

BOOST_AUTO_TEST_CASE(lstms_of_open_lengths) {
  std::vector<Tensor> after;
  for (const int replicas : {1, 2}) {
    const esp::nn::Lstm lstm(features, hidden, {.peepholes = true, .dtype = esp::float64});
    for (const auto& [name, parameter] : lstm.parameters())
      esp::set_value(parameter, numbers(parameter.shape(), -1, 1, name.size()));
    const Variable x = esp::placeholder("x", {-1, -1, features}, esp::float64);
    const Variable h = lstm(permute(x, {1, 0, 2})).outputs;
    std::vector<esp::Device> devices;
    for (int i = 0; i < replicas; ++i) devices.push_back(esp::cpu(i));
    const esp::Executor executor = mean(square(h)).get_executor(
        {.mode = esp::Mode::training, .optimizer = esp::optim::Sgd(0.1), .devices = devices});
    for (const int64_t length : {4, 7}) (void)executor.run({{"x", numbers({5, length, features}, -1, 1, 8)}});
    after.push_back(lstm.parameter("weight_hh_l0").value().clone());
  }
  BOOST_TEST(difference(after[0], after[1]) < 1e-12);
}

BOOST_AUTO_TEST_CASE(rows_are_not_steps) {
  const Loss loss = [](const Network& net, const Variable& x, const Variable& y) {
    const Variable rows = permute(x, {1, 0, 2});
    return mean(square(
               esp::scan(step_of(net), {zeros_like(matmul(squeeze(slice(rows, 0, 0, 1), 0), net.u))}, {rows})
                   .outputs[0])) +
           mean(y);
  };
  for (const auto& [replicas, micro_batches, who] :
       {std::tuple(2, 1, "2 replicas"), {1, 2, "2 micro-batches"}, {2, 2, "2 micro-batches of 2 replicas"}})
    BOOST_CHECK_EXCEPTION((void)trained(loss, replicas, micro_batches), esp::UnsupportedError,
                          [who = who](const esp::Error& e) {
                            const std::string text = e.what();
                            return says({"the rows of the batch are the steps of this scan",
                                         "swapaxes(x, 0, 1)", std::string("get_executor: ") + who})(e) &&
                                   text.find("random numbers") == text.npos &&
                                   text.find("leave out") == text.npos;
                          });
}

BOOST_AUTO_TEST_SUITE_END()
