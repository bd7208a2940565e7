// Replicas with sharded optimizer states train as one device does, and have memory for one shard each.
#include <boost/test/unit_test.hpp>

#include <optional>

#include "espalier/core/error.h"
#include "espalier/executor/compile.h"
#include "espalier/executor/runtime/parameter_arena.h"
#include "espalier/executor/sharding/state_owners.h"
#include "many_cases.h"
#include "sharded_layers.h"

namespace esp = espalier;
namespace optim = espalier::optim;
using namespace espalier::testing;
using esp::Variable;

namespace {

/// Trains a parameter, and lets another one follow it.
struct Following : optim::UpdateRule {
  explicit Following(Variable follower) : follower_(std::move(follower)) {}
  std::string_view name() const override { return "following"; }
  void update(optim::ParameterUpdate& step) const override {
    step.assign(step.parameter(), step.parameter() - step.gradient() * 0.1);
    step.assign(follower_, (follower_ + step.parameter()) * 0.5);
  }

 private:
  Variable follower_;
};

}  // namespace

BOOST_AUTO_TEST_SUITE(sharded_states)

BOOST_AUTO_TEST_CASE(every_optimizer_trains_as_on_one_device) {
  for (uint32_t which = 0; which < optimizers; ++which) BOOST_TEST_CONTEXT("optimizer " << which) {
      const Trace one = train_network({.optimizer = which});
      for (const int count : {2, 3, 5}) BOOST_TEST_CONTEXT(count << " replicas") {
          const Trace sharded =
              train_network({.optimizer = which, .devices = cpus(count), .shard_states = true});
          BOOST_TEST(difference_of(sharded, one) < 1e-9);
          // Sums have the same order as without sharding.
          BOOST_TEST(difference_of(sharded, train_network({.optimizer = which, .devices = cpus(count)})) <
                     1e-12);
        }
    }
}

BOOST_AUTO_TEST_CASE(uneven_batches_and_parts) {
  for (const int64_t batch : {1, 3, 7, 8})
    for (const uint32_t which : {6u, 7u})
      BOOST_TEST_CONTEXT("batches of " << batch << " optimizer " << which) {
        const Trace one = train_network({.optimizer = which, .batch = batch});
        for (const int count : {2, 3})
          for (const int parts : {1, 2}) BOOST_TEST_CONTEXT(count << " replicas " << parts << " parts") {
              BOOST_TEST(difference_of(train_network({.optimizer = which,
                                                      .batch = batch,
                                                      .accumulate = parts,
                                                      .devices = cpus(count),
                                                      .shard_states = true}),
                                       one) < 1e-9);
            }
      }
}

BOOST_AUTO_TEST_CASE(random_trees) {
  int compared = 0;
  for (uint32_t seed = 0; seed < many_cases(40); ++seed) BOOST_TEST_CONTEXT("seed " << seed) {
      try {
        const Trace one = train_fuzz_tree(seed, {});
        for (const int count : {2, 3}) {
          BOOST_TEST(difference_of(train_fuzz_tree(seed, cpus(count), true, true), one) < 1e-7);
          ++compared;
        }
      } catch (const esp::UnsupportedError&) {
      } catch (const esp::ShapeError&) {
      } catch (const esp::IndexError&) {
      }
    }
  BOOST_TEST(compared > many_cases(20));
}

BOOST_AUTO_TEST_CASE(whichever_passes_are_left_out) {
  const auto train = [](const std::vector<std::string>& without, int count) {
    Layers layers;
    const esp::Executor executor =
        layers.loss.get_executor({.optimizer = optim::AdamW({.lr = 0.01, .clip_norm = 1}),
                                  .devices = cpus(count),
                                  .replicas = {.shard_states = count > 1},
                                  .without = without});
    (void)executor.execute({.epochs = 2, .progress = false});
    return layers.values();
  };
  const Trace one = train({}, 1);
  for (const std::string& pass : esp::pass_names()) BOOST_TEST_CONTEXT(pass) {
      BOOST_TEST(difference_of(train({pass}, 3), one) < 1e-5);
    }
  BOOST_TEST(difference_of(train(esp::pass_names(), 2), one) < 1e-5);
}

/// Also those of which another replica has the states.
BOOST_AUTO_TEST_CASE(outputs_show_parameters_as_they_were_before_the_step) {
  Layers layers;
  const Variable &first = layers.parameters.front(), &last = layers.parameters.back();
  const esp::Executor executor =
      layers.loss.get_executor({.optimizer = optim::Sgd(0.5),
                                .devices = cpus(2),
                                .replicas = {.shard_states = true},
                                .outputs = {{"first", first}, {"last", esp::transpose(last)}}});
  for (int step = 0; step < 2; ++step) {
    const Trace before = layers.values();
    executor.step();
    BOOST_TEST(difference(executor.output("first"), before.front()) == 0);
    BOOST_TEST(difference(esp::transpose(Variable(executor.output("last"))).value(), before.back()) == 0);
    BOOST_TEST(difference(first.value(), before.front()) > 0);
  }
}

BOOST_AUTO_TEST_CASE(under_a_memory_budget) {
  // Recomputation must not remove the gathering of parameters, which has no reader.
  const auto executor_of = [](const Layers& layers, int64_t budget) {
    return layers.loss.get_executor({.optimizer = optim::Adam({.lr = 0.01}),
                                     .devices = cpus(2),
                                     .replicas = {.shard_states = true},
                                     .memory_budget = budget});
  };
  const Layers layers(8, 16);
  const esp::Executor unlimited = executor_of(layers, 0);
  (void)unlimited.execute({.epochs = 2, .progress = false});
  int kept = 0;
  for (int64_t percent = 95; percent >= 60; percent -= 5) {
    const Layers others(8, 16);
    std::optional<esp::Executor> limited;
    try {
      limited = executor_of(others, unlimited.plan().arena_bytes() * percent / 100);
    } catch (const esp::OutOfMemory&) {
      break;
    }
    ++kept;
    BOOST_TEST(limited->plan().str().find("gather_parameters") != std::string::npos);
    (void)limited->execute({.epochs = 2, .progress = false});
    BOOST_TEST(difference_of(others.values(), layers.values()) == 0, percent << " %");
  }
  BOOST_TEST(kept > 0);
}

BOOST_AUTO_TEST_CASE(a_scaled_loss) {
  const auto train = [](int count) {
    Layers layers;
    optim::Optimizer optimizer = optim::Adam({.lr = 0.01});
    const esp::Executor executor = layers.loss.get_executor({.optimizer = optimizer,
                                                             .devices = cpus(count),
                                                             .replicas = {.shard_states = count > 1},
                                                             .precision = esp::Precision::float16});
    Trace trace;
    executor.on(esp::Event::step_finish, [&](const esp::StepInfo&) {
      trace.push_back(esp::tensor(executor.loss_scale(), esp::float64));
    });
    (void)executor.execute({.epochs = 3, .progress = false});
    for (const esp::Tensor& value : layers.values()) trace.push_back(value);
    return trace;
  };
  const Trace one = train(1);
  for (const int count : {2, 3}) BOOST_TEST(difference_of(train(count), one) < 2e-2);
}

BOOST_AUTO_TEST_CASE(each_has_room_for_its_part) {
  Layers layers(16, 8);
  const optim::Optimizer optimizer = optim::Adam({.lr = 0.01});
  const auto leaf_bytes = [&](int count, bool shard) {
    return layers.loss
        .get_executor({.optimizer = optimizer, .devices = cpus(count), .replicas = {.shard_states = shard}})
        .plan()
        .leaf_bytes();
  };
  const int64_t parameters = 8 * 16 * 16 * 4, alone = leaf_bytes(1, false);
  BOOST_TEST(alone >= 3 * parameters);
  BOOST_TEST(leaf_bytes(4, false) == alone);
  const int64_t states = alone - parameters;
  for (const int count : {2, 4, 8}) {
    BOOST_TEST(leaf_bytes(count, true) <= parameters + states / count + 64);
    BOOST_TEST(leaf_bytes(count, true) >= parameters + 2 * parameters / count);
  }
  const std::string text =
      layers.loss
          .get_executor({.optimizer = optimizer, .devices = cpus(4), .replicas = {.shard_states = true}})
          .plan()
          .str();
  BOOST_TEST(text.find("gather_parameters") != text.npos);
  BOOST_TEST(text.find("replica 3") != text.npos, text);
}

BOOST_AUTO_TEST_CASE(an_arena_takes_no_memory_for_what_others_keep) {
  const Variable p = esp::parameter(numbers({32}), "p"), m = esp::state(numbers({32}, 0, 1, 2), "m"),
                 v = esp::state(numbers({32}, 0, 1, 3), "v");
  using Keeping = esp::ParameterArena::Keeping;
  esp::ParameterArena first(esp::cpu()), second(esp::cpu());
  first.follow();
  second.follow();
  first.add(p), first.add(m, Keeping::alone), first.add(v, Keeping::nowhere);
  second.add(p), second.add(m, Keeping::nowhere), second.add(v, Keeping::alone);
  for (esp::ParameterArena* arena : {&first, &second}) {
    arena->bind();
    BOOST_TEST(arena->bytes() == 2 * 32 * 8);
  }
  BOOST_TEST(second.has(2));
  BOOST_TEST(!second.has(1));
  // The arena has the value of the leaf, which is copied only when the value is read.
  esp::Tensor there = second.tensor(2);
  copy_elements(numbers({32}, 0, 1, 7), there);
  const size_t written[] = {2};
  for (esp::ParameterArena* arena : {&first, &second}) arena->mark_assigned(written);
  BOOST_TEST(!v.node()->has_value());
  BOOST_TEST(difference(v.value(), numbers({32}, 0, 1, 7)) == 0);
  BOOST_TEST(v.value().address() != there.address());
  set_value(v, numbers({32}, 0, 1, 8));
  second.bind();
  BOOST_TEST(difference(second.tensor(2), numbers({32}, 0, 1, 8)) == 0);
}

BOOST_AUTO_TEST_CASE(states_are_read_and_set_between_steps) {
  const auto train = [](int count) {
    Layers layers;
    const optim::Optimizer optimizer = optim::Adam({.lr = 0.01, .schedule = optim::exponential(0.9)});
    const esp::Executor executor = layers.loss.get_executor(
        {.optimizer = optimizer, .devices = cpus(count), .replicas = {.shard_states = count > 1}});
    Trace trace;
    const auto note = [&] {
      for (const Trace& part : {layers.states(optimizer), layers.values()})
        trace.insert(trace.end(), part.begin(), part.end());
      trace.push_back(esp::tensor(optimizer.scheduled_learning_rate(), esp::float64));
    };
    executor.on(esp::Event::step_finish, [&](const esp::StepInfo& info) {
      note();
      if (info.epoch == 1 && info.step == 1)
        for (const Variable& p : layers.parameters)
          for (const auto& [name, state] : optimizer.state_of(p))
            set_value(state, (esp::Variable(state) * 0.5).value());
    });
    (void)executor.execute({.epochs = 2, .progress = false});
    note();
    (void)executor.step();
    note();
    return trace;
  };
  const Trace one = train(1);
  BOOST_TEST(difference_of(train(2), one) < 1e-5);
  BOOST_TEST(difference_of(train(4), one) < 1e-5);
}

BOOST_AUTO_TEST_CASE(executors_on_one_tree_hand_states_on) {
  const auto train = [](const std::vector<std::pair<int, bool>>& kinds) {
    Layers layers;
    const optim::Optimizer optimizer = optim::Adam({.lr = 0.01});
    std::vector<esp::Executor> executors;
    for (const auto& [count, shard] : kinds)
      executors.push_back(layers.loss.get_executor(
          {.optimizer = optimizer, .devices = cpus(count), .replicas = {.shard_states = shard}}));
    for (int round = 0; round < 2; ++round)
      for (const esp::Executor& executor : executors) {
        (void)executor.execute({.progress = false});
        (void)executor.step();
      }
    // The tree's own update, eagerly.
    layers.loss.update(optimizer);
    Trace trace = layers.values();
    for (const esp::Tensor& state : layers.states(optimizer)) trace.push_back(state);
    return trace;
  };
  const Trace one = train({{1, false}, {1, false}, {1, false}});
  BOOST_TEST(difference_of(train({{2, true}, {1, false}, {3, true}}), one) < 1e-5);
  BOOST_TEST(difference_of(train({{1, false}, {3, true}, {2, false}}), one) < 1e-5);
}

BOOST_AUTO_TEST_CASE(an_executor_that_has_some_of_the_parameters) {
  const auto train = [](int replicas) {
    const esp::data::Distributor feed({numbers({12, 4})}, {.batch_size = 6});
    std::vector<Variable> parameters;
    for (uint64_t i = 0; i < 3; ++i) parameters.push_back(esp::parameter(numbers({4, 4}, -1, 1, i + 1), "w"));
    const optim::Optimizer sgd = optim::Sgd(0.5);
    std::vector<esp::Executor> executors;
    for (const std::vector<size_t>& layers : {std::vector<size_t>{0, 1, 2}, {0, 2}}) {
      Variable h = feed.get_output_graphs()[0];
      for (const size_t i : layers) h = esp::tanh(esp::matmul(h, parameters[i]));
      executors.push_back(
          esp::mean(esp::square(h - 0.1))
              .get_executor(
                  {.optimizer = sgd, .devices = cpus(replicas), .replicas = {.shard_states = replicas > 1}}));
    }
    for (int round = 0; round < 2; ++round)
      for (const esp::Executor& executor : executors) (void)executor.execute({.progress = false});
    Trace trace;
    for (const Variable& p : parameters) trace.push_back(p.value().clone());
    return trace;
  };
  BOOST_TEST(difference_of(train(2), train(1)) < 1e-12);
}

BOOST_AUTO_TEST_CASE(a_run_goes_on_with_other_replicas_and_without_sharing) {
  const TemporaryFolder folder;
  const auto program = [&](int replicas, bool shard, int64_t epochs, bool resume) {
    esp::seed(3);
    TestNetwork network({.batch = 7});
    const esp::Executor executor = network.loss.get_executor({.optimizer = optim::Adam({.lr = 0.01}),
                                                              .devices = cpus(replicas),
                                                              .replicas = {.shard_states = shard}});
    if (resume) executor.resume(folder.path());
    (void)executor.execute({.epochs = epochs, .progress = false, .checkpoint = folder.path()});
    return network.values();
  };
  const Trace whole = program(1, false, 4, false);
  using Kind = std::pair<int, bool>;
  for (const auto& [before, after] :
       {std::pair(Kind(2, true), Kind(3, true)), std::pair(Kind(3, true), Kind(1, false)),
        std::pair(Kind(2, false), Kind(2, true)), std::pair(Kind(1, true), Kind(4, true))}) {
    std::filesystem::remove_all(folder.path());
    (void)program(before.first, before.second, 2, false);
    BOOST_TEST(difference_of(program(after.first, after.second, 4, true), whole) < 1e-9);
  }
}

BOOST_AUTO_TEST_CASE(a_value_is_that_of_before_the_step) {
  // The tree's value is a parameter that each step assigns on the last replica, which owns it.
  const auto show = [](int count) {
    const Variable a = esp::parameter(numbers({3}, -1, 1, 2), "a"),
                   b = esp::parameter(numbers({3}, -1, 1, 3), "b");
    const esp::Executor executor = esp::reshape(b, {3, 1}).get_executor(
        {.optimizer = optim::Optimizer(std::make_shared<Following>(a), {}, {}),
         .devices = cpus(count),
         .replicas = {.shard_states = count > 1}});
    Trace trace;
    for (int step = 0; step < 3; ++step) {
      const esp::Tensor before = b.value().clone();
      (void)executor.execute({.progress = false});
      BOOST_TEST(difference(executor.value(), before.reshape({3, 1})) == 0);
      BOOST_TEST(difference(b.value(), before) > 0);
      trace.push_back(a.value().clone());
      trace.push_back(b.value().clone());
    }
    return trace;
  };
  BOOST_TEST(difference_of(show(2), show(1)) < 1e-12);

  const auto train = [](int which, int count) {
    esp::data::Distributor feed({numbers({12, 3}, -1, 1, 1)}, {.batch_size = 4});
    const Variable a = esp::parameter(numbers({3}, -1, 1, 2), "a"),
                   b = esp::parameter(numbers({3}, -1, 1, 3), "b");
    const Variable y = feed.get_output_graphs()[0] * a + b;
    const Variable penalty = which == 0 ? a : b;
    const Variable root = esp::mean(esp::square(y)) + esp::sum(penalty) * 0.1;
    const esp::Executor executor = root.get_executor({.optimizer = optim::Sgd({.lr = 0.1, .momentum = 0.9}),
                                                      .devices = cpus(count),
                                                      .replicas = {.shard_states = count > 1}});
    Trace trace;
    for (int step = 0; step < 3; ++step) {
      (void)executor.step();
      trace.push_back(executor.value());
    }
    trace.push_back(a.value().clone());
    trace.push_back(b.value().clone());
    return trace;
  };
  for (const int which : {0, 1})
    for (const int count : {2, 3}) BOOST_TEST(difference_of(train(which, count), train(which, 1)) < 1e-12);
}

BOOST_AUTO_TEST_CASE(an_error_in_one_replica_changes_nothing) {
  esp::Tensor labels({12}, esp::int64);
  for (int64_t i = 0; i < 12; ++i) labels.span<int64_t>()[static_cast<size_t>(i)] = i == 7 ? 4 : i % 4;
  esp::data::Distributor feed({numbers({12, 3}, -1, 1, 1), labels}, {.batch_size = 4});
  const auto [in, target] = feed.get_output_graphs<2>();
  const Variable w = esp::parameter(numbers({3, 4}, -1, 1, 2), "w"),
                 b = esp::parameter(numbers({4}, -1, 1, 3), "b");
  const optim::Optimizer optimizer = optim::Adam({.lr = 0.1});
  const esp::Executor executor =
      esp::softmax_cross_entropy(esp::matmul(in, w) + b, target)
          .get_executor({.optimizer = optimizer, .devices = cpus(2), .replicas = {.shard_states = true}});
  (void)executor.step();
  const auto all = [&] {
    Trace trace;
    for (const Variable& p : {w, b}) {
      trace.push_back(p.value().clone());
      for (const auto& [name, state] : optimizer.state_of(p)) trace.push_back(state.value().clone());
    }
    return trace;
  };
  const Trace before = all();
  BOOST_TEST(before.size() == 8u);
  BOOST_CHECK_THROW((void)executor.step(), esp::IndexError);
  BOOST_TEST(difference_of(all(), before) == 0);
  BOOST_CHECK_THROW((void)executor.execute({.progress = false}), esp::IndexError);
  feed.reset();
  BOOST_CHECK_NO_THROW((void)executor.step());
  BOOST_TEST(difference_of(all(), before) > 0);
}

BOOST_AUTO_TEST_SUITE_END()
