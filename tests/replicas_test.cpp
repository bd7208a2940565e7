// Replicas train as one device does: the same losses in every step, and the same parameters.
#include <boost/test/unit_test.hpp>

#include <numeric>

#include "espalier/core/error.h"
#include "espalier/core/random.h"
#include "espalier/data/distributor.h"
#include "espalier/executor/communicators/collective_ops.h"
#include "espalier/executor/communicators/distributed.h"
#include "espalier/executor/executor.h"
#include "espalier/nn/dropout.h"
#include "espalier/ops/ops.h"
#include "gpu_testing.h"
#include "many_cases.h"
#include "replica_programs.h"
#include "testing.h"

namespace esp = espalier;
namespace optim = espalier::optim;
using namespace espalier::testing;
using esp::Variable;

namespace {

bool says(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

BOOST_AUTO_TEST_SUITE(replicas)

BOOST_AUTO_TEST_CASE(every_optimizer_trains_as_on_one_device) {
  for (uint32_t which = 0; which < optimizers; ++which) BOOST_TEST_CONTEXT("optimizer " << which) {
      const Trace one = train_network({.optimizer = which});
      for (const int count : {2, 3}) BOOST_TEST_CONTEXT(count << " replicas") {
          BOOST_TEST(difference_of(train_network({.optimizer = which, .devices = cpus(count)}), one) < 1e-9);
        }
    }
}

BOOST_AUTO_TEST_CASE(uneven_batches_and_fewer_rows_than_replicas) {
  for (const int64_t batch : {1, 2, 3, 7, 8}) BOOST_TEST_CONTEXT("batches of " << batch) {
      const Trace one = train_network({.batch = batch});
      for (const int count : {2, 4, 5}) BOOST_TEST_CONTEXT(count << " replicas") {
          BOOST_TEST(difference_of(train_network({.batch = batch, .devices = cpus(count)}), one) < 1e-9);
        }
    }
}

BOOST_AUTO_TEST_CASE(parts_of_a_batch_are_accumulated) {
  for (const int64_t batch : {2, 7, 8}) BOOST_TEST_CONTEXT("batches of " << batch) {
      const Trace one = train_network({.batch = batch});
      for (const int parts : {2, 3}) BOOST_TEST_CONTEXT(parts << " parts") {
          BOOST_TEST(difference_of(train_network({.batch = batch, .accumulate = parts}), one) < 1e-9);
          BOOST_TEST(difference_of(train_network({.batch = batch, .accumulate = parts, .devices = cpus(2)}),
                                   one) < 1e-9);
        }
    }
}

BOOST_AUTO_TEST_CASE(two_runs_are_equal_to_the_last_bit) {
  const Trace a = train_network({.devices = cpus(3)}), b = train_network({.devices = cpus(3)});
  BOOST_TEST(difference_of(a, b) == 0);
}

BOOST_AUTO_TEST_CASE(random_trees_train_as_on_one_device) {
  int compared = 0, refused = 0;
  for (uint32_t seed = 0; seed < many_cases(64); ++seed) BOOST_TEST_CONTEXT("seed " << seed) {
      Trace one;
      try {
        one = train_fuzz_tree(seed, {});
      } catch (const esp::Error&) {  // the short batch is invalid for this tree
        continue;
      }
      for (const int count : {2, 3}) BOOST_TEST_CONTEXT(count << " replicas") {
          try {
            BOOST_TEST(difference_of(train_fuzz_tree(seed, cpus(count)), one) < 1e-7);
            ++compared;
          } catch (const esp::UnsupportedError& error) {
            ++refused;  // a value that is not a mean, a sum or rows of the batch
            BOOST_TEST(says(error.what(), "get_executor"), error.what());
          }
        }
    }
  BOOST_TEST_MESSAGE(compared << " compared, " << refused << " refused");
  BOOST_TEST(compared > many_cases(20));
}

BOOST_AUTO_TEST_CASE(sums_means_and_rows_are_the_whole_batch_s) {
  const esp::Tensor x = numbers({7, 3}, -1, 1, 1);
  const auto value_of = [&](int kind, const std::vector<esp::Device>& devices, bool train) {
    esp::data::Distributor feed({x}, {.batch_size = 5});
    const Variable in = feed.get_output_graphs()[0], w = esp::parameter(numbers({3, 2}, -1, 1, 2), "w");
    const Variable y = esp::matmul(in, w);
    Variable root;
    switch (kind) {
      case 0: root = esp::mean(esp::square(y)); break;
      case 1: root = esp::sum(esp::square(y)); break;
      case 2: root = esp::square(y); break;                                       // [rows, 2]
      case 3: root = esp::transpose(esp::square(y)); break;                       // [2, rows]
      case 4: root = esp::reshape(esp::transpose(y), {-1}); break;                // the rows, twice
      case 5: root = esp::mean(y, 0); break;                                      // [2]
      case 6: root = esp::sum(esp::square(y), 0, true) * 0.5; break;              // [1, 2]
      case 7: root = esp::mean(y) * 3.0 + esp::sum(esp::square(w)) - 1.0; break;  // and batch-free terms
      case 8: root = esp::sum(y) / 4.0 + esp::sum(esp::square(y) * 0.1); break;
      case 9: root = esp::mean(esp::concat({y, esp::square(y)}, 0)); break;
      default:
        root = esp::mean(esp::softmax(y, 1) * esp::gather(w, esp::argmax(y, 1) * int64_t{0}, 0));
        break;
    }
    esp::ExecutorOptions how{.devices = devices};
    if (train) how.optimizer = optim::Sgd({.lr = 0.1});
    const esp::Executor executor = root.get_executor(how);
    Trace trace;
    for (int step = 0; step < 2; ++step) {
      const esp::StepInfo info = executor.step();
      trace.push_back(esp::tensor(info.loss, esp::float64));
      trace.push_back(executor.value());
    }
    trace.push_back(w.value().clone());
    return trace;
  };
  for (int kind = 0; kind <= 10; ++kind)
    for (const bool train : {false, true}) BOOST_TEST_CONTEXT("kind " << kind << " training " << train) {
        const Trace one = value_of(kind, {}, train);
        for (const int count : {2, 3, 4})
          BOOST_TEST(difference_of(value_of(kind, cpus(count), train), one) < 1e-12);
      }
}

BOOST_AUTO_TEST_CASE(plans_of_several_sizes_send_all_at_once) {
  // Gradients have one order on all replicas for certain only if all have equally many rows.
  const auto messages = [](int64_t batch, int replicas) {
    const esp::data::Distributor feed({numbers({24, 8}, -1, 1, 1)}, {.batch_size = batch});
    Variable h = feed.get_output_graphs()[0];
    for (uint64_t i = 0; i < 4; ++i)
      h = esp::tanh(esp::matmul(h, esp::parameter(numbers({8, 8}, -1, 1, i), "w")));
    const esp::Plan plan =
        esp::mean(esp::square(h))
            .plan_for({.optimizer = optim::Sgd(0.1), .devices = replicas, .replicas = {.bucket_bytes = 64}});
    const std::string text = plan.str();
    const size_t at = text.find("gradients in ");
    BOOST_REQUIRE(at != text.npos);
    return std::atoi(text.c_str() + at + 13);
  };
  BOOST_TEST(messages(8, 2) == 4);
  BOOST_TEST(messages(8, 4) == 4);
  BOOST_TEST(messages(8, 3) == 1);
  BOOST_TEST(messages(6, 4) == 1);
}

BOOST_AUTO_TEST_CASE(an_error_in_one_replica_changes_nothing_and_the_next_step_goes_on) {
  // The last row of the second batch has an invalid label: only the last replica fails.
  std::vector<int64_t> labels(12);
  std::iota(labels.begin(), labels.end(), 0);
  for (int64_t& label : labels) label %= 4;
  labels[7] = 4;
  esp::Tensor y({12}, esp::int64);
  std::ranges::copy(labels, y.span<int64_t>().begin());
  esp::data::Distributor feed({numbers({12, 3}, -1, 1, 1), y}, {.batch_size = 4});
  const auto [in, target] = feed.get_output_graphs<2>();
  const Variable w = esp::parameter(numbers({3, 4}, -1, 1, 2), "w");
  const Variable loss = esp::softmax_cross_entropy(esp::matmul(in, w), target);
  const esp::Executor executor =
      loss.get_executor({.optimizer = optim::Adam({.lr = 0.1}), .devices = cpus(2)});
  (void)executor.step();
  const esp::Tensor before = w.value().clone();
  for (int again = 0; again < 2; ++again) {
    BOOST_CHECK_THROW((void)executor.step(), esp::IndexError);
    BOOST_TEST(difference(w.value(), before) == 0);
  }
  BOOST_CHECK_THROW((void)executor.execute({.progress = false}), esp::IndexError);
  feed.reset();
  BOOST_CHECK_NO_THROW((void)executor.step());
  BOOST_TEST(difference(w.value(), before) > 0);
}

BOOST_AUTO_TEST_CASE(callbacks_set_values_and_stop_and_throw) {
  const auto train = [](const std::vector<esp::Device>& devices) {
    esp::data::Distributor feed({numbers({20, 3}, -1, 1, 1)}, {.batch_size = 4});
    const Variable w = esp::parameter(numbers({3}, -1, 1, 2), "w");
    const Variable loss = esp::mean(esp::square(feed.get_output_graphs()[0] * w - 1.0));
    const esp::Executor executor =
        loss.get_executor({.optimizer = optim::Sgd({.lr = 0.1}), .devices = devices});
    Trace trace;
    executor.on(esp::Event::step_finish, [&](const esp::StepInfo& info) {
      trace.push_back(esp::tensor(info.loss, esp::float64));
      if (info.step == 2) set_value(w, numbers({3}, 0, 1, 5));
      if (info.epoch == 1 && info.step == 4) executor.stop();
    });
    const esp::History history = executor.execute({.epochs = 5, .progress = false});
    trace.push_back(esp::tensor(static_cast<double>(history.epochs.size()), esp::float64));
    trace.push_back(w.value().clone());
    executor.on(esp::Event::step_finish, [](const esp::StepInfo&) { throw std::runtime_error("enough"); });
    BOOST_CHECK_THROW((void)executor.execute({.progress = false}), std::runtime_error);
    return trace;
  };
  BOOST_TEST(difference_of(train(cpus(2)), train({})) < 1e-12);
}

BOOST_AUTO_TEST_CASE(validation_is_the_whole_feed_s) {
  const auto train = [](const std::vector<esp::Device>& devices, int parts) {
    esp::seed(2);
    esp::data::Distributor feed({numbers({20, 3}, -1, 1, 1)}, {.batch_size = 6}),
        other({numbers({13, 3}, -1, 1, 7)}, {.batch_size = 5});
    const Variable w = esp::parameter(numbers({3}, -1, 1, 2), "w");
    const Variable loss = esp::mean(esp::square(esp::dropout(feed.get_output_graphs()[0] * w, 0.5) - 1.0));
    const esp::Executor executor = loss.get_executor(
        {.optimizer = optim::Sgd({.lr = 0.1}), .devices = devices, .accumulate = parts, .validation = other});
    Trace trace;
    for (const esp::EpochRecord& epoch : executor.execute({.epochs = 3, .progress = false}).epochs)
      for (const double number : {epoch.loss_mean, epoch.loss_sum, epoch.validation_loss})
        trace.push_back(esp::tensor(number, esp::float64));
    return trace;
  };
  const Trace one = train({}, 1);
  BOOST_TEST(difference_of(train(cpus(3), 1), one) < 1e-12);
  BOOST_TEST(difference_of(train(cpus(2), 2), one) < 1e-12);
}

BOOST_AUTO_TEST_CASE(a_run_goes_on_with_another_number_of_replicas) {
  const TemporaryFolder folder;
  const auto program = [&](int replicas, int64_t epochs, bool resume) {
    esp::seed(3);
    TestNetwork network({.batch = 7});
    const esp::Executor executor =
        network.loss.get_executor({.optimizer = optim::Adam({.lr = 0.01}), .devices = cpus(replicas)});
    if (resume) executor.resume(folder.path());
    (void)executor.execute({.epochs = epochs, .progress = false, .checkpoint = folder.path()});
    return network.values();
  };
  const Trace whole = program(1, 4, false);
  for (const auto& [before, after] : {std::pair(2, 3), std::pair(3, 1), std::pair(1, 2)}) {
    std::filesystem::remove_all(folder.path());
    (void)program(before, 2, false);
    BOOST_TEST(difference_of(program(after, 4, true), whole) < 1e-9);
  }
}

BOOST_AUTO_TEST_CASE(placeholders_are_shared_out_too) {
  const Variable x = esp::placeholder("x", {4, 3}, esp::float64), w = esp::parameter(numbers({3, 2}), "w");
  const Variable y = esp::tanh(esp::matmul(x, w));
  const esp::Executor one = y.get_executor(), three = y.get_executor({.devices = cpus(3)});
  for (const int64_t rows : {1, 2, 4, 5}) {
    const esp::Tensor value = numbers({rows, 3}, -1, 1, static_cast<uint64_t>(rows));
    BOOST_TEST(difference(three.run({{"x", value}}), one.run({{"x", value}})) < 1e-12);
  }
}

BOOST_AUTO_TEST_CASE(leaves_changed_between_runs_reach_all_replicas) {
  esp::data::Distributor feed({numbers({8, 3}, -1, 1, 1)}, {.batch_size = 4});
  const Variable w = esp::parameter(numbers({3}, -1, 1, 2), "w");
  const Variable loss = esp::mean(esp::square(feed.get_output_graphs()[0] * w));
  const esp::Executor two = loss.get_executor({.devices = cpus(2)}), one = loss.get_executor();
  for (uint64_t i = 0; i < 3; ++i) {
    set_value(w, numbers({3}, -1, 1, i));
    BOOST_TEST(two.execute({.progress = false}).epochs[0].loss_mean ==
                   one.execute({.progress = false}).epochs[0].loss_mean,
               boost::test_tools::tolerance(1e-12));
  }
}

BOOST_AUTO_TEST_CASE(integers_and_bools_are_the_whole_batch_s) {
  const esp::Tensor x = numbers({7, 3}, -1, 1, 1);
  const auto value_of = [&](int kind, const std::vector<esp::Device>& devices) {
    esp::data::Distributor feed({x}, {.batch_size = 5});
    const Variable in = feed.get_output_graphs()[0];
    const Variable best = esp::argmax(in, 1);
    Variable root;
    switch (kind) {
      case 0: root = best; break;
      case 1: root = esp::greater(in, 0.0); break;
      case 2: root = esp::sum(esp::cast(esp::equal(best, int64_t{1}), esp::int64)); break;
      case 3: root = esp::sum(esp::one_hot(best, 3, esp::int32), 0); break;
      default: root = esp::Variable(esp::arange(4)) * int64_t{3}; break;  // independent of the batch
    }
    const esp::Executor executor = root.get_executor({.devices = devices});
    Trace trace;
    for (int step = 0; step < 2 && (kind < 4 || step < 1); ++step) {
      if (kind < 4)
        (void)executor.step();
      else
        (void)executor.execute({.progress = false});
      BOOST_TEST((executor.value().dtype() == root.dtype()));
      trace.push_back(esp::cast(executor.value(), esp::float64).value());
    }
    return trace;
  };
  for (int kind = 0; kind <= 4; ++kind)
    for (const int count : {2, 3}) BOOST_TEST_CONTEXT("kind " << kind) {
        BOOST_TEST(difference_of(value_of(kind, cpus(count)), value_of(kind, {})) == 0);
      }
}

BOOST_AUTO_TEST_CASE(rows_of_micro_batches_train_but_cannot_be_read) {
  esp::data::Distributor feed({numbers({8, 3}, -1, 1, 1)}, {.batch_size = 4});
  const Variable w = esp::parameter(numbers({3}, -1, 1, 2), "w");
  const Variable rows = esp::square(feed.get_output_graphs()[0] * w);
  const esp::Executor executor =
      rows.get_executor({.optimizer = optim::Sgd({.lr = 0.01}), .accumulate = 2, .validation = feed});
  const esp::History history = executor.execute({.epochs = 2, .progress = false});
  BOOST_TEST(history.epochs[1].loss_mean < history.epochs[0].loss_mean);
  BOOST_CHECK_THROW((void)executor.value(), esp::UnsupportedError);
}

BOOST_AUTO_TEST_CASE(parameters_of_16_bits_in_parts) {
  const auto train = [](int parts) {
    esp::data::Distributor feed({numbers({8, 3}, -1, 1, 1).to(esp::bfloat16)}, {.batch_size = 4});
    const Variable w = esp::parameter(numbers({3}, -1, 1, 2).to(esp::bfloat16), "w");
    const esp::Executor executor =
        esp::mean(esp::square(feed.get_output_graphs()[0] * w))
            .get_executor({.optimizer = optim::Sgd({.lr = 0.5}), .accumulate = parts});
    (void)executor.execute({.progress = false});
    return w.value().to(esp::float64);
  };
  BOOST_TEST(difference(train(2), train(1)) < 0.02);
}

BOOST_AUTO_TEST_CASE(batches_without_rows) {
  const Variable x = esp::placeholder("x", {4, 3}, esp::float64),
                 w = esp::parameter(numbers({3}, -1, 1, 2), "w");
  for (const bool rows : {true, false}) {
    const Variable value = rows ? x * w : esp::sum(x * w);
    const esp::Executor executor = value.get_executor({.devices = cpus(2)});
    const esp::Tensor result = executor.run({{"x", esp::zeros({0, 3}, esp::float64)}});
    if (rows)
      BOOST_TEST(result.shape() == esp::Shape({0, 3}));
    else
      BOOST_TEST(result.item() == 0);
  }
}

BOOST_AUTO_TEST_CASE(a_value_that_is_set_reaches_all_replicas) {
  esp::data::Distributor feed({numbers({8, 3}, -1, 1, 1)}, {.batch_size = 4});
  const Variable w = esp::parameter(numbers({3}, -1, 1, 2), "w");
  const Variable loss = esp::mean(esp::square(feed.get_output_graphs()[0] * w));
  const esp::Executor two = loss.get_executor({.devices = cpus(2)}), one = loss.get_executor();
  for (int i = 0; i < 3; ++i) {
    esp::Tensor values = w.value();
    values.span<double>()[static_cast<size_t>(i)] = i - 2.5;
    esp::set_value(w, values);
    const double together = two.execute({.progress = false}).epochs[0].loss_mean;
    BOOST_TEST(together == one.execute({.progress = false}).epochs[0].loss_mean,
               boost::test_tools::tolerance(1e-12));
  }
}

BOOST_AUTO_TEST_CASE(replicas_see_the_steps_of_another_executor) {
  const auto train = [](const std::vector<esp::Device>& devices) {
    esp::data::Distributor feed({numbers({12, 3}, -1, 1, 1)}, {.batch_size = 4});
    const Variable w = esp::parameter(numbers({3}, -1, 1, 2), "w");
    const Variable loss = esp::mean(esp::square(feed.get_output_graphs()[0] * w - 1.0));
    const optim::Optimizer optimizer = optim::Sgd({.lr = 0.1});
    const esp::Executor replicas = loss.get_executor({.optimizer = optimizer, .devices = devices}),
                        alone = loss.get_executor({.optimizer = optimizer});
    for (int turn = 0; turn < 2; ++turn) {
      (void)replicas.execute({.progress = false});
      (void)alone.execute({.progress = false});
    }
    (void)replicas.execute({.progress = false});
    return w.value().clone();
  };
  BOOST_TEST(difference(train(cpus(2)), train({})) < 1e-12);
}

BOOST_AUTO_TEST_CASE(on_gpus_too) {
  const Trace one = train_network({});
  for (const esp::Device& gpu : gpus_to_test()) {
    BOOST_TEST(difference_of(train_network({.devices = {gpu}}), one) < 1e-9);
    BOOST_TEST(difference_of(train_network({.accumulate = 3, .devices = {gpu}}), one) < 1e-9);
  }
}

BOOST_AUTO_TEST_SUITE_END()
