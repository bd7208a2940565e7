// Contraction: joined nodes close no circle, and the tests look at few edges.
#include "espalier/executor/graph/contraction.h"

#include <boost/test/unit_test.hpp>

#include <numeric>
#include <random>

#include "espalier/core/autograd.h"
#include "espalier/executor/compile.h"
#include "espalier/executor/passes/clusters.h"
#include "espalier/ops/ops.h"
#include "espalier/optim/sgd.h"
#include "plan_steps.h"
#include "testing.h"

namespace esp = espalier;
using namespace espalier::testing;

namespace {

using Users = std::vector<std::vector<uint32_t>>;

Users random_graph(std::mt19937& random, uint32_t nodes) {
  Users users(nodes);
  const uint32_t reach = 1 + random() % nodes;
  for (uint32_t i = 1; i < nodes; ++i)
    for (uint32_t k = random() % 4; k > 0; --k) {
      const uint32_t from = i - 1 - random() % std::min(i, reach);
      if (users[from].empty() || users[from].back() != i) users[from].push_back(i);
    }
  return users;
}

esp::Adjacency adjacency_of(const Users& users) {
  esp::Adjacency::Edges edges;
  for (uint32_t i = 0; i < users.size(); ++i)
    for (const uint32_t user : users[i]) edges.push_back({i, user});
  return {users.size(), edges};
}

/// The units as plain sets, joined after a search of the whole graph.
struct PlainUnits {
  explicit PlainUnits(const Users& graph) : users(graph), unit(graph.size()) {
    std::iota(unit.begin(), unit.end(), 0u);
  }
  /// Whether a path from one unit to the other leads through a third one.
  bool path_outside(uint32_t from, uint32_t to) const {
    std::vector<bool> seen(users.size(), false);
    std::vector<uint32_t> todo;
    const auto visit = [&](uint32_t one) {
      for (uint32_t node = 0; node < users.size(); ++node)
        if (unit[node] == one)
          for (const uint32_t user : users[node])
            if (const uint32_t u = unit[user]; u != from && !seen[u]) {
              if (u == to && one == from) continue;
              seen[u] = true;
              todo.push_back(u);
            }
    };
    visit(from);
    while (!todo.empty()) {
      const uint32_t one = todo.back();
      todo.pop_back();
      if (one == to) return true;
      visit(one);
    }
    return false;
  }
  bool join(uint32_t first, uint32_t second) {
    const uint32_t a = unit[first], b = unit[second];
    if (a == b) return true;
    if (path_outside(a, b) || path_outside(b, a)) return false;
    for (uint32_t& u : unit)
      if (u == b) u = a;
    return true;
  }

  const Users& users;
  std::vector<uint32_t> unit;
};

/// The edges that the clustering of a training step of so many layers looks at.
uint64_t edges_searched(const std::function<esp::Variable(int)>& tree, int layers) {
  const esp::Variable loss = tree(layers);
  const auto gradients = esp::new_parameter_gradients(loss);
  const auto plan = esp::compile(step_of({loss}, esp::optim::Sgd(0.1).build(gradients)), {},
                                 {.without = {"fuse_pointwise"}});
  esp::Clustering clustering(plan->graph);
  clustering.join();
  return clustering.edges_searched();
}

}  // namespace

BOOST_AUTO_TEST_SUITE(contraction)

BOOST_AUTO_TEST_CASE(joins_as_a_search_of_the_whole_graph_does) {
  std::mt19937 random(1);
  int refused = 0;
  for (int round = 0; round < 200; ++round) {
    const uint32_t nodes = 2 + random() % 40;
    const Users users = random_graph(random, nodes);
    PlainUnits plain(users);
    esp::Contraction contraction(adjacency_of(users));
    for (int attempt = 0; attempt < 60; ++attempt) {
      const uint32_t a = random() % nodes, b = random() % nodes;
      const bool joined = contraction.join(a, b);
      BOOST_TEST_REQUIRE(joined == plain.join(a, b));
      BOOST_TEST(contraction.joined(a, b) == joined);
      refused += !joined;
    }
  }
  BOOST_TEST(refused > 1000);
}

BOOST_AUTO_TEST_CASE(many_moves_to_one_place_keep_the_order) {
  // Node 0 is joined with nodes behind ever more readers of it, so the gaps between positions are used up.
  constexpr uint32_t nodes = 300;
  Users users(nodes);
  for (uint32_t i = 1; i < nodes; ++i) users[0].push_back(i);
  PlainUnits plain(users);
  esp::Contraction contraction(adjacency_of(users));
  for (uint32_t i = nodes - 1; i > nodes - 80; --i)
    BOOST_TEST_REQUIRE(contraction.join(0, i) == plain.join(0, i));
  for (uint32_t i = 1; i < 80; ++i) BOOST_TEST_REQUIRE(contraction.join(0, i) == plain.join(0, i));
}

BOOST_AUTO_TEST_CASE(the_work_grows_as_the_depth_does) {
  const esp::Variable w = esp::parameter(numbers({4, 4}, -1, 1, 1)),
                      p = esp::parameter(numbers({4}, -1, 1, 2));
  const std::map<std::string, std::function<esp::Variable(int)>> trees{
      {"products, one weight",
       [&](int layers) {
         esp::Variable h = esp::ones({2, 4}, esp::float64);
         for (int i = 0; i < layers; ++i) h = esp::tanh(esp::matmul(h, w)) * 0.5;
         return esp::sum(h);
       }},
      {"elements of one weight",
       [&](int layers) {
         esp::Variable y = esp::ones({4}, esp::float64);
         for (int i = 0; i < layers; ++i) y = esp::sin(y * p);
         return esp::sum(y);
       }},
      {"a sum",
       [&](int layers) {
         esp::Variable total = esp::sin(p);
         for (int i = 0; i < layers; ++i) total = total + esp::sin(p + static_cast<double>(i));
         return esp::sum(total);
       }},
      {"one sine read by all", [&](int layers) {
         const esp::Variable s = esp::sin(p);
         esp::Variable total = s;
         for (int i = 0; i < layers; ++i) total = total + esp::sin(s * static_cast<double>(i));
         return esp::sum(total);
       }}};
  for (const auto& [name, tree] : trees) BOOST_TEST_CONTEXT(name) {
      const uint64_t few = edges_searched(tree, 100), many = edges_searched(tree, 400);
      BOOST_TEST(few > 0);
      BOOST_TEST(many < 6 * few);
    }
}

BOOST_AUTO_TEST_SUITE_END()
