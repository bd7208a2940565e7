// The owners of states: chains of states, and the division of parameters of different sizes.
#include "espalier/executor/sharding/state_owners.h"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <functional>

#include "espalier/core/node.h"
#include "espalier/ops/ops.h"
#include "espalier/optim/optimizer.h"
#include "testing.h"

namespace esp = espalier;
namespace optim = espalier::optim;
using namespace espalier::testing;
using esp::Variable;

namespace {

/// The update that assigns the result of `value` to a leaf.
Variable assignment(const Variable& leaf, const std::function<Variable()>& value) {
  esp::BuildContext now = esp::build_context();
  now.tag = esp::Tag::update;
  now.lazy = true;
  const esp::BuildScope scope(now);
  return optim::assignment(leaf, value());
}

}  // namespace

BOOST_AUTO_TEST_SUITE(state_owners)

BOOST_AUTO_TEST_CASE(states_that_several_parameters_depend_on_are_on_all_replicas) {
  // Each state is read by the update of the previous one, and the first by both parameters: none has an
  // owner, whatever the order of the search.
  for (const bool reversed : {false, true}) {
    const Variable p = esp::parameter(numbers({4}), "p"), q = esp::parameter(numbers({4}), "q");
    std::vector<Variable> chain, updates;
    for (int i = 0; i < 6; ++i) chain.push_back(esp::state(numbers({4}), "s"));
    if (reversed) std::ranges::reverse(chain);
    const Variable alone = esp::state(numbers({4}), "alone");
    const std::vector<Variable> leaves = [&] {
      std::vector<Variable> all{p, q, alone};
      all.insert(all.end(), chain.begin(), chain.end());
      return all;
    }();
    const auto assign = [&](const Variable& leaf, const std::function<Variable()>& value) {
      updates.push_back(assignment(leaf, value));
    };
    assign(p, [&] { return p + chain[0] + alone; });
    assign(q, [&] { return q + chain[0]; });
    assign(alone, [&] { return alone + p; });
    for (size_t i = 0; i < chain.size(); ++i)
      assign(chain[i], [&] { return i + 1 < chain.size() ? chain[i] + chain[i + 1] + p : chain[i] + p; });
    const esp::StateOwners owners = esp::share_out_states(updates, {}, leaves, 2);
    for (const Variable& state : chain) BOOST_TEST(owners.of(state.node()) == -1);
    BOOST_TEST(owners.of(alone.node()) == owners.of(p.node()));
    BOOST_TEST(owners.of(q.node()) != owners.of(p.node()));
    BOOST_TEST(owners.shared_bytes == 6 * 64);
    // A state that the loss reads is needed everywhere; a state that is never assigned has no owner.
    const esp::StateOwners read = esp::share_out_states(updates, {esp::sum(alone)}, leaves, 2);
    BOOST_TEST(read.of(alone.node()) == -1);
    BOOST_TEST(esp::share_out_states(updates, {alone}, leaves, 2).of(alone.node()) == -1);
    const Variable still = esp::state(numbers({4}), "still");
    const esp::StateOwners more = esp::share_out_states(updates, {}, {p, q, still}, 2);
    BOOST_TEST(more.of(still.node()) == -1);
    BOOST_TEST(more.shared_bytes == 0);
  }
}

BOOST_AUTO_TEST_CASE(a_state_goes_with_the_parameter_it_is_made_of_or_made_for) {
  const Variable p = esp::parameter(numbers({4}), "p"), q = esp::parameter(numbers({4}), "q"),
                 frozen = esp::parameter(numbers({4}), "frozen");
  const auto state = [](std::string_view name) { return esp::state(numbers({4}), name); };
  const Variable average = state("average"), both = state("both"), still = state("still"),
                 slope = state("slope"), first = state("first"), second = state("second"), gradient = p * 2.0;
  const std::vector<std::pair<Variable, std::function<Variable()>>> next{
      {p, [&] { return p - gradient + first; }},
      {q, [&] { return q * 0.5 + second; }},
      {average, [&] { return average * 0.9 + p; }},     // reads only p
      {both, [&] { return both + p + q; }},             // reads p and q
      {still, [&] { return still + frozen; }},          // reads a leaf that is not updated
      {slope, [&] { return slope * 0.9 + gradient; }},  // reads a value of all replicas
      {first, [&] { return first + 1.0; }},             // read for p, and for a state of q
      {second, [&] { return second + first; }}};
  std::vector<Variable> updates, leaves{p, q, frozen};
  for (const auto& [leaf, value] : next) {
    updates.push_back(assignment(leaf, value));
    if (!esp::is_parameter(leaf.node()->op())) leaves.push_back(leaf);
  }
  const esp::StateOwners owners = esp::share_out_states(updates, {}, leaves, 2);
  BOOST_TEST(owners.of(p.node()) == 0);
  BOOST_TEST(owners.of(average.node()) == owners.of(p.node()));
  BOOST_TEST(owners.of(second.node()) == owners.of(q.node()));
  for (const Variable& shared : {both, still, slope, first, frozen})
    BOOST_TEST(owners.of(shared.node()) == -1);
}

BOOST_AUTO_TEST_CASE(parameters_are_divided_by_their_bytes) {
  const auto shares = [](const std::vector<int64_t>& sizes, int replicas) {
    std::vector<Variable> leaves, updates;
    const auto assign = [&](const Variable& leaf, const std::function<Variable()>& value) {
      updates.push_back(assignment(leaf, value));
    };
    for (const int64_t size : sizes) {
      leaves.push_back(esp::parameter(numbers({size}), "p"));
      assign(leaves.back(), [&] { return leaves.back() * 0.5; });
    }
    const esp::StateOwners owners = esp::share_out_states(updates, {}, leaves, replicas);
    std::vector<int> owned;
    for (const Variable& p : leaves) owned.push_back(owners.of(p.node()));
    for (int r = 0; r < replicas; ++r) {
      int64_t bytes = 0;
      for (size_t i = 0; i < sizes.size(); ++i) bytes += owned[i] == r ? (sizes[i] * 8 + 63) / 64 * 64 : 0;
      BOOST_TEST(owners.parameter_bytes[static_cast<size_t>(r)] == bytes);
    }
    return owned;
  };
  using Owned = std::vector<int>;
  BOOST_TEST(shares({8, 8, 8, 8}, 2) == (Owned{0, 0, 1, 1}));
  BOOST_TEST(shares({1, 8, 8, 8}, 2) == (Owned{0, 0, 1, 1}));  // sizes as in memory
  BOOST_TEST(shares({32, 8, 8, 8}, 2) == (Owned{0, 1, 1, 1}));
  BOOST_TEST(shares({8, 8, 16, 8, 8, 8}, 3) == (Owned{0, 0, 1, 1, 2, 2}));
  BOOST_TEST(shares({8, 8}, 4) == (Owned{0, 1}));
  BOOST_TEST(shares({8}, 2) == (Owned{0}));
}

BOOST_AUTO_TEST_SUITE_END()
