// Tables of the layers of modules.
#include <boost/test/unit_test.hpp>

#include <sstream>

#include "espalier/core/error.h"
#include "espalier/executor/kit/summary.h"
#include "espalier/nn/activation.h"
#include "espalier/nn/dense.h"
#include "espalier/nn/dropout.h"
#include "espalier/ops/ops.h"
#include "testing.h"

namespace esp = espalier;
using namespace espalier::testing;

namespace {

/// Calls a layer twice, a nested container, and an operation of its own.
struct Net : esp::nn::Module {
  esp::Variable operator()(const esp::Variable& x) {
    const esp::Variable h = block(shared(shared(x)));
    return esp::matmul(h, scale);
  }
  esp::nn::Dense shared = add("shared", esp::nn::Dense(3));
  esp::nn::Sequential block = add("block", esp::nn::Sequential{esp::nn::Dense(5), esp::nn::Relu()});
  esp::Variable scale = add_parameter("scale", esp::ones({5, 2}));
};

}  // namespace

BOOST_AUTO_TEST_SUITE(summary)

BOOST_AUTO_TEST_CASE(layers_are_listed_in_the_order_of_calling) {
  const esp::nn::Sequential net{esp::nn::Dense(16), esp::nn::Relu(), esp::nn::Dense(2)};
  const esp::ModuleSummary s = esp::summary(net, {4, 8});
  BOOST_TEST_REQUIRE(s.layers.size() == 3u);
  BOOST_TEST(s.layers[0].path == "0");
  BOOST_TEST(s.layers[0].kind == "Dense");
  BOOST_TEST((s.layers[0].output == esp::Shape{4, 16}));
  BOOST_TEST(s.layers[0].parameters == 9 * 16);
  BOOST_TEST(s.layers[0].multiply_adds == 4 * 8 * 16);
  BOOST_TEST(s.layers[0].bytes == 4 * (9 * 16 + 4 * 16));
  BOOST_TEST(s.layers[1].kind == "relu");
  BOOST_TEST(s.layers[1].multiply_adds == 0);
  BOOST_TEST(s.layers[2].multiply_adds == 4 * 16 * 2);
  BOOST_TEST(s.parameters == 178);
  BOOST_TEST(s.trained == 178);
  BOOST_TEST(s.multiply_adds == 4 * 8 * 16 + 4 * 16 * 2);
  BOOST_TEST((s.output == esp::Shape{4, 2}));
  BOOST_TEST(s.output_bytes == 4 * (4 * 16 * 2 + 4 * 2));
  std::ostringstream text;
  text << s;
  BOOST_TEST(text.str() ==
             "layer  kind   output   parameters  multiply-adds  bytes\n"
             "-------------------------------------------------------\n"
             "0      Dense  [4, 16]         144            512    832\n"
             "1      relu   [4, 16]           0              0    256\n"
             "2      Dense  [4, 2]           34            128    168\n"
             "-------------------------------------------------------\n"
             "input [4, 8], output [4, 2]\n"
             "178 parameters, 178 of them trained; 0 numbers in buffers\n"
             "640 multiply-adds; 712 bytes in parameters and buffers, 544 in outputs\n");
}

BOOST_AUTO_TEST_CASE(modules_of_ones_own_are_listed) {
  Net net;
  net.shared.trainable(false);
  const esp::ModuleSummary s = esp::summary(net, {1, 3}, esp::float32);
  BOOST_TEST_REQUIRE(s.layers.size() == 4u);
  const char* const paths[] = {"shared", "shared", "block.0", "block.1"};
  const int64_t parameters[] = {12, 0, 20, 0};
  for (size_t i = 0; i < 4; ++i) {
    BOOST_TEST(s.layers[i].path == paths[i]);
    BOOST_TEST(s.layers[i].parameters == parameters[i]);
  }
  BOOST_TEST(s.layers[0].multiply_adds == 9);
  BOOST_TEST(s.layers[1].multiply_adds == 9);  // without those of the first call
  BOOST_TEST(s.multiply_adds == 9 + 9 + 15 + 10);
  BOOST_TEST(s.parameters == 12 + 20 + 10);
  BOOST_TEST(s.trained == 30);
}

BOOST_AUTO_TEST_CASE(nothing_but_widths_is_changed) {
  const esp::nn::Sequential net{esp::nn::Dense(4), esp::nn::Dropout(0.5)};
  BOOST_CHECK_EXCEPTION(esp::summary(net, {}), esp::ShapeError, says({here()}));
  BOOST_CHECK_EXCEPTION(esp::summary(net, {-1, 7}), esp::UnsupportedError,
                        says({"summary", "axis 0", "[-1, 7]", "one row", here()}));
  (void)esp::summary(net, {2, 7});
  BOOST_TEST(net.training());
  BOOST_TEST((net.parameter("0.weight").shape() == esp::Shape{4, 7}));
  BOOST_CHECK_EXCEPTION(esp::summary(net, {2, 8}), esp::ShapeError, says({"Dense", here()}));
  BOOST_TEST(net.training());
}

BOOST_AUTO_TEST_SUITE_END()
