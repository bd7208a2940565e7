// Replicas on GPUs, real or emulated: several on one card, and one on each of several.
#include <boost/test/unit_test.hpp>

#include "espalier/core/error.h"
#include "gpu_testing.h"
#include "replica_programs.h"

namespace esp = espalier;
namespace optim = espalier::optim;
using namespace espalier::testing;
using esp::Variable;

namespace {

std::vector<std::vector<esp::Device>> groups() {
  std::vector<std::vector<esp::Device>> groups{{esp::gpu(), esp::gpu()},
                                               {esp::gpu(), esp::gpu(), esp::gpu()}};
  if (esp::all_gpus().size() > 1) {
    groups.push_back(esp::all_gpus());
    groups.push_back({esp::gpu(1), esp::gpu(0), esp::gpu(1)});
  }
  return groups;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(cuda_replicas, *boost::unit_test::precondition(has_gpu))

BOOST_AUTO_TEST_CASE(they_train_as_one_device_however_kernels_are_launched) {
  for (const uint32_t which : {0u, 3u, 7u}) {
    const Trace one = train_network({.optimizer = which});
    for (const auto& devices : groups())
      for (const esp::Launch launch : {esp::Launch::graph, esp::Launch::segments, esp::Launch::stream})
        BOOST_TEST_CONTEXT("optimizer " << which << " on " << devices.size() << " launch " << int(launch)) {
          BOOST_TEST(difference_of(train_network({.optimizer = which, .devices = devices, .launch = launch}),
                                   one) < 1e-9);
        }
  }
}

BOOST_AUTO_TEST_CASE(uneven_batches_and_parts) {
  for (const int64_t batch : {2, 7}) {
    const Trace one = train_network({.batch = batch});
    for (const auto& devices : groups())
      for (const int parts : {1, 2})
        BOOST_TEST_CONTEXT("batches of " << batch << " in " << parts << " parts") {
          BOOST_TEST(difference_of(train_network({.batch = batch, .accumulate = parts, .devices = devices}),
                                   one) < 1e-9);
        }
  }
}

BOOST_AUTO_TEST_CASE(states_are_sharded) {
  for (const uint32_t which : {1u, 3u, 7u}) {
    const Trace one = train_network({.optimizer = which});
    for (const auto& devices : groups())
      for (const esp::Launch launch : {esp::Launch::graph, esp::Launch::stream})
        for (const int parts : {1, 2})
          BOOST_TEST_CONTEXT("optimizer " << which << " on " << devices.size() << " launch " << int(launch)) {
            BOOST_TEST(difference_of(train_network({.optimizer = which,
                                                    .accumulate = parts,
                                                    .devices = devices,
                                                    .launch = launch,
                                                    .shard_states = true}),
                                     one) < 1e-9);
          }
  }
}

BOOST_AUTO_TEST_CASE(states_are_sharded_however_gradients_are_sent) {
  const Trace one = train_network({.optimizer = 6});
  for (const auto& devices : groups())
    for (const int64_t bytes : {0, 64}) BOOST_TEST_CONTEXT(devices.size() << " by " << bytes << " bytes") {
        BOOST_TEST(difference_of(
                       train_network(
                           {.optimizer = 6, .devices = devices, .shard_states = true, .bucket_bytes = bytes}),
                       one) < 1e-9);
      }
}

BOOST_AUTO_TEST_CASE(sharded_states_are_read_and_handed_on) {
  const auto train = [](const std::vector<esp::Device>& devices, bool on_gpu) {
    esp::data::Distributor feed({numbers({12, 3}, -1, 1, 1)}, {.batch_size = 4});
    const esp::Device home = on_gpu ? esp::gpu() : esp::cpu();
    const Variable w = esp::parameter(numbers({3}, -1, 1, 2).to(home), "w"),
                   b = esp::parameter(numbers({3}, -1, 1, 3).to(home), "b");
    const Variable x = feed.get_output_graphs()[0].to(home);
    const optim::Optimizer optimizer = optim::Adam({.lr = 0.1});
    const Variable loss = esp::mean(esp::square(x * w + b));
    const esp::Executor executor = loss.get_executor(
        {.optimizer = optimizer, .devices = devices, .replicas = {.shard_states = devices.size() > 1}});
    Trace trace;
    const auto note = [&] {
      for (const Variable& p : {w, b}) {
        trace.push_back(p.value().to(esp::cpu()).clone());
        for (const auto& [name, state] : optimizer.state_of(p)) {
          BOOST_TEST(state.value().device() == home);
          trace.push_back(state.value().to(esp::cpu()).clone());
        }
      }
    };
    executor.on(esp::Event::step_finish, [&](const esp::StepInfo&) { note(); });
    (void)executor.execute({.progress = false});
    note();
    (void)loss.get_executor({.optimizer = optimizer}).execute({.progress = false});
    (void)executor.execute({.progress = false});
    note();
    return trace;
  };
  for (const bool on_gpu : {false, true}) {
    const Trace one = train({}, on_gpu);
    for (const auto& devices : groups()) BOOST_TEST(difference_of(train(devices, on_gpu), one) < 1e-9);
  }
}

BOOST_AUTO_TEST_CASE(random_trees) {
  int compared = 0;
  for (uint32_t seed = 0; seed < 8; ++seed) BOOST_TEST_CONTEXT("seed " << seed) {
      try {
        const Trace one = train_fuzz_tree(seed, {});
        BOOST_TEST(difference_of(train_fuzz_tree(seed, {esp::gpu(), esp::gpu()}), one) < 1e-7);
        ++compared;
      } catch (const esp::UnsupportedError&) {
      } catch (const esp::ShapeError&) {
      }
    }
  BOOST_TEST(compared > 2);
}

BOOST_AUTO_TEST_CASE(two_runs_are_equal_to_the_last_bit) {
  const Trace a = train_network({.devices = {esp::gpu(), esp::gpu()}}),
              b = train_network({.devices = {esp::gpu(), esp::gpu()}});
  BOOST_TEST(difference_of(a, b) == 0);
}

BOOST_AUTO_TEST_CASE(a_wrong_label_on_one_of_them_is_an_error_and_the_next_run_goes_on) {
  esp::Tensor labels({12}, esp::int64);
  for (int64_t i = 0; i < 12; ++i) labels.span<int64_t>()[static_cast<size_t>(i)] = i == 7 ? 4 : i % 4;
  esp::data::Distributor feed({numbers({12, 3}, -1, 1, 1), labels}, {.batch_size = 4});
  const auto [in, target] = feed.get_output_graphs<2>();
  const Variable w = esp::parameter(numbers({3, 4}, -1, 1, 2), "w");
  const esp::Executor executor =
      esp::softmax_cross_entropy(esp::matmul(in, w), target)
          .get_executor({.optimizer = optim::Adam({.lr = 0.1}), .devices = {esp::gpu(), esp::gpu()}});
  BOOST_CHECK_THROW((void)executor.execute({.progress = false}), esp::IndexError);
  feed.reset();
  BOOST_TEST(std::isfinite(executor.step().loss));
}

BOOST_AUTO_TEST_SUITE_END()
