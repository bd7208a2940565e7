// Steps that write states and train nothing, and what a step cannot have.
#include <boost/test/unit_test.hpp>

#include "espalier/core/error.h"
#include "espalier/espalier.h"
#include "temporary_folder.h"
#include "testing.h"

namespace esp = espalier;
using namespace espalier::testing;
using esp::Variable;

namespace {

/// How far rows are from their running mean.
struct Running {
  esp::data::Distributor feed{{numbers({24, 3}, -1, 1, 2)}, {.batch_size = 6}};
  Variable mean = esp::state(esp::zeros({3}, esp::float64), "mean");
  Variable distance() const {
    const Variable x = feed.get_output_graphs()[0];
    return esp::with_assignment(esp::sum(esp::square(x - mean)), mean, mean * 0.9 + esp::mean(x, 0) * 0.1);
  }
};

}  // namespace

BOOST_AUTO_TEST_SUITE(steps_without_optimizer)

BOOST_AUTO_TEST_CASE(states_are_assigned_as_eagerly) {
  Running eager, planned, loaded;
  const Variable distance = eager.distance();
  double last = 0;
  for (int step = 0; step < 4; ++step) last = distance.forward().item();
  const TemporaryFolder folder;
  const esp::Executor executor = planned.distance().get_executor({.mode = esp::Mode::training});
  executor.save(folder / "running.plan");
  const esp::History history = executor.execute({.progress = false});
  BOOST_TEST(difference(planned.mean.value(), eager.mean.value()) < 1e-14);
  BOOST_TEST(executor.value().item() == last, boost::test_tools::tolerance(1e-14));
  BOOST_TEST(history.epochs[0].samples == 24);
  const esp::Executor again =
      esp::load_executor(folder / "running.plan", {.data = {esp::data::Distributor(loaded.feed)}});
  BOOST_TEST(again.execute({.progress = false}).epochs[0].loss_sum == history.epochs[0].loss_sum);
  // In inference they stay.
  Running kept;
  (void)kept.distance().get_executor().execute({.progress = false});
  BOOST_TEST(difference(kept.mean.value(), esp::zeros({3}, esp::float64)) == 0);
}

BOOST_AUTO_TEST_CASE(what_a_step_cannot_have) {
  const Running running;
  const Variable plain = esp::sum(running.feed.get_output_graphs()[0]);
  BOOST_CHECK_EXCEPTION(plain.get_executor({.mode = esp::Mode::training}), esp::Error,
                        says({"optimizer", "assigns", here()}));
  BOOST_CHECK_EXCEPTION(
      running.distance().get_executor({.mode = esp::Mode::training, .devices = {esp::cpu(0), esp::cpu(1)}}),
      esp::UnsupportedError, says({"gradients", "one device", here()}));
  for (const char* name : {"loss", "validation_loss", "value"})
    BOOST_CHECK_EXCEPTION(plain.get_executor({.outputs = {{name, plain}}}), esp::Error,
                          says({name, "named", here()}));

  const esp::nn::Dense body(3, 2, {.dtype = esp::float64}), head(2, 1, {.dtype = esp::float64});
  const Variable loss = esp::mean(head(body(running.feed.get_output_graphs()[0])));
  const esp::optim::Adam adam(1e-3);
  const esp::optim::Sgd sgd(0.1);
  loss.forward().update(adam, body.parameters());
  loss.update(sgd, head.parameters());
  BOOST_CHECK_EXCEPTION(loss.get_executor(), esp::Error, says({"several optimizers", "optim::Groups"}));
  const esp::optim::Groups both({{body.parameters(), adam}, {head.parameters(), sgd}});
  BOOST_CHECK_NO_THROW(loss.get_executor({.optimizer = both}).step());
}

BOOST_AUTO_TEST_SUITE_END()
