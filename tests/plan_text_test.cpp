// What a plan says of itself: its text and its drawing.
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <regex>

#include "espalier/executor/executor.h"
#include "espalier/ops/ops.h"
#include "espalier/optim/adam.h"
#include "espalier/optim/sgd.h"
#include "testing.h"

namespace esp = espalier;
namespace optim = espalier::optim;
using namespace espalier::testing;

BOOST_AUTO_TEST_SUITE(plan_text)

BOOST_AUTO_TEST_CASE(the_text_of_a_plan) {
  const esp::Variable x = esp::placeholder("x", {4, 3}), w = esp::parameter(esp::ones({3, 2}), "w"),
                      b = esp::parameter(esp::ones({2}), "b");
  std::string text = esp::mean(esp::square(esp::tanh(esp::matmul(x, w)) - b))
                         .get_executor({.optimizer = optim::Adam(0.1),
                                        .devices = {esp::cpu(), esp::cpu()},
                                        .replicas = {.shard_states = true},
                                        .accumulate = 2})
                         .plan()
                         .str();
  for (const auto& [part, instead] :
       std::vector<std::pair<const char*, const char*>>{{" +[0-9.]+ ms", ""},
                                                        {"  on paper.*\n", ""},
                                                        {"[^ ]*plan_text_test.cpp:[0-9]+", "here"},
                                                        {"program=[^\n]*-> [v0-9 ]*", "program"},
                                                        {" +\n", "\n"}})
    text = std::regex_replace(text, std::regex(part), instead);
  BOOST_TEST(text.find("  dead_nodes               64 ->   64 nodes  (unchanged)\n") != text.npos, text);
  BOOST_TEST(text.find("  common_subexpressions    60 ->   55 nodes\n") != text.npos, text);
  text = std::regex_replace(text, std::regex("  [a-z_]+ +[0-9]+ -> .*\n"), "");
  BOOST_TEST(text ==
             R"(plan: 7 steps, arena 320 bytes (largest live set 320, side by side 320), leaves 88 bytes
passes:
gradients: %5 @128+64
  @128+64 of the loss
gradients: %6 @0+128
  @0+64 of w
  @64+64 of b
states shared out: this is replica 0; 0 bytes of states that all have
  replica 0: 192 bytes of states, 64 of parameters: w
  replica 1: 192 bytes of states, 64 of parameters: b
replicas: 2, each in 2 micro-batches, 4 rows together; gradients in 2 buckets
  64 bytes complete after %5
  128 bytes complete after %6, each sum for its owner alone
  all have arrived at %7
steps:
  %0    source(feed=x output=0)                             float32  [1, 3]         @192+64              batch    Forward  here
  %1    w                                                   float32  [3, 2]         %1                   leaf     Forward  here
  %2    b                                                   float32  [2]            %2                   leaf     Forward  here
  %3    matmul_epilogue(transpose_a=false transpose_b=false product=0 program)  %0 %1 %2        float32  []             @128+64                       Backward here
  %4    matmul(transpose_a=true transpose_b=false)  %0 %3.2         float32  [3, 2]         @0+128                        Backward here
  %5    gradient_bucket(members=1)          %3              float32  []             @128+64              in place Backward here
  %6    gradient_bucket(members=2 scattered=true)  %4 %3.1         float32  [3, 2]         @0+128               in place Backward here
  %7    wait_for_gradients                  %6 %6.1 %5      float32  [3, 2]         @0+128               in place Backward here
  %8    m                                                   float32  [3, 2]         %8                   leaf     Update   here
  %9    v                                                   float32  [3, 2]         %9                   leaf     Update   here
  %10   step                                                float32  []             %10                  leaf     Update   here
  %11   lr                                                  float32  []             %11                  leaf     Update   here
  %12   fused(program)  %10 %8 %9 %11 %7 %1 float32  []             %10                  in place Update   here
  %13   assign                              %10 %12         float32  []             %10                  done     Update   here
  %14   assign                              %8 %12.1        float32  [3, 2]         %8                   done     Update   here
  %15   assign                              %9 %12.2        float32  [3, 2]         %9                   done     Update   here
  %16   assign                              %1 %12.3        float32  [3, 2]         %1                   done     Update   here
  %17   gather_parameters(owners=2)         %7.2 %16        float32  []             @128+64              in place Update   here
)");
}

BOOST_AUTO_TEST_CASE(plans_explain_themselves) {
  const esp::Variable x = esp::placeholder("x", {4, 3}), w = esp::parameter(esp::ones({3, 2}), "w");
  const auto [y, line] = std::pair(esp::relu(esp::matmul(x, w)), here());
  const esp::Variable loss = esp::mean(y * 1.0);
  const esp::Executor executor =
      loss.get_executor({.mode = esp::Mode::training, .optimizer = optim::Sgd(0.1), .dump = true});
  const esp::Plan plan = executor.plan();
  const std::string text = plan.str();
  for (const std::string& part : {std::string("matmul"), std::string("relu"), std::string("assign"), line,
                                  std::string("simplify"), std::string("[3, 2]"), std::string("Backward"),
                                  std::string("Update"), std::string("arena"), std::string("in place")})
    BOOST_TEST(text.find(part) != std::string::npos, part << " is not in\n" << text);
  const std::string dot = plan.dot();
  BOOST_TEST(dot.find("digraph") == 0u);
  BOOST_TEST(dot.find(line) != std::string::npos);
  BOOST_TEST(std::count(dot.begin(), dot.end(), '{') == std::count(dot.begin(), dot.end(), '}'));
  BOOST_TEST(plan.steps() > 1);
  BOOST_TEST(plan.leaf_bytes() >= 4 * 6);
  BOOST_REQUIRE(!plan.passes().empty());
  bool simplified = false;
  for (const esp::PassReport& pass : plan.passes()) {
    BOOST_TEST(!pass.before.empty());
    BOOST_TEST(pass.changed == (pass.before != pass.after), pass.name);
    BOOST_TEST(pass.nodes_after <= pass.nodes_before);
    simplified |= pass.name == "simplify" && pass.changed;
  }
  BOOST_TEST(simplified);
}

BOOST_AUTO_TEST_CASE(a_drawing_takes_names_with_quotes) {
  const esp::Variable w = esp::parameter(esp::ones({3}), R"(the "w" of a\b)");
  const std::string dot = esp::sum(w).get_executor({.mode = esp::Mode::inference}).plan().dot();
  BOOST_TEST(dot.find(R"( the \"w\" of a\\b\nfloat32 [3]\n)") != dot.npos, dot);
}

BOOST_AUTO_TEST_SUITE_END()
