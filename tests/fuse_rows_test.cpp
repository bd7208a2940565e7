// Updates of rows of tables by one kernel, which reads and writes them where they lie.
#include <boost/test/unit_test.hpp>

#include <cstring>
#include <functional>

#include "espalier/core/cpu/vectorize.h"
#include "espalier/espalier.h"
#include "espalier/executor/graph/graph.h"
#include "espalier/executor/passes/passes.h"
#include "espalier/ops/indexing/rows.h"
#include "testing.h"

namespace esp = espalier;
namespace optim = espalier::optim;
using namespace espalier::testing;
using esp::Tensor;
using esp::Variable;

namespace {

using MakeOptimizer = std::function<optim::Optimizer()>;

const std::vector<std::pair<std::string, MakeOptimizer>> optimizers = {
    {"Sgd", [] { return optim::Sgd(0.1); }},
    {"Sgd, clipped", [] { return optim::Sgd({.lr = 0.1, .clip_norm = 0.5, .clip_value = 0.3}); }},
    {"Sgd with a schedule", [] { return optim::Sgd({.lr = 0.1, .schedule = optim::exponential(0.9)}); }},
    {"Sgd with momentum", [] { return optim::Sgd({.lr = 0.1, .momentum = 0.9, .sparse = true}); }},
    {"Nesterov's", [] { return optim::Sgd({.momentum = 0.9, .nesterov = true, .sparse = true}); }},
    {"Adagrad", [] { return optim::Adagrad(0.1); }},
    {"Adagrad, decayed", [] { return optim::Adagrad({.weight_decay = 0.1, .sparse = true}); }},
    {"Adadelta", [] { return optim::Adadelta({.sparse = true}); }},
    {"Adam", [] { return optim::Adam({.lr = 0.1, .sparse = true}); }},
    {"Adam, clipped", [] { return optim::Adam({.lr = 0.1, .clip_norm = 0.5, .sparse = true}); }},
    {"AMSGrad", [] { return optim::Adam({.lr = 0.1, .amsgrad = true, .sparse = true}); }},
    {"AdamW", [] { return optim::AdamW({.lr = 0.1, .sparse = true}); }},
    {"Adamax", [] { return optim::Adamax({.sparse = true}); }},
    {"Lion", [] { return optim::Lion({.sparse = true}); }},
    {"NAdam", [] { return optim::NAdam({.sparse = true}); }},
    {"RAdam", [] { return optim::RAdam({.sparse = true}); }},
    {"RMSProp", [] { return optim::RmsProp({.momentum = 0.9, .sparse = true}); }},
    {"Rprop", [] { return optim::Rprop({.sparse = true}); }},
};

struct Case {
  esp::Shape table = {90, 17};
  esp::DType dtype = esp::float32, index_type = esp::int64;
  std::vector<int64_t> indices = {7, 80, 7, 3, -1, 89, 80, 7, 12};
  std::vector<std::string> without = {};
  int steps = 3;
};

Tensor index_tensor(const Case& c) {
  return esp::tensor_from(c.indices, {static_cast<int64_t>(c.indices.size())}).to(c.index_type);
}

/// The table and the optimizer's states of it after some steps, and the plan.
std::pair<std::vector<Tensor>, std::string> trained(const MakeOptimizer& make, const Case& c) {
  const Variable table = esp::parameter(numbers(c.table).to(c.dtype), "table");
  const optim::Optimizer optimizer = make();
  const Tensor indices = index_tensor(c);
  const Variable at = esp::placeholder("at", indices.shape(), c.index_type);
  const auto executor =
      esp::sum(esp::power(esp::cast(esp::gather(table, at), esp::float32), 3.0))
          .get_executor({.mode = esp::Mode::training, .optimizer = optimizer, .without = c.without});
  for (int step = 0; step < c.steps; ++step) (void)executor.run({{"at", indices}});
  std::vector<Tensor> values{table.value().clone()};
  for (const auto& [name, leaf] : optimizer.state_of(table)) values.push_back(leaf.value().clone());
  return {std::move(values), executor.plan().str()};
}

bool has(const std::string& plan, const std::string& op) {
  return plan.find("  " + op + "(") != std::string::npos || plan.find("  " + op + " ") != std::string::npos;
}

/// A plan is fused, and computes the same bits as one that is not.
void check(const std::string& name, const MakeOptimizer& make, Case c, bool fused = true) {
  const auto [values, plan] = trained(make, c);
  c.without.push_back("fuse_rows");
  const auto [expected, unfused] = trained(make, c);
  fused = fused && !c.indices.empty();  // no kernel is fused over no element
  BOOST_TEST(has(plan, "fused_rows") == fused, name << "\n" << plan);
  BOOST_TEST(has(plan, "put_rows") == !fused, name << "\n" << plan);
  BOOST_TEST(!has(unfused, "fused_rows"), name);
  BOOST_TEST(has(unfused, "put_rows"), name);
  BOOST_REQUIRE(values.size() == expected.size());
  for (size_t k = 0; k < values.size(); ++k)
    BOOST_TEST(
        std::memcmp(values[k].address(), expected[k].address(), static_cast<size_t>(values[k].bytes())) == 0,
        name << " of " << esp::name(c.dtype) << ' ' << c.table.str() << ", tensor " << k);
}

const MakeOptimizer adagrad = [] { return optim::Adagrad(0.1); };
const MakeOptimizer adam = [] { return optim::Adam({.lr = 0.1, .sparse = true}); };

}  // namespace

BOOST_AUTO_TEST_SUITE(fuse_rows)

BOOST_AUTO_TEST_CASE(the_same_bits_for_all_optimizers) {
  for (const auto& [name, make] : optimizers)
    for (const esp::DType dtype : {esp::float32, esp::float64, esp::float16, esp::bfloat16})
      check(name, make, {.dtype = dtype});
}

BOOST_AUTO_TEST_CASE(the_same_bits_for_all_widths) {
  // Around the widths of vectors and of the pieces in which rows are copied, and more than a tile.
  for (const int64_t width : {1, 2, 3, 4, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 100, 700, 2049, 5000})
    for (const auto& make : {adagrad, adam})
      for (const esp::DType dtype : {esp::float32, esp::float64, esp::bfloat16}) {
        check("width", make, {.table = {90, width}, .dtype = dtype});
        check("width", make, {.table = {90, width}, .dtype = dtype, .index_type = esp::int32});
      }
  check("a vector", adagrad, {.table = {90}});
  check("more axes", adam, {.table = {90, 3, 5}});
}

BOOST_AUTO_TEST_CASE(the_same_bits_at_all_vector_levels) {
  const esp::VectorLevel widest = esp::vector_level();
  for (const auto level : {esp::VectorLevel::baseline, esp::VectorLevel::avx2, esp::VectorLevel::avx512}) {
    esp::set_vector_level(level);
    for (const int64_t width : {3, 17, 100}) check("level", adam, {.table = {90, width}});
  }
  esp::set_vector_level(widest);
}

BOOST_AUTO_TEST_CASE(the_same_bits_for_all_lists_of_rows) {
  const std::vector<std::vector<int64_t>> lists = {
      {},
      {0},
      {89, 88},
      {5, 5, 5, 5},
      {1, 2, 1, 3, 2, 4, 1, 5},
      {9, 8, 7, 6, 5, 4, 3, 2, 1, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, -1},
      {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24}};
  for (const auto& indices : lists)
    for (const auto& [name, make] : optimizers)
      for (const int64_t width : {5, 400}) check(name, make, {.table = {90, width}, .indices = indices});
}

BOOST_AUTO_TEST_CASE(many_rows_are_shared_out_to_threads) {
  std::vector<int64_t> distinct, repeated;
  for (int64_t i = 0; i < 9000; ++i) {
    distinct.push_back(i * 7919 % 20011);
    repeated.push_back(i * i % 4001);
  }
  const int before = esp::num_threads();
  for (const int threads : {1, 3}) {
    esp::set_num_threads(threads);
    for (const auto& indices : {distinct, repeated})
      for (const auto& make : {adagrad, adam})
        check("threads", make, {.table = {20011, 33}, .indices = indices, .steps = 2});
  }
  esp::set_num_threads(before);
}

BOOST_AUTO_TEST_CASE(tables_without_elements_and_steps_without_rows_count_steps) {
  for (const esp::Shape& shape : {esp::Shape{9, 0}, esp::Shape{9, 4}}) {
    const Variable table = esp::parameter(numbers(shape), "table");
    const Variable at = esp::placeholder("at", {0}, esp::int64);
    const optim::Adam lazy({.sparse = true});
    const auto executor =
        esp::sum(esp::gather(table, at)).get_executor({.mode = esp::Mode::training, .optimizer = lazy});
    for (int step = 0; step < 2; ++step) (void)executor.run({{"at", esp::Tensor({0}, esp::int64)}});
    BOOST_TEST(difference(table.value(), numbers(shape)) == 0);
    for (const auto& [name, leaf] : lazy.state_of(table))
      if (name == "step") BOOST_TEST(leaf.value().to(esp::float64).item() == 2);
  }
}

BOOST_AUTO_TEST_CASE(tables_are_written_where_they_lie) {
  for (const auto& [name, make] : optimizers) {
    const Variable table = esp::parameter(numbers({5000, 8}), "table");
    const Variable at = esp::placeholder("at", {16}, esp::int64);
    const auto executor = esp::sum(esp::square(esp::gather(table, at)))
                              .get_executor({.mode = esp::Mode::training, .optimizer = make()});
    BOOST_TEST(executor.plan().arena_bytes() < 5000 * 8, name);
    const std::string plan = executor.plan().str();
    BOOST_TEST(has(plan, "fused_rows"), name);
    const size_t sums = plan.find(" sum_rows ");  // over their terms
    BOOST_TEST(plan.substr(sums, plan.find('\n', sums) - sums).find("in place") != std::string::npos, name);
  }
  // Or copied, where a pass is left out.
  check("copied", adam, {.without = {"in_place"}});
  check("alone", adam, {.without = {"early_updates", "common_subexpressions"}});
}

BOOST_AUTO_TEST_CASE(two_tables_with_lists_of_one_length) {
  const auto after = [](const std::vector<std::string>& without) {
    const Variable a = esp::parameter(numbers({50, 6}), "a"), b = esp::parameter(numbers({50, 6}, 1, 2), "b");
    const Variable i = esp::placeholder("i", {5}, esp::int64), k = esp::placeholder("k", {5}, esp::int64);
    const auto executor =
        esp::sum(esp::gather(a, i) * esp::gather(b, k))
            .get_executor({.mode = esp::Mode::training, .optimizer = adam(), .without = without});
    BOOST_TEST(has(executor.plan().str(), "fused_rows") == without.empty());
    for (int step = 0; step < 3; ++step)
      (void)executor.run({{"i", esp::tensor({1, 4, 1, 7, 9}).to(esp::int64)},
                          {"k", esp::tensor({2, 2, 30, 4, 4}).to(esp::int64)}});
    return std::pair(a.value().clone(), b.value().clone());
  };
  const auto fused = after({}), apart = after({"fuse_rows"});
  BOOST_TEST(difference(fused.first, apart.first) == 0);
  BOOST_TEST(difference(fused.second, apart.second) == 0);
}

BOOST_AUTO_TEST_CASE(averages_read_the_whole_table) {
  check(
      "averaged", [] { return optim::Ema(optim::Adagrad(0.1)); }, {}, false);
}

BOOST_AUTO_TEST_CASE(a_table_that_a_view_shows_is_not_written_where_it_lies) {
  const Variable table = esp::parameter(numbers({50, 6}), "table");
  const Variable at(esp::tensor({1, 4, 1}).to(esp::int64));
  const auto [sums, rows] = esp::row_gradient(esp::sum(esp::gather(table, at)).gradient(table));
  const auto text = [&](const Variable& factor) {
    esp::BuildContext update = esp::build_context();
    update.tag = esp::Tag::update;
    update.lazy = true;
    const esp::BuildScope scope(update);
    const Variable next = esp::put_rows(table, rows, esp::take_rows(table, rows) - sums * factor);
    esp::Graph graph = esp::freeze({factor}, {optim::assignment(table, next)}, {}, false);
    (void)esp::fuse_pointwise(graph);
    (void)esp::fuse_rows(graph);
    esp::verify(graph, "fuse_rows");
    return graph.str();
  };
  const std::string fused = text(esp::parameter(numbers({3, 6}), "factor")),
                    apart = text(esp::slice(table, 0, 0, 3));
  BOOST_TEST(fused.find(" fused_rows(") != std::string::npos, fused);
  BOOST_TEST(apart.find(" fused_rows(") == std::string::npos, apart);
}

BOOST_AUTO_TEST_CASE(the_graph_and_a_second_run) {
  const Variable table = esp::parameter(numbers({50, 6}), "table");
  const Variable at(esp::tensor({1, 4, 1}).to(esp::int64));
  const optim::Adagrad rule(0.1);
  const Variable loss = esp::sum(esp::gather(table, at));
  const auto frozen = [&] {
    return esp::freeze({loss}, rule.build({{table, loss.gradient(table)}}, {}, true), {}, false);
  };
  esp::Graph graph = frozen();
  BOOST_TEST(esp::fuse_pointwise(graph));
  esp::Graph on_gpu = graph;
  BOOST_TEST(esp::fuse_rows(graph));
  esp::verify(graph, "fuse_rows");
  const std::string text = graph.str();
  BOOST_TEST(text.find("fused_rows(tables=[1, 3]") != std::string::npos, text);
  BOOST_TEST(text.find("take_rows") == std::string::npos, text);
  BOOST_TEST(text.find("put_rows") == std::string::npos, text);
  BOOST_TEST(!esp::fuse_rows(graph));
  BOOST_TEST(graph.str() == text);
  on_gpu.device = esp::DeviceType::cuda;
  BOOST_TEST(!esp::fuse_rows(on_gpu));
}

BOOST_AUTO_TEST_SUITE_END()
