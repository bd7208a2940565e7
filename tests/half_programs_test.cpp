// Fused programs of 16-bit reals on a CPU: the same bits as kernels of single ops.
#include <boost/test/unit_test.hpp>

#include <cstring>
#include <functional>
#include <random>

#include "espalier/executor/executor.h"
#include "espalier/ops/ops.h"
#include "testing.h"

namespace esp = espalier;
using namespace espalier::testing;
using esp::Variable;

namespace {

constexpr esp::DType halves[] = {esp::float16, esp::bfloat16};

/// Runs the tree with its programs and without any, and compares all bits.
void check(const std::function<Variable(const Variable&, const Variable&, const Variable&)>& tree,
           esp::DType dtype, const std::string& name) {
  const Variable x = esp::parameter(numbers({4, 6}, -2, 2, 1).to(dtype)),
                 row = esp::parameter(numbers({6}, -2, 2, 2).to(dtype)),
                 wide = esp::parameter(numbers({4, 6}, -2, 2, 3).to(esp::float32));
  const Variable y = tree(x, row, wide);
  const auto run = [&](std::vector<std::string> without) {
    return y.get_executor({.mode = esp::Mode::inference, .without = std::move(without)}).run({}).clone();
  };
  const esp::Tensor fused = run({}), apart = run({"fuse_pointwise", "simplify", "simplify_again"});
  BOOST_TEST((fused.dtype() == apart.dtype()));
  BOOST_TEST(std::memcmp(fused.address(), apart.address(), fused.bytes()) == 0,
             name << " in " << esp::name(dtype));
}

}  // namespace

BOOST_AUTO_TEST_SUITE(half_programs)

BOOST_AUTO_TEST_CASE(each_value_is_rounded) {
  const struct {
    std::string name;
    std::function<Variable(const Variable&, const Variable&, const Variable&)> tree;
  } trees[] = {
      {"numbers that 16 bits do not have", [](auto x, auto, auto) { return esp::tanh(x * 0.1) + 0.3; }},
      {"a row for all", [](auto x, auto row, auto) { return esp::square(x + row) * row; }},
      {"one operand in two shapes",
       [](auto x, auto, auto) {
         return esp::tanh(x).reshape({24}) * x.reshape({24}) + esp::sigmoid(x.reshape({24}));
       }},
      {"conversions of the user",
       [](auto x, auto, auto wide) {
         const Variable w = esp::cast(x, esp::float32) * wide;
         return esp::cast(esp::cast(w, x.dtype()), esp::float32) - w;
       }},
      {"comparisons", [](auto x, auto row, auto) { return esp::where(x > row, x * 1.7, row - 0.1); }},
      {"rows as a whole", [](auto x, auto row, auto) { return esp::softmax(x * 1.3) * row; }},
      {"sums of rows", [](auto x, auto, auto) { return esp::sum(x * 1.1, -1) * 0.7; }},
      {"sums of columns", [](auto x, auto row, auto) { return esp::mean(x * row, 0) + row; }},
      {"a sum of all",
       [](auto x, auto, auto wide) { return esp::cast(esp::sum(x * 1.1), esp::float32) + esp::sum(wide); }},
      {"one number for all", [](auto x, auto, auto) { return x * esp::tanh(esp::sum(x)) + esp::max(x); }},
  };
  for (const auto& c : trees)
    for (const esp::DType dtype : halves) check(c.tree, dtype, c.name);
}

BOOST_AUTO_TEST_CASE(random_trees) {
  for (uint32_t seed = 0; seed < 60; ++seed)
    for (const esp::DType dtype : halves)
      check(
          [&](const Variable& x, const Variable& row, const Variable& wide) {
            std::mt19937 random(seed);
            const auto below = [&](size_t n) { return static_cast<size_t>(random() % n); };
            Variables pool{x, wide};
            const auto any = [&](esp::DType type) {
              const Variable& v = pool[below(pool.size())];
              return v.dtype() == type ? v : esp::cast(v, type);
            };
            for (int step = 0; step < 9; ++step) {
              const esp::DType type = below(3) ? dtype : esp::float32;
              const Variable a = any(type), b = any(type);
              switch (below(8)) {
                case 0: pool.push_back(esp::tanh(a)); break;
                case 1: pool.push_back(a * 0.3 - b); break;
                case 2: pool.push_back(esp::relu(a) + b); break;
                case 3: pool.push_back(esp::maximum(a, b * 0.9)); break;
                case 4: pool.push_back(a * esp::cast(row, type)); break;
                case 5: pool.push_back(esp::softmax(a)); break;
                case 6: pool.push_back(a - esp::max(a, -1, true)); break;
                default: pool.push_back(esp::sigmoid(a) * b); break;
              }
            }
            return pool.back() + esp::cast(pool[pool.size() - 3], pool.back().dtype());
          },
          dtype, "seed " + std::to_string(seed));
}

BOOST_AUTO_TEST_SUITE_END()
