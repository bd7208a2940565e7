// Steps that assign a state several times, as a layer does that is called on several batches.
#include <boost/test/unit_test.hpp>

#include <functional>
#include <tuple>

#include "espalier/core/error.h"
#include "espalier/core/with_assignment.h"
#include "replica_programs.h"

namespace esp = espalier;
namespace optim = espalier::optim;
using namespace espalier::testing;
using esp::Variable;

namespace {

std::string refusal(const std::function<void()>& f) {
  try {
    f();
  } catch (const esp::Error& error) {
    return error.what();
  }
  return {};
}
bool says(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

BOOST_AUTO_TEST_SUITE(repeated_assignment)

BOOST_AUTO_TEST_CASE(a_step_assigns_a_state_several_times) {
  esp::data::Distributor feed({numbers({6, 3}, -1, 1, 4)}, {.batch_size = 3});
  const Variable x = feed.get_output_graphs()[0], w = esp::parameter(numbers({3}, -1, 1, 2), "w"),
                 s = esp::state(esp::tensor(1.0, esp::float64), "s");
  const Variable early = s + 100.0;  // written before the first assignment: it reads what was before the step
  const Variable first = esp::with_assignment(x * w, s, s * 2.0);
  const Variable second = esp::with_assignment(first, s, s * 3.0 + early * 0.0);
  const Variable third = esp::with_assignment(second, s, s + 1.0);
  const Variable fourth = esp::with_assignment(third, s, s);
  // What is not the value of an assignment reads the state of before the step.
  const Variable loss = esp::mean(esp::square(fourth)) * 0.0 + s;
  BOOST_TEST(loss.forward().item() == 1);
  BOOST_TEST(s.item() == 7);  // 1 * 2 * 3 + 1
  BOOST_TEST(loss.forward().item() == 7);
  BOOST_TEST(s.item() == 43);
  esp::set_value(s, esp::tensor(1.0, esp::float64));
  esp::Executor executor = loss.get_executor({.optimizer = optim::Sgd(0.1)});
  executor.execute({.progress = false});
  BOOST_TEST(s.item() == 43);
  (void)loss.get_executor({.mode = esp::Mode::inference}).execute({.progress = false});
  BOOST_TEST(s.item() == 43);

  // A step whose roots are asked for one after the other is the same step.
  esp::set_value(s, esp::tensor(1.0, esp::float64));
  feed.reset();
  const Variable one = esp::sum(first);
  (void)one.forward();
  BOOST_TEST(s.item() == 2);
  (void)esp::sum(second).value();
  BOOST_TEST(s.item() == 6);
  const Variable other = esp::sum(esp::with_assignment(x, s, s * 5.0));
  (void)other.value();
  BOOST_TEST(s.item() == 30);
  const std::string text = refusal([&] { (void)esp::sum(third).value(); });
  BOOST_TEST(says(text, "has assigned the state 's' already"), text);

  // Eagerly without a feed each acts at once.
  esp::set_value(s, esp::tensor(10.0, esp::float64));
  const Variable once = esp::with_assignment(w, s, s * 2.0);
  const Variable twice = esp::with_assignment(once, s, s * 3.0);
  BOOST_TEST(s.item() == 60);
}

/// Nothing is older than the state, which is read again behind its first assignment.
BOOST_AUTO_TEST_CASE(a_state_older_than_all_else_of_its_step) {
  const Variable s = esp::state(esp::tensor(1.0, esp::float64), "s");
  const esp::data::Distributor feed({numbers({2, 3}, -1, 1, 4)}, {.batch_size = 1});
  const Variable x = feed.get_output_graphs()[0];
  const Variable first = esp::with_assignment(x, s, s * 2.0);
  const Variable second = esp::with_assignment(first, s, s + 3.0);
  const Variable loss = esp::sum(second) * 0.0 + s;
  BOOST_TEST(loss.forward().item() == 1);
  BOOST_TEST(s.item() == 5);
  BOOST_TEST(loss.forward().item() == 5);
  BOOST_TEST(s.item() == 13);
}

BOOST_AUTO_TEST_CASE(a_second_value_draws_no_numbers_again) {
  const esp::data::Distributor feed({numbers({6, 3}, -1, 1, 4)}, {.batch_size = 3});
  const Variable x = feed.get_output_graphs()[0], s = esp::state(numbers({3}, 0.4, 0.6, 2), "s");
  const Variable w = esp::parameter(numbers({3}, -1, 1, 3), "w"),
                 first = esp::with_assignment(x * w, s, s * 0.5);
  const Variable y = esp::with_assignment(first, s, esp::bernoulli(s));
  const std::string here = "repeated_assignment_test.cpp:" + std::to_string(__LINE__ - 1),
                    before = "repeated_assignment_test.cpp:" + std::to_string(__LINE__ - 3);
  const Variable loss = esp::mean(y);
  for (const auto& run : std::vector<std::function<void()>>{
           [&] { (void)loss.forward(); }, [&] { (void)loss.get_executor({.optimizer = optim::Sgd(0.1)}); }}) {
    const std::string text = refusal(run);
    for (const std::string& part : {std::string("'s' twice"), std::string("bernoulli"), here, before})
      BOOST_TEST(says(text, part), text);
  }
}

// Roots of one step share the nodes that order assignments: these are carried out once, whatever is asked for
// again.
BOOST_AUTO_TEST_CASE(a_step_that_is_looked_at_again_assigns_nothing_again) {
  const esp::data::Distributor feed({numbers({12, 3}, -1, 1, 4)}, {.batch_size = 3});
  const Variable x = feed.get_output_graphs()[0], w = esp::parameter(numbers({3}, -1, 1, 2), "w"),
                 s = esp::state(esp::tensor(1.0, esp::float64), "s");
  const Variable first = esp::with_assignment(x * w, s, s * 2.0);
  const Variable second = esp::with_assignment(first, s, s + 3.0);
  const Variable one = esp::mean(esp::square(second)), other = esp::mean(second + first),
                 third = esp::mean(esp::exp(second));
  for (double expected : {5.0, 13.0}) {
    (void)one.forward();
    BOOST_TEST(s.item() == expected);
    (void)third.value();
    one.backward();
    (void)other.value();
    BOOST_TEST(s.item() == expected);
  }
  (void)one.forward();
  BOOST_TEST(s.item() == 29);
  (void)other.forward();  // a step of its own
  BOOST_TEST(s.item() == 61);
  one.backward();
  BOOST_TEST(s.item() == 61);
}

BOOST_AUTO_TEST_CASE(gradients_of_a_step_are_not_those_of_what_a_plan_writes_later) {
  const esp::data::Distributor feed({numbers({6, 3}, -1, 1, 4)}, {.batch_size = 3});
  const Variable x = feed.get_output_graphs()[0], w = esp::parameter(numbers({3}, -1, 1, 2), "w"),
                 v = esp::parameter(numbers({3}, -1, 1, 3), "v"),
                 s = esp::state(numbers({3}, 0.5, 1, 5), "s");
  const Variable written = esp::sum(esp::with_assignment(v * s, s, s * 0.5));
  const esp::Executor plan = written.get_executor({.optimizer = optim::Sgd(0.0)});
  (void)plan.execute({.progress = false});  // from here on the state lies in the memory of the plan
  const esp::Tensor now = s.value().clone();
  const Variable loss = esp::sum(esp::with_assignment(x * w * s, s, s * 0.5 + 1.0));
  loss.forward();
  (void)plan.execute({.epochs = 2, .progress = false});
  const Variable rows = esp::sum(Variable(numbers({6, 3}, -1, 1, 4).slice(0, 0, 3)), 0);
  BOOST_TEST(difference(loss.gradient(w).value(), (rows * Variable(now)).value()) < 1e-14);
}

// The statistics of a network that is called on two batches in one step: of both, one after the other.
BOOST_AUTO_TEST_CASE(a_layer_called_twice_in_a_step) {
  enum class How { eager, fed, plan, replicas };
  const auto statistics = [](How how) {
    esp::data::Distributor feed({numbers({8, 3}, -1, 1, 4), numbers({8, 3}, 2, 3, 5)},
                                {.batch_size = 4, .shuffle = false});
    const Variable w = esp::parameter(numbers({3, 2}, -1, 1, 1), "w"),
                   mean = esp::state(esp::zeros({2}, esp::float64), "mean"),
                   deviation = esp::state(esp::ones({2}, esp::float64), "deviation");
    const auto layer = [&](const Variable& x) {
      const Variable h = esp::matmul(x, w), average = esp::mean(h, 0), centred = h - average;
      Variable y = esp::with_assignment(centred * deviation, mean, mean * 0.9 + average * 0.1);
      return esp::with_assignment(y, deviation, deviation * 0.9 + esp::mean(esp::square(centred), 0) * 0.1);
    };
    if (how != How::eager) {
      const auto x = feed.get_output_graphs();
      const Variable one = layer(x[0]), other = layer(x[1]), loss = esp::mean(esp::square(one - other));
      if (how == How::plan) {
        loss.get_executor({.optimizer = optim::Sgd(0.0)}).execute({.progress = false});
      } else if (how == How::replicas) {
        loss.get_executor({.optimizer = optim::Sgd(0.0), .devices = cpus(2)}).execute({.progress = false});
      } else {
        for (int step = 0; step < 2; ++step) (void)loss.forward();
      }
    } else {
      for (int step = 0; step < 2; ++step)
        for (const auto& [low, high, seed] : {std::tuple{-1, 1, 4}, std::tuple{2, 3, 5}})
          (void)layer(Variable(
              esp::slice(Variable(numbers({8, 3}, low, high, seed)), 0, 4 * step, 4 * step + 4).value()));
    }
    return std::pair{mean.value().clone(), deviation.value().clone()};
  };
  const auto expected = statistics(How::eager);
  for (const How how : {How::fed, How::plan, How::replicas}) {
    const auto found = statistics(how);
    BOOST_TEST(difference(found.first, expected.first) < 1e-14);
    BOOST_TEST(difference(found.second, expected.second) < 1e-14);
  }
}

BOOST_AUTO_TEST_SUITE_END()
