// Executor::export_c: where code and weights go, however their paths are spelled.
#include <boost/test/unit_test.hpp>

#include "c_module.h"
#include "espalier/core/error.h"
#include "espalier/executor/executor.h"
#include "espalier/nn/dense.h"
#include "espalier/ops/ops.h"
#include "temporary_folder.h"
#include "testing.h"

namespace esp = espalier;
namespace fs = std::filesystem;
using namespace espalier::testing;
using esp::Tensor;
using esp::Variable;

namespace {

/// Works in a folder until its end.
class InFolder {
 public:
  explicit InFolder(const fs::path& folder) : before_(fs::current_path()) { fs::current_path(folder); }
  ~InFolder() { fs::current_path(before_); }
  InFolder(const InFolder&) = delete;
  InFolder& operator=(const InFolder&) = delete;

 private:
  fs::path before_;
};

struct Model {
  esp::nn::Dense dense{3};
  Tensor x = numbers({2, 4}, -1, 1, 1).to(esp::float32);
  Variable output = dense(esp::placeholder("x", {2, 4}));
  esp::Executor executor = output.get_executor({.mode = esp::Mode::inference});

  /// Compiles the file, links it with that of the weights, and compares results.
  void check(const std::string& file, const std::string& weights) const {
    const CModule code(fs::absolute(file), fs::absolute(weights).string());
    float result[2][3] = {};
    BOOST_TEST(code.function<int(const void*, void*)>("model_run")(x.address(), result) == 0);
    Tensor of_code({2, 3});
    std::copy(&result[0][0], &result[0][0] + 6, of_code.span<float>().begin());
    BOOST_TEST(difference(of_code, executor.run({{"x", x}})) < 1e-5);
  }
};

}  // namespace

BOOST_AUTO_TEST_SUITE(c_export_files)

BOOST_AUTO_TEST_CASE(weights_link_however_their_file_is_spelled) {
  const Model model;
  const TemporaryFolder folder;
  const InFolder in(folder.path());
  fs::create_directories("other/deeper");
  for (const std::string file : {"model.c", "./model.c", "other/model.c"})
    for (const std::string& weights :
         {std::string("ws.c"), std::string("./ws.c"), std::string("other/ws.c"), std::string("other/../ws.c"),
          std::string("other/deeper/model.c"), fs::absolute("ws.c").string()})
      BOOST_TEST_CONTEXT(file << " and " << weights) {
        (void)model.executor.export_c(file, {.weights = weights});
        if (file != "model.c" && weights != "./ws.c") continue;  // compiling takes time
        model.check(file, weights);
      }
}

BOOST_AUTO_TEST_CASE(the_file_of_the_code_cannot_have_the_weights) {
  const Model model;
  const TemporaryFolder folder;
  const InFolder in(folder.path());
  fs::create_directories("other");
  fs::create_directory_symlink("other", "link");
  const auto check_refused = [&](const std::string& file, const std::string& weights) {
    BOOST_TEST_CONTEXT(file << " and " << weights)
    BOOST_CHECK_EXCEPTION((void)model.executor.export_c(file, {.weights = weights}), esp::Error,
                          says({"export_c", ".weights", file, weights}));
  };
  const auto check_all = [&] {
    check_refused("model.c", "model.c");
    check_refused("model.c", "./model.c");
    check_refused("./model.c", "model.c");
    check_refused("other/../model.c", "model.c");
    check_refused(fs::absolute("model.c").string(), "model.c");
    check_refused("link/model.c", "other/model.c");
  };
  check_all();
  BOOST_TEST(!fs::exists("model.c"));
  (void)model.executor.export_c("model.c");
  (void)model.executor.export_c("other/model.c");
  check_all();
  fs::create_symlink("model.c", "alias.c");
  check_refused("model.c", "alias.c");
}

BOOST_AUTO_TEST_CASE(a_parameter_without_elements_links) {
  const Variable x = esp::placeholder("x", {2, 4});
  const Variable none = esp::parameter(esp::zeros({2, 0}), "none"), w = esp::parameter(esp::ones({4}), "w");
  const auto executor = esp::concat({x * w, none}, 1).get_executor({.mode = esp::Mode::inference});
  const TemporaryFolder folder;
  (void)executor.export_c(folder / "model.c", {.weights = folder / "ws.c"});
  const CModule code(folder / "model.c", (folder / "ws.c").string());
  float in[8] = {1, 2, 3, 4, 5, 6, 7, 8}, out[8] = {};
  BOOST_TEST(code.function<int(const void*, void*)>("model_run")(in, out) == 0);
  BOOST_TEST(out == in, boost::test_tools::per_element());
}

BOOST_AUTO_TEST_SUITE_END()
