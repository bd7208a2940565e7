// States that forward passes write: running statistics come out alike eagerly, in a plan, and on replicas.
#include "espalier/core/with_assignment.h"

#include <boost/test/unit_test.hpp>

#include "espalier/core/error.h"
#include "espalier/core/recompute.h"
#include "replica_programs.h"

namespace esp = espalier;
namespace optim = espalier::optim;
using namespace espalier::testing;
using esp::Variable;

namespace {

/// A network that keeps a running mean and a running deviation of what it computes, and counts its steps.
struct Running {
  explicit Running(bool statistics = true, int64_t batch = 7)
      : feed({numbers({29, 6}, -1, 1, 4)}, {.batch_size = batch, .shuffle = true, .seed = 9}) {
    Variable h = esp::matmul(feed.get_output_graphs()[0], w);
    if (statistics) {
      const Variable average = esp::mean(h, 0);
      h = esp::with_assignment(h, mean, mean * 0.9 + average * 0.1);
      const Variable squares = esp::sum(esp::square(h - average), 0);
      h = esp::with_assignment(h, deviation, deviation * 0.9 + esp::sqrt(squares) * 0.1);
    }
    y = esp::with_assignment(esp::tanh(h - mean), count, count + 1.0);
    loss = esp::mean(esp::square(y - 0.5));
  }
  Trace states() const {
    Trace trace;
    for (const Variable& v : {w, mean, deviation, count}) trace.push_back(v.value().clone());
    return trace;
  }

  esp::data::Distributor feed;
  Variable w = esp::parameter(numbers({6, 3}, -1, 1, 1), "w"),
           mean = esp::state(numbers({3}, -1, 1, 2), "mean"),
           deviation = esp::state(esp::ones({3}, esp::float64), "deviation"),
           count = esp::state(esp::tensor(0.0, esp::float64), "count");
  Variable y, loss;
};

void add(Trace& trace, const Running& network, double loss) {
  trace.push_back(esp::tensor(loss, esp::float64));
  for (const esp::Tensor& value : network.states()) trace.push_back(value);
}

Trace eagerly() {
  Running network;
  const optim::Adam adam({.lr = 0.01});
  Trace trace;
  for (int epoch = 0; epoch < 2; ++epoch, network.feed.reset())
    for (int64_t step = 0; step < 5; ++step) {  // the last one has a single row
      const double loss = network.loss.forward().item();
      network.loss.update(adam);
      add(trace, network, loss);
    }
  return trace;
}

Trace planned(esp::ExecutorOptions how, bool statistics = true) {
  const Running network(statistics);
  how.optimizer = optim::Adam({.lr = 0.01});
  const esp::Executor executor = network.loss.get_executor(how);
  Trace trace;
  executor.on(esp::Event::step_finish, [&](const esp::StepInfo& info) { add(trace, network, info.loss); });
  (void)executor.execute({.epochs = 2, .progress = false});
  return trace;
}

template <class E>
std::string refusal(const std::function<void()>& f) {
  try {
    f();
  } catch (const E& error) {
    return error.what();
  }
  return {};
}
bool says(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

BOOST_AUTO_TEST_SUITE(with_assignment)

BOOST_AUTO_TEST_CASE(plans_and_replicas_write_what_an_eager_loop_writes) {
  const Trace eager = eagerly();
  BOOST_TEST(eager.back().item() == 10);
  BOOST_TEST(difference_of(planned({}), eager) < 1e-12);
  for (const int replicas : {2, 3})  // the last batch has fewer rows than replicas
    BOOST_TEST(difference_of(planned({.devices = cpus(replicas)}), eager) < 1e-9);
  BOOST_TEST(difference_of(planned({.devices = cpus(2), .replicas = {.shard_states = true}}), eager) < 1e-9);
  BOOST_TEST(difference_of(planned({.without = {"simplify", "fuse_pointwise", "in_place"}}), eager) < 1e-12);
}

BOOST_AUTO_TEST_CASE(on_gpus_too) {
  const Trace one = planned({});
  for (const esp::Device& gpu : gpus_to_test())
    for (const auto& devices : {std::vector{gpu}, std::vector{gpu, gpu}})
      BOOST_TEST(difference_of(planned({.devices = devices}), one) < 1e-9);
}

BOOST_AUTO_TEST_CASE(an_evaluation_writes_once) {
  Running network;
  const auto count = [&] { return network.count.item(); };
  BOOST_TEST(count() == 0);
  (void)network.loss.value();
  BOOST_TEST(count() == 1);
  const esp::Tensor mean = network.mean.value().clone();
  (void)network.loss.value();
  (void)network.loss.gradient(network.w).value();
  network.loss.backward();
  (void)network.y.value();  // was released, maybe
  BOOST_TEST(count() == 1);
  BOOST_TEST(difference(network.mean.value(), mean) == 0);
  (void)network.loss.forward();
  BOOST_TEST(count() == 2);
  (void)network.loss.forward();
  BOOST_TEST(count() == 3);
}

BOOST_AUTO_TEST_CASE(a_released_value_that_is_computed_again_writes_nothing) {
  const esp::data::Distributor feed({numbers({8, 3}, -1, 1, 4)}, {.batch_size = 4});
  const Variable count = esp::state(esp::tensor(0.0, esp::float64), "count");
  Variable first, second;
  {
    const Variable y = esp::with_assignment(feed.get_output_graphs()[0] * 2.0, count, count + 1.0);
    first = esp::sum(y), second = esp::sum(y * 3.0);  // no handle holds y: each computes it
  }
  const double shown = first.item();
  BOOST_TEST(count.item() == 1);
  BOOST_TEST(second.item() == 3 * shown, boost::test_tools::tolerance(1e-12));
  BOOST_TEST(count.item() == 1);
  (void)second.forward();
  BOOST_TEST(count.item() == 2);
}

BOOST_AUTO_TEST_CASE(gradients_follow_a_state_that_is_read_beside_the_feed) {
  const auto weights = [](bool frozen) {
    const esp::data::Distributor feed({esp::ones({4, 1}, esp::float64)}, {.batch_size = 1});
    const auto [x] = feed.get_output_graphs<1>();
    const Variable p = esp::parameter(esp::ones({1}, esp::float64)),
                   s = esp::state(esp::ones({1}, esp::float64));
    const Variable loss =
        esp::mean(esp::with_assignment(x, s, s * 0.5)) + esp::mean(esp::square(s)) * esp::mean(p);
    std::vector<double> values;
    std::optional<esp::Executor> executor;
    if (frozen) executor = loss.get_executor({.optimizer = optim::Sgd(1.0)});
    for (int step = 0; step < 4; ++step) {
      if (frozen)
        executor->step();
      else
        loss.forward().update(optim::Sgd(1.0));
      values.push_back(p.item());
    }
    return values;
  };
  BOOST_TEST(weights(false) == (std::vector<double>{0, -0.25, -0.3125, -0.328125}));
  BOOST_TEST(weights(true) == weights(false));
}

BOOST_AUTO_TEST_CASE(no_grad_does_not_prevent_it) {
  const Variable s = esp::state(numbers({3}, -1, 1, 1), "s");
  {
    const esp::NoGrad no_grad;
    const Variable y = esp::with_assignment(s * 2.0, s, s + 1.0);
    BOOST_TEST(difference(y.value(), (Variable(numbers({3}, -1, 1, 1)) * 2.0).value()) == 0);
  }
  BOOST_TEST(difference(s.value(), (Variable(numbers({3}, -1, 1, 1)) + 1.0).value()) == 0);
}

BOOST_AUTO_TEST_CASE(without_a_feed_it_is_written_at_once) {
  const Variable s = esp::state(numbers({3}, -1, 1, 1), "s"), w = esp::parameter(numbers({3}, -1, 1, 2), "w");
  const esp::Tensor expected = (s * 0.5 + w).value();
  Variable loss;
  {
    const Variable y = esp::with_assignment(w * w, s, s * 0.5 + w);
    BOOST_TEST(difference(y.value(), (w * w).value()) == 0);
    loss = esp::sum(esp::square(y));
  }
  BOOST_TEST(difference(s.value(), expected) == 0);
  BOOST_TEST(difference(loss.gradient(w).value(), (4.0 * w * w * w).value()) < 1e-14);
  BOOST_TEST(difference(s.value(), expected) == 0);
  // The state has memory of its own.
  const Variable v = s * 1.0, other = esp::with_assignment(w, s, v);
  s.value().data<double>()[0] += 1;
  BOOST_TEST(difference(v.value(), expected) == 0);
  esp::set_value(s, expected);
  // A plan of it writes as well.
  const esp::Tensor next = (s * 0.5 + w).value();
  (void)loss.get_executor({.optimizer = optim::Sgd(0.0)}).execute({.progress = false});
  BOOST_TEST(difference(s.value(), next) < 1e-14);
}

BOOST_AUTO_TEST_CASE(inference_and_validation_write_nothing) {
  const Running network;
  const Trace before = network.states();
  (void)network.loss.get_executor().execute({.progress = false});
  (void)network.loss.get_executor({.devices = cpus(2)}).execute({.progress = false});
  BOOST_TEST(difference_of(network.states(), before) == 0);
  const esp::data::Distributor other({numbers({12, 6}, -1, 1, 5)}, {.batch_size = 5});
  const esp::Executor executor =
      network.loss.get_executor({.optimizer = optim::Sgd({.lr = 0.1}), .validation = other});
  (void)executor.execute({.epochs = 2, .progress = false});
  BOOST_TEST(network.count.item() == 10);
}

BOOST_AUTO_TEST_CASE(checkpoints_have_them) {
  const TemporaryFolder folder;
  const auto program = [&](int replicas, int64_t epochs, bool resume) {
    const Running network;
    const esp::Executor executor =
        network.loss.get_executor({.optimizer = optim::Adam({.lr = 0.01}), .devices = cpus(replicas)});
    if (resume) executor.resume(folder.path());
    (void)executor.execute({.epochs = epochs, .progress = false, .checkpoint = folder.path()});
    return network.states();
  };
  const Trace whole = program(1, 4, false);
  std::filesystem::remove_all(folder.path());
  (void)program(2, 2, false);
  BOOST_TEST(difference_of(program(1, 4, true), whole) < 1e-9);
}

BOOST_AUTO_TEST_CASE(a_step_that_fails_has_written_nothing) {
  esp::Tensor labels = esp::zeros({8}, esp::int64);
  labels.span<int64_t>()[7] = 4;  // there is no such row; the last replica meets it
  for (const int replicas : {1, 2}) {
    const esp::data::Distributor feed({numbers({8, 3}, -1, 1, 4), labels}, {.batch_size = 4});
    const auto [x, y] = feed.get_output_graphs<2>();
    const Variable w = esp::parameter(numbers({4, 3}, -1, 1, 2), "w"),
                   s = esp::state(esp::tensor(1.0, esp::float64), "s");
    const Variable h = esp::with_assignment(x, s, s * 2.0 + esp::mean(x) * 0.0);
    const Variable loss = esp::mean(esp::square(h - esp::gather(w, y, 0)));
    const esp::Executor executor =
        loss.get_executor({.optimizer = optim::Sgd(0.1), .devices = cpus(replicas)});
    (void)executor.step();
    BOOST_CHECK_THROW((void)executor.step(), esp::IndexError);
    BOOST_TEST(s.item() == 2);
  }
}

BOOST_AUTO_TEST_CASE(values_computed_again_are_not_written_again) {
  const auto arena = [](int64_t budget) {
    return Running()
        .loss.get_executor({.optimizer = optim::Adam(0.01), .memory_budget = budget})
        .plan()
        .arena_bytes();
  };
  const int64_t all = arena(0);
  int64_t budget = all;
  try {
    for (; budget > 0; budget -= 64) (void)arena(budget);
  } catch (const esp::OutOfMemory&) {
    budget += 64;
  }
  BOOST_TEST(budget < all);
  BOOST_TEST(difference_of(planned({.memory_budget = budget}), planned({})) < 1e-12);
}

BOOST_AUTO_TEST_CASE(gradients_are_those_of_the_step_that_ran) {
  // s is read and assigned by lazy and by eager nodes, and one gradient is made of s alone.
  enum class How { plan, eager, gradients_first, taken_up };
  const auto run = [](How how, std::vector<std::string> without = {}) {
    esp::data::Distributor feed({numbers({12, 3}, -1, 1, 4)}, {.batch_size = 3});
    const Variable x = feed.get_output_graphs()[0], w = esp::parameter(numbers({3}, -1, 1, 2), "w"),
                   v = esp::parameter(numbers({3}, -1, 1, 5), "v"),
                   s = esp::state(numbers({3}, 0.5, 1, 3), "s");
    const Variable h = esp::with_assignment(x * w * s, s, s * 0.5 + esp::mean(x, 0));
    const Variable loss = esp::sum(esp::square(h) + esp::exp(w * s)) + esp::sum(v * s);
    const optim::Sgd rule({.lr = 0.1, .momentum = 0.5});
    Trace trace;
    const auto note = [&] {
      for (const Variable& leaf : {w, v, s}) trace.push_back(leaf.value().clone());
    };
    if (how == How::gradients_first) loss.backward();
    for (int epoch = 0; epoch < 2; ++epoch, feed.reset()) {
      if (how == How::plan || (how == How::taken_up && epoch == 1)) {
        esp::ExecutorOptions options{.mode = esp::Mode::training, .without = without};
        if (how == How::plan) options.optimizer = rule;  // else the updates in the tree
        const esp::Executor executor = loss.get_executor(options);
        executor.on(esp::Event::step_finish, [&](const esp::StepInfo&) { note(); });
        (void)executor.execute({.progress = false});
        continue;
      }
      for (int step = 0; step < 4; ++step) {
        loss.forward();
        const esp::Tensor before = loss.gradient(w).value().clone();
        loss.backward();
        BOOST_TEST(difference(loss.gradient(w).value(), before) == 0);
        loss.update(rule);
        note();
      }
    }
    return trace;
  };
  const Trace frozen = run(How::plan);
  for (const How how : {How::eager, How::gradients_first, How::taken_up})
    BOOST_TEST(difference_of(run(how), frozen) < 1e-12);
  BOOST_TEST(difference_of(run(How::taken_up, {"simplify", "in_place"}), frozen) < 1e-12);
}

BOOST_AUTO_TEST_CASE(eager_gradients_are_those_of_the_forward_pass_that_ran) {
  const Variable w = esp::parameter(numbers({3}, -1, 1, 2), "w"),
                 s = esp::state(numbers({3}, 0.5, 1, 3), "s");
  std::vector<Variable> losses;
  Trace expected;
  for (int call = 0; call < 3; ++call) {  // three passes, then their gradients
    const esp::Tensor now = s.value().clone();
    losses.push_back(esp::sum(esp::square(esp::with_assignment(w * s, s, s * 0.5 + 0.1))));
    expected.push_back((2.0 * w * esp::square(Variable(now))).value());
  }
  for (size_t i : {1u, 0u, 2u}) BOOST_TEST(difference(losses[i].gradient(w).value(), expected[i]) < 1e-14);
  // Second derivatives go on through the state: d/ds of 2ws².
  const esp::Tensor now = s.value().clone();
  const Variable loss = esp::sum(esp::square(esp::with_assignment(w * s, s, s * 0.5)));
  const Variable second = esp::sum(loss.gradient(w)).gradient(s);
  BOOST_TEST(difference(second.value(), (4.0 * w * Variable(now)).value()) < 1e-14);
  // A block that is written again for its gradient reads the state that it has read.
  const esp::Tensor read = s.value().clone();
  const Variable block = esp::recompute([&](const Variable& x) { return esp::sin(x * s); }, w * 1.0);
  const Variable of_block = esp::sum(esp::with_assignment(block, s, s * 0.5));
  BOOST_TEST(difference(of_block.gradient(w).value(),
                        (esp::cos(w * Variable(read)) * Variable(read)).value()) < 1e-14);
  // What set_value has replaced is gone.
  const Variable other = esp::sum(w * s);
  esp::set_value(s, esp::zeros({3}, esp::float64));
  BOOST_TEST(says(refusal<esp::Error>([&] { (void)other.gradient(w); }), "has been updated since"));
}

BOOST_AUTO_TEST_CASE(eager_gradients_are_not_those_of_what_a_plan_writes_later) {
  const Variable w = esp::parameter(numbers({3}, -1, 1, 2), "w"),
                 v = esp::parameter(numbers({3}, -1, 1, 4), "v"),
                 s = esp::state(numbers({3}, 0.5, 1, 3), "s");
  const Variable written = esp::sum(esp::with_assignment(v * s, s, s * 0.5));
  const esp::Executor plan = written.get_executor({.optimizer = optim::Sgd(0.0)});
  (void)plan.execute({.progress = false});  // from here on the state lies in the memory of the plan
  const esp::Tensor now = s.value().clone();
  const Variable loss = esp::sum(esp::square(esp::with_assignment(w * s, s, s * 0.5 + 1.0)));
  (void)plan.execute({.epochs = 2, .progress = false});
  BOOST_TEST(difference(loss.gradient(w).value(), (2.0 * w * esp::square(Variable(now))).value()) < 1e-14);
}

BOOST_AUTO_TEST_CASE(second_derivatives_of_a_step_are_written_before_it) {
  const esp::data::Distributor feed({numbers({6, 3}, -1, 1, 4)}, {.batch_size = 3});
  const Variable x = feed.get_output_graphs()[0], v = esp::parameter(numbers({3}, -1, 1, 2), "v"),
                 s = esp::state(numbers({3}, 0.5, 1, 3), "s");
  const Variable h = esp::with_assignment(x * s, s, s * 0.5);
  const Variable loss = esp::sum(h) + esp::sum(esp::exp(v * s));  // no feed reaches the gradient of v
  const Variable second = esp::sum(loss.gradient(v)).gradient(v);
  BOOST_TEST(difference(second.value(), (esp::exp(v * s) * esp::square(s)).value()) < 1e-14);
  loss.forward();
  const std::string text = refusal<esp::Error>([&] { (void)esp::sum(loss.gradient(v) * 2.0).gradient(v); });
  for (const char* part : {"the s it used", "derivatives of gradients before the forward()"})
    BOOST_TEST(says(text, part), text);
}

BOOST_AUTO_TEST_CASE(a_state_may_show_what_the_step_assigns) {
  const esp::data::Distributor feed({numbers({6, 3}, -1, 1, 4)}, {.batch_size = 3});
  const Variable x = feed.get_output_graphs()[0], w = esp::parameter(numbers({3}, -1, 1, 2), "w"),
                 before = esp::state(esp::zeros({3}, esp::float64), "before");
  const Variable loss = esp::mean(esp::with_assignment(x * w, before, w));
  const esp::Executor executor = loss.get_executor({.optimizer = optim::Sgd(0.1)});
  for (int step = 0; step < 2; ++step) {
    const esp::Tensor now = w.value().clone();
    (void)executor.step();
    BOOST_TEST(difference(before.value(), now) == 0);
    BOOST_TEST(difference(w.value(), now) > 0);
  }
}

BOOST_AUTO_TEST_CASE(parts_of_a_batch_write_what_no_batch_is_in) {
  const Trace parts = planned({.accumulate = 2}, false),
              both = planned({.devices = cpus(2), .accumulate = 3}, false), one = planned({}, false);
  BOOST_TEST(one.back().item() == 10);
  BOOST_TEST(difference_of(parts, one) < 1e-9);
  BOOST_TEST(difference_of(both, one) < 1e-9);
}

BOOST_AUTO_TEST_CASE(what_cannot_be_written_is_refused) {
  const esp::data::Distributor feed({numbers({8, 3}, -1, 1, 4)}, {.batch_size = 4});
  const Variable x = feed.get_output_graphs()[0], w = esp::parameter(numbers({3}, -1, 1, 2), "w"),
                 s = esp::state(esp::zeros({3}, esp::float64), "s");
  const auto order = [&](const Variable& leaf, const Variable& value) {
    return [=] { (void)esp::with_assignment(x * w, leaf, value); };
  };
  BOOST_TEST(says(refusal<esp::Error>(order(w, s)), "only a state()"));
  BOOST_TEST(says(refusal<esp::Error>(order(x, s)), "only a state()"));
  BOOST_TEST(says(refusal<esp::Error>(order(s, Variable())), "undefined"));
  BOOST_TEST(says(refusal<esp::ShapeError>(order(s, esp::mean(x))), "[3]"));
  BOOST_TEST(says(refusal<esp::TypeError>(order(s, esp::cast(s, esp::float32))), "float32"));
  BOOST_TEST(says(refusal<esp::Error>(order(w, s)), "with_assignment_test.cpp:"));

  const auto trained = [&](const Variable& value, const Variable& leaf, esp::ExecutorOptions how) {
    how.optimizer = optim::Sgd(0.1);
    const Variable loss = esp::mean(esp::with_assignment(x * w, leaf, value));
    return refusal<esp::UnsupportedError>([&] { (void)loss.get_executor(how); });
  };
  const Variable rows = esp::state(esp::zeros({4, 3}, esp::float64), "rows");
  BOOST_TEST(trained(x * w, rows, {}).empty());
  for (const std::string& text :
       {trained(x * w, rows, {.devices = cpus(2)}), trained(esp::max(x, 0), s, {.devices = cpus(2)}),
        trained(esp::exp(esp::mean(x, 0)), s, {.accumulate = 2})})
    BOOST_TEST(says(text, "with_assignment_test.cpp:"), text);
  BOOST_TEST(says(trained(esp::exp(esp::mean(x, 0)), s, {.accumulate = 2}), ".accumulate"));
  BOOST_TEST(
      trained(esp::mean(x, 0), s, {.devices = cpus(2), .replicas = {.local_statistics = true}}).empty());
  // A replica's own sum is smaller than that of the batch, and the mean of their squares is no square of it.
  for (const Variable& of_sum : {esp::square(esp::sum(x, 0)), esp::exp(esp::sum(x, 0) * 0.1)}) {
    BOOST_TEST(trained(of_sum, s, {.devices = cpus(2)}).empty());
    const std::string text = trained(of_sum, s, {.devices = cpus(2), .replicas = {.local_statistics = true}});
    BOOST_TEST(says(text, "with_assignment_test.cpp:"), text);
  }
}

BOOST_AUTO_TEST_CASE(a_step_that_loss_scaling_skips_writes_nothing) {
  for (const int replicas : {1, 2}) {
    const esp::data::Distributor feed({numbers({48, 6}, -1, 1, 1).to(esp::float32)}, {.batch_size = 4});
    const Variable w = esp::parameter(numbers({6, 6}, -1, 1, 2).to(esp::float32), "w"),
                   count = esp::state(esp::tensor(0.0f), "count"), mean = esp::state(esp::zeros({6}), "mean");
    Variable h = esp::matmul(feed.get_output_graphs()[0], w);
    h = esp::with_assignment(esp::with_assignment(h, count, count + 1.0), mean, esp::mean(h, 0));
    const esp::Executor executor = (esp::mean(esp::square(h)) * 4.0)
                                       .get_executor({.optimizer = optim::Sgd({.lr = 1e-4}),
                                                      .devices = cpus(replicas),
                                                      .precision = esp::Precision::float16});
    double scale = executor.loss_scale(), good = 0;
    int skipped = 0;
    for (int step = 0; step < 12; ++step) {
      const esp::Tensor before = mean.value();
      (void)executor.step();
      const bool skips = executor.loss_scale() < scale;
      scale = executor.loss_scale();
      skipped += skips, good += !skips;
      BOOST_TEST((difference(mean.value(), before) == 0) == skips);
      BOOST_TEST(count.value().item() == good);
    }
    BOOST_TEST(skipped > 0);
    BOOST_TEST(good > 0);
  }
}

BOOST_AUTO_TEST_SUITE_END()
