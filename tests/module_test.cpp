// Module: names, paths, modes, sharing.
#include <boost/test/unit_test.hpp>

#include "espalier/core/error.h"
#include "espalier/nn/activation.h"
#include "espalier/nn/container.h"
#include "espalier/nn/dense.h"
#include "espalier/nn/dropout.h"
#include "espalier/ops/ops.h"
#include "temporary_folder.h"

namespace esp = espalier;
using esp::nn::Dense;
using esp::nn::Module;

namespace {

struct Net : Module {
  explicit Net(int64_t width) : hidden(add("hidden", Dense(width))) {}
  esp::Variable operator()(const esp::Variable& x) { return out(esp::relu(hidden(x))) * scale; }
  Dense hidden;
  esp::Variable scale = add_parameter("scale", esp::tensor({2.0f}));
  Dense out = add("out", Dense(2, {.bias = false}));
};

std::vector<std::string> names(const Module& module) {
  std::vector<std::string> list;
  for (const auto& [name, parameter] : module.parameters()) list.push_back(name);
  return list;
}

bool same(const esp::Variable& a, const esp::Variable& b) { return a.node() == b.node(); }

using Names = std::vector<std::string>;

}  // namespace

BOOST_AUTO_TEST_SUITE(modules)

BOOST_AUTO_TEST_CASE(parameters_come_by_path_in_order_of_adding) {
  Net net(3);
  BOOST_TEST(names(net) == Names({"scale"}),
             boost::test_tools::per_element());  // the layers have no shapes yet
  net(esp::ones({1, 4}));
  // Members are constructed in the order of their declaration, not that of the initializer list.
  const Names expected{"hidden.weight", "hidden.bias", "scale", "out.weight"};
  BOOST_TEST(names(net) == expected, boost::test_tools::per_element());
  BOOST_TEST(net.parameter("hidden.weight").shape() == esp::Shape({3, 4}));
  BOOST_CHECK_THROW(net.parameter("hidden.wait"), esp::Error);
}

BOOST_AUTO_TEST_CASE(names_are_checked) {
  Module m;
  m.add("a", Dense(1));
  BOOST_CHECK_THROW(m.add("a", Dense(1)), esp::Error);
  BOOST_CHECK_THROW(m.add("", Dense(1)), esp::Error);
  BOOST_CHECK_THROW(m.add("b.c", Dense(1)), esp::Error);
  BOOST_CHECK_THROW(m.add_parameter("a", esp::ones({1})), esp::Error);
  BOOST_CHECK_THROW(m.add_parameter("b", esp::ones({1}, esp::int64)), esp::TypeError);
  BOOST_CHECK_THROW(m.add_parameter("b", esp::variable({1.0f}) * 2), esp::Error);
  BOOST_CHECK_THROW(m.add_parameter("b", esp::Variable()), esp::Error);
  m.add_parameter("b", esp::ones({1}));
  BOOST_TEST(m.parameters().size() == 1u);
  BOOST_CHECK_EXCEPTION(m.add("b", Dense(1)), esp::Error, esp::testing::says({"'b'", "module_test.cpp"}));
}

BOOST_AUTO_TEST_CASE(a_module_is_no_part_of_itself) {
  Module outer, inner;
  BOOST_CHECK_THROW(outer.add("self", outer), esp::Error);
  outer.add("inner", inner);
  BOOST_CHECK_THROW(inner.add("outer", outer), esp::Error);
  esp::nn::Sequential s;
  BOOST_CHECK_THROW(s.append(s), esp::Error);
  BOOST_TEST(s.size() == 0u);
}

BOOST_AUTO_TEST_CASE(copies_share_and_outlive_the_original) {
  auto original = std::make_unique<Net>(3);
  (*original)(esp::ones({1, 4}));
  Net copy = *original;
  const esp::Variable weight = original->parameter("hidden.weight");
  original.reset();
  BOOST_TEST(same(copy.parameter("hidden.weight"), weight));
  BOOST_TEST(same(copy.hidden.parameter("weight"), weight));
  Net moved = std::move(copy);
  BOOST_TEST(same(copy.parameter("hidden.weight"), weight));  // a moved-from module stays valid
  BOOST_TEST(moved.parameters().size() == 4u);
}

BOOST_AUTO_TEST_CASE(a_layer_under_two_names_is_listed_once) {
  Module m;
  Dense shared = m.add("first", Dense(2));
  m.add("second", shared);
  shared(esp::ones({1, 2}));
  BOOST_TEST(names(m) == Names({"first.weight", "first.bias"}), boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(one_parameter_in_two_modules_is_one) {
  Module m, a, b;
  const esp::Variable p = a.add_parameter("p", esp::ones({2}));
  BOOST_TEST(same(b.add_parameter("q", p), p));
  m.add("a", a);
  m.add("b", b);
  BOOST_TEST(names(m) == Names({"a.p"}), boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(mode_reaches_all_parts) {
  struct Outer : Module {
    esp::nn::Dropout drop = add("drop", esp::nn::Dropout(0.5));
    esp::nn::Sequential body = add("body", esp::nn::Sequential{esp::nn::Dropout(0.5)});
  } outer;
  const esp::Variable x = esp::ones({100});
  BOOST_TEST(outer.training());
  BOOST_TEST(!same(outer.drop(x), x));
  outer.train(false);
  BOOST_TEST((!outer.training() && !outer.drop.training()));
  BOOST_TEST(same(outer.drop(x), x));
  BOOST_TEST(same(outer.body(x), x));
  outer.train();
  BOOST_TEST(!same(outer.body(x), x));
}

BOOST_AUTO_TEST_CASE(parameters_train) {
  Net net(3);
  const esp::Variable y = esp::sum(net(esp::ones({2, 4})));
  y.backward();
  for (const auto& [name, parameter] : net.parameters()) {
    BOOST_TEST_INFO(name);
    BOOST_TEST(y.gradient(parameter).shape() == parameter.shape());
  }
}

BOOST_AUTO_TEST_SUITE_END()
