// What plan files of older versions have is read, and computes what it did.
#include <boost/test/unit_test.hpp>

#include <algorithm>

#include "espalier/core/error.h"
#include "espalier/core/files/safetensors.h"
#include "espalier/core/op_registry.h"
#include "espalier/executor/load.h"
#include "places.h"
#include "plan_ops.h"
#include "testing.h"

namespace esp = espalier;
using namespace espalier::testing;

namespace {

const std::filesystem::path figures = places::figures;

esp::Tensor figure(const std::string& name) {
  static const esp::NamedTensors all = esp::read_safetensors(figures / "plans.safetensors");
  for (const auto& [known, value] : all)
    if (known == name) return value;
  throw std::runtime_error("there is no figure " + name);
}

constexpr double tolerance = 1e-5;

}  // namespace

BOOST_AUTO_TEST_SUITE(plan_figures)

// Written by the first Espalier that had plan files: relu(x · w + b).
BOOST_AUTO_TEST_CASE(files_of_older_versions_stay_readable) {
  const esp::Executor executor = esp::load_executor(figures / "version_1.plan");
  const esp::Tensor y = executor.run({{"x", esp::tensor({{1.0f, 0.0f, -1.0f}, {1.0f, 1.0f, 1.0f}})}});
  BOOST_TEST(difference(y, esp::tensor({{0.0f, 0.0f}, {9.5f, 11.5f}})) == 0);
  BOOST_TEST(esp::plan_file_info(figures / "version_1.plan").operations.at("matmul") == 1);
}

BOOST_AUTO_TEST_CASE(networks_of_older_files_compute_the_same) {
  for (const std::string name : {"convolution", "transformer"}) BOOST_TEST_CONTEXT(name) {
      const esp::Executor executor = esp::load_executor(figures / (name + ".plan"));
      BOOST_TEST(difference(executor.run({{"x", figure(name + ".x")}}), figure(name + ".y")) < tolerance);
    }
}

BOOST_AUTO_TEST_CASE(training_of_an_older_file_goes_on) {
  const esp::Executor executor = esp::load_executor(figures / "lstm_training.plan");
  const esp::Feeds feeds{{"x", figure("lstm_training.x")}, {"y", figure("lstm_training.y")}};
  const esp::Tensor losses = figure("lstm_training.losses");
  for (const float expected : losses.span<float>())
    BOOST_TEST(std::abs(executor.run(feeds).item() - expected) < tolerance);
}

BOOST_AUTO_TEST_CASE(ops_of_older_files_are_made) {
  std::vector<std::string> lines;
  for (const ListedOp& op : listed_ops()) lines.push_back(line_of(op.name, op.attributes));
  for (const ListedOp& op : listed_ops()) {
    const std::string line = line_of(op.name, op.attributes);
    BOOST_TEST_CONTEXT(line) {
      try {
        const esp::OpPtr made = esp::make_op(op.name, op.attributes);
        const std::string now = line_of(made->name(), made->attributes());
        BOOST_TEST(std::ranges::count(lines, now) == 1,
                   "it is written as another one now, which has no line: " << now);
      } catch (const esp::Error& error) {
        BOOST_ERROR(
            "plan files of users have this op, which can no longer be read: keep its name and attributes "
            "readable. "
            << error.what());
      }
    }
  }
}

BOOST_AUTO_TEST_SUITE_END()
