// Ops made from names and attributes. check_op does it for each op of the table; here are whole steps of
// training, and what cannot be made.
#include <boost/test/unit_test.hpp>

#include <set>

#include "espalier/core/autograd.h"
#include "espalier/core/error.h"
#include "espalier/core/op_registry.h"
#include "espalier/executor/compile.h"
#include "fuzz_tree.h"
#include "remade_ops.h"
#include "training_runs.h"

namespace esp = espalier;
using namespace espalier::testing;
using esp::Attributes;
using esp::Variable;

namespace {

/// A step of training, grown as executors grow it.
esp::StepTree step_of(const Variable& loss, uint32_t optimizer) {
  esp::BuildContext now = esp::build_context();
  now.lazy = now.without_activations = true;
  const esp::BuildScope scope(now);
  esp::StepTree tree{loss};
  tree.gradients = esp::new_parameter_gradients(loss);
  tree.updates = optimizer_of(optimizer).build(tree.gradients);
  return tree;
}

template <class E>
void check_refused(std::string_view name, const Attributes& attributes, const std::string& said) {
  try {
    (void)esp::make_op(name, attributes);
    BOOST_ERROR(name << " was made");
  } catch (const E& error) {
    const std::string text = error.what();
    BOOST_TEST(typeid(error).name() == typeid(E).name());
    BOOST_TEST(text.find(name) != text.npos, text);
    BOOST_TEST(text.find(said) != text.npos, text);
  }
}

}  // namespace

BOOST_AUTO_TEST_SUITE(make_op)

BOOST_AUTO_TEST_CASE(all_ops_of_steps_of_training_are_made_again) {
  const std::set<std::string> have_state{"source",     "doubled",         "fused",          "fused_group",
                                         "fused_rows", "matmul_epilogue", "gradient_bucket"};
  std::set<std::string> seen;
  const auto check = [&](const esp::StepTree& step) {
    const esp::Graph frozen = esp::freeze(step, {}, false).graph;
    const std::vector<std::string> fusions{"fuse_pointwise", "fuse_rows", "fuse_matmul", "group_updates"};
    const auto fused = esp::compile(step, {}, {}), plain = esp::compile(step, {}, {.without = fusions});
    for (const esp::Graph* graph : {&frozen, &fused->graph, &plain->graph}) {
      for (const std::string& name : check_remade(*graph)) BOOST_TEST(have_state.count(name) == 1u, name);
      for (const esp::GraphNode& n : graph->nodes) seen.emplace(n.op->name());
    }
  };
  for (uint32_t seed = 0; seed < 24; ++seed) BOOST_TEST_CONTEXT("seed " << seed) {
      const FuzzTree tree(seed);
      check(step_of(tree.root, seed));
    }
  // What few trees have: slices that make a whole, a concat over a feed, rows of a table, plain descent of a
  // product, an output that shows what the step assigns.
  const Variable x = esp::placeholder("x", {4, 6}, esp::float64), y = esp::placeholder("y", {4}, esp::int64),
                 w = esp::parameter(numbers({6, 5}), "w"), out = esp::parameter(numbers({10, 3}), "out"),
                 table = esp::parameter(numbers({3, 3}), "table"),
                 columns = esp::parameter(numbers({3, 4}), "columns"),
                 words = esp::parameter(numbers({20, 3}), "words");
  const Variable h = esp::matmul(x, esp::slice(w, 1, 0, 2)), k = esp::matmul(x, esp::slice(w, 1, 2, 5)),
                 both = esp::concat({h, k, h, k}, 1);
  const Variable logits = esp::matmul(both, out) + esp::gather(table, y, 0) + esp::gather(words, y, 0) +
                          esp::transpose(esp::gather(columns, y, 1));
  esp::StepTree step = step_of(esp::softmax_cross_entropy(logits, y), 0);
  step.outputs = {table};
  step.gradients.clear();  // they need not lie side by side
  check(step);
  for (const char* name :
       {"assign", "keep", "join", "log_softmax_pick_gradient", "matmul_update", "pad_like", "dropout_mask",
        "concat_part", "scatter_add_like", "cast", "sum_rows", "take_rows", "put_rows"})
    BOOST_TEST(seen.count(name) == 1u, name << " is in no plan");
}

BOOST_AUTO_TEST_CASE(shapes_that_stand_for_values_have_all_in_their_attributes) {
  const auto shape = esp::make_op("shape", {{"dtype", "int32"}, {"shape", std::vector<int64_t>{2, 3}}});
  BOOST_TEST((shape->infer({}) == esp::Specs{{esp::int32, {2, 3}}}));
  const auto other = esp::make_op("shape", {{"dtype", "int32"}, {"shape", std::vector<int64_t>{3, 2}}});
  BOOST_TEST(!shape->equals(*other));
}

BOOST_AUTO_TEST_CASE(attributes_of_older_plan_files_suffice) {
  const std::vector<int64_t> pairs{1, 0, 0};
  const auto older = esp::make_op("put_rows_like", {{"pairs", pairs}, {"row_elements", int64_t{3}}});
  const auto now =
      esp::make_op("put_rows_like", {{"pairs", pairs}, {"row_elements", int64_t{3}}, {"adds", false}});
  BOOST_TEST(older->equals(*now));
  check_refused<esp::TypeError>("put_rows_like",
                                {{"pairs", pairs}, {"row_elements", int64_t{3}}, {"adds", int64_t{0}}},
                                "'adds' is not a bool");
}

BOOST_AUTO_TEST_CASE(what_cannot_be_made_is_refused_by_name) {
  using esp::Error, esp::TypeError, esp::UnsupportedError;
  const std::vector<int64_t> axes{0, 1};
  check_refused<Error>("tanhh", {}, "there is no op");
  check_refused<Error>("tanh", {{"axis", int64_t{1}}}, "'axis'");
  check_refused<Error>("slice", {{"axis", int64_t{1}}, {"begin", int64_t{0}}}, "'end' is missing");
  check_refused<Error>("gather", {{"axis", int64_t{1}}, {"axis", int64_t{2}}}, "'axis'");
  check_refused<TypeError>("gather", {{"axis", 1.0}}, "'axis' is not an integer");
  check_refused<TypeError>("sum", {{"axes", axes}, {"keep_dims", int64_t{1}}}, "'keep_dims' is not a bool");
  check_refused<TypeError>("sum", {{"axes", int64_t{0}}, {"keep_dims", true}}, "'axes' is not a list");
  check_refused<TypeError>("cast", {{"dtype", int64_t{0}}}, "'dtype' is not a text");
  check_refused<TypeError>("full_like", {{"value", int64_t{1}}}, "'value' is not a real");
  check_refused<Error>("cast", {{"dtype", "float8"}}, "dtype=float8");
  check_refused<Error>("dropout_mask", {{"rate", 1.0}}, "rate=1");
  check_refused<Error>("one_hot", {{"classes", int64_t{0}}, {"dtype", "float32"}}, "classes=0");
  check_refused<Error>("concat_part", {{"part", int64_t{-1}}, {"axis", int64_t{0}}}, "part=-1");
  for (const char* device : {"cpu", "cpu:", "cpu:x", "cpu:-1", "tpu:0", "cpu:0x"})
    check_refused<Error>("to", {{"from", "cpu:0"}, {"device", device}}, "device=" + std::string(device));
  for (const char* name : {"constant", "variable", "source", "all_reduce", "fused", "gradient_bucket"})
    check_refused<UnsupportedError>(name, {}, "beside them");
  check_refused<UnsupportedError>("tanh", {{"custom_op", int64_t{3}}}, "custom_op");
}

BOOST_AUTO_TEST_CASE(a_join_writes_only_into_its_whole) {
  const auto made = [](std::vector<int64_t> ranks, std::vector<int64_t> offsets, std::vector<int64_t> sizes,
                       std::vector<int64_t> strides) {
    return esp::make_op("join", {{"dtype", "float32"},
                                 {"shape", std::vector<int64_t>{4, 3}},
                                 {"ranks", std::move(ranks)},
                                 {"offsets", std::move(offsets)},
                                 {"sizes", std::move(sizes)},
                                 {"strides", std::move(strides)}});
  };
  BOOST_CHECK_NO_THROW((void)made({2, 1}, {0, 9}, {3, 3, 3}, {3, 1, 1}));
  BOOST_CHECK_THROW((void)made({2}, {3}, {4, 3}, {3, 1}), esp::Error);     // ends behind it
  BOOST_CHECK_THROW((void)made({1}, {-1}, {3}, {1}), esp::Error);          // begins before it
  BOOST_CHECK_THROW((void)made({1}, {4}, {3}, {-3}), esp::Error);          // runs backwards
  BOOST_CHECK_THROW((void)made({2}, {0}, {3}, {1}), esp::Error);           // has too few sizes
  BOOST_CHECK_THROW((void)made({1}, {0}, {3, 3}, {1, 1}), esp::Error);     // or too many
  BOOST_CHECK_THROW((void)made({1, 1}, {0}, {3, 3}, {1, 1}), esp::Error);  // or no offset
  BOOST_CHECK_THROW((void)made({1}, {0}, {INT64_MAX}, {2}), esp::Error);   // or more than can be
}

BOOST_AUTO_TEST_CASE(a_slice_stays_within_its_input) {
  const auto infers = [](int64_t axis, int64_t begin, const esp::Shape& whole, const esp::Shape& like) {
    const esp::OpPtr op = esp::make_op("slice_like", {{"axis", axis}, {"begin", begin}});
    const esp::Spec x{esp::float32, whole}, y{esp::float32, like};
    return op->infer({&x, &y})[0].shape;
  };
  BOOST_TEST((infers(0, 2, {5, 3}, {3, 3}) == esp::Shape({3, 3})));
  BOOST_TEST((infers(-1, -1, {5, 3}, {5, 1}) == esp::Shape({5, 1})));
  BOOST_CHECK_THROW((void)infers(0, 3, {5, 3}, {3, 3}), esp::ShapeError);
  BOOST_CHECK_THROW((void)infers(0, int64_t{1} << 40, {5, 3}, {3, 3}), esp::ShapeError);
  BOOST_CHECK_THROW((void)infers(0, -6, {5, 3}, {3, 3}), esp::ShapeError);
  BOOST_CHECK_THROW((void)infers(0, 0, {5, 3}, {5, 4}), esp::ShapeError);
  BOOST_CHECK_THROW((void)infers(0, 0, {5, 3}, {5}), esp::ShapeError);
  BOOST_CHECK_THROW((void)infers(2, 0, {5, 3}, {5, 3}), esp::Error);
}

BOOST_AUTO_TEST_SUITE_END()
