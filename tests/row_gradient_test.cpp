// Gradients of tables that gather looks rows up in: optimizers change these rows alone.
#include <boost/test/unit_test.hpp>

#include <functional>

#include "espalier/espalier.h"
#include "testing.h"

namespace esp = espalier;
namespace optim = espalier::optim;
using namespace espalier::testing;
using esp::Tensor;
using esp::Variable;

namespace {

constexpr int64_t table_rows = 60, table_width = 3;

/// Two lists of indices for each of 28 samples, with repetitions; rows 9 to 58 are in none. The last batch is
/// short.
esp::data::Distributor index_feed() {
  Tensor first = esp::zeros({28, 2}, esp::int64), second = esp::zeros({28}, esp::int32);
  for (int64_t i = 0; i < 28; ++i) {
    first.at<int64_t>({i, 0}) = (i * i) % 5;
    first.at<int64_t>({i, 1}) = i % 3 == 0 ? -1 : (i * i) % 7;
    second.at<int32_t>({i}) = static_cast<int32_t>((3 * i) % 9);
  }
  return esp::data::Distributor({first, second}, {.batch_size = 8, .shuffle = true, .seed = 3});
}

/// A loss in which a table is read twice. `dense`: by a way whose gradient is not one of rows.
Variable lookup_loss(const Variable& table, const Variable& first, const Variable& second, bool dense) {
  const Variable read = dense ? table * 1.0 : table;
  const Variable a = esp::gather(read, first), b = esp::gather(read, second);
  return esp::mean(esp::square(a - 0.5)) + esp::mean(esp::sum(a, {1}) * b);
}

Tensor indices(const std::vector<int64_t>& list) {
  return esp::tensor_from(list, {static_cast<int64_t>(list.size())});
}

using MakeOptimizer = std::function<optim::Optimizer()>;

struct Way {
  std::string name;
  std::vector<esp::Device> devices;  ///< none: eagerly
  esp::Device home = esp::cpu();     ///< where the tree is
  bool accumulates = false;
  bool shares_states = false;
};
std::vector<Way> all_ways() {
  std::vector<Way> ways{{"eager", {}},
                        {"frozen", {esp::cpu()}},
                        {"two replicas", {esp::cpu(), esp::cpu()}},
                        {"five replicas", std::vector(5, esp::cpu())}};  // the last batch has four rows
  for (const esp::Device& gpu : gpus_to_test())
    ways.insert(ways.end(), {{"eager on a GPU", {}, gpu},
                             {"frozen on a GPU", {gpu}, gpu},
                             {"two replicas on a GPU", {gpu, gpu}}});
  return ways;
}

/// The table and the optimizer's states of it after two epochs.
std::vector<Tensor> trained(const MakeOptimizer& make, esp::DType dtype, bool dense, const Way& way,
                            esp::Precision precision = esp::Precision::float32) {
  const Variable table = esp::parameter(numbers({table_rows, table_width}).to(dtype).to(way.home), "table");
  const optim::Optimizer optimizer = make();
  auto feed = index_feed();
  const auto [first, second] = feed.get_output_graphs<2>();
  const Variable loss = lookup_loss(table, first.to(way.home), second.to(way.home), dense);
  if (way.devices.empty()) {
    for (int64_t step = 0; step < 8; ++step) {
      if (step == 4) feed.reset();
      loss.forward().update(optimizer);
    }
  } else {
    (void)loss
        .get_executor({.mode = esp::Mode::training,
                       .optimizer = optimizer,
                       .devices = way.devices,
                       .replicas = {.shard_states = way.shares_states},
                       .accumulate = way.accumulates ? 2 : 1,
                       .precision = precision})
        .execute({.epochs = 2, .progress = false});
  }
  std::vector<Tensor> values{table.value().to(esp::cpu()).clone()};
  for (const auto& [name, leaf] : optimizer.state_of(table))
    values.push_back(leaf.value().to(esp::cpu()).clone());
  return values;
}

const std::vector<std::pair<std::string, MakeOptimizer>> optimizers = {
    {"Sgd", [] { return optim::Sgd(0.1); }},
    {"Sgd, clipped", [] { return optim::Sgd({.lr = 0.1, .clip_norm = 0.5, .clip_value = 0.3}); }},
    {"Sgd with a schedule", [] { return optim::Sgd({.lr = 0.1, .schedule = optim::exponential(0.9)}); }},
    {"Sgd with momentum", [] { return optim::Sgd({.lr = 0.1, .momentum = 0.9}); }},
    {"Sgd with weight decay", [] { return optim::Sgd({.lr = 0.1, .weight_decay = 0.5}); }},
    {"Adagrad", [] { return optim::Adagrad(0.1); }},
    {"Adagrad, clipped", [] { return optim::Adagrad({.lr = 0.1, .clip_norm = 0.5}); }},
    {"Adam", [] { return optim::Adam(0.1); }},
};

bool same_row(const Tensor& a, const Tensor& b, int64_t row) {
  return difference(a.slice(0, row, row + 1), b.slice(0, row, row + 1)) == 0;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(row_gradients)

BOOST_AUTO_TEST_CASE(the_same_as_with_dense_gradients) {
  for (const auto& [name, make] : optimizers)
    for (const esp::DType dtype : {esp::float32, esp::float64, esp::float16})
      for (const Way& way : all_ways()) {
        const auto rows = trained(make, dtype, false, way), dense = trained(make, dtype, true, way);
        BOOST_REQUIRE(rows.size() == dense.size());
        const double tolerance = dtype == esp::float64 ? 1e-14 : dtype == esp::float32 ? 2e-6 : 4e-3;
        for (size_t k = 0; k < rows.size(); ++k)
          BOOST_TEST(difference(rows[k], dense[k]) <= tolerance,
                     name << " in " << esp::name(dtype) << ", " << way.name << ", tensor " << k);
      }
}

BOOST_AUTO_TEST_CASE(rows_that_a_step_does_not_look_up_stay_if_asked) {
  const MakeOptimizer lazy = [] { return optim::Adam({.lr = 0.1, .weight_decay = 0.1, .sparse = true}); };
  const Tensor before = numbers({table_rows, table_width}).to(esp::float32);
  const auto reference = trained(lazy, esp::float32, false, {"eager", {}});
  for (const Way& way : all_ways()) {
    const auto values = trained(lazy, esp::float32, false, way);
    BOOST_REQUIRE(values.size() == 4u);  // the table, m, v, step
    for (size_t k = 0; k < 3; ++k) {
      BOOST_TEST(difference(values[k], reference[k]) < 2e-6, way.name);
      for (int64_t row = 9; row < table_rows - 1; ++row)
        BOOST_TEST(same_row(values[k], k == 0 ? before : esp::zeros(before.shape()), row), way.name);
      BOOST_TEST(!same_row(values[k], k == 0 ? before : esp::zeros(before.shape()), 4), way.name);
    }
  }
}

BOOST_AUTO_TEST_CASE(parts_of_a_batch_add_up_whole_gradients) {
  const Way parts{.name = "parts", .devices = {esp::cpu()}, .accumulates = true};
  const MakeOptimizer sgd = [] { return optim::Sgd(0.1); };
  BOOST_TEST(difference(trained(sgd, esp::float64, false, parts)[0],
                        trained(sgd, esp::float64, true, parts)[0]) < 1e-14);
  BOOST_CHECK_EXCEPTION(
      trained([] { return optim::Adam({.sparse = true}); }, esp::float64, false, parts),
      esp::UnsupportedError,
      says({"Adam: a sparse optimizer", "'table' (", "row_gradient_test.cpp:", ".accumulate"}));
}

BOOST_AUTO_TEST_CASE(a_scaled_loss_trains_the_same_in_every_way) {
  const MakeOptimizer momentum = [] { return optim::Sgd({.lr = 0.1, .momentum = 0.9}); };
  const MakeOptimizer plain = [] { return optim::Sgd(0.1); };
  const Way one{.name = "one", .devices = {esp::cpu()}},
      two{.name = "two", .devices = {esp::cpu(), esp::cpu()}},
      parts{.name = "parts", .devices = {esp::cpu()}, .accumulates = true},
      owners{.name = "owners", .devices = {esp::cpu(), esp::cpu()}, .shares_states = true};
  for (const MakeOptimizer& make : {momentum, plain}) {
    const auto expected = trained(make, esp::float32, true, one, esp::Precision::float16);
    for (const Way& way : {one, two, parts, owners})
      BOOST_TEST(
          difference(trained(make, esp::float32, false, way, esp::Precision::float16)[0], expected[0]) < 4e-3,
          way.name);
  }
}

BOOST_AUTO_TEST_CASE(what_lookups_are_to_the_batch) {
  // Constant indices, alone and beside those of the batch; sums and means; statistics of the batch.
  const auto table_after = [](int kind, int replicas, bool dense) {
    esp::data::Distributor feed({numbers({6, 2}), esp::tensor({3, 1, 4, 1, 5, 9})}, {.batch_size = 6});
    const auto [x, at] = feed.get_output_graphs<2>();
    const Variable table = esp::parameter(numbers({40, 2}, 1, 2), "table"),
                   w = esp::parameter(numbers({2}), "w");
    const Variable read = dense ? table * 1.0 : table;
    const Variable fixed = esp::gather(read, Variable(indices({7, 8}))), own = esp::gather(read, at);
    const Variable centred = x - esp::mean(x * w, {0}, true);
    Variable loss;
    switch (kind) {
      case 0: loss = esp::mean(esp::square(fixed)) + esp::mean(x * w); break;
      case 1: loss = esp::mean(esp::square(fixed)) + esp::sum(x * w); break;
      case 2: loss = esp::mean(esp::square(own - esp::gather(read, Variable(indices({7}))))); break;
      case 3: loss = esp::sum(esp::square(own * x)); break;
      case 4: loss = esp::mean(esp::square(centred)) + esp::mean(esp::square(fixed)); break;
      case 5: loss = esp::mean(esp::square(centred * own)); break;
      default: loss = esp::mean(esp::square(centred)) + esp::sum(fixed * esp::mean(x, {0}, true)); break;
    }
    const auto executor = loss.get_executor(
        {.optimizer = optim::Sgd(0.1), .devices = std::vector(static_cast<size_t>(replicas), esp::cpu())});
    for (int step = 0; step < 2; ++step) (void)executor.execute({.progress = false});
    return table.value().clone();
  };
  for (int kind = 0; kind < 7; ++kind)
    for (const int replicas : {1, 2, 4})
      BOOST_TEST(difference(table_after(kind, replicas, false), table_after(kind, 1, true)) < 1e-12,
                 "kind " << kind << " on " << replicas);
}

BOOST_AUTO_TEST_CASE(replicas_that_would_look_up_other_rows_are_refused) {
  esp::data::Distributor feed({numbers({8, 4})}, {.batch_size = 8});
  const Variable x = feed.get_output_graphs()[0];
  const Variable table = esp::parameter(numbers({40, 2}), "table");
  // With statistics of their own, replicas do not agree on these rows.
  const Variable at = esp::cast(esp::abs(esp::mean(x, {0})), esp::int64);
  const Variable loss = esp::mean(esp::sum(esp::gather(table, at)) * esp::sum(x, {1}));
  BOOST_CHECK_EXCEPTION(
      (void)loss
          .get_executor({.optimizer = optim::Sgd(0.1),
                         .devices = {esp::cpu(), esp::cpu()},
                         .replicas = {.local_statistics = true}})
          .execute({.progress = false}),
      esp::UnsupportedError,
      says({"replicas cannot exchange", "'cast'", "row_gradient_test.cpp:", "several rows"}));
}

BOOST_AUTO_TEST_CASE(a_table_of_one_column_beside_a_feed) {
  const Variable table = esp::parameter(esp::ones({50, 1}), "table");
  esp::data::Distributor feed({esp::tensor({3, 4})}, {.batch_size = 1});
  const Variable loss = esp::sum(esp::gather(table, feed.get_output_graphs()[0]));
  const optim::Adam lazy({.lr = 0.1, .sparse = true});
  loss.forward().update(lazy);
  const double after = table.value().at<float>({3, 0});
  loss.forward().update(lazy);
  BOOST_TEST(table.value().at<float>({3, 0}) == after);
  BOOST_TEST(table.value().at<float>({4, 0}) < 1);
}

BOOST_AUTO_TEST_CASE(lazy_rows_are_those_of_a_smaller_table) {
  // Of a table whose rows are all looked up, each step is that of the usual Adam.
  const Variable large = esp::parameter(numbers({6, 2}), "large"),
                 small = esp::parameter(numbers({6, 2}).slice(0, 2, 4).clone(), "small");
  const optim::Adam lazy({.lr = 0.1, .sparse = true}), usual({.lr = 0.1});
  for (int64_t step = 0; step < 4; ++step) {
    const Variable in_large(indices({2, 3, 2})), in_small(indices({0, 1, 0}));
    const auto loss = [&](const Variable& rows) { return esp::sum(esp::square(rows) * (1.0 + step)); };
    loss(esp::gather(large, in_large)).update(lazy);
    loss(esp::gather(small, in_small)).update(usual);
  }
  BOOST_TEST(difference(large.value().slice(0, 2, 4), small.value()) < 1e-15);
  BOOST_TEST(difference(large.value().slice(0, 0, 2), numbers({6, 2}).slice(0, 0, 2)) == 0);
}

BOOST_AUTO_TEST_CASE(a_table_is_changed_where_it_lies) {
  const Variable table = esp::parameter(numbers({1000, 4}), "table");
  const auto step = [&] { esp::sum(esp::gather(table, Variable(indices({7, 3})))).update(optim::Sgd(0.5)); };
  step();
  const void* const place = table.value().address();
  step();
  BOOST_TEST(table.value().address() == place);
  const Tensor held = table.value(), copy = held.clone();  // a value that is held stays as it is
  step();
  BOOST_TEST(difference(held, copy) == 0);
  BOOST_TEST(!same_row(table.value(), copy, 7));
  BOOST_TEST(same_row(table.value(), copy, 8));
}

BOOST_AUTO_TEST_CASE(a_plan_needs_no_memory_for_the_whole_table) {
  for (const auto& [name, make] : optimizers) {
    if (name == "Adam" || name == "Sgd with momentum" || name == "Sgd with weight decay") continue;
    const Variable table = esp::parameter(numbers({5000, 8}), "a"),
                   other = esp::parameter(numbers({5000, 8}), "b");
    const Variable first = esp::placeholder("first", {16}, esp::int64),
                   second = esp::placeholder("second", {16}, esp::int64);
    const Variable loss = esp::mean(esp::gather(table, first) * esp::gather(other, second));
    const auto executor = loss.get_executor({.mode = esp::Mode::training, .optimizer = make()});
    BOOST_TEST(executor.plan().arena_bytes() < 5000 * 8, name);
    for (int64_t step = 0; step < 2; ++step)
      (void)executor.run(
          {{"first", esp::full({16}, step, esp::int64)}, {"second", esp::full({16}, 5, esp::int64)}});
    const auto changed_rows = [before = numbers({5000, 8})](const Tensor& after) {
      std::vector<int64_t> rows;
      for (int64_t row = 0; row < 5000; ++row)
        if (!same_row(after, before, row)) rows.push_back(row);
      return rows;
    };
    BOOST_TEST(changed_rows(table.value()) == (std::vector<int64_t>{0, 1}), boost::test_tools::per_element());
    BOOST_TEST(changed_rows(other.value()) == (std::vector<int64_t>{5}), boost::test_tools::per_element());
  }
}

BOOST_AUTO_TEST_CASE(what_else_reads_the_table_has_a_dense_gradient) {
  const Variable table = esp::parameter(numbers({5, 3}), "table"),
                 same = esp::parameter(numbers({5, 3}), "same");
  const auto loss = [](const Variable& looked_up, const Variable& whole) {  // tied weights
    const Variable h = esp::gather(looked_up, Variable(indices({1, 4, 1})));
    return esp::mean(esp::square(esp::matmul(h, esp::transpose(whole))));
  };
  const optim::Adam lazy({.lr = 0.1, .sparse = true}), usual({.lr = 0.1});
  for (int step = 0; step < 3; ++step) {
    loss(table, table).update(lazy);
    loss(same * 1.0, same).update(usual);
  }
  BOOST_TEST(difference(table.value(), same.value()) < 1e-14);
}

BOOST_AUTO_TEST_CASE(gradients_are_there_when_asked_for) {
  const Variable table = esp::parameter(numbers({5, 3}), "table");
  const Variable at(indices({1, 4, 1}));
  const Variable loss = esp::sum(esp::gather(table, at) * esp::gather(table, at) * 0.5);
  const Tensor before = table.value().clone();
  loss.backward();
  loss.update(optim::Sgd(0.1));
  const Tensor gradient = loss.gradient(table).value();  // of the step before the update
  BOOST_TEST(difference(gradient.slice(0, 1, 2), (Variable(before.slice(0, 1, 2)) * 2.0).value()) < 1e-15);
  BOOST_TEST(difference(gradient.slice(0, 0, 1), esp::zeros({1, 3}, esp::float64)) == 0);
  const Variable twice = esp::sum(esp::power(esp::gather(table, at), 3.0)).gradient(table);
  BOOST_TEST(difference(esp::sum(twice).gradient(table).value().slice(0, 1, 2),
                        (Variable(table.value().slice(0, 1, 2)) * 12.0).value()) < 1e-13);
}

BOOST_AUTO_TEST_CASE(beside_a_feed_gradients_are_those_of_the_step_that_was_shown) {
  auto feed = index_feed();
  const auto [first, second] = feed.get_output_graphs<2>();
  const Variable table = esp::parameter(numbers({table_rows, table_width}), "table"),
                 same = esp::parameter(numbers({table_rows, table_width}), "same");
  const Variable rows = lookup_loss(table, first, second, false),
                 whole = lookup_loss(same, first, second, true);
  for (const bool before : {true, false})  // asking before the update or after it
    for (int step = 0; step < 2; ++step)
      for (const auto& [loss, parameter] : {std::pair(rows, table), std::pair(whole, same)}) {
        loss.forward();
        if (before) loss.backward();
        Tensor gradient;
        if (before) gradient = loss.gradient(parameter).value().clone();
        loss.update(optim::Sgd(0.1));
        if (!before) gradient = loss.gradient(parameter).value().clone();
        static Tensor expected;
        if (parameter.node() == table.node())
          expected = gradient;
        else
          BOOST_TEST(difference(gradient, expected) < 1e-14);
      }
  BOOST_TEST(difference(table.value(), same.value()) < 1e-14);
}

BOOST_AUTO_TEST_CASE(no_index_and_no_column) {
  for (const esp::Shape& shape : {esp::Shape{9, 0}, esp::Shape{9}, esp::Shape{9, 2, 3}}) {
    const Variable table = esp::parameter(numbers(shape), "table");
    const auto step = [&](const std::vector<int64_t>& list) {
      const Variable at(indices(list));
      esp::sum(esp::gather(table, at)).update(optim::Adagrad(0.1));
    };
    step({});
    BOOST_TEST(difference(table.value(), numbers(shape)) == 0);
    step({3, 3});
    BOOST_TEST(same_row(table.value(), numbers(shape), 2));
    if (table.value().elements() > 0) BOOST_TEST(!same_row(table.value(), numbers(shape), 3));
  }
}

BOOST_AUTO_TEST_CASE(two_lookups_of_rows_without_columns) {
  const Variable table = esp::parameter(esp::zeros({4, 0, 3}), "table");
  const Variable loss =
      esp::sum(esp::gather(table, indices({1, 2}))) + esp::sum(esp::gather(table, indices({3})));
  BOOST_TEST((loss.gradient(table).shape() == esp::Shape{4, 0, 3}));
  BOOST_TEST(loss.gradient(table).value().elements() == 0);
}

BOOST_AUTO_TEST_CASE(a_lookup_that_counts_from_the_end_beside_one_that_does_not) {
  for (const bool first : {true, false}) {
    const esp::nn::Embedding embed(6, 3);
    const Variable table = embed.parameter("weight");
    const Tensor before = table.value().clone();
    const Variable one = esp::sum(first ? esp::gather(table, indices({-1})) : embed(indices({1}))),
                   other = esp::sum(first ? embed(indices({1})) : esp::gather(table, indices({-1})));
    const Tensor gradient = (one + other).gradient(table).value().clone();
    (one + other).update(optim::Sgd(1.0));
    for (const int64_t row : {0, 1, 2, 3, 4, 5}) {
      const double expected = row == 1 || row == 5 ? 1 : 0;
      BOOST_TEST(difference(gradient[row], esp::full({3}, expected)) == 0);
      BOOST_TEST(difference(table.value()[row], (before[row] - expected).value()) < 1e-6);
    }
  }
}

BOOST_AUTO_TEST_CASE(a_table_whose_rows_are_apart) {
  for (const auto& layout : {laid_out_in_reverse, sliced_from_larger}) {
    const Tensor before = numbers({6, 3});
    const Variable table = esp::parameter(layout(before), "table");
    esp::sum(esp::gather(table, indices({4}))).update(optim::Sgd(1.0));
    for (const int64_t row : {0, 1, 2, 3, 4, 5})
      BOOST_TEST(difference(table.value()[row], (before[row] - (row == 4 ? 1.0 : 0.0)).value()) < 1e-14);
  }
}

BOOST_AUTO_TEST_CASE(a_step_that_is_skipped_changes_no_row) {
  const MakeOptimizer lazy = [] { return optim::Adam({.lr = 0.1, .clip_norm = 1, .sparse = true}); };
  const auto halves = trained(lazy, esp::float32, false, {"frozen", {esp::cpu()}}, esp::Precision::float16),
             reference = trained(lazy, esp::float32, false, {"frozen", {esp::cpu()}});
  BOOST_TEST(difference(halves[0], reference[0]) < 2e-2);
  // Infinite loss: the scale falls, and nothing else changes.
  const Variable table = esp::parameter(esp::full({4, 2}, 60000.0), "table");
  const Variable at = esp::placeholder("at", {2}, esp::int64);
  const Variable loss = esp::sum(esp::square(esp::square(esp::square(esp::gather(table, at)))));
  const auto executor = loss.get_executor(
      {.mode = esp::Mode::training, .optimizer = lazy(), .precision = esp::Precision::float16});
  (void)executor.run({{"at", indices({0, 1})}});
  BOOST_TEST(difference(table.value(), esp::full({4, 2}, 60000.0)) == 0);
}

BOOST_AUTO_TEST_SUITE_END()
