// A variational autoencoder, whose samples are drawn within the tree: Kingma and Welling, Auto-encoding
// variational Bayes, 2014.
#include <boost/test/unit_test.hpp>

#include "espalier/core/random.h"
#include "espalier/nn/dense.h"
#include "espalier/nn/module.h"
#include "replica_programs.h"

namespace esp = espalier;
namespace nn = espalier::nn;
using namespace espalier::testing;
using esp::Tensor;
using esp::Variable;

namespace {

constexpr int64_t pixels = 16, latent = 2, rows = 60, batch = 16;  // the last batch is short

/// Bars at one of four places, with some noise: two numbers describe them well.
Tensor pictures() {
  Tensor x = numbers({rows, pixels}, 0, 0.1, 8);
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t k = 0; k < 4; ++k) x.at<double>({r, r % 4 * 4 + k}) = 0.9;
  return x;
}

struct Vae : nn::Module {
  /// The negative evidence lower bound, per picture.
  Variable operator()(const Variable& x) {
    const Variable h = esp::tanh(encoder(x));
    const Variable mean = to_mean(h), log_variance = to_log_variance(h);
    const Variable z = mean + esp::exp(log_variance * 0.5) * esp::randn_like(mean);
    const Variable logits = to_pixels(esp::tanh(decoder(z)));
    const Variable cross_entropy =
        esp::maximum(logits, 0.0) - logits * x + esp::log(esp::exp(-esp::abs(logits)) + 1.0);
    const Variable divergence = (esp::square(mean) + esp::exp(log_variance) - log_variance - 1.0) * 0.5;
    return esp::mean(esp::sum(cross_entropy, 1)) + esp::mean(esp::sum(divergence, 1));
  }
  nn::Dense encoder = add("encoder", nn::Dense(12)), to_mean = add("mean", nn::Dense(latent)),
            to_log_variance = add("log_variance", nn::Dense(latent)), decoder = add("decoder", nn::Dense(12)),
            to_pixels = add("pixels", nn::Dense(pixels));
};

/// The losses of all steps, and the parameters at the end.
struct Run {
  std::vector<double> losses;
  Trace trace;
};

struct Program {
  Program() : feed({pictures()}, {.batch_size = batch, .shuffle = true, .seed = 2}) {
    loss = vae(feed.get_output_graphs()[0]);
  }
  Run run(const std::vector<double>& losses) const {
    Run result{losses, {}};
    for (const double value : losses) result.trace.push_back(esp::tensor(value, esp::float64));
    for (const auto& [name, p] : vae.parameters()) result.trace.push_back(p.value().clone());
    return result;
  }
  Vae vae;
  esp::data::Distributor feed;
  Variable loss;
};

constexpr int epochs = 25;

Run eagerly() {
  esp::seed(12);
  Program p;
  const esp::optim::Adam adam({.lr = 0.02});
  std::vector<double> losses;
  for (int epoch = 0; epoch < epochs; ++epoch, p.feed.reset())
    for (int64_t step = 0; step < p.feed.steps(); ++step) {
      losses.push_back(p.loss.forward().item());
      p.loss.update(adam);
    }
  return p.run(losses);
}

Run planned(const std::vector<esp::Device>& devices) {
  esp::seed(12);
  const Program p;
  const esp::Executor executor =
      p.loss.get_executor({.optimizer = esp::optim::Adam({.lr = 0.02}), .devices = devices});
  std::vector<double> losses;
  executor.on(esp::Event::step_finish, [&](const esp::StepInfo& info) { losses.push_back(info.loss); });
  (void)executor.execute({.epochs = epochs, .progress = false});
  return p.run(losses);
}

double mean_of(const std::vector<double>& losses, size_t from, size_t count) {
  double sum = 0;
  for (size_t i = from; i < from + count; ++i) sum += losses[i];
  return sum / static_cast<double>(count);
}

}  // namespace

BOOST_AUTO_TEST_SUITE(vae)

BOOST_AUTO_TEST_CASE(it_trains_alike_eagerly_in_a_plan_and_on_replicas) {
  const Run one = eagerly();
  const size_t last = one.losses.size() - 8;
  BOOST_TEST(mean_of(one.losses, last, 8) < 0.8 * mean_of(one.losses, 0, 8));
  BOOST_TEST(difference_of(planned({}).trace, one.trace) < 1e-8);
  BOOST_TEST(difference_of(planned(cpus(2)).trace, one.trace) < 1e-8);
}

// Samples that were constant from step to step would be learnt by heart.
BOOST_AUTO_TEST_CASE(its_samples_are_drawn_anew) {
  esp::seed(12);
  const Program p;
  const esp::Executor executor = p.loss.get_executor({.mode = esp::Mode::inference});
  const double first = executor.execute({.progress = false}).epochs[0].loss_mean;
  BOOST_TEST(executor.execute({.progress = false}).epochs[0].loss_mean != first);
}

BOOST_AUTO_TEST_SUITE_END()
