// Elementwise functions as ONNX files that are read again, at points where formulas go wrong.
#include <boost/test/unit_test.hpp>

#include "espalier/onnx.h"
#include "onnx/pointwise_trees.h"
#include "onnx/runs.h"
#include "temporary_folder.h"

namespace esp = espalier;
using espalier::testing::difference;
using espalier::testing::run_inference;

BOOST_AUTO_TEST_SUITE(onnx_pointwise)

BOOST_AUTO_TEST_CASE(functions_are_the_same_when_they_are_read_again) {
  const esp::testing::TemporaryFolder folder;
  const esp::Tensor pairs = esp::testing::special_pairs();
  const esp::Variable x = esp::placeholder("x", {4, 2});
  for (const auto& [name, y] : esp::testing::pointwise_trees(x)) {
    BOOST_TEST_CONTEXT(name) {
      esp::onnx::save(folder / "y.onnx", {{"x", x}}, {{"y", y}});
      const esp::Tensor again = run_inference(esp::onnx::load(folder / "y.onnx").output(), pairs);
      BOOST_TEST(difference(again, run_inference(y, pairs)) < 1e-5);
    }
  }
}

BOOST_AUTO_TEST_SUITE_END()
