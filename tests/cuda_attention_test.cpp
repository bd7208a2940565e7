// Attention on a GPU, by tensor cores and without, beside that of floats on the CPU.
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "espalier/core/random.h"
#include "espalier/ops/functions/attention.h"
#include "espalier/ops/matmul/matmul_precision.h"
#include "espalier/ops/ops.h"
#include "gpu_testing.h"
#include "testing.h"

namespace esp = espalier;
using namespace espalier::testing;
using esp::AttentionOptions;
using esp::Tensor;
using esp::Variable;

namespace {

struct Sizes {
  int64_t batch, heads, key_heads, queries, keys, width, value_width;
};

/// The result and the gradients of q, k and v.
std::vector<Tensor> results(const std::vector<Tensor>& operands, const Tensor& slope,
                            const AttentionOptions& o, esp::Device device, esp::DType dtype) {
  std::vector<Variable> leaves;
  for (const Tensor& x : operands) leaves.push_back(esp::variable(x.to(dtype).to(device)));
  AttentionOptions there = o;
  if (o.mask.defined()) {
    const Tensor mask = o.mask.value();
    there.mask = Variable((mask.dtype() == esp::boolean ? mask : mask.to(dtype)).to(device));
  }
  if (o.key_mask.defined()) there.key_mask = Variable(o.key_mask.value().to(device));
  esp::seed(5);  // dropout draws the same numbers
  const Variable y = esp::scaled_dot_product_attention(leaves[0], leaves[1], leaves[2], there);
  std::vector<Tensor> all{y.value()};
  const Variable loss = esp::sum(y * Variable(slope.to(dtype).to(device)));
  for (const Variable& leaf : leaves) all.push_back(loss.gradient(leaf).value());
  return all;
}

using Tolerances = std::vector<std::pair<esp::DType, double>>;
const Tolerances halves{{esp::float16, 4e-3}, {esp::bfloat16, 3e-2}},
    reals{{esp::float32, 1e-5}, {esp::float64, 1e-5}};  // beside floats

void check(const Sizes& s, const AttentionOptions& options, const std::string& what,
           const Tolerances& types = halves) {
  for (const auto& [dtype, tolerance] : types) {
    // Numbers that 16 bits hold.
    const auto operand = [&, dtype = dtype](int64_t heads, int64_t rows, int64_t width, uint64_t which) {
      return numbers({s.batch, heads, rows, width}, -1, 1, which).to(dtype).to(esp::float32);
    };
    const std::vector<Tensor> operands{operand(s.heads, s.queries, s.width, 1),
                                       operand(s.key_heads, s.keys, s.width, 2),
                                       operand(s.key_heads, s.keys, s.value_width, 3)};
    const Tensor slope = operand(s.heads, s.queries, s.value_width, 4);
    const std::vector<Tensor> expected = results(operands, slope, options, esp::cpu(), esp::float32),
                              got = results(operands, slope, options, esp::gpu(), dtype);
    const char* const names[] = {"result", "gradient of q", "gradient of k", "gradient of v"};
    for (size_t i = 0; i < expected.size(); ++i) {
      const double by = relative_difference(got[i], expected[i]);
      BOOST_TEST(by < tolerance,
                 what << ", " << esp::name(dtype) << ": the " << names[i] << " differs by " << by);
    }
  }
}

Tensor booleans(const esp::Shape& shape, int64_t every) {
  Tensor mask(shape, esp::boolean);
  int64_t i = 1;
  for (bool& b : mask.span<bool>()) b = i++ % every != 0;
  return mask;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(cuda_attention, *boost::unit_test::precondition(has_gpu))

BOOST_AUTO_TEST_CASE(widths_and_lengths) {
  for (const Sizes& s :
       {Sizes{1, 1, 1, 64, 64, 32, 32}, Sizes{2, 2, 2, 70, 130, 64, 64}, Sizes{1, 1, 1, 1, 3, 8, 8},
        Sizes{1, 2, 2, 65, 20, 20, 12}, Sizes{1, 1, 1, 30, 67, 7, 33}, Sizes{1, 1, 1, 66, 66, 128, 72},
        Sizes{1, 1, 1, 9, 70, 130, 16}})
    check(s, {},
          std::to_string(s.queries) + " queries, " + std::to_string(s.keys) + " keys, widths " +
              std::to_string(s.width) + " and " + std::to_string(s.value_width));
}

BOOST_AUTO_TEST_CASE(masks) {
  const Sizes s{2, 4, 2, 70, 90, 32, 32};  // two heads for each head of keys
  check(s, {.causal = true}, "causal");
  check(s, {.causal = true, .past = 20}, "causal, after 20 others");
  check(s, {.mask = Variable(booleans({70, 90}, 3))}, "booleans");
  check(s, {.mask = Variable(numbers({2, 1, 70, 90}, -1, 1, 9).to(esp::float32))}, "added numbers");
  check(s, {.key_mask = Variable(booleans({2, 90}, 4))}, "keys");
  check(s, {.scale = 0.5}, "scaled");
  check(s, {.dropout = 0.4}, "dropout");
}

BOOST_AUTO_TEST_CASE(several_tiles) {
  // Blocks have 64 or 128 queries, and tiles 32 or 64 keys, by the width.
  for (const Sizes& s : {Sizes{1, 2, 1, 150, 150, 64, 64}, Sizes{1, 1, 1, 140, 200, 40, 24},
                         Sizes{1, 1, 1, 70, 100, 96, 128}}) {
    const std::string what = "width " + std::to_string(s.width) + ", ";
    check(s, {.causal = true}, what + "causal");
    check(s, {.causal = true, .past = 50, .scale = -0.2}, what + "causal, after 50 others, scaled below 0");
    check(s, {.mask = Variable(booleans({s.queries, s.keys}, 3)), .causal = true, .dropout = 0.3},
          what + "masks and dropout");
  }
  check({1, 1, 1, 150, 40, 64, 64}, {.causal = true}, "more queries than keys");
  check({1, 1, 1, 20, 20, 64, 64}, {.causal = true, .scale = 0.0}, "scaled by 0");
}

BOOST_AUTO_TEST_CASE(without_tensor_cores) {
  for (const Sizes& s : {Sizes{1, 2, 1, 70, 100, 80, 12}, Sizes{1, 1, 1, 66, 40, 7, 33}}) {
    const std::string what = "width " + std::to_string(s.width) + ", ";
    check(s, {}, what + "all", reals);
    check(s, {.causal = true, .past = 10}, what + "causal, after 10 others", reals);
    check(s, {.mask = Variable(booleans({s.queries, s.keys}, 3)), .dropout = 0.3}, what + "masks and dropout",
          reals);
  }
}

BOOST_AUTO_TEST_CASE(tf32) {
  const Tolerances tf32{{esp::float32, 3e-3}};
  const auto differs = [&](const Sizes& s) {  // TF32 is taken
    const Tensor x = numbers({s.batch, s.heads, s.queries, s.width}, -1, 1, 1).to(esp::float32);
    const auto run = [](const Tensor& at) { return esp::scaled_dot_product_attention(at, at, at).value(); };
    return relative_difference(run(x.to(esp::gpu())), run(x)) > 1e-5;
  };
  const Sizes narrow{1, 2, 1, 150, 70, 20, 32}, wide{2, 1, 1, 70, 90, 64, 35},
      too_wide{1, 1, 1, 20, 20, 65, 20};
  BOOST_TEST(!differs(narrow));
  esp::allow_tf32(true);
  BOOST_TEST(differs(narrow));
  BOOST_TEST(!differs(too_wide));
  for (const Sizes& s : {narrow, wide}) {
    const std::string what = "TF32, width " + std::to_string(s.width) + ", ";
    check(s, {.causal = true, .past = 10}, what + "causal, after 10 others", tf32);
    check(s, {.mask = Variable(booleans({s.queries, s.keys}, 3)), .dropout = 0.3}, what + "masks and dropout",
          tf32);
  }
  esp::allow_tf32(false);
}

BOOST_AUTO_TEST_CASE(queries_that_see_nothing) {
  Tensor mask = booleans({70, 90}, 1000000);
  for (int64_t k = 0; k < 90; ++k) mask.at<bool>({3, k}) = false;
  check({1, 1, 1, 70, 90, 32, 32}, {.mask = Variable(mask)}, "nothing seen");
}

BOOST_AUTO_TEST_CASE(views_that_are_not_aligned) {
  const Tensor all = numbers({1, 2, 66, 65}, -1, 1, 1).to(esp::float16), there = all.to(esp::gpu());
  const auto attend = [](const Tensor& x) {
    const Variable part = esp::slice(Variable(x), -1, 1, 33);
    return esp::scaled_dot_product_attention(part, part, part).value();
  };
  BOOST_TEST(relative_difference(attend(there), attend(all.to(esp::float32))) < 4e-3);
}

BOOST_AUTO_TEST_SUITE_END()
