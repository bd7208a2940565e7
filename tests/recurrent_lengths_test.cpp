// Padded batches with lengths: against packed sequences, in plans, derivatives, errors; and 0 steps.
#include <boost/test/unit_test.hpp>

#include "espalier/core/check_gradient.h"
#include "espalier/core/error.h"
#include "espalier/executor/executor.h"
#include "espalier/nn/recurrent.h"
#include "layer_figures.h"
#include "layer_training.h"

namespace esp = espalier;
using namespace espalier::nn;
using namespace espalier::testing;
using esp::Variable;

namespace {

constexpr int64_t steps = 4, in = 3, hidden = 2;
const std::vector<int64_t> lengths{2, 4, 1};

esp::Tensor lengths_of(const std::vector<int64_t>& list, esp::DType dtype = esp::int64) {
  return esp::tensor_from(list, esp::Shape{static_cast<int64_t>(list.size())}).to(dtype);
}

/// All that a layer gives: outputs, h, and of an LSTM c.
template <class State>
Variables all_of(const SequenceOutput<State>& made) {
  if constexpr (std::is_same_v<State, LSTMState>)
    return {made.outputs, made.state.h, made.state.c};
  else
    return {made.outputs, made.state};
}
template <class State>
Variables all_of(const PackedOutput<State>& made) {
  return all_of(SequenceOutput<State>{made.outputs.pad({.length = steps}).values, made.state});
}
Variable loss_of(const Variables& all) {
  Variable loss = weighed(all[0]);
  for (size_t i = 1; i < all.size(); ++i) loss = loss + weighed(all[i]);
  return loss;
}

/// Values and gradients with lengths are those of packed sequences.
template <class Net>
void check_as_packed(const Net& net, bool with_state) {
  constexpr bool lstm = std::is_same_v<Net, Lstm>;
  const Variable x = esp::variable(numbers({steps, 3, in}, -1, 1));
  const auto states = net(x).state;
  Variables leaves{x};
  const auto leaf_like = [&](const Variable& v) {
    leaves.push_back(esp::variable(numbers(v.shape(), -1, 1, leaves.size())));
    return leaves.back();
  };
  const auto first = [&] {
    if constexpr (lstm)
      return with_state ? LSTMState{leaf_like(states.h), leaf_like(states.c)} : LSTMState{};
    else
      return with_state ? leaf_like(states) : zeros_like(states);
  }();
  for (const auto& [path, p] : net.parameters()) leaves.push_back(p);
  const Variables padded = all_of(net(x, first, Lengths(lengths)));
  const Variables packed = all_of(net(esp::data::pack_padded(x, lengths), first));
  for (size_t i = 0; i < packed.size(); ++i)
    BOOST_TEST(difference(padded[i].value(), packed[i].value()) < 1e-14, i);
  const Variable a = loss_of(padded), b = loss_of(packed);
  for (size_t i = 0; i < leaves.size(); ++i)
    BOOST_TEST(difference(a.gradient(leaves[i]).value(), b.gradient(leaves[i]).value()) < 1e-13, i);
}

/// A plan with open axes and lengths from a feed.
template <class Net>
void check_plan(const Net& net) {
  const Variable x = esp::placeholder("x", {-1, -1, in}, esp::float64),
                 n = esp::placeholder("n", {-1}, esp::int32);
  const auto value = [&](const Variable& v, const Variable& each) {
    const Variables all = all_of(net(v, Lengths(each)));
    Variable sum = esp::sum(all[0] * all[0], 0);
    for (size_t i = 1; i < all.size(); ++i) sum = esp::concat({sum, mean(all[i], 0)}, 1);
    return sum;
  };
  const esp::Executor plan = value(x, n).get_executor({.mode = esp::Mode::inference});
  const Net own = net.clone();
  const esp::Executor trained = mean(square(value(x, n))).get_executor({.optimizer = esp::optim::Sgd(0.1)});
  for (const std::vector<int64_t>& list : {std::vector<int64_t>{2, 4, 1}, {1}, {0, 3, 2, 2}}) {
    const int64_t longest = std::ranges::max(list), batch = static_cast<int64_t>(list.size());
    const esp::Tensor input = numbers({longest, batch, in}, -1, 1), each = lengths_of(list, esp::int32);
    const auto eager = [&](const Net& layer) {
      const Variables all = all_of(layer(input, Lengths(Variable(each))));
      Variable sum = esp::sum(all[0] * all[0], 0);
      for (size_t i = 1; i < all.size(); ++i) sum = esp::concat({sum, mean(all[i], 0)}, 1);
      return sum;
    };
    BOOST_TEST(difference(plan.run({{"x", input}, {"n", each}}), eager(net).value()) < 1e-13);
    Variable loss = mean(square(eager(own)));
    loss.backward().update(esp::optim::Sgd(0.1));
    (void)trained.run({{"x", input}, {"n", each}});
    for (const auto& [path, p] : own.parameters())
      BOOST_TEST(difference(net.parameter(path).value(), p.value()) < 1e-13, path);
  }
}

}  // namespace

BOOST_AUTO_TEST_SUITE(recurrent_lengths)

BOOST_AUTO_TEST_CASE(padded_batches_are_as_packed_sequences) {
  for (const bool with_state : {false, true})
    for (const bool both : {false, true}) {
      const int64_t layers = both ? 2 : 1;
      check_as_packed(Rnn(in, hidden, {.layers = layers, .bidirectional = both, .dtype = esp::float64}),
                      with_state);
      check_as_packed(Gru(in, hidden, {.layers = layers, .bidirectional = both, .dtype = esp::float64}),
                      with_state);
      check_as_packed(Lstm(in, hidden, {.layers = layers, .bidirectional = both, .dtype = esp::float64}),
                      with_state);
      check_as_packed(Lstm(in, hidden,
                           {.layers = layers,
                            .bidirectional = both,
                            .projection = 1,
                            .peepholes = true,
                            .layer_norm = true,
                            .dtype = esp::float64}),
                      with_state);
    }
}

BOOST_AUTO_TEST_CASE(behind_the_end_nothing_counts) {
  const Gru net(in, hidden, {.batch_first = true, .dtype = esp::float64});
  const esp::Tensor x = numbers({3, steps, in}, -1, 1);
  esp::Tensor other = x.clone();
  for (int64_t t = 1; t < steps; ++t)
    for (int64_t j = 0; j < in; ++j) other.at<double>({2, t, j}) = NAN;
  const auto a = net(x, Lengths(lengths)), b = net(other, Lengths(lengths));
  BOOST_TEST(difference(a.outputs.value(), b.outputs.value()) == 0);
  BOOST_TEST(difference(a.state.value(), b.state.value()) == 0);
  BOOST_TEST(sum(square(slice(slice(a.outputs, 0, 2, 3), 1, 1, steps))).item() == 0);
  const Variable first = numbers({1, 3, hidden}, -1, 1);
  const auto none = net(x, first, Lengths(std::vector<int64_t>{0, 0, 0}));
  BOOST_TEST(difference(none.state.value(), first.value()) == 0);
  BOOST_TEST(sum(square(none.outputs)).item() == 0);
}

BOOST_AUTO_TEST_CASE(plans_take_lengths_from_a_feed) {
  check_plan(Rnn(in, hidden, {.bidirectional = true, .dtype = esp::float64}));
  check_plan(Gru(in, hidden, {.layers = 2, .bidirectional = true, .dtype = esp::float64}));
  check_plan(Lstm(in, hidden, {.layers = 2, .bidirectional = true, .dtype = esp::float64}));
  check_plan(
      Lstm(in, hidden, {.bidirectional = true, .peepholes = true, .coupled = true, .dtype = esp::float64}));
}

BOOST_AUTO_TEST_CASE(replicas_share_out_lengths) {
  const double largest = training_differences_of(
      [](Module& module) -> LayerTraining::Call {
        const Lstm net = module.add("net", Lstm(hidden, {.bidirectional = true, .batch_first = true}));
        return [net](const Variable& x) {
          const Variable n = cast(esp::greater(mean(x, {1, 2}), 0), esp::int64) * 2 + 1;
          const auto [outputs, state] = net(x, Lengths(n));
          return sum(outputs, 1) + mean(state.c, {0, 2}, true).reshape({-1, 1});
        };
      },
      {3, 2});
  BOOST_TEST(largest < 1e-9);
}

BOOST_AUTO_TEST_CASE(second_derivatives) {
  const auto check = [](const auto& net) {
    const auto result = esp::check_gradient(
        [&](const Variables& v) { return esp::concat(all_of(net(v[0], Lengths(lengths))), 0).reshape({-1}); },
        {numbers({steps, 3, in}, -1, 1)}, {.order = 2, .tolerance = 2e-6});
    BOOST_TEST(result.passed, result.message);
  };
  check(Rnn(in, hidden, {.dtype = esp::float64}));
  check(Gru(in, hidden, {.dtype = esp::float64}));
  check(Lstm(in, hidden, {.dtype = esp::float64}));
}

BOOST_AUTO_TEST_CASE(lengths_that_do_not_fit) {
  const Gru net(in, hidden);
  const Variable x = esp::ones({steps, 3, in});
  for (const int64_t wrong : {-1, 5})
    BOOST_CHECK_EXCEPTION(net(x, Lengths(std::vector<int64_t>{1, wrong, 2})), esp::IndexError,
                          says({"Gru", std::to_string(wrong), "4 steps", "lengths_test.cpp"}));
  BOOST_CHECK_EXCEPTION(net(x, Lengths(std::vector<int64_t>{1, 2})), esp::ShapeError,
                        says({"Gru", "lengths", "[2]", "[4, 3, 3]"}));
  BOOST_CHECK_EXCEPTION(net(x, Lengths(Variable(esp::ones({3})))), esp::TypeError,
                        says({"Gru", "lengths", "float32"}));
  BOOST_CHECK_EXCEPTION(net(x, Lengths(Variable())), esp::Error, says({"undefined", "lengths_test.cpp"}));

  const Variable fed = esp::placeholder("n", {-1}, esp::int64);
  const Variable outputs = net(esp::placeholder("x", {-1, -1, in}), Lengths(fed)).outputs;
  const esp::Executor plan = outputs.get_executor({.mode = esp::Mode::inference});
  BOOST_CHECK_EXCEPTION((void)plan.run({{"x", esp::ones({2, 1, in})}, {"n", lengths_of({3})}}),
                        esp::IndexError, says({"Gru", "3", "2 steps", "lengths_test.cpp"}));
}

BOOST_AUTO_TEST_CASE(a_plan_refuses_0_steps_in_the_layer_s_name) {
  const Variable x = esp::placeholder("x", {-1, -1, in}), h = esp::placeholder("h", {1, -1, hidden});
  const auto refuses = [](const Variable& y, std::map<std::string, esp::Tensor> batch, const char* name) {
    for (const esp::Mode mode : {esp::Mode::inference, esp::Mode::training}) {
      const esp::Executor plan = mode == esp::Mode::inference
                                     ? y.get_executor({.mode = mode})
                                     : mean(y).get_executor({.optimizer = esp::optim::Sgd(0.1)});
      BOOST_CHECK_EXCEPTION((void)plan.run({batch.begin(), batch.end()}), esp::ShapeError,
                            says({name, "0 steps", "lengths_test.cpp"}));
    }
  };
  const esp::Tensor none = esp::ones({0, 2, in}), state = esp::ones({1, 2, hidden});
  refuses(Rnn(in, hidden)(x).outputs, {{"x", none}}, "Rnn");
  refuses(Gru(in, hidden)(x, h).outputs, {{"x", none}, {"h", state}}, "Gru");
  refuses(Lstm(in, hidden, {.bidirectional = true})(x).outputs, {{"x", none}}, "Lstm");
  refuses(Lstm(in, hidden, {.batch_first = true})(x).outputs, {{"x", esp::ones({2, 0, in})}}, "Lstm");
  refuses(Lstm(in, hidden, {.peepholes = true})(x).outputs, {{"x", none}}, "Lstm");
}

BOOST_AUTO_TEST_SUITE_END()
