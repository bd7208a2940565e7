// Damaged, foreign and hostile plan files.
#include <boost/test/unit_test.hpp>

#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>

#include "espalier/core/custom_op.h"
#include "espalier/core/files/crc64.h"
#include "espalier/executor/training/plan_file/container.h"
#include "espalier/executor/training/plan_file/text.h"
#include "espalier/ops/matmul/gemm.h"
#include "espalier/optim/adam.h"
#include "malformed_files.h"
#include "plan_programs.h"

namespace esp = espalier;
using namespace espalier::testing;
using Json = nlohmann::json;

namespace {

std::string bytes_of(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

/// The file of a small step of training.
void write_step(const std::filesystem::path& path) {
  const esp::Variable x = esp::placeholder("x", {4, 3}), w = esp::parameter(reals_of({3, 2}, 1), "w");
  esp::mean(esp::square(esp::matmul(x, w))).get_executor({.optimizer = esp::optim::Adam(0.1)}).save(path);
}

/// Changes the text of a file, which then has right checksums again, and loads it.
void load_changed(const TemporaryFolder& folder, const std::function<void(Json&)>& change) {
  write_step(folder / "a.plan");
  esp::PlanContainer container = esp::read_plan_container(folder / "a.plan");
  container.text.erase("tensors");
  change(container.text);
  esp::write_plan_container(folder / "b.plan", container);
  (void)esp::load_executor(folder / "b.plan", {.tune = false}).run({{"x", reals_of({4, 3}, 2)}});
}

/// Changes a value of the state of the run, which is a text in the text.
void change_run(Json& text, const char* name, const Json& value) {
  Json run = Json::parse(text["run"].get<std::string>());
  run[name] = value;
  text["run"] = run.dump();
}

/// The first node of that op.
Json& node_of(Json& text, const std::string& op) {
  for (Json& node : text["nodes"])
    if (node.value("op", "") == op) return node;
  throw std::runtime_error("no node of " + op);
}

}  // namespace

BOOST_AUTO_TEST_SUITE(plan_damage)

BOOST_AUTO_TEST_CASE(every_truncation_and_every_changed_bit_is_refused) {
  const TemporaryFolder folder;
  write_step(folder / "a.plan");
  const std::string whole = bytes_of(folder / "a.plan");
  BOOST_CHECK_NO_THROW((void)esp::plan_file_info(folder / "a.plan"));
  std::mt19937 random(1);
  for (int i = 0; i < 1000; ++i) {
    const size_t at = random() % whole.size();
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 1 << random() % 8);
    BOOST_CHECK_THROW((void)esp::load_executor(folder.write("b.plan", whole.substr(0, at))), esp::FileError);
    BOOST_CHECK_THROW((void)esp::load_executor(folder.write("b.plan", damaged)), esp::FileError);
  }
  BOOST_CHECK_THROW((void)esp::load_executor(folder.write("b.plan", whole + '\0')), esp::FileError);
  BOOST_CHECK_THROW((void)esp::load_executor(folder / "none.plan"), esp::FileError);
  BOOST_CHECK_THROW((void)esp::load_executor(folder.path()), esp::FileError);
}

BOOST_AUTO_TEST_CASE(other_formats_and_newer_versions_are_named) {
  const TemporaryFolder folder;
  write_step(folder / "a.plan");
  BOOST_CHECK_EXCEPTION((void)esp::load_executor(folder.write("b.plan", std::string(200, 'x'))),
                        esp::FileError, says({"b.plan", "no plan file"}));
  std::string newer = bytes_of(folder / "a.plan");
  newer[8] = 3;
  esp::Crc64 crc;
  crc.add(newer.data(), 56);
  const uint64_t sum = crc.value();
  std::memcpy(newer.data() + 56, &sum, sizeof sum);
  BOOST_CHECK_EXCEPTION((void)esp::load_executor(folder.write("b.plan", newer)), esp::FileError,
                        says({"b.plan", "newer", "version 3", "up to 2"}));
}

// Written by the first Espalier that had plan files: relu(x · w + b).
BOOST_AUTO_TEST_CASE(files_of_older_versions_stay_readable) {
  const esp::Executor executor = esp::load_executor(PLAN_OF_VERSION_1);
  const esp::Tensor y = executor.run({{"x", esp::tensor({{1.0f, 0.0f, -1.0f}, {1.0f, 1.0f, 1.0f}})}});
  BOOST_TEST(difference(y, esp::tensor({{0.0f, 0.0f}, {9.5f, 11.5f}})) == 0);
  BOOST_TEST(esp::plan_file_info(PLAN_OF_VERSION_1).operations.at("matmul") == 1);
}

BOOST_AUTO_TEST_CASE(tensors_begin_at_multiples_of_64) {
  const TemporaryFolder folder;
  write_step(folder / "a.plan");
  for (const esp::Tensor& tensor : esp::read_plan_container(folder / "a.plan").tensors)
    if (tensor.bytes()) BOOST_TEST(reinterpret_cast<uintptr_t>(tensor.address()) % 64 == 0u);
}

BOOST_AUTO_TEST_CASE(hostile_files_are_refused_with_the_reason) {
  const TemporaryFolder folder;
  BOOST_CHECK_NO_THROW(load_changed(folder, [](Json&) {}));
  const auto node = [](const char* op, const char* field, Json value) {
    return [=](Json& text) { node_of(text, op)[field] = value; };
  };
  const auto set = [](const char* field, Json value) { return [=](Json& text) { text[field] = value; }; };
  std::string deep;
  for (int i = 0; i < 30; ++i) deep += "[";
  struct Hostile {
    std::function<void(Json&)> change;
    std::string said;
  };
  const std::vector<Hostile> all{
      {[](Json& t) { t.erase("nodes"); }, "lacks 'nodes'"},
      {set("nodes", 3), "for the list of nodes"},
      {set("nodes", Json::array({3})), "no object"},
      {set("mode", "fast"), "mode 'fast'"},
      {set("precision", 9), "9 for the precision"},
      {set("value", Json::array({1000, 0})), "1000 for a node before"},
      {set("value", Json::array({0, 7})), "7 for an output"},
      {set("updates", Json::array()), "without updates"},
      {set("updates", Json::array({Json::array({0, 0})})), "assigns nothing"},
      {[](Json& t) { t["updates"].push_back(t["updates"][0]); }, "updates a leaf twice"},
      {[](Json& t) { t["value"] = t["updates"][0]; }, "reads an assignment"},
      {[](Json& t) { t["gradients"][0][1] = t["value"]; }, "gradient"},
      {set("loss_scale", Json::array({Json::array({0, 0}), Json::array({0, 0})})), "scale of the loss"},
      {node("matmul", "inputs", Json::array({5000, 0, 0, 0})), "5000 for a node before"},
      {node("matmul", "inputs", Json::array({0})), "half of an input"},
      {node("matmul", "inputs", Json::array({0, 0})), "'matmul' with 1 inputs"},
      {node("matmul", "inputs", Json::array()), "'matmul' with 0 inputs"},
      {node("matmul", "inputs", Json::array({0, 0, 0, 0, 0, 0})), "'matmul' with 3 inputs"},
      {node("matmul", "op", "matmull"), "'matmull'"},
      {node("matmul", "op", "fused"), "'fused'"},
      {node("matmul", "op", "write_state"), "'write_state'"},
      {node("matmul", "custom", true), "register_custom_op"},
      {node("matmul", "attributes", Json::array()), "transpose_a"},
      {node("matmul", "attributes", Json::array({Json::array({"transpose_a", "flag"})})), "for an attribute"},
      {node("matmul", "attributes", 7), "for attributes"},
      {node("matmul", "tag", 7), "7 for a tag"},
      {[](Json& t) {
         t["feeds"][0]["outputs"][0]["spec"] = {"float99", {1}};
       },
       "float99"},
      {[](Json& t) {
         t["feeds"][0]["outputs"][0]["spec"][1] = {1 << 30, 1 << 30, 1 << 30};
       },
       "spec"},
      {[](Json& t) {
         t["feeds"][0]["outputs"][0]["spec"][1] = {-2, 3};
       },
       "spec"},
      {[](Json& t) { t["feeds"][0]["outputs"] = Json::array(); }, "without outputs"},
      {[](Json& t) {
         Json& outputs = t["feeds"][0]["outputs"];
         outputs.push_back(Json(outputs[0]));
       },
       "a placeholder with several"},
      {set("feeds", Json::array()), "which there is not"},
      {set("run", "{}"), "cannot be understood"},
      {set("run", 5), "the state of a run"},
      {set("run_tensors", Json::array()), "no tensor"},
      {[](Json& t) { t["run_tensors"][0][1] = 0; }, "names the tensor 0 twice"},
      {[](Json& t) {
         for (Json& each : t["nodes"])
           if (each.contains("leaf")) each["tensor"] = 0;
       },
       "names the tensor 0 twice"},
      {[](Json& t) { change_run(t, "step", 1e300); }, "for an integer"},
      {[](Json& t) { change_run(t, "samples", 2.0); }, "for an integer"},
      {[](Json& t) {
         change_run(t, "random", {-1, 0, 0});
       },
       "for an integer"},
      {[](Json& t) {
         change_run(t, "products", {{1e10, true, true, 4, 4, 4, 1, 0, 0, false}});
       },
       "for an integer"},
      {[](Json& t) {
         const int type = static_cast<int>(esp::float64),
                   library = static_cast<int>(esp::GemmLibrary::onednn);
         change_run(t, "products", {{type, true, true, 4, 4, 4, 1, library, 0, false}});
       },
       "for products of float64"},
      {set("other", Json::parse(deep + std::string(30, ']'))), "nested too deeply"}};
  for (size_t i = 0; i < all.size(); ++i) BOOST_TEST_CONTEXT("file " << i)
  BOOST_CHECK_EXCEPTION(load_changed(folder, all[i].change), esp::FileError, says({all[i].said}));
  BOOST_CHECK_THROW(load_changed(folder, set("mode", "fast")), esp::FileError);
  BOOST_CHECK_EXCEPTION((void)esp::plan_file_info(folder / "b.plan"), esp::FileError, says({"mode 'fast'"}));
}

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
      {"memory_cell", {f({1, 8})}, cell("keeps", false), "1 operands, not 2"},
      {"memory_cell_gradient",
       {f({1, 8}), f({1, 2}), f({1, 2}), f({1, 8})},
       cell("given", int64_t{1}),
       "4 operands, not 5"},
      {"attention", {q, q, q}, attention(true, false, 0), "3 operands, not 4"},
      {"attention", {q, q, q, ints({})}, attention(false, true, 0.5), "keys of dropout"},
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
      {"ctc_loss_gradient",
       {f({1, 2, 3}), ints({1}).reshape({1, 1}), ints({2}), ints({1}), f({1}).to(esp::float64), f({1})},
       ctc,
       "operand 4"},
      {"ctc_loss_curvature",
       {f({1, 2, 3}), ints({1}).reshape({1, 1}), ints({2}), ints({1}), f({1})},
       ctc,
       "operand 4"},
      {"pool_spread", {f({1, 1}), f({1, 900})}, pool({2}, {0}, {0}, {}), "in place of"},
      {"pool_argmax", {f({1, 4})}, pool({2}, {9}, {0}, {}), "reads nothing"},
      {"pool_argmax", {f({1, 4})}, pool({2}, {0}, {9}, {}), "reads nothing"},
      {"pool_sum", {f({1, 4})}, pool({}, {}, {}, {most}), "parts"},
      {"roi_align", {f({1, 1, 2, 2}), box, ints({0})}, regions(1, most), "samples"},
      {"roi_align", {f({1, 1, 2, 2}), box, ints({0})}, regions(std::nan(""), 1), "scale"},
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

/// The file with another text of the same length and right checksums.
void replace_in_text(const std::filesystem::path& path, const std::string& old, const std::string& text) {
  std::string bytes = bytes_of(path);
  const size_t at = bytes.find(old);
  BOOST_REQUIRE(at != std::string::npos);
  BOOST_REQUIRE(old.size() == text.size());
  bytes.replace(at, old.size(), text);
  uint64_t text_bytes = 0;
  std::memcpy(&text_bytes, bytes.data() + 16, sizeof text_bytes);
  const auto put = [&](size_t where, size_t from, size_t count) {
    esp::Crc64 crc;
    crc.add(bytes.data() + from, count);
    const uint64_t sum = crc.value();
    std::memcpy(bytes.data() + where, &sum, sizeof sum);
  };
  put(40, 64, text_bytes);
  put(56, 0, 56);
  std::ofstream(path, std::ios::binary) << bytes;
}

BOOST_AUTO_TEST_CASE(tensors_are_checked) {
  const TemporaryFolder folder;
  const esp::PlanContainer two{
      {{"nodes", Json::array()}}, {esp::ones({16}), esp::ones({16})}, esp::plan_format_version};
  esp::write_plan_container(folder / "a.plan", two);
  BOOST_TEST(esp::read_plan_container(folder / "a.plan").tensors.size() == 2u);
  replace_in_text(folder / "a.plan", "[16],64]", "[16],0 ]");  // both at one place
  BOOST_CHECK_EXCEPTION((void)esp::read_plan_container(folder / "a.plan"), esp::FileError,
                        says({"a.plan", "tensor at 0"}));
  const esp::Tensor flags = esp::zeros({4}, esp::boolean);
  static_cast<char*>(flags.address())[2] = 2;
  esp::write_plan_container(folder / "b.plan", {two.text, {flags}, esp::plan_format_version});
  BOOST_CHECK_EXCEPTION((void)esp::read_plan_container(folder / "b.plan"), esp::FileError,
                        says({"b.plan", "neither 0 nor 1"}));
}

/// Changes a number, a text or a list somewhere in a text, or puts one node in the place of another.
void mutate(Json& json, std::mt19937& random) {
  std::vector<Json*> all{&json};
  for (size_t i = 0; i < all.size(); ++i)
    if (all[i]->is_structured())
      for (Json& child : *all[i]) all.push_back(&child);
  Json& chosen = *all[1 + random() % (all.size() - 1)];
  if (chosen.is_number()) {
    constexpr int64_t numbers[] = {-1, 0, 1, 2, 3, 5, 17, 1 << 20, INT64_MAX, INT64_MIN};
    chosen = numbers[random() % std::size(numbers)];
  } else if (chosen.is_boolean()) {
    chosen = !chosen.get<bool>();
  } else if (chosen.is_array() && !chosen.empty() && random() % 2) {
    chosen.erase(random() % chosen.size());
  } else {
    chosen = *all[1 + random() % (all.size() - 1)];
  }
}

BOOST_AUTO_TEST_CASE(changed_trees_are_refused_or_harmless) {
  const TemporaryFolder folder;
  esp::seed(1);
  std::vector<esp::PlanContainer> files;
  for (const PlanNetwork& network : plan_networks()) {
    const esp::Variable x = esp::placeholder("x", network.x.shape(), network.x.dtype());
    esp::mean(esp::square(network.outputs(x)))
        .get_executor({.optimizer = esp::optim::Adam(0.1)})
        .save(folder / "a.plan");
    files.push_back(esp::read_plan_container(folder / "a.plan"));
    files.back().text.erase("tensors");
  }
  const MemoryLimit limit(uint64_t{1} << 32);
  std::mt19937 random(3);
  int loaded = 0;
  for (int i = 0; i < 150; ++i) BOOST_TEST_CONTEXT("file " << i) {
      esp::PlanContainer file = files[random() % files.size()];
      for (unsigned k = 0; k <= random() % 3; ++k) mutate(file.text, random);
      esp::write_plan_container(folder / "b.plan", file);
      try {
        const esp::Executor executor = esp::load_executor(folder / "b.plan", {.tune = false});
        ++loaded;
        esp::Feeds feeds;
        for (const esp::ValueInfo& input : executor.inputs())
          feeds.emplace_back(input.name, esp::zeros(input.shape, input.dtype));
        (void)executor.run(feeds);
      } catch (const esp::Error&) {
      }
    }
  BOOST_TEST(loaded > 0);
}

BOOST_AUTO_TEST_CASE(names_may_look_like_the_text_around_them) {
  const TemporaryFolder folder;
  const std::string name = "a \\\" " + std::string(40, '[') + std::string(40, '{');
  (esp::placeholder(name, {2}) * 2.0).get_executor().save(folder / "a.plan");
  const esp::Tensor y = esp::load_executor(folder / "a.plan").run({{name, esp::ones({2})}});
  BOOST_TEST(y.at<float>({1}) == 2);
}

BOOST_AUTO_TEST_SUITE_END()
