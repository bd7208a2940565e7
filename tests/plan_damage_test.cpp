// Damaged, foreign and hostile plan files.
#include <boost/test/unit_test.hpp>

#include <cstring>
#include <nlohmann/json.hpp>

#include "espalier/core/files/crc64.h"
#include "espalier/executor/training/plan_file/container.h"
#include "espalier/ops/matmul/gemm.h"
#include "espalier/optim/adam.h"
#include "malformed_files.h"
#include "many_cases.h"
#include "mutated_text.h"
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

/// Adam's state of that name.
Json state_of(const Json& text, const std::string& name) {
  for (size_t i = 0; i < text["nodes"].size(); ++i) {
    const Json& node = text["nodes"][i];
    if (node.value("leaf", "") == "state" && node.value("name", "").ends_with(name)) return {i, 0};
  }
  throw std::runtime_error("no state " + name);
}

/// A node that is added at the end, of two values.
Json added(Json& text, const std::string& op, const Json& a, const Json& b) {
  text["nodes"].push_back({{"op", op}, {"inputs", {a[0], a[1], b[0], b[1]}}});
  return {text["nodes"].size() - 1, 0};
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
  newer[8] = 4;
  esp::Crc64 crc;
  crc.add(newer.data(), 56);
  const uint64_t sum = crc.value();
  std::memcpy(newer.data() + 56, &sum, sizeof sum);
  BOOST_CHECK_EXCEPTION((void)esp::load_executor(folder.write("b.plan", newer)), esp::FileError,
                        says({"b.plan", "newer", "version 4", "up to 3"}));
}

BOOST_AUTO_TEST_CASE(the_first_bytes_are_checked) {
  const TemporaryFolder folder;
  write_step(folder / "a.plan");
  const std::string whole = bytes_of(folder / "a.plan");
  const auto number_at = [&](size_t at) {
    uint64_t number = 0;
    std::memcpy(&number, whole.data() + at, sizeof number);
    return number;
  };
  const uint64_t text_bytes = number_at(16), data_begin = number_at(24), file_bytes = number_at(32);
  struct Row {
    size_t at;
    uint64_t number;
    std::string said;
  };
  for (const Row& row : std::vector<Row>{{8, 0, "of a version that there is"},
                                         {8, uint64_t{1} << 32 | 3, "of a version that there is"},
                                         {16, (uint64_t{1} << 28) + 1, "claims a text"},
                                         {16, file_bytes - 63, "does not end where"},
                                         {16, text_bytes + 64, "does not end where"},
                                         {24, data_begin + 64, "does not end where"},
                                         {32, file_bytes + 1, "is incomplete"},
                                         {40, 0, "checksum of its text"},
                                         {48, 0, "checksum of its tensors"}}) {
    std::string changed = whole;
    std::memcpy(changed.data() + row.at, &row.number, sizeof row.number);
    esp::Crc64 crc;
    crc.add(changed.data(), 56);
    const uint64_t sum = crc.value();
    std::memcpy(changed.data() + 56, &sum, sizeof sum);
    BOOST_CHECK_EXCEPTION((void)esp::load_executor(folder.write("b.plan", changed)), esp::FileError,
                          says({"b.plan", row.said}));
  }
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
      {set("value", Json::array({-1, 0})), "-1 for a node before"},
      {set("value", Json::array({0, -1})), "-1 for an output"},
      {set("value", Json::array({0, 0, 0})), "for a value"},
      {set("precision", -1), "-1 for the precision"},
      {set("accumulate", 0), "0 for accumulate"},
      {set("accumulate", (1 << 20) + 1), "1048577 for accumulate"},
      {set("updates", Json::array()), "without updates"},
      {set("updates", Json::array({Json::array({0, 0})})), "assigns nothing"},
      {[](Json& t) { t["updates"].push_back(t["updates"][0]); }, "updates a leaf twice"},
      {[](Json& t) { t["value"] = t["updates"][0]; }, "reads an assignment"},
      {[](Json& t) { t["gradients"][0][1] = t["value"]; }, "a gradient that is none of its parameter"},
      {[](Json& t) { t["gradients"][0][0] = t["gradients"][0][1]; },
       "a gradient that is none of its parameter"},
      {[](Json& t) { t["gradients"][0].push_back(0); }, "for a gradient"},
      {[](Json& t) { t["succeeded"] = state_of(t, "step"); }, "condition of its updates"},
      {[](Json& t) { t["succeeded"] = added(t, "less", t["value"], t["value"]); },
       "condition of its updates"},
      {[](Json& t) {
         t["loss_scale"] = {state_of(t, "step"), t["value"]};
       },
       "scale of the loss"},
      {[](Json& t) {
         t["loss_scale"] = {t["value"], state_of(t, "step")};
       },
       "scale of the loss"},
      {[](Json& t) {
         t["loss_scale"] = {state_of(t, "step"), state_of(t, "m")};
       },
       "scale of the loss"},
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
      {[](Json& t) { change_run(t, "step", 1); }, "at step 1 of an epoch with 0"},
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
      {set("other", Json::parse(deep + std::string(30, ']'))), "nested too deeply"},
      {set("other", Json::parse(std::string(16, '[') + std::string(16, ']'))), "nested too deeply"}};
  for (size_t i = 0; i < all.size(); ++i) BOOST_TEST_CONTEXT("file " << i)
  BOOST_CHECK_EXCEPTION(load_changed(folder, all[i].change), esp::FileError, says({all[i].said}));
  BOOST_CHECK_NO_THROW(
      load_changed(folder, set("other", Json::parse(std::string(15, '[') + std::string(15, ']')))));
  BOOST_CHECK_THROW(load_changed(folder, set("mode", "fast")), esp::FileError);
  BOOST_CHECK_EXCEPTION((void)esp::plan_file_info(folder / "b.plan"), esp::FileError, says({"mode 'fast'"}));
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
  std::string text = "[16],64]";
  for (const auto& [changed, said] :
       std::vector<std::pair<std::string, std::string>>{{"[16],0 ]", "tensor at 0"},  // both at one place
                                                        {"[9] ,65]", "tensor at 65"},
                                                        {"[17],64]", "ends behind the file"},
                                                        {"[99],64]", "ends behind the file"},
                                                        {"[1],128]", "ends behind the file"}}) {
    replace_in_text(folder / "a.plan", text, changed);
    BOOST_CHECK_EXCEPTION((void)esp::read_plan_container(folder / "a.plan"), esp::FileError,
                          says({"a.plan", said}));
    text = changed;
  }
  const esp::Tensor flags = esp::zeros({4}, esp::boolean);
  static_cast<char*>(flags.address())[2] = 2;
  esp::write_plan_container(folder / "b.plan", {two.text, {flags}, esp::plan_format_version});
  BOOST_CHECK_EXCEPTION((void)esp::read_plan_container(folder / "b.plan"), esp::FileError,
                        says({"b.plan", "neither 0 nor 1"}));
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
  for (int i = 0; i < many_cases(160); ++i) BOOST_TEST_CONTEXT("file " << i) {
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
