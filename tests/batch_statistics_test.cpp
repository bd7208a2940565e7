// Statistics of a batch on replicas: what rows read of means and sums over all rows is exchanged in the midst
// of a step, forward and backward, and training is that of one device.
#include <boost/test/unit_test.hpp>

#include "espalier/core/custom_op.h"
#include "espalier/core/error.h"
#include "replica_programs.h"

namespace esp = espalier;
namespace optim = espalier::optim;
using namespace espalier::testing;
using esp::Variable;

namespace {

enum class Loss { mean, sum, mean_and_penalty, sum_and_penalty, of_rows, root };

struct Program {
  Loss loss = Loss::mean;
  int64_t batch = 7;  // of 29 rows
  std::vector<esp::Device> devices = {};
  uint32_t optimizer = 6;
  bool shard_states = false, local_statistics = false;
  int64_t bucket_bytes = int64_t{1} << 22;
};

Variable normalized(const Variable& x, const Variable& gamma, const Variable& beta) {
  const Variable centered = x - esp::mean(x, 0);
  const Variable variance = esp::mean(esp::square(centered), 0);
  return centered / esp::sqrt(variance + 1e-3) * gamma + beta;
}

/// Two layers, each with a normalization over the batch, one over the sum of squares.
struct Normalizing {
  explicit Normalizing(const Program& program)
      : feed({numbers({29, 6}, -1, 1, 4), TestNetwork::labels()},
             {.batch_size = program.batch, .shuffle = true, .seed = 9}) {
    const auto [x, y] = feed.get_output_graphs<2>();
    for (const esp::Shape& shape : std::vector<esp::Shape>{{6, 8}, {8}, {8}, {8, 5}, {5}})
      parameters.push_back(esp::parameter(numbers(shape, -1, 1, parameters.size()), "p"));
    const Variable &w = parameters[0], &out = parameters[3];
    Variable h = esp::relu(normalized(esp::matmul(x, w), parameters[1], parameters[2]));
    h = esp::dropout(h, 0.2);
    const Variable squares = esp::square(h);  // of a part's own rows, a sum would be smaller
    h = h / esp::sqrt((program.local_statistics ? esp::mean(squares, 0, true) : esp::sum(squares, 0, true)) +
                      1.0);
    const Variable logits = esp::matmul(h, out) + parameters[4];
    const Variable rows = esp::pick(esp::log_softmax(logits), y);
    switch (program.loss) {
      case Loss::mean: loss = esp::softmax_cross_entropy(logits, y); break;
      case Loss::sum: loss = -esp::sum(rows); break;
      case Loss::mean_and_penalty: loss = -esp::mean(rows) + esp::sum(esp::square(w)) * 0.01; break;
      case Loss::sum_and_penalty: loss = -esp::sum(rows) + esp::sum(esp::square(w)) * 0.01; break;
      case Loss::of_rows: loss = -rows; break;
      case Loss::root: loss = esp::sqrt(esp::mean(esp::square(rows))) + esp::max(esp::mean(h, 0)); break;
    }
  }
  esp::Executor executor(const Program& program, bool train = true) const {
    esp::ExecutorOptions how{.devices = program.devices,
                             .replicas = {.local_statistics = program.local_statistics,
                                          .shard_states = program.shard_states,
                                          .bucket_bytes = program.bucket_bytes}};
    if (train) how.optimizer = optimizer_of(program.optimizer);
    return loss.get_executor(how);
  }
  esp::data::Distributor feed;
  Variables parameters;
  Variable loss;
};

Trace run(const Program& program, bool train = true) {
  esp::seed(17);
  const Normalizing network(program);
  const esp::Executor executor = network.executor(program, train);
  Trace trace;
  executor.on(esp::Event::step_finish, [&](const esp::StepInfo& info) {
    trace.push_back(esp::tensor(info.loss, esp::float64));
    trace.push_back(executor.value());
  });
  (void)executor.execute({.epochs = 2, .progress = false});
  for (const Variable& p : network.parameters) trace.push_back(p.value().clone());
  return trace;
}

size_t count(const std::string& text, const std::string& part) {
  size_t found = 0;
  for (size_t at = text.find(part); at != text.npos; at = text.find(part, at + 1)) ++found;
  return found;
}

constexpr Loss losses[] = {Loss::mean,    Loss::sum, Loss::mean_and_penalty, Loss::sum_and_penalty,
                           Loss::of_rows, Loss::root};

}  // namespace

BOOST_AUTO_TEST_SUITE(batch_statistics)

BOOST_AUTO_TEST_CASE(batch_normalization_trains_as_on_one_device) {
  for (const Loss loss : losses) {
    const Trace one = run({.loss = loss});
    for (const int replicas : {2, 3})
      BOOST_TEST_CONTEXT("loss " << int(loss) << ", " << replicas << " replicas") {
        BOOST_TEST(difference_of(run({.loss = loss, .devices = cpus(replicas)}), one) < 1e-9);
      }
  }
}

BOOST_AUTO_TEST_CASE(in_inference_too) {
  for (const Loss loss : losses) BOOST_TEST_CONTEXT("loss " << int(loss)) {
      const Trace one = run({.loss = loss}, false);
      for (const int replicas : {2, 3})
        BOOST_TEST(difference_of(run({.loss = loss, .devices = cpus(replicas)}, false), one) < 1e-12);
    }
}

BOOST_AUTO_TEST_CASE(uneven_batches_and_replicas_without_rows) {
  for (const int64_t batch : {1, 2, 3, 5, 8}) {
    const Trace one = run({.batch = batch});
    for (const int replicas : {2, 4})
      BOOST_TEST_CONTEXT("batches of " << batch << ", " << replicas << " replicas") {
        BOOST_TEST(difference_of(run({.batch = batch, .devices = cpus(replicas)}), one) < 1e-8);
      }
  }
}

BOOST_AUTO_TEST_CASE(every_optimizer_and_sharded_states) {
  for (uint32_t which = 0; which < optimizers; ++which) BOOST_TEST_CONTEXT("optimizer " << which) {
      const Trace one = run({.optimizer = which});
      for (const bool sharded : {false, true})
        BOOST_TEST(difference_of(run({.devices = cpus(2), .optimizer = which, .shard_states = sharded}),
                                 one) < 1e-9);
    }
}

BOOST_AUTO_TEST_CASE(on_gpus_too) {
  const Trace one = run({});
  for (const esp::Device& gpu : gpus_to_test())
    for (const auto& devices : {std::vector{gpu, gpu}, std::vector{gpu, gpu, gpu}})
      BOOST_TEST(difference_of(run({.devices = devices}), one) < 1e-9);
  // Reductions between gradients that are on their way.
  const Trace even = run({.batch = 8});
  for (const esp::Device& gpu : gpus_to_test())
    BOOST_TEST(difference_of(run({.batch = 8, .devices = {gpu, gpu}, .bucket_bytes = 64}), even) < 1e-9);
}

BOOST_AUTO_TEST_CASE(two_runs_have_the_same_bits) {
  BOOST_TEST(difference_of(run({.devices = cpus(3)}), run({.devices = cpus(3)})) == 0);
}

BOOST_AUTO_TEST_CASE(the_plan_shows_what_is_exchanged) {
  const auto text = [](const Program& program, bool train) {
    return Normalizing(program).executor(program, train).plan().str();
  };
  const std::string reduction = "reduce_over_replicas(of=";
  const Program two{.devices = cpus(2)};
  BOOST_TEST(count(text(two, false), reduction + "means") == 2u);  // mean and variance
  BOOST_TEST(count(text(two, false), reduction + "sums") == 1u);
  BOOST_TEST(count(text(two, true), reduction + "means") == 2u);
  BOOST_TEST(count(text(two, true), reduction + "sums") == 4u);  // and once for each on the way back
  BOOST_TEST(count(text({}, true), reduction) == 0u);
  // Each reads the one before it, so that all replicas meet in one order.
  std::istringstream lines(text(two, true));
  std::string before;
  for (std::string line; std::getline(lines, line);) {
    if (line.find(reduction) == std::string::npos) continue;
    std::istringstream words(line);
    std::string number, op, value, last;
    words >> number >> op >> value >> last;
    if (!before.empty()) BOOST_TEST(last == before);
    before = number;
  }
  BOOST_TEST(!before.empty());
  // A penalty that all have becomes a part of the sum on each, without an exchange.
  BOOST_TEST(count(text({.loss = Loss::sum_and_penalty, .devices = cpus(2)}, true), reduction) ==
             count(text({.loss = Loss::sum, .devices = cpus(2)}, true), reduction));
  BOOST_TEST(count(text({.devices = cpus(2), .local_statistics = true}, true), reduction) == 0u);
}

BOOST_AUTO_TEST_CASE(plans_without_devices_have_it_too) {
  const Normalizing network({.batch = 8});
  const esp::Plan plan =
      network.loss.plan_for({.optimizer = optim::Sgd(0.1), .devices = 4, .replicas = {.bucket_bytes = 64}});
  BOOST_TEST(count(plan.str(), "reduce_over_replicas(of=") == 6u);
  BOOST_TEST(plan.predict().step > 0);
}

BOOST_AUTO_TEST_CASE(a_replica_s_own_statistics_are_another_result) {
  const Trace own = run({.devices = cpus(2), .local_statistics = true}), whole = run({.devices = cpus(2)});
  BOOST_TEST(difference_of(own, whole) > 1e-4);
  BOOST_TEST(difference_of(own, whole) < 10);
}

BOOST_AUTO_TEST_CASE(a_gradient_of_unknown_linearity_is_the_whole_batch_s) {
  const auto train = [](int replicas) {
    const esp::data::Distributor feed({numbers({13, 4}, -1, 1, 1)}, {.batch_size = 5});
    const Variable w = esp::parameter(numbers({4}, 0.5, 1, 2), "w");
    const Variable centered = feed.get_output_graphs()[0] * w;
    const Variable y = doubled()({centered - esp::mean(centered, 0)});
    // An op of the user's own in the gradient as well: nothing is known of it but that it goes by rows.
    const auto op = esp::custom_op(
        {.name = "scaled",
         .forward = [](const auto& in) { return (Variable(in[0]) * 3.0).value(); },
         .row_by_row = true,
         .gradient =
             [](const esp::CustomGradient& g) { return Variables{doubled()({g.output_gradient}) * 1.5}; },
         .infer = [](const std::vector<esp::Spec>& in) { return in[0]; }});
    const Variable loss = esp::mean(esp::square(op({y}) - 1.0) * esp::square(y));
    const esp::Executor executor =
        loss.get_executor({.optimizer = optim::Sgd(0.01), .devices = cpus(replicas)});
    (void)executor.execute({.epochs = 2, .progress = false});
    return w.value().clone();
  };
  BOOST_TEST(difference(train(2), train(1)) < 1e-12);
  BOOST_TEST(difference(train(3), train(1)) < 1e-12);
}

BOOST_AUTO_TEST_CASE(what_no_exchange_of_sums_can_give_is_refused) {
  esp::data::Distributor feed({numbers({8, 3}, -1, 1, 1)}, {.batch_size = 4});
  const Variable w = esp::parameter(numbers({3}, -1, 1, 2), "w"), y = feed.get_output_graphs()[0] * w;
  const Variable fine = esp::square(y - esp::mean(y, 0));
  const Variable positive = esp::sum(esp::cast(esp::greater(y, 0.0), esp::int64), 0);  // counts are not sent
  for (const auto& [root, op] : std::vector<std::pair<Variable, std::string>>{
           {esp::mean(esp::softmax(y, 0) * fine), "'softmax'"},
           {esp::mean(fine - esp::max(y, 0)), "'max'"},
           {esp::mean(esp::matmul(fine, esp::transpose(y))), "'matmul'"},
           {esp::mean(esp::cast(esp::argmax(y, 0), esp::float64) + fine), "'argmax'"},
           {esp::mean(fine * esp::cast(esp::maximum(positive, int64_t{1}), esp::float64)), "'maximum'"}}) {
    try {
      (void)root.get_executor({.optimizer = optim::Sgd(0.1), .devices = cpus(2)});
      BOOST_ERROR(op << " was accepted");
    } catch (const esp::UnsupportedError& error) {
      const std::string text = error.what();
      BOOST_TEST(text.find(op) != text.npos, text);
      BOOST_TEST(text.find("batch_statistics_test.cpp:") != text.npos, text);
    }
  }
}

BOOST_AUTO_TEST_SUITE_END()
