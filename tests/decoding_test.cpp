// Choosing tokens, and sequences of them: against all sequences written out.
#include "espalier/nn/decoding.h"

#include <boost/test/unit_test.hpp>

#include <cmath>
#include <limits>

#include "espalier/core/error.h"
#include "espalier/core/random.h"
#include "espalier/executor/executor.h"
#include "espalier/ops/ops.h"
#include "testing.h"

namespace esp = espalier;
namespace nn = espalier::nn;
using namespace espalier::testing;
using esp::Tensor;
using esp::Variable;

namespace {

constexpr double inf = std::numeric_limits<double>::infinity();
constexpr int64_t vocabulary = 4, history = 7;

/// A model whose logits depend on all tokens so far: its state is a hash of them.
const Tensor& table() {
  static const Tensor t = numbers({history * vocabulary, vocabulary}, -2, 2, 8);
  return t;
}
int64_t next_state(int64_t state, int64_t token) { return (3 * state + token + 1) % history; }
nn::NextTokens step(const Variable& tokens, const nn::DecodingState& state) {
  Tensor next(state[0].shape(), esp::int64), places(tokens.shape(), esp::int64);
  for (int64_t i = 0; i < next.elements(); ++i) {
    const int64_t token = tokens.value().at<int64_t>({i});
    next.at<int64_t>({i, 0}) = next_state(state[0].value().at<int64_t>({i, 0}), token);
    places.at<int64_t>({i}) = next.at<int64_t>({i, 0}) * vocabulary + token;
  }
  return {gather(Variable(table()), Variable(places)), {Variable(next)}};
}

/// All sequences from a first token, the best first.
std::vector<nn::Hypothesis> all_sequences(int64_t first, int64_t most, int64_t end, double penalty) {
  std::vector<nn::Hypothesis> done;
  const Tensor log_p = log_softmax(Variable(table())).value();
  const std::function<void(nn::Hypothesis, int64_t, int64_t)> go = [&](const nn::Hypothesis& h, int64_t last,
                                                                       int64_t before) {
    const int64_t state = next_state(before, last);
    for (int64_t token = 0; token < vocabulary; ++token) {
      nn::Hypothesis next = h;
      next.log_probability += log_p.at<double>({state * vocabulary + last, token});
      next.ended = token == end;
      if (!next.ended) next.tokens.push_back(token);
      const auto length = static_cast<double>(next.tokens.size() + (next.ended ? 1 : 0));
      next.score = next.log_probability / std::pow((5 + length) / 6, penalty);
      if (next.ended || static_cast<int64_t>(next.tokens.size()) == most)
        done.push_back(next);
      else
        go(next, token, state);
    }
  };
  go({}, first, 0);
  std::sort(done.begin(), done.end(), [](const auto& a, const auto& b) { return a.score > b.score; });
  return done;
}

nn::DecodingState begin(int64_t rows) { return {Variable(esp::zeros({rows, 1}, esp::int64))}; }

}  // namespace

BOOST_AUTO_TEST_SUITE(decoding)

BOOST_AUTO_TEST_CASE(truncated_logits_keep_the_best) {
  const Tensor x = esp::tensor({{1.0, 3.0, 2.0, 3.0, 3.0}, {0.0, -1.0, 5.0, 4.0, 4.5}});
  const auto kept = [&](const esp::TokenSampling& options) {
    const Tensor y = esp::truncated_logits(x, options).value();
    std::vector<std::vector<bool>> rows(2);
    for (int64_t i = 0; i < 10; ++i)
      rows[static_cast<size_t>(i / 5)].push_back(y.at<float>({i / 5, i % 5}) > -inf);
    return rows;
  };
  using Rows = std::vector<std::vector<bool>>;
  BOOST_TEST(
      (kept({.top_k = 2}) == Rows{{false, true, false, true, false}, {false, false, true, false, true}}));
  BOOST_TEST((kept({.top_k = 9}) == Rows(2, std::vector<bool>(5, true))));
  // Probabilities of the first row: 0.29 of each 3, 0.10 of the 2; of the second: 0.504, 0.305, 0.185, …
  BOOST_TEST(
      (kept({.top_p = 0.5}) == Rows{{false, true, false, true, false}, {false, false, true, false, false}}));
  BOOST_TEST(
      (kept({.top_p = 0.9}) == Rows{{false, true, true, true, true}, {false, false, true, true, true}}));
  BOOST_TEST((kept({.top_p = 1e-9}) ==
              Rows{{false, true, false, false, false}, {false, false, true, false, false}}));
  BOOST_TEST((kept({.temperature = 0.1, .top_p = 0.9}) ==
              Rows{{false, true, false, true, true}, {false, false, true, false, false}}));
  // What comes before has the probability top_p exactly: it is enough.
  const Variable two = esp::truncated_logits(esp::zeros({4}), {.top_p = 0.5});
  BOOST_TEST(esp::sum(esp::exp(two)).item() == 2);
  const Tensor halved = esp::truncated_logits(x, {.temperature = 0.5}).value();
  BOOST_TEST(halved.at<float>({1, 2}) == 0);
  BOOST_TEST(halved.at<float>({1, 3}) == -2);
}

BOOST_AUTO_TEST_CASE(a_small_temperature_takes_the_largest_logit) {
  const Tensor x = esp::tensor({-9.0, 9.0, 10.0, 8.0});
  for (const double shift : {0.0, -12.0})
    for (const esp::DType dtype : {esp::float16, esp::bfloat16, esp::float32, esp::float64})
      for (const double temperature : {1e-4, 1e-8, 1e-40, 1e-300, 5e-324}) {
        const Variable logits = broadcast_to((Variable(x) + shift).value().to(dtype), {8, 4});
        const esp::TokenSampling options{.temperature = temperature};
        const Tensor drawn = sample_logits(logits, options).value();
        for (int64_t i = 0; i < 8; ++i) BOOST_TEST(drawn.at<int64_t>({i}) == 2);
        const Variable cut = truncated_logits(logits, options);
        BOOST_TEST((cut.dtype() == (dtype == esp::float64 ? esp::float64 : esp::float32)));
        BOOST_TEST(argmax(cut, -1).value().at<int64_t>({0}) == 2);
        BOOST_TEST(softmax(cut).value().to(esp::float64).at<double>({0, 2}) == 1);
        const auto fixed = [&](const Variable&, const nn::DecodingState& s) -> nn::NextTokens {
          return {logits, s};
        };
        const auto made =
            nn::generate(fixed, std::vector<int64_t>(8, 0), {}, {.most_tokens = 2, .sampling = options});
        for (const auto& tokens : made) BOOST_TEST((tokens == std::vector<int64_t>{2, 2}));
      }
}

BOOST_AUTO_TEST_CASE(logits_that_are_no_distribution_are_refused) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const esp::DType dtype : {esp::float16, esp::float32, esp::float64})
    for (const double wrong : {nan, inf, -inf}) {
      const bool none = wrong == -inf;
      const Tensor logits =
          esp::tensor({{1.0, 2.0, -inf}, {none ? wrong : 1.0, none ? wrong : 0.0, wrong}}).to(dtype);
      const auto fixed = [&](const Variable&, const nn::DecodingState& s) -> nn::NextTokens {
        return {logits, s};
      };
      const std::vector<int64_t> first{0, 0};
      const auto named = [](const char* function) { return says({function, "row 1", "decoding_test.cpp"}); };
      BOOST_CHECK_EXCEPTION((void)nn::generate(fixed, first, {}, {.most_tokens = 1}), esp::NumericError,
                            named("generate"));
      BOOST_CHECK_EXCEPTION((void)nn::generate(fixed, first, {}, {.most_tokens = 1, .sampling = {{}}}),
                            esp::NumericError, named("generate"));
      BOOST_CHECK_EXCEPTION((void)nn::beam_search(fixed, first, {}, {.beams = 2, .most_tokens = 1}),
                            esp::NumericError, named("beam_search"));
      BOOST_CHECK_EXCEPTION((void)sample_logits(logits), esp::NumericError, named("sample_logits"));
      BOOST_CHECK_EXCEPTION((void)sample_logits(logits, {.temperature = 2, .top_k = 2}), esp::NumericError,
                            named("sample_logits"));
    }
}

BOOST_AUTO_TEST_CASE(samples_have_the_probabilities_and_repeat_under_a_seed) {
  const int64_t rows = 20'000;
  const Tensor x = esp::broadcast_to(esp::tensor({0.0, 1.0, 2.0, -1.0}), {rows, 4}).value();
  const auto draw = [&](const esp::TokenSampling& options) {
    esp::seed(3);
    return esp::sample_logits(x, options).value();
  };
  const Tensor drawn = draw({.temperature = 2, .top_k = 3});
  std::vector<double> counts(4);
  for (int64_t i = 0; i < rows; ++i) counts[static_cast<size_t>(drawn.at<int64_t>({i}))] += 1;
  const double sum = 1 + std::exp(0.5) + std::exp(1);
  for (size_t c = 0; c < 3; ++c)
    BOOST_TEST(std::abs(counts[c] / rows - std::exp(0.5 * static_cast<double>(c)) / sum) < 0.015);
  BOOST_TEST(counts[3] == 0);
  BOOST_TEST(difference(draw({.temperature = 2, .top_k = 3}), drawn) == 0);
  const Tensor coldest = draw({.temperature = 1e-3});
  BOOST_TEST(difference(coldest, esp::full({rows}, int64_t{2}, esp::int64)) == 0);
  // The same in a plan, where each run draws anew.
  const Variable in = esp::placeholder("x", {-1, 4}, esp::float32);
  esp::seed(3);
  const esp::Executor executor =
      esp::sample_logits(in, {.temperature = 2, .top_k = 3}).get_executor({.mode = esp::Mode::inference});
  const Tensor first = executor.run({{"x", x}}), second = executor.run({{"x", x}});
  BOOST_TEST(difference(first, second) > 0);
  for (int64_t i = 0; i < rows; ++i) BOOST_TEST_REQUIRE(second.at<int64_t>({i}) < 3);
}

BOOST_AUTO_TEST_CASE(beams_find_the_best_sequences) {
  const std::vector<int64_t> first{0, 2, 3};
  for (const double penalty : {0.0, 0.6, 2.0}) {
    const auto found = nn::beam_search(
        step, first, begin(3),
        {.beams = 300, .best = 5, .most_tokens = 4, .end_token = 1, .length_penalty = penalty});
    BOOST_TEST_REQUIRE(found.size() == 3u);
    for (size_t i = 0; i < 3; ++i) {
      const auto expected = all_sequences(first[i], 4, 1, penalty);
      BOOST_TEST_REQUIRE(found[i].size() == 5u);
      for (size_t k = 0; k < 5; ++k) {
        BOOST_TEST(found[i][k].tokens == expected[k].tokens, boost::test_tools::per_element());
        BOOST_TEST(std::abs(found[i][k].score - expected[k].score) < 1e-12);
        BOOST_TEST(std::abs(found[i][k].log_probability - expected[k].log_probability) < 1e-12);
        BOOST_TEST(found[i][k].ended == expected[k].ended);
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(one_beam_is_greedy_and_few_beams_are_scored_right) {
  const std::vector<int64_t> first{3, 1};
  const auto greedy = nn::generate(step, first, begin(2), {.most_tokens = 12});
  const auto one = nn::beam_search(step, first, begin(2), {.beams = 1, .most_tokens = 12});
  for (size_t i = 0; i < 2; ++i) {
    BOOST_TEST(greedy[i].size() == 12u);
    BOOST_TEST(one[i][0].tokens == greedy[i], boost::test_tools::per_element());
  }
  // Sequences of few beams have the probabilities that all_sequences has for them.
  const auto few =
      nn::beam_search(step, first, begin(2), {.beams = 2, .best = 2, .most_tokens = 5, .end_token = 0});
  for (size_t i = 0; i < 2; ++i) {
    const auto all = all_sequences(first[i], 5, 0, 0);
    for (const nn::Hypothesis& h : few[i]) {
      const auto same = std::find_if(all.begin(), all.end(), [&](const auto& other) {
        return other.tokens == h.tokens && other.ended == h.ended;
      });
      BOOST_TEST_REQUIRE((same != all.end()));
      BOOST_TEST(std::abs(same->score - h.score) < 1e-12);
    }
  }
}

BOOST_AUTO_TEST_CASE(generated_sequences_end_and_repeat_under_a_seed) {
  const std::vector<int64_t> first{0, 1, 2, 3, 0, 1};
  const auto draw = [&] {
    esp::seed(9);
    return nn::generate(step, first, begin(6),
                        {.most_tokens = 30, .end_token = 2, .sampling = esp::TokenSampling{}});
  };
  const auto sequences = draw();
  BOOST_TEST((sequences == draw()));
  bool shorter = false;
  for (const auto& s : sequences) {
    shorter |= s.size() < 30;
    BOOST_TEST(std::count(s.begin(), s.end(), 2) == 0);
  }
  BOOST_TEST(shorter);
  // Rows keep their states when others end: a greedy sequence is the same alone.
  const auto all = nn::generate(step, first, begin(6), {.most_tokens = 9, .end_token = 2});
  for (size_t i = 0; i < first.size(); ++i)
    BOOST_TEST((nn::generate(step, {first[i]}, begin(1), {.most_tokens = 9, .end_token = 2})[0] == all[i]));
}

BOOST_AUTO_TEST_CASE(wrong_operands) {
  const Tensor x = esp::zeros({2, 3});
  BOOST_CHECK_THROW(esp::sample_logits(x, {.temperature = 0}), esp::Error);
  BOOST_CHECK_THROW(esp::sample_logits(x, {.top_k = -1}), esp::Error);
  BOOST_CHECK_THROW(esp::sample_logits(x, {.top_p = 0}), esp::Error);
  BOOST_CHECK_THROW(esp::sample_logits(x, {.top_p = 1.5}), esp::Error);
  BOOST_CHECK_THROW(esp::sample_logits(esp::zeros({2}, esp::int64)), esp::TypeError);
  BOOST_CHECK_THROW(esp::sample_logits(esp::zeros({2, 0})), esp::ShapeError);
  BOOST_CHECK_THROW(nn::beam_search(step, {0}, begin(2)), esp::ShapeError);
  BOOST_CHECK_THROW(nn::beam_search(step, {0}, begin(1), {.beams = 2, .best = 3}), esp::Error);
  BOOST_CHECK_THROW(nn::beam_search(step, {0}, begin(1), {.best = 0}), esp::Error);
  BOOST_CHECK_THROW(nn::beam_search(step, {0}, begin(1), {.most_tokens = -1}), esp::Error);
  const auto none = nn::beam_search(step, {0}, begin(1), {.most_tokens = 0});
  BOOST_REQUIRE((none.size() == 1u && none[0].size() == 1u));
  BOOST_TEST((none[0][0].tokens.empty() && !none[0][0].ended && none[0][0].log_probability == 0));
  BOOST_CHECK_THROW(nn::beam_search(step, {0}, begin(1), {.length_penalty = -1}), esp::Error);
  BOOST_CHECK_THROW(nn::generate({}, {0}, begin(1)), esp::Error);
  const auto wrong = [](const Variable&, const nn::DecodingState& s) -> nn::NextTokens {
    return {Variable(esp::zeros({3, 4})), s};
  };
  BOOST_CHECK_THROW(nn::generate(wrong, {0}, begin(1)), esp::ShapeError);
  const auto integers = [](const Variable&, const nn::DecodingState& s) -> nn::NextTokens {
    return {Variable(esp::zeros({1, 4}, esp::int64)), s};
  };
  BOOST_CHECK_THROW(nn::generate(integers, {0}, begin(1)), esp::TypeError);
}

/// A model whose probabilities depend on the last token alone.
nn::DecodingStep by_last_token(const Tensor& probabilities) {
  return [=](const Variable& tokens, const nn::DecodingState& state) -> nn::NextTokens {
    return {gather(log(Variable(probabilities)), tokens), state};
  };
}

BOOST_AUTO_TEST_CASE(beams_are_full_beside_an_end) {
  const Tensor p = esp::tensor(
      {{1e-9, 0.3, 0.2, 0.5}, {0.25, 0.25, 0.25, 0.25}, {1e-9, 1e-9, 1e-9, 1.0}, {0.25, 0.25, 0.25, 0.25}},
      esp::float64);
  const auto found = nn::beam_search(by_last_token(p), {0}, begin(1),
                                     {.beams = 2, .best = 2, .most_tokens = 4, .end_token = 3})[0];
  BOOST_REQUIRE(found.size() == 2u);
  BOOST_TEST(found[0].tokens.empty());
  BOOST_TEST(found[1].tokens == std::vector<int64_t>{2});
}

BOOST_AUTO_TEST_CASE(a_search_goes_on_while_long_sequences_may_win) {
  const Tensor p = esp::tensor({{1e-9, 0.49, 0.51}, {1e-9, 1.0, 1e-9}, {0.3, 0.3, 0.4}}, esp::float64);
  const auto found =
      nn::beam_search(by_last_token(p), {0}, begin(1),
                      {.beams = 2, .best = 1, .most_tokens = 10, .end_token = 2, .length_penalty = 2})[0];
  BOOST_REQUIRE(found.size() == 1u);
  BOOST_TEST(found[0].tokens == std::vector<int64_t>(10, 1));
}

/// A step that forgets to return its state.
BOOST_AUTO_TEST_CASE(as_many_states_as_before) {
  const auto forgets = [](const Variable&, const nn::DecodingState& s) -> nn::NextTokens {
    return {esp::zeros({1, 4}) + s[0] * 0.0f, {}};
  };
  const auto begins = [](const Variable& tokens, const nn::DecodingState& s) -> nn::NextTokens {
    const Variable count = s.empty() ? esp::cast(tokens, esp::float32) : s[0] + 1.0f;
    return {esp::cast(esp::one_hot(esp::cast(count, esp::int64), 4), esp::float32), {count}};
  };
  const nn::DecodingState one{esp::zeros({1, 4})};
  for (const std::string function : {"generate", "beam_search"})
    BOOST_CHECK_EXCEPTION(
        function == "generate" ? (void)nn::generate(forgets, {0}, one)
                               : (void)nn::beam_search(forgets, {0}, one),
        esp::Error, [&](const esp::Error& e) {
          return std::string(e.what()).find(function + ": the step returns 0 states; it got 1") == 0;
        });
  BOOST_TEST(nn::generate(begins, {1}, {}, {.most_tokens = 3})[0] == (std::vector<int64_t>{1, 2, 3}));
}

BOOST_AUTO_TEST_SUITE_END()
