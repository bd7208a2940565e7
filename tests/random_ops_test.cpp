// Random ops: eagerly, in plans, on replicas, from checkpoints and recomputed they draw the same numbers, and
// others in each step.
#include <boost/test/unit_test.hpp>

#include <cmath>

#include "checkpoint_program.h"
#include "espalier/core/error.h"
#include "espalier/core/node.h"
#include "espalier/core/op_registry.h"
#include "espalier/executor/compile.h"
#include "replica_programs.h"

namespace esp = espalier;
namespace optim = espalier::optim;
using namespace espalier::testing;
using esp::Tensor;
using esp::Variable;

namespace {

esp::data::Distributor feed_of(int64_t rows, int64_t batch, int64_t width = 4) {
  return esp::data::Distributor({numbers({rows, width}, -1, 1, 4)},
                                {.batch_size = batch, .shuffle = true, .seed = 9});
}

/// A loss with all random ops: of rows, of rows along the second axis, of parameters, and in fixed shapes.
struct Noisy {
  explicit Noisy(int64_t batch = 7) : feed(feed_of(29, batch)) {
    const Variable x = feed.get_output_graphs()[0];
    const Variable fixed = esp::normal({4}, esp::float64) * 0.1;
    const Variable kept = esp::dropout(w, 0.3);
    Variable h = esp::tanh(esp::matmul(x + fixed, kept));
    h = h + esp::exp(deviation * 0.5) * esp::randn_like(h);
    h = h * esp::bernoulli(esp::sigmoid(h));
    h = esp::transpose(esp::transpose(h) + esp::rand_like(esp::transpose(h)));
    root = esp::mean(esp::square(h * esp::uniform({3}, esp::float64)));
  }
  esp::data::Distributor feed;
  Variable w = esp::parameter(numbers({4, 3}, -1, 1, 1), "w"),
           deviation = esp::parameter(numbers({3}, -1, 1, 2), "deviation");
  Variable root;
};

void add(Trace& trace, const Noisy& n, double loss) {
  trace.push_back(esp::tensor(loss, esp::float64));
  for (const Variable& p : {n.w, n.deviation}) trace.push_back(p.value().clone());
}

Trace eagerly() {
  esp::seed(31);
  Noisy n;
  const optim::Adam adam({.lr = 0.01});
  Trace trace;
  for (int epoch = 0; epoch < 2; ++epoch, n.feed.reset())
    for (int64_t step = 0; step < n.feed.steps(); ++step) {
      const double loss = n.root.forward().item();
      n.root.update(adam);
      add(trace, n, loss);
    }
  return trace;
}

Trace planned(esp::ExecutorOptions how = {}) {
  esp::seed(31);
  const Noisy n;
  how.optimizer = optim::Adam({.lr = 0.01});
  const esp::Executor executor = n.root.get_executor(how);
  Trace trace;
  executor.on(esp::Event::step_finish, [&](const esp::StepInfo& info) { add(trace, n, info.loss); });
  (void)executor.execute({.epochs = 2, .progress = false});
  return trace;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(random_ops)

BOOST_AUTO_TEST_CASE(the_table_of_ops) {
  const auto same = [](const std::vector<Array>& in) { return in[0]; };
  for (const esp::Shape& shape : {esp::Shape{3, 4}, esp::Shape{}, esp::Shape{2, 1, 3}}) {
    check_op({"randn_like",
              [](const Variables& x) { return x[0] + esp::randn_like(x[0]) * 0.0; },
              {numbers(shape)},
              same});
    check_op({"rand_like",
              [](const Variables& x) { return x[0] + esp::rand_like(x[0]) * 0.0; },
              {numbers(shape)},
              same});
  }
  check_op({"normal",
            [](const Variables& x) { return x[0] + esp::normal({4}, x[0].dtype(), x[0].device()) * 0.0; },
            {numbers({3, 4})},
            same});
  check_op({"uniform",
            [](const Variables& x) { return x[0] + esp::uniform({}, x[0].dtype(), x[0].device()) * 0.0; },
            {numbers({3, 4})},
            same});
  Tensor certain({5, 3}, esp::float64);
  for (int64_t i = 0; i < 15; ++i) certain.span<double>()[static_cast<size_t>(i)] = i * 7 % 3 == 1;
  check_op({"bernoulli", [](const Variables& x) { return esp::bernoulli(x[0]); }, {certain}, same, 0});
}

BOOST_AUTO_TEST_CASE(numbers_are_those_of_randn_and_rand) {
  for (const esp::DType dtype : {esp::float32, esp::float64, esp::float16, esp::bfloat16}) {
    const auto equal = [&](const Tensor& expected, const Variable& v) {
      BOOST_TEST(v.dtype() == dtype);
      BOOST_TEST(difference(expected, v.value()) == 0);
    };
    esp::seed(5);
    const Tensor n = esp::randn({7, 30}, dtype), u = esp::rand({7, 30}, dtype);
    esp::seed(5);
    equal(n, esp::randn_like(esp::zeros({7, 30}, dtype)));
    equal(u, esp::rand_like(esp::zeros({7, 30}, dtype)));
    esp::seed(5);
    equal(n, esp::normal({7, 30}, dtype));
    equal(u, esp::uniform({7, 30}, dtype));
  }
}

BOOST_AUTO_TEST_CASE(bernoulli_of_a_number_and_a_shape) {
  for (const esp::DType dtype : {esp::float32, esp::float64, esp::int64, esp::boolean}) {
    esp::seed(8);
    const Tensor u = esp::rand({50, 20}, dtype == esp::float64 ? esp::float64 : esp::float32);
    esp::seed(8);
    const Variable b = esp::bernoulli(0.3, {50, 20}, dtype);
    BOOST_TEST(b.dtype() == dtype);
    BOOST_TEST(difference(esp::cast(esp::less(u, 0.3), dtype).value(), b.value()) == 0);
  }
  BOOST_CHECK_EXCEPTION(esp::bernoulli(1.5, {2}), esp::Error, says({"bernoulli", "1.5", here()}));
  BOOST_CHECK_EXCEPTION(esp::bernoulli(0.5, {-1}), esp::ShapeError, says({"bernoulli: ", "-1", here()}));
}

BOOST_AUTO_TEST_CASE(bernoulli_is_one_where_a_uniform_number_is_below) {
  for (const esp::DType dtype : {esp::float32, esp::float64}) {
    const Tensor p = numbers({300, 100}, 0, 1, 3).to(dtype);
    esp::seed(8);
    const Tensor u = esp::rand({300, 100}, dtype);
    esp::seed(8);
    const Tensor b = esp::bernoulli(p).value();
    BOOST_TEST(difference(esp::cast(esp::less(u, p), dtype).value(), b) == 0);
    esp::seed(8);
    BOOST_TEST(difference(b, esp::bernoulli(laid_out_in_reverse(p)).value()) == 0);
  }
  esp::seed(9);
  const double share = esp::mean(esp::bernoulli(esp::broadcast_to(0.3f, {100'000}))).item();
  BOOST_TEST(std::abs(share - 0.3) < 0.006);
}

BOOST_AUTO_TEST_CASE(what_is_no_probability_is_refused) {
  for (const double bad : {-0.1, 1.0001, static_cast<double>(NAN), static_cast<double>(INFINITY)}) {
    const auto p = esp::tensor({0.5, bad, 0.5}, esp::float64);
    BOOST_CHECK_EXCEPTION(esp::bernoulli(p), esp::Error, says({"bernoulli", "not a probability", here()}));
    const Variable x = esp::placeholder("x", {3}, esp::float64);
    const auto [draws, line] = std::pair(esp::bernoulli(x), here());
    const esp::Executor executor = draws.get_executor({.mode = esp::Mode::inference});
    BOOST_CHECK_EXCEPTION(executor.run({{"x", p}}), esp::Error, says({"not a probability", line}));
  }
}

// A batch without valid probabilities must not change a parameter.
BOOST_AUTO_TEST_CASE(a_step_with_a_wrong_probability_changes_nothing) {
  const Tensor rows = esp::tensor({{0.5}, {0.5}, {2.0}, {0.5}}, esp::float64);
  const esp::data::Distributor feed({rows}, {.batch_size = 2});
  const Variable w = esp::parameter(esp::ones({1}, esp::float64));
  const Variable loss = esp::sum(w * 2.0) + esp::sum(esp::bernoulli(feed.get_output_graphs()[0])) * 0.0;
  const esp::Executor executor = loss.get_executor({.optimizer = optim::Sgd(0.25)});
  executor.step();
  BOOST_TEST(w.item() == 0.5);
  BOOST_CHECK_THROW(executor.step(), esp::Error);
  BOOST_TEST(w.item() == 0.5);
}

BOOST_AUTO_TEST_CASE(errors_name_the_op_and_the_line) {
  const Tensor integers = esp::arange(3, esp::int64);
  BOOST_CHECK_EXCEPTION(esp::randn_like(integers), esp::TypeError, says({"randn_like", "int64", here()}));
  BOOST_CHECK_EXCEPTION(esp::rand_like(integers), esp::TypeError, says({"rand_like", "int64", here()}));
  BOOST_CHECK_EXCEPTION(esp::bernoulli(integers), esp::TypeError, says({"bernoulli", "int64", here()}));
  BOOST_CHECK_EXCEPTION(esp::normal({2}, esp::int32), esp::TypeError, says({"normal", "int32", here()}));
  BOOST_CHECK_EXCEPTION(esp::uniform({2, -1}), esp::ShapeError, says({"-1", here()}));
  BOOST_CHECK_EXCEPTION(esp::randn_like(Variable()), esp::Error, says({"randn_like", "undefined", here()}));
}

BOOST_AUTO_TEST_CASE(each_evaluation_of_a_fed_tree_draws_anew) {
  const auto feed = feed_of(8, 2);
  const Variable x = feed.get_output_graphs()[0];
  const Variable noise = esp::randn_like(x), fixed = esp::normal({4}, esp::float64);
  const Variable root = esp::sum(x * 0.0 + noise + fixed);
  const Tensor first = noise.value(), second = fixed.value();
  double before = 0;
  for (int step = 0; step < 4; ++step) {
    const double now = root.forward().item();
    BOOST_TEST(now != before);
    BOOST_TEST(std::abs(now - esp::sum(noise.value() + fixed.value()).item()) < 1e-12);
    before = now;
  }
  BOOST_TEST(difference(first, noise.value()) > 0);
  BOOST_TEST(difference(second, fixed.value()) > 0);
}

BOOST_AUTO_TEST_CASE(a_tree_without_a_feed_draws_where_it_is_written) {
  esp::seed(2);
  const Tensor expected = esp::randn({3});
  esp::seed(2);
  const Variable w = esp::parameter(esp::ones({3})), noise = esp::randn_like(w);
  const Variable loss = esp::sum(w * noise);
  for (int i = 0; i < 2; ++i) {
    loss.forward().backward();
    BOOST_TEST(difference(expected, loss.gradient(w).value()) == 0);
    BOOST_TEST(difference(expected, noise.value()) == 0);
  }
  loss.update(optim::Sgd(1.0));
  BOOST_TEST(difference((1.0 - Variable(expected)).value(), w.value()) < 1e-6);
}

// The gradient of the eager part is made of the numbers of the step that its root shows.
BOOST_AUTO_TEST_CASE(gradients_are_of_the_numbers_of_their_step) {
  const auto feed = feed_of(8, 2);
  const Variable x = feed.get_output_graphs()[0];
  const Variable w = esp::parameter(esp::ones({4}, esp::float64)), v = esp::parameter(numbers({4}));
  const Variable noise = esp::normal({4}, esp::float64), rows = esp::randn_like(x);
  const Variable loss = esp::sum(w * (noise * 2.0)) + esp::sum(v * rows);
  for (int step = 0; step < 3; ++step) {
    loss.forward();
    BOOST_TEST(difference((noise * 2.0).value(), loss.gradient(w).value()) == 0);
    BOOST_TEST(difference(esp::sum(Variable(rows.value()), 0).value(), loss.gradient(v).value()) < 1e-12);
    loss.backward();
    BOOST_TEST(difference((noise * 2.0).value(), loss.gradient(w).value()) == 0);
  }
}

BOOST_AUTO_TEST_CASE(a_gradient_at_numbers_of_another_step_is_refused) {
  const auto feed = feed_of(8, 2);
  const Variable w = esp::parameter(esp::ones({4}, esp::float64)), noise = esp::normal({4}, esp::float64);
  const Variable unfed = esp::sum(w * noise), fed = esp::sum(feed.get_output_graphs()[0] + noise);
  fed.forward();
  BOOST_CHECK_EXCEPTION(unfed.gradient(w), esp::Error, says({"normal", "drawn anew", here()}));
}

BOOST_AUTO_TEST_CASE(no_gradient_passes_but_through_what_is_computed_with_them) {
  const Variable mean = esp::variable(numbers({5})), deviation = esp::variable(numbers({5}, 0.5, 1, 1));
  const Variable noise = esp::randn_like(mean);
  const Variable y = esp::sum(esp::square(mean + deviation * noise));
  const Variable sample = mean + deviation * noise;
  BOOST_TEST(difference((sample * 2.0).value(), y.gradient(mean).value()) < 1e-12);
  BOOST_TEST(difference((sample * noise * 2.0).value(), y.gradient(deviation).value()) < 1e-12);
  const Variable second = y.gradient(deviation).gradient(deviation);
  BOOST_TEST(difference((noise * noise * 2.0).value(), second.value()) < 1e-12);
  const Variable p = esp::variable(numbers({5}, 0.2, 0.8, 2));
  const Tensor zero = esp::zeros({5}, esp::float64);
  BOOST_TEST(difference(zero, esp::sum(esp::bernoulli(p) * 3.0).gradient(p).value()) == 0);
  BOOST_TEST(difference(zero, esp::sum(esp::rand_like(p)).gradient(p).value()) == 0);
}

// Nothing is kept or built for gradients that cannot pass.
BOOST_AUTO_TEST_CASE(random_numbers_need_no_gradient) {
  const Variable a = esp::variable(numbers({4}));
  for (const Variable& v : {esp::randn_like(a), esp::rand_like(a), esp::bernoulli(esp::sigmoid(a))})
    BOOST_TEST(!esp::exp(v * 2.0).node()->needs_gradient);
  const Variable y = esp::dropout(a, 0.5);
  BOOST_TEST(y.node()->needs_gradient);
  BOOST_TEST(!y.node()->inputs[1].node()->needs_gradient);
}

BOOST_AUTO_TEST_CASE(plans_draw_what_eager_loops_draw) {
  const Trace one = eagerly();
  BOOST_TEST(difference_of(planned(), one) < 1e-12);
  BOOST_TEST(difference_of(planned({.without = esp::pass_names()}), one) < 1e-12);
}

// Products are computed in 16 bits, random numbers are not.
BOOST_AUTO_TEST_CASE(mixed_precision_draws_the_same_numbers) {
  const auto noise = [](esp::Precision precision) {
    esp::seed(6);
    const esp::data::Distributor feed({numbers({8, 16}).to(esp::float32)}, {.batch_size = 4});
    const Variable w = esp::parameter(numbers({16, 8}).to(esp::float32));
    const Variable h = esp::matmul(feed.get_output_graphs()[0], w);
    const Variable drawn =
        esp::concat({esp::randn_like(h), esp::rand_like(h), esp::bernoulli(h * 0.0 + 0.5)});
    const esp::Executor executor =
        (drawn + esp::sum(h * 0.0)).get_executor({.mode = esp::Mode::inference, .precision = precision});
    executor.step();
    return executor.value().clone();
  };
  BOOST_TEST(difference(noise(esp::Precision::bfloat16), noise(esp::Precision::float32)) == 0);
}

BOOST_AUTO_TEST_CASE(replicas_and_micro_batches_draw_what_one_device_draws) {
  const Trace one = planned();
  for (const int count : {2, 3, 4}) BOOST_TEST_CONTEXT(count << " replicas")
  BOOST_TEST(difference_of(planned({.devices = cpus(count)}), one) < 1e-9);
  BOOST_TEST(difference_of(planned({.accumulate = 3}), one) < 1e-9);
  BOOST_TEST(difference_of(planned({.devices = cpus(2), .accumulate = 2}), one) < 1e-9);
  BOOST_TEST(difference_of(planned({.devices = cpus(2), .replicas = {.shard_states = true}}), one) < 1e-9);
}

BOOST_AUTO_TEST_CASE(probabilities_from_the_whole_batch_are_exchanged) {
  const auto train = [](const std::vector<esp::Device>& devices) {
    esp::seed(3);
    const auto feed = feed_of(12, 6);
    const Variable x = feed.get_output_graphs()[0], w = esp::parameter(numbers({4}, -1, 1, 5));
    const Variable mask = esp::bernoulli(esp::sigmoid(esp::mean(x * w, 0) * 5.0));
    const Variable loss = esp::mean(esp::square(x * w * mask));
    const esp::Executor executor = loss.get_executor({.optimizer = optim::Sgd(0.1), .devices = devices});
    Trace trace;
    for (const auto& epoch : executor.execute({.epochs = 3, .progress = false}).epochs)
      trace.push_back(esp::tensor(epoch.loss_sum, esp::float64));
    trace.push_back(w.value().clone());
    return trace;
  };
  const Trace one = train({});
  for (const int count : {2, 3}) BOOST_TEST(difference_of(train(cpus(count)), one) < 1e-9);
}

BOOST_AUTO_TEST_CASE(recomputed_values_have_the_same_numbers) {
  const auto train = [](int64_t budget, int64_t& arena) {
    esp::seed(3);
    const esp::data::Distributor feed({numbers({256, 32})}, {.batch_size = 128});
    Variable h = feed.get_output_graphs()[0];
    Variables weights;
    for (uint64_t i = 0; i < 6; ++i) {
      weights.push_back(esp::parameter(numbers({32, 32}, -0.3, 0.3, i + 1)));
      h = esp::tanh(esp::matmul(h, weights.back()));
      h = h * esp::bernoulli(esp::sigmoid(h * 2.0)) + esp::randn_like(h) * esp::rand_like(h);
    }
    const esp::Executor executor =
        esp::mean(esp::square(h)).get_executor({.optimizer = optim::Sgd(0.1), .memory_budget = budget});
    (void)executor.execute({.epochs = 2, .progress = false});
    arena = executor.plan().arena_bytes();
    Trace trace;
    for (const Variable& w : weights) trace.push_back(w.value().clone());
    return trace;
  };
  int64_t free = 0, tight = 0;
  const Trace one = train(0, free);
  BOOST_TEST(difference_of(train(free * 6 / 10, tight), one) == 0);
  BOOST_TEST(tight < free);
}

BOOST_AUTO_TEST_CASE(a_resumed_run_ends_with_the_same_bits) {
  struct Run {
    Noisy n;
    esp::Executor executor = n.root.get_executor({.optimizer = optim::Adam({.lr = 0.01})});
    std::string finish() const {
      const esp::History history = executor.execute({.epochs = 3, .progress = false});
      return bits(history) + bits(n.w.value()) + bits(n.deviation.value());
    }
  };
  esp::seed(31);
  const std::string whole = Run().finish();
  const TemporaryFolder folder;
  esp::seed(31);
  const Run first;
  for (int step = 0; step < 8; ++step) try {
      first.executor.step();
    } catch (const esp::EndOfData&) {
    }
  first.executor.checkpoint(folder.path());
  esp::seed(99);
  const Run second;
  second.executor.resume(folder.path());
  BOOST_TEST(second.finish() == whole);
}

BOOST_AUTO_TEST_CASE(inference_draws_anew_and_nodes_are_not_merged) {
  const Variable x = esp::placeholder("x", {3}, esp::float64);
  const Variable root =
      esp::concat({esp::randn_like(x) - esp::randn_like(x),
                   esp::normal({3}, esp::float64) - esp::normal({3}, esp::float64), esp::bernoulli(x)});
  const esp::Executor executor = root.get_executor({.mode = esp::Mode::inference});
  const Tensor p = esp::full({3}, 0.5, esp::float64);
  esp::seed(4);
  const Tensor first = executor.run({{"x", p}}).clone(), second = executor.run({{"x", p}}).clone();
  BOOST_TEST(difference(first, second) > 0);
  for (int64_t i = 0; i < 6; ++i) {
    BOOST_TEST(first.at<double>({i}) != 0);
    BOOST_TEST(first.at<double>({i}) != second.at<double>({i}));
  }
  esp::seed(4);
  BOOST_TEST(difference(first, executor.run({{"x", p}})) == 0);
}

// Validation draws anew in each of its steps, and from streams of its own.
BOOST_AUTO_TEST_CASE(validation_does_not_change_training) {
  std::vector<double> losses[2], validation;
  for (const bool with : {false, true}) {
    esp::seed(17);
    const Noisy n;
    esp::ExecutorOptions options{.mode = esp::Mode::training, .optimizer = optim::Sgd(0.0)};
    if (with) options.validation = feed_of(12, 3);
    for (const auto& epoch : n.root.get_executor(options).execute({.epochs = 3, .progress = false}).epochs) {
      losses[with].push_back(epoch.loss_sum);
      if (with) validation.push_back(epoch.validation_loss);
    }
  }
  BOOST_TEST(losses[0] == losses[1]);
  BOOST_TEST(validation[0] != validation[1]);
}

BOOST_AUTO_TEST_CASE(ops_in_fixed_shapes_are_made_from_their_attributes) {
  const Variable v = esp::normal({2, 3}, esp::bfloat16);
  const auto again = esp::make_op("normal", v.node()->op().attributes());
  BOOST_TEST(again->equals(v.node()->op()));
  BOOST_TEST(!again->equals(*esp::make_op("uniform", v.node()->op().attributes())));
  BOOST_TEST((again->infer({}) == esp::Specs{{esp::bfloat16, {2, 3}}}));
}

BOOST_AUTO_TEST_CASE(plans_on_gpus_draw_what_the_cpu_draws) {
  for (const esp::Device& device : gpus_to_test()) {
    const Trace one = planned();
    BOOST_TEST(difference_of(planned({.devices = {device}}), one) < 1e-9);
    BOOST_TEST(difference_of(planned({.devices = {device}, .launch = esp::Launch::stream}), one) < 1e-9);
    BOOST_TEST(difference_of(planned({.devices = {device, device}}), one) < 1e-9);
    esp::seed(5);
    const Tensor here = esp::uniform({1000}).value();
    esp::seed(5);
    const Variable there = esp::uniform({1000}, esp::float32, device);
    BOOST_TEST(there.value().device() == device);
    BOOST_TEST(difference(here, there.value()) == 0);
  }
}

BOOST_AUTO_TEST_SUITE_END()
