// Plans of replicas with sharded states: owners, routes of gradients, predictions, errors.
#include <boost/test/unit_test.hpp>

#include <optional>

#include "espalier/core/error.h"
#include "espalier/executor/compile.h"
#include "espalier/executor/sharding/state_owners.h"
#include "espalier/optim/groups.h"
#include "sharded_layers.h"

namespace esp = espalier;
namespace optim = espalier::optim;
using namespace espalier::testing;
using esp::Variable;

BOOST_AUTO_TEST_SUITE(sharded_states_plan)

BOOST_AUTO_TEST_CASE(owners_of_leaves) {
  Layers layers(4, 6);
  const optim::Optimizer optimizer = optim::Adam({.lr = 0.1, .schedule = optim::exponential(0.9)});
  std::vector<std::pair<Variable, Variable>> gradients;
  for (const Variable& p : layers.parameters) gradients.emplace_back(p, p * 2.0);
  const std::vector<Variable> updates = optimizer.build(gradients);
  std::vector<Variable> leaves = layers.parameters;
  for (const Variable& p : layers.parameters)
    for (const auto& [name, state] : optimizer.state_of(p)) leaves.push_back(state);
  leaves.push_back(optimizer.state()[0].second);
  const esp::StateOwners owners = esp::share_out_states(updates, {layers.loss}, leaves, 3);
  BOOST_TEST(owners.parameters.size() == 6u);
  for (size_t i = 0; i < 6; ++i) {
    BOOST_TEST(owners.of(layers.parameters[i].node()) == static_cast<int>(i / 2));
    for (const auto& [name, state] : optimizer.state_of(layers.parameters[i]))
      BOOST_TEST(owners.of(state.node()) == static_cast<int>(i / 2), name);
  }
  BOOST_TEST(owners.of(optimizer.state()[0].second.node()) == -1);
  BOOST_TEST(owners.shared_bytes == 64);
  for (const int64_t bytes : owners.state_bytes) BOOST_TEST(bytes == 2 * (2 * 64 + 64));
}

BOOST_AUTO_TEST_CASE(gradients_go_to_their_owners_alone_where_no_other_reads_them) {
  const auto scatters = [](const optim::Optimizer& optimizer, esp::Precision precision) {
    Layers layers;
    const std::string text = layers.loss
                                 .get_executor({.optimizer = optimizer,
                                                .devices = cpus(3),
                                                .replicas = {.shard_states = true},
                                                .precision = precision})
                                 .plan()
                                 .str();
    const bool said = text.find(", each sum for its owner alone") != text.npos;
    BOOST_TEST(said == (text.find("scattered=") != text.npos), text);
    return said;
  };
  // Gradients that overlap with computation are sent to all replicas.
  const auto scatters_early = [](int64_t bucket_bytes) {
    Layers layers;
    return layers.loss
               .plan_for({.optimizer = optim::Sgd({.lr = 0.1}),
                          .devices = 3,
                          .replicas = {.shard_states = true, .bucket_bytes = bucket_bytes}})
               .str()
               .find("scattered=") != std::string::npos;
  };
  const int64_t all = 5 * 8 * 8 * 4;
  BOOST_TEST(scatters_early(0));
  BOOST_TEST(scatters_early(all));
  BOOST_TEST(!scatters_early(all - 1));
  const auto plain = esp::Precision::float32;
  BOOST_TEST(scatters(optim::Sgd({.lr = 0.1}), plain));
  BOOST_TEST(scatters(optim::Adam({.lr = 0.1, .clip_value = 1, .schedule = optim::exponential(0.9)}), plain));
  BOOST_TEST(!scatters(optim::Adam({.lr = 0.1, .clip_norm = 1}), plain));
  BOOST_TEST(!scatters(optim::Adam({.lr = 0.1}), esp::Precision::float16));
}

BOOST_AUTO_TEST_CASE(gradients_of_parameters_without_updates_are_for_all) {
  struct Watch : optim::UpdateRule {
    std::string_view name() const override { return "Watch"; }
    void update(optim::ParameterUpdate& step) const override {
      step.assign(step.state("seen"), step.gradient());
    }
  };
  const auto seen = [](int replicas, bool all) {
    const optim::Optimizer watch(std::make_shared<Watch>(), {});
    Layers layers;
    const Variable p = layers.parameters.back();
    const std::vector<Variable> others(layers.parameters.begin(), layers.parameters.end() - 1);
    const optim::Optimizer optimizer =
        all ? watch : optim::Groups({{optim::ParameterList{p}, watch}, {others, optim::Sgd(0.1)}});
    const esp::Executor executor = layers.loss.get_executor(
        {.optimizer = optimizer, .devices = cpus(replicas), .replicas = {.shard_states = true}});
    BOOST_TEST(executor.plan().str().find("scattered=") == std::string::npos);
    (void)executor.execute({.progress = false});
    return watch.state_of(p)[0].second.value().clone();
  };
  for (const bool all : {false, true}) BOOST_TEST(difference(seen(2, all), seen(1, all)) < 1e-6);
}

BOOST_AUTO_TEST_CASE(predictions_follow_the_plan) {
  Layers layers(16, 8);
  const auto plan_of = [&](const optim::Optimizer& optimizer, int replicas, bool shard) {
    return layers.loss.plan_for(
        {.optimizer = optimizer, .devices = replicas, .replicas = {.shard_states = shard}});
  };
  const optim::Optimizer adam = optim::Adam({.lr = 0.01});
  const esp::Plan whole = plan_of(adam, 4, false), shared = plan_of(adam, 4, true);
  esp::CostInputs inputs = esp::presets::h100_nvlink();
  const auto arena = [](const esp::Plan& plan) { return plan.arena_bytes(); };
  // Each of 8 parameters has two states of 1,024 bytes and a count; each replica owns two parameters.
  const int64_t states = 8 * (2 * 1024 + 64), all = shared.predict(inputs).memory - arena(shared);
  BOOST_TEST(whole.predict(inputs).memory - arena(whole) - all == states - states / 4);
  // The same for other numbers of replicas.
  const std::vector<esp::Prediction> scaled = shared.scaling(inputs, esp::Scaling::weak, 8);
  BOOST_TEST(scaled[0].memory - scaled[2].memory == states - states / 4);
  BOOST_TEST(scaled[2].memory - scaled[3].memory == states / 4 - states / 8);
  // With three replicas, the owners have three, three and two parameters.
  const esp::Plan uneven = plan_of(adam, 3, true), apart = plan_of(adam, 3, false);
  BOOST_TEST(apart.predict(inputs).memory - arena(apart) - (uneven.predict(inputs).memory - arena(uneven)) ==
             states - states / 8 * 3);
  // A replica updates the parameters it owns, a quarter of all.
  esp::CostInputs bytes{.hardware = {.name = "bytes",
                                     .float32 = INFINITY,
                                     .float64 = INFINITY,
                                     .tf32 = INFINITY,
                                     .half = INFINITY,
                                     .bandwidth = 1},
                        .network = inputs.network};
  const double of_owner = shared.predict(bytes).compute, of_all = whole.predict(bytes).compute;
  bytes.sharded_states = true;
  BOOST_TEST(whole.predict(bytes).compute < of_all);
  BOOST_TEST(whole.predict(bytes).compute == of_owner, boost::test_tools::tolerance(0.01));
  // Sums are sent to owners only, and parameters back: as much as an all-reduce. Clipping needs all sums on
  // all replicas.
  inputs.network = esp::presets::ethernet(1e9);
  inputs.overlap = 0;
  const auto seconds = [&](double bytes) {
    return esp::internal::all_reduce_seconds(inputs.network, bytes, 4);
  };
  const auto close = boost::test_tools::tolerance(1e-9);
  BOOST_TEST(whole.predict(inputs).communication == seconds(8 * 1024 + 64), close);
  // Then the loss has a separate bucket.
  BOOST_TEST(shared.predict(inputs).communication == seconds(8 * 1024) + seconds(64), close);
  const esp::Plan clipped = plan_of(optim::Adam({.lr = 0.01, .clip_norm = 1}), 4, true);
  BOOST_TEST(clipped.predict(inputs).communication == seconds(8 * 1024 + 64) + 0.5 * seconds(8 * 1024),
             close);
  // Reports show such a plan.
  const TemporaryFolder folder;
  const esp::Executor executor =
      layers.loss.get_executor({.optimizer = adam, .devices = cpus(2), .replicas = {.shard_states = true}});
  executor.profile({.steps = 1});
  (void)executor.step();
  executor.report(folder.path() / "plan.html");
  BOOST_TEST(std::filesystem::file_size(folder.path() / "plan.html") > 1000u);
  shared.report(folder.path() / "planned.html");
  BOOST_TEST(std::filesystem::file_size(folder.path() / "planned.html") > 1000u);
}

BOOST_AUTO_TEST_CASE(options_that_cannot_be) {
  Layers layers;
  try {
    (void)layers.loss.get_executor({.replicas = {.shard_states = true}});
    BOOST_ERROR("it was made");
  } catch (const esp::Error& error) {
    BOOST_TEST(std::string(error.what()).find("training only") != std::string::npos, error.what());
  }
  // A single replica has all states.
  const esp::Executor alone =
      layers.loss.get_executor({.optimizer = optim::Adam({.lr = 0.01}), .replicas = {.shard_states = true}});
  BOOST_TEST(alone.plan().str().find("gather_parameters") == std::string::npos);
  BOOST_TEST(std::isfinite(alone.step().loss));
}

BOOST_AUTO_TEST_SUITE_END()
