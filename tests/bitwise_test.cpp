// Operations on bits, and exclusive or.
#include <boost/test/unit_test.hpp>

#include <cmath>
#include <cstdint>

#include "espalier/core/error.h"
#include "espalier/ops/functions/bitwise.h"
#include "espalier/ops/ops.h"
#include "testing.h"

namespace esp = espalier;
using namespace espalier::testing;

namespace {

template <class T>
std::vector<T> list(const esp::Variable& v) {
  const esp::Tensor plain = v.value().contiguous_copy();
  return {plain.span<T>().begin(), plain.span<T>().end()};
}

template <class T>
T by_bits(const char* op, T a, T b) {
  const std::string name = op;
  if (name == "and") return a & b;
  return name == "or" ? a | b : a ^ b;
}

const struct {
  const char* name;
  esp::Variable (*op)(const esp::Operand&, const esp::Operand&);
  double (*f)(double, double);
} binary[] = {
    {"bitwise_and", esp::bitwise_and,
     [](double a, double b) { return double(by_bits("and", int64_t(a), int64_t(b))); }},
    {"bitwise_or", esp::bitwise_or,
     [](double a, double b) { return double(by_bits("or", int64_t(a), int64_t(b))); }},
    {"bitwise_xor", esp::bitwise_xor,
     [](double a, double b) { return double(by_bits("xor", int64_t(a), int64_t(b))); }},
};

}  // namespace

BOOST_AUTO_TEST_SUITE(bitwise)

BOOST_AUTO_TEST_CASE(of_integers_and_bools) {
  for (const auto& b : binary) {
    for (const esp::DType dtype : {esp::int32, esp::int64})
      check_op({.name = b.name,
                .op = [&](const Variables& x) { return b.op(x[0], x[1]); },
                .inputs = {(numbers({3, 7}, -90, 90)).to(dtype), numbers({7}, -90, 90, 1).to(dtype)},
                .reference = elementwise(b.f)});
    check_op({.name = b.name,
              .op = [&](const Variables& x) { return b.op(x[0], x[1]); },
              .inputs = {esp::tensor({{true, false}, {true, false}}), esp::tensor({true, false})},
              .reference = elementwise(b.f)});
  }
  check_op({.name = "bitwise_not",
            .op = [](const Variables& x) { return esp::bitwise_not(x[0]); },
            .inputs = {numbers({3, 7}, -90, 90).to(esp::int64)},
            .reference = elementwise([](double x) { return -1 - x; })});
  check_op({.name = "bitwise_not",
            .op = [](const Variables& x) { return esp::bitwise_not(x[0]); },
            .inputs = {esp::tensor({{true, false}})},
            .reference = elementwise([](double x) { return 1 - x; })});
  check_op({.name = "logical_xor",
            .op = [](const Variables& x) { return esp::logical_xor(x[0], x[1]); },
            .inputs = {esp::tensor({{true, false}, {true, true}}), esp::tensor({true, false})},
            .reference = elementwise([](double a, double b) { return double(a != b); })});
}

BOOST_AUTO_TEST_CASE(shifts) {
  check_op({.name = "bitwise_left_shift",
            .op = [](const Variables& x) { return esp::bitwise_left_shift(x[0], x[1]); },
            .inputs = {numbers({3, 7}, -90, 90).to(esp::int32), numbers({7}, 0, 9, 1).to(esp::int32)},
            .reference = elementwise([](double a, double n) { return a * std::exp2(n); })});
  check_op({.name = "bitwise_right_shift",
            .op = [](const Variables& x) { return esp::bitwise_right_shift(x[0], x[1]); },
            .inputs = {numbers({3, 7}, -90, 90).to(esp::int32), numbers({7}, 0, 9, 1).to(esp::int32)},
            .reference = elementwise([](double a, double n) { return std::floor(a / std::exp2(n)); })});
  const esp::Variable a = esp::tensor({5, -5, 5, -5, 1}, esp::int32),
                      n = esp::tensor({32, 32, -1, -1, 31}, esp::int32);
  BOOST_TEST(list<int32_t>(esp::bitwise_left_shift(a, n)) == (std::vector<int32_t>{0, 0, 0, 0, INT32_MIN}));
  BOOST_TEST(list<int32_t>(esp::bitwise_right_shift(a, n)) == (std::vector<int32_t>{0, -1, 0, -1, 0}));
}

BOOST_AUTO_TEST_CASE(mistakes) {
  const esp::Variable real = esp::ones({2}), flag = esp::tensor({true, false}), whole = esp::tensor({1, 2});
  BOOST_CHECK_EXCEPTION(esp::bitwise_and(real, real), esp::TypeError,
                        says({"bitwise_and", "integers and bool", "float32", here()}));
  BOOST_CHECK_EXCEPTION(esp::bitwise_and(flag, whole), esp::TypeError, says({"bool", "int64", here()}));
  BOOST_CHECK_EXCEPTION(esp::bitwise_left_shift(flag, flag), esp::TypeError,
                        says({"bitwise_left_shift", "integers", "bool", here()}));
  BOOST_CHECK_EXCEPTION(esp::logical_xor(whole, whole), esp::TypeError,
                        says({"logical_xor", "int64", here()}));
}

BOOST_AUTO_TEST_SUITE_END()
