// Plan files whose trees give ops what no tree written in C++ does: they are refused.
#include <boost/test/unit_test.hpp>
#include <nlohmann/json.hpp>

#include "espalier/core/custom_op.h"
#include "espalier/executor/training/plan_file/container.h"
#include "espalier/executor/training/plan_file/text.h"
#include "malformed_files.h"
#include "plan_programs.h"

namespace esp = espalier;
using namespace espalier::testing;
using Json = nlohmann::json;

namespace {

/// Loads and runs a plan whose tree is one op of states with these values.
void run_op(const TemporaryFolder& folder, const std::string& op, const std::vector<esp::Tensor>& inputs,
            const esp::Attributes& attributes, bool custom = false) {
  (esp::parameter(esp::ones({1}), "w") * 2.0).get_executor({.mode = esp::Mode::inference}).save(folder / "a");
  esp::PlanContainer container = esp::read_plan_container(folder / "a");
  Json& text = container.text;
  text.erase("tensors");
  Json nodes = Json::array(), edges = Json::array();
  for (const esp::Tensor& input : inputs) {
    edges.insert(edges.end(), {nodes.size(), 0});
    nodes.push_back({{"leaf", "state"},
                     {"name", "v" + std::to_string(nodes.size())},
                     {"tensor", container.tensors.size()}});
    container.tensors.push_back(input);
  }
  text["value"] = Json::array({nodes.size(), 0});
  nodes.push_back({{"op", op}, {"inputs", edges}, {"custom", custom}});
  if (!custom) nodes.back()["attributes"] = esp::plan_text_of(attributes);
  text["nodes"] = nodes;
  esp::write_plan_container(folder / "b.plan", container);
  (void)esp::load_executor(folder / "b.plan", {.tune = false}).run({});
}
}  // namespace

BOOST_AUTO_TEST_SUITE(plan_hostile_ops)

BOOST_AUTO_TEST_CASE(ops_that_only_gradients_make_check_what_they_are_given) {
  using List = std::vector<int64_t>;
  const TemporaryFolder folder;
  const auto f = [](const esp::Shape& shape) { return esp::ones(shape); };
  const auto ints = [](const List& numbers) {
    return esp::tensor_from(numbers, {static_cast<int64_t>(numbers.size())});
  };
  const auto pivots = [&](const List& numbers) { return ints(numbers).to(esp::int32); };
  struct Hostile {
    std::string op;
    std::vector<esp::Tensor> inputs;
    esp::Attributes attributes;
    std::string said;
  };
  constexpr int64_t most = INT64_MAX;
  const auto pairs = [](List list, int64_t row) {
    return esp::Attributes{{"pairs", std::move(list)}, {"row_elements", row}, {"adds", false}};
  };
  const auto pieces = [](List sources, List rows) {
    return esp::Attributes{{"sources", std::move(sources)}, {"rows", std::move(rows)}};
  };
  const auto range = [](int64_t begin, int64_t step, int64_t count) {
    return esp::Attributes{{"begin", begin}, {"step", step}, {"count", count}};
  };
  const esp::Attributes diagonal{{"offset", int64_t{0}}, {"axis1", int64_t{-2}}, {"axis2", int64_t{-1}}};
  const esp::Attributes solve{{"transposed", false}, {"function", std::string("solve")}};
  const auto convolution = [](bool transposed) {
    esp::Attributes all{{"stride", List{1, 1}}, {"dilation", List{1, 1}}, {"before", List{0, 0}},
                        {"after", List{0, 0}},  {"groups", int64_t{1}},   {"channels_last", false}};
    if (transposed) all.emplace_back("more", List{0, 0});
    return all;
  };
  const auto changed = [&](const char* name, List numbers) {
    esp::Attributes all = convolution(true);
    for (auto& [key, value] : all)
      if (key == name) value = numbers;
    return all;
  };
  const auto recurrence = [](const char* cell, List sizes, bool bias) {
    return esp::Attributes{{"cell", std::string(cell)},
                           {"reverse", false},
                           {"batch_sizes", std::move(sizes)},
                           {"bias", bias},
                           {"keeps", false}};
  };
  const esp::Attributes recurrence_gradient{{"cell", std::string("tanh")},
                                            {"reverse", false},
                                            {"batch_sizes", List{}},
                                            {"bias", false},
                                            {"given", int64_t{1}}};
  const auto of_recurrence = [&](int64_t given) {
    esp::Attributes all = recurrence_gradient;
    all.back().second = given;
    return all;
  };
  const auto cell = [](const char* last, esp::AttributeValue value) {
    return esp::Attributes{
        {"width", int64_t{2}}, {"memories", int64_t{1}}, {"blocks", List{0, 1, 2, 3}}, {last, value}};
  };
  const auto attention = [](bool masked, bool keyed, double dropout) {
    return esp::Attributes{{"scale", 1.0},       {"causal", false},  {"past", int64_t{0}},
                           {"dropout", dropout}, {"masked", masked}, {"keys_masked", false},
                           {"keyed", keyed}};
  };
  const auto pool = [](List kernel, List before, List after, List parts) {
    return esp::Attributes{{"kernel", kernel},
                           {"stride", kernel.empty() ? List{} : List{1}},
                           {"before", before},
                           {"after", after},
                           {"dilation", kernel.empty() ? List{} : List{1}},
                           {"ceil", false},
                           {"parts", parts},
                           {"channels_last", false}};
  };
  const auto regions = [](double scale, int64_t samples) {
    return esp::Attributes{{"height", int64_t{1}},
                           {"width", int64_t{1}},
                           {"scale", scale},
                           {"samples", samples},
                           {"aligned", false}};
  };
  const esp::Attributes ctc{{"blank", int64_t{0}}, {"zero_infinity", false}};
  const esp::Tensor q = f({1, 2, 2}), matrix = f({2, 2}), box = f({1, 4});
  const std::vector<Hostile> all{
      {"pad_like", {f({900, 3}), f({2, 3})}, {{"axis", int64_t{0}}, {"begin", int64_t{0}}}, "not within"},
      {"pad_like", {f({1, 9}), f({2, 3})}, {{"axis", int64_t{0}}, {"begin", int64_t{0}}}, "not within"},
      {"pad_steps_like",
       {f({900}), f({4})},
       {{"axis", int64_t{0}}, {"begin", int64_t{0}}, {"end", int64_t{4}}, {"step", int64_t{2}}},
       "in place of"},
      {"put_diagonal_like", {f({900}), matrix}, diagonal, "in place of"},
      {"concat_part",
       {f({900, 2}), matrix, matrix},
       {{"part", int64_t{0}}, {"axis", int64_t{0}}},
       "in place of"},
      {"concat_part",
       {f({4, 2}), matrix, f({1})},
       {{"part", int64_t{0}}, {"axis", int64_t{0}}},
       "differ in more"},
      {"put_rows_like", {matrix, matrix}, pairs({1, 0, 900}, 2), "in place of row 900"},
      {"put_rows_like", {matrix, matrix}, pairs({1, -900, 0}, 2), "row -900"},
      {"put_rows_like", {matrix, matrix}, pairs({1, 0, 0, 1, 0, 0}, 2), "for 2 lists"},
      {"put_rows_like", {matrix, matrix}, pairs({1, 0, 0}, 0), "rows of 0 elements"},
      {"put_rows_like", {matrix, matrix}, pairs({900, 0, 0}, 2), "pairs"},
      {"put_like", {f({900}), ints(List(900, 1)), matrix}, {}, "must have the shape"},
      {"put_like", {f({1}), ints({1, 1}), matrix}, {}, "at indices"},
      {"log_softmax_pick_gradient",
       {f({1, 4}), f({1, 2}), ints({0, 0, 0}), f({3})},
       {{"function", std::string("loss")}, {"loss", false}},
       "do not go with"},
      {"log_softmax_pick_gradient",
       {f({1, 4}), f({1}), ints({0}), f({1})},
       {{"function", std::string("loss")}, {"loss", false}},
       "do not go with"},
      {"scatter_add_like", {f({1, 2}), ints(List(900, 1)), matrix}, {{"axis", int64_t{0}}}, "in place of"},
      {"stack_rows", {matrix}, pieces({0xFFFFFFFF}, {0}), "sources"},
      {"stack_rows", {matrix}, pieces({1 << 30}, {0}), "sources"},
      {"stack_rows", {matrix}, pieces({0}, {900}), "has no row 900"},
      {"stack_rows", {f({})}, pieces({0}, {0}), "has no row 0"},
      {"stack_rows", {matrix}, pieces({0, 0}, {900, -1}), "rows"},
      {"stack_rows", {matrix}, pieces({0, 0}, {0}), "rows"},
      {"row_range", {matrix}, range(1, -900, 2), "not within"},
      {"row_range", {matrix}, range(0, most, 3), "not within"},
      {"lu_solve", {matrix, matrix, pivots({1}), matrix}, solve, "pivots"},
      {"lu_solve", {matrix, f({1, 1}), pivots({1}), matrix}, solve, "does not go with"},
      {"lu_solve", {matrix, matrix, ints({1, 2}), matrix}, solve, "pivots"},
      {"lu_determinant", {matrix, f({9, 9}), pivots({1})}, {{"form", int64_t{0}}}, "pivots"},
      {"conv_transpose",
       {f({1, 1, 2, 2}), f({1, 1, 2, 2}), f({1, 1, 9, 9})},
       convolution(true),
       "in place of"},
      {"conv_transpose", {f({1, 1, 2, 2}), f({1, 1, 2, 2}), f({1})}, convolution(true), "conv_transpose"},
      {"conv_transpose", {f({1, 1, 2, 2}), f({1, 1, 2, 2})}, changed("more", {5, 0}), "would become 8 long"},
      {"conv_transpose",
       {f({1, 1, 2, 2}), f({1, 1, 2, 2})},
       changed("stride", {int64_t{1} << 31, 1}),
       "stride"},
      {"conv_kernels",
       {f({1, 1, 3, 3}), f({1, 1, 9, 9}), f({1, 1, 2, 2})},
       convolution(false),
       "in place of"},
      {"conv_kernels", {f({1, 1, 3, 3}), f({1, 1, 2, 2}), f({9})}, convolution(false), "conv_kernels"},
      {"recurrence", {f({1, 1, 8}), f({8, 2}), f({1, 2})}, recurrence("lstm", {}, true), "3 operands, not 6"},
      {"recurrence", {f({1, 2}), f({2, 2}), f({1, 2})}, recurrence("tanh", {most, most}, false), "takes"},
      {"recurrence_gradient",
       {f({3, 1, 2}), f({2, 2}), f({1, 2}), f({1, 1, 2}), f({1, 1, 2})},
       recurrence_gradient,
       "operand 3"},
      {"recurrence_gradient",
       {f({3, 1, 2}), f({2, 2}), f({1, 2}), f({3, 1, 2})},
       recurrence_gradient,
       "input 4"},
      {"recurrence_gradient",
       {f({3, 1, 2}), f({2, 2}).to(esp::float64), f({1, 2}), f({3, 1, 2}), f({3, 1, 2})},
       recurrence_gradient,
       "operand 1"},
      {"recurrence_gradient",
       {f({3, 1, 2}), f({2, 2}), f({1, 2}), f({3, 1, 2}), f({1, 2})},
       of_recurrence(4),
       "given"},  // not an LSTM
      {"memory_cell", {f({1, 8})}, cell("keeps", false), "1 operands, not 2"},
      {"memory_cell",
       {f({1, 8}), f({1, 2})},
       {{"width", int64_t{2}}, {"memories", int64_t{1}}, {"blocks", List{0, 1, -1, 3}}, {"keeps", false}},
       "blocks"},
      {"memory_cell", {f({1, 8}), f({2})}, cell("keeps", false), "operand 1"},
      {"memory_cell", {f({1, 2 * 102}), f({1, 2})}, cell("keeps", false), "operand 0"},
      {"memory_cell_gradient",
       {f({1, 8}), f({1, 2}), f({1, 2}), f({1, 2}), f({1, 2})},
       cell("given", int64_t{1}),
       "operand 3"},
      {"memory_cell_gradient",
       {f({1, 8}), f({1, 2}), f({1, 8}), f({1, 8}), f({1, 2})},
       cell("given", int64_t{1}),
       "operand 2"},
      {"memory_cell_gradient",
       {f({1, 8}), f({1, 2}), f({1, 2}), f({1, 8}), f({1, 8})},
       cell("given", int64_t{1}),
       "operand 4"},
      {"memory_cell_gradient",
       {f({1, 8}), f({1, 2}), f({1, 2}), f({1, 8}), f({1, 2})},
       cell("given", int64_t{4}),
       "given"},
      {"memory_cell_gradient",
       {f({1, 8}), f({1, 2}), f({1, 2}), f({1, 8})},
       cell("given", int64_t{1}),
       "4 operands, not 5"},
      {"attention", {q, q, q}, attention(true, false, 0), "3 operands, not 4"},
      {"attention", {q, q, q, ints({})}, attention(false, true, 0.5), "keys of dropout"},
      {"attention", {q, q, q}, attention(false, false, 0.5), "keyed"},
      {"attention_weights", {q, q, f({1, 2}).to(esp::float64)}, attention(false, false, 0), "log sums"},
      {"attention_dropout", {q, f({9}), ints({1})}, attention(false, true, 0.5), "attention_dropout"},
      {"attention_dropout", {q, q, ints({})}, attention(false, true, 0.5), "keys of dropout"},
      {"attention_gradient",
       {q, q, q, q, q, f({1, 2}).to(esp::float16)},
       attention(true, false, 0),
       "5 operands, not 6"},
      {"attention_gradient",
       {q, q, q, q, q.to(esp::boolean), f({1, 2})},
       attention(false, false, 0),
       "results of bool"},
      {"attention_gradient",
       {f({9}), q, q, q, q, f({1, 2})},
       attention(false, false, 0),
       "do not fit together"},
      {"attention_gradient",
       {q, q, q, q, f({9}), f({1, 2})},
       attention(false, false, 0),
       "do not fit together"},
      {"attention_gradient", {q, q, q, q, q, f({9})}, attention(false, false, 0), "do not fit together"},
      {"padded_recurrence",
       {f({1, 2}), f({2, 2}), f({1, 2}), ints({1})},
       recurrence("tanh", {1}, false),
       "batch_sizes"},
      {"ctc_loss_gradient",
       {f({1, 2, 3}), ints({1}).reshape({1, 1}), ints({2}), ints({1}), f({1}).to(esp::float64), f({1})},
       ctc,
       "operand 4"},
      {"ctc_loss_curvature",
       {f({1, 2, 3}), ints({1}).reshape({1, 1}), ints({2}), ints({1}), f({1})},
       ctc,
       "operand 4"},
      {"pool_spread", {f({1, 1}), f({1, 900})}, pool({2}, {0}, {0}, {}), "in place of"},
      {"pool_take", {f({1, 4}), ints({3}).reshape({1, 1})}, pool({2}, {0}, {0}, {}), "in place of"},
      {"pool_take", {f({1, 4}), f({1, 3})}, pool({2}, {0}, {0}, {}), "indices must be"},
      {"pool_add_like",
       {f({1, 3}), ints({3}).reshape({1, 1}), f({1, 4})},
       pool({2}, {0}, {0}, {}),
       "in place of"},
      {"pool_add_like", {f({1, 2}), f({1, 3}), f({1, 4})}, pool({2}, {0}, {0}, {}), "indices must be"},
      {"pool_argmax", {f({1, 4})}, pool({2}, {9}, {0}, {}), "reads nothing"},
      {"pool_argmax", {f({1, 4})}, pool({2}, {0}, {9}, {}), "reads nothing"},
      {"pool_max", {f({1, 4})}, pool({2}, {0}, {9}, {}), "reads nothing"},
      {"pool_sum", {f({1, 4})}, pool({}, {}, {}, {most}), "parts"},
      {"roi_align", {f({1, 1, 2, 2}), box, ints({0})}, regions(1, most), "samples"},
      {"roi_align", {f({1, 1, 2, 2}), box, ints({0})}, regions(std::nan(""), 1), "scale"},
      {"roi_align_argmax", {f({1, 1, 2, 2}), box, ints({0})}, regions(1, most), "samples"},
      {"non_max_suppression",
       {f({1, 1, 4}), f({1, 900, 900})},
       {{"count", int64_t{1}},
        {"most", int64_t{1}},
        {"threshold", 0.5},
        {"least_score", 0.0},
        {"centered", false},
        {"function", std::string("nms")}},
       "boxes of shape"}};
  for (const Hostile& hostile : all) BOOST_TEST_CONTEXT(hostile.op << ": " << hostile.said)
  BOOST_CHECK_EXCEPTION(run_op(folder, hostile.op, hostile.inputs, hostile.attributes), esp::FileError,
                        says({hostile.said}));
  for (const List& rows : {List{9, 1}, List{0, 1}, List{-7, 2}})
    BOOST_CHECK_EXCEPTION(run_op(folder, "lu_solve", {matrix, matrix, pivots(rows), matrix}, solve),
                          esp::Error, says({"a pivot of " + std::to_string(rows[0])}));
}

BOOST_AUTO_TEST_CASE(custom_ops_say_how_many_inputs_they_have) {
  const auto forward = [](const std::vector<esp::Tensor>& in) { return in.at(1); };
  const auto infer = [](const std::vector<esp::Spec>& in) {
    if (in.size() > 2) throw std::length_error("vector");
    return in[1];
  };
  static const esp::CustomOp
      second =
          esp::custom_op({.name = "plan_damage_second", .forward = forward, .infer = infer, .inputs = 2}),
      unchecked = esp::custom_op({.name = "plan_damage_unchecked", .forward = forward, .infer = infer});
  esp::register_custom_op(second);
  esp::register_custom_op(unchecked);
  const TemporaryFolder folder;
  const esp::Tensor x = esp::ones({2});
  BOOST_CHECK_NO_THROW(run_op(folder, "plan_damage_second", {x, x}, {}, true));
  for (const std::vector<esp::Tensor>& inputs : {std::vector<esp::Tensor>{}, {x}, {x, x, x}})
    BOOST_CHECK_EXCEPTION(run_op(folder, "plan_damage_second", inputs, {}, true), esp::FileError,
                          says({"plan_damage_second", "inputs, not 2"}));
  BOOST_CHECK_THROW((void)second({x}), esp::ShapeError);
  // What would need more memory than there can be is an Error of Espalier, too.
  BOOST_CHECK_THROW(run_op(folder, "plan_damage_unchecked", {x, x, x}, {}, true), esp::OutOfMemory);
}

BOOST_AUTO_TEST_SUITE_END()
