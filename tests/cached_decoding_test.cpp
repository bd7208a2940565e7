// Generation with caches, against a model that computes all tokens again for each.
#include "espalier/nn/cached_decoding.h"

#include <boost/test/unit_test.hpp>

#include "espalier/core/error.h"
#include "espalier/core/random.h"
#include "espalier/core/subscript.h"
#include "espalier/nn/embedding.h"
#include "espalier/ops/ops.h"

namespace esp = espalier;
namespace nn = espalier::nn;
using esp::Variable;

namespace {

constexpr int64_t vocabulary = 6, width = 8;

struct Gpt : nn::Module {
  Variable operator()(const Variable& tokens) const {
    return last(layers(embedding(tokens), {.causal = true}));
  }
  Variable step(const Variable& tokens, nn::KvCaches& caches) const {
    return last(layers.step(embedding(tokens), caches));
  }
  Variable last(const Variable& y) const { return 4 * out(y[{esp::range(), -1}]); }

  nn::Embedding embedding = add("embedding", nn::Embedding(vocabulary, width));
  nn::TransformerEncoder layers = add(
      "layers",
      nn::TransformerEncoder(2, width, 2, {.feedforward = 16, .dropout = 0, .rotary = nn::RotaryOptions{}}));
  nn::Dense out = add("out", nn::Dense(width, vocabulary));
};

/// The state has all tokens so far.
nn::DecodingStep again(const Gpt& gpt) {
  return [&gpt](const Variable& tokens, const nn::DecodingState& state) -> nn::NextTokens {
    const Variable all = esp::concat({state[0], esp::unsqueeze(tokens, 1)}, 1);
    return {gpt(all), {all}};
  };
}

struct Fixture {
  Fixture() {
    esp::seed(4);
    gpt = Gpt();
    const esp::NoGrad no_gradients;
    (void)gpt.step(prompt, caches);
  }
  nn::Decoding cached() const {
    return nn::with_caches(
        [this](const Variable& tokens, nn::KvCaches& steps) { return gpt.step(tokens, steps); }, caches, 3);
  }
  Gpt gpt;
  esp::Tensor prompt = esp::tensor({{1, 2}, {3, 4}, {5, 1}});
  nn::KvCaches caches;
  std::vector<int64_t> first{2, 3, 5};
};

}  // namespace

BOOST_AUTO_TEST_SUITE(cached_decoding)

BOOST_FIXTURE_TEST_CASE(beams_keep_the_caches_of_their_sequences, Fixture) {
  const nn::BeamOptions options{.beams = 4, .best = 3, .most_tokens = 8, .end_token = 0};
  const auto expected = nn::beam_search(again(gpt), first, {prompt}, options);
  for (int turn = 0; turn < 2; ++turn) {  // the prompt is read once for both
    const auto [step, state] = cached();
    const auto found = nn::beam_search(step, first, state, options);
    BOOST_TEST_REQUIRE(found.size() == expected.size());
    for (size_t i = 0; i < found.size(); ++i)
      for (size_t j = 0; j < 3; ++j) {
        BOOST_TEST((found[i].at(j).tokens == expected[i].at(j).tokens));
        BOOST_TEST(std::abs(found[i][j].log_probability - expected[i][j].log_probability) < 1e-4);
      }
  }
  for (const nn::KvCache& cache : caches) BOOST_TEST(cache.length() == 2);
}

BOOST_FIXTURE_TEST_CASE(ended_sequences_leave_the_caches, Fixture) {
  size_t ends = 0;
  for (int64_t end_token = 0; end_token < vocabulary; ++end_token) {
    const nn::GenerateOptions options{.most_tokens = 12, .end_token = end_token};
    const auto expected = nn::generate(again(gpt), first, {prompt}, options);
    const auto [step, state] = cached();
    BOOST_TEST((nn::generate(step, first, state, options) == expected));
    for (const auto& tokens : expected) ends += tokens.size() < 12;
  }
  BOOST_TEST(ends > 0);
}

BOOST_FIXTURE_TEST_CASE(empty_caches_begin_with_the_first_tokens, Fixture) {
  const auto [step, state] = nn::with_caches(
      [this](const Variable& tokens, nn::KvCaches& steps) { return gpt.step(tokens, steps); }, {}, 3);
  const Variable none = esp::zeros({3, 0}, esp::int64);
  BOOST_TEST((nn::generate(step, first, state, {.most_tokens = 6}) ==
              nn::generate(again(gpt), first, {none}, {.most_tokens = 6})));
}

/// A decoder of three sentences that an encoder has read, of unequal lengths.
BOOST_AUTO_TEST_CASE(a_memory_follows_its_sentences) {
  esp::seed(6);
  const esp::NoGrad no_gradients;
  const nn::Embedding embedding(vocabulary, width);
  const nn::TransformerDecoder decoder(2, width, 2, {.feedforward = 16, .dropout = 0});
  const nn::Dense out(width, vocabulary);
  const Variable memory = esp::randn({3, 5, width}) * 2.0;
  const Variable there = esp::less(esp::arange(5, esp::int64), esp::tensor({{5}, {3}, {4}}));
  const auto last = [&](const Variable& y) { return 8 * out(y[{esp::range(), -1}]); };
  const nn::CachedModel model = [&](const Variable& tokens, nn::KvCaches& caches) {
    nn::AttentionMasks masks{.key_mask = there};
    if (!caches.empty() && caches[0].rows().defined()) masks.key_mask = esp::gather(there, caches[0].rows());
    return last(decoder.step(embedding(tokens), memory, caches, masks));
  };
  const nn::DecodingStep whole = [&](const Variable& tokens,
                                     const nn::DecodingState& state) -> nn::NextTokens {
    const Variable all = esp::concat({state[0], esp::unsqueeze(tokens, 1)}, 1);
    const Variable y = decoder(embedding(all), state[1], {.causal = true}, {.key_mask = state[2]});
    return {last(y), {all, state[1], state[2]}};
  };
  const std::vector<int64_t> first{2, 3, 5};
  const nn::DecodingState begin{Variable(esp::zeros({3, 0}, esp::int64)), memory, there};
  const nn::BeamOptions options{.beams = 4, .best = 2, .most_tokens = 7, .end_token = 0};
  const auto expected = nn::beam_search(whole, first, begin, options);
  const auto [step, state] = nn::with_caches(model, {}, 3);
  const auto found = nn::beam_search(step, first, state, options);
  for (size_t i = 0; i < 3; ++i)
    for (size_t j = 0; j < 2; ++j) {
      BOOST_TEST((found[i].at(j).tokens == expected[i].at(j).tokens));
      BOOST_TEST(std::abs(found[i][j].log_probability - expected[i][j].log_probability) < 1e-4);
    }
  size_t ends = 0;
  for (int64_t end_token = 0; end_token < vocabulary; ++end_token) {
    const nn::GenerateOptions stop{.most_tokens = 12, .end_token = end_token};
    const auto texts = nn::generate(whole, first, begin, stop);
    const auto [next, from] = nn::with_caches(model, {}, 3);
    BOOST_TEST((nn::generate(next, first, from, stop) == texts));
    for (const auto& tokens : texts) ends += tokens.size() < 12;
  }
  BOOST_TEST(ends > 0);
}

BOOST_AUTO_TEST_CASE(caches_do_not_write_over_what_others_have) {
  const auto steps = [](float value, int64_t count) { return Variable(esp::full({1, 1, count, 2}, value)); };
  const auto last = [](const nn::KvCache& cache) {
    return cache.keys().value().at<float>({0, 0, cache.length() - 1, 1});
  };
  nn::KvCache cache(8);  // there is room behind its steps
  cache.append(steps(1, 2), steps(1, 2));
  nn::KvCache copy = cache;
  cache.append(steps(2, 1), steps(2, 1));
  copy.append(steps(3, 1), steps(3, 1));
  BOOST_TEST(last(cache) == 2);
  BOOST_TEST(last(copy) == 3);
  const Variable keys = cache.keys(), values = cache.values();
  cache.truncate(1);
  cache.append(steps(4, 2), steps(4, 2));
  BOOST_TEST(last(cache) == 4);
  for (const Variable& held : {keys, values}) {
    BOOST_TEST(held.value().at<float>({0, 0, 1, 0}) == 1);
    BOOST_TEST(held.value().at<float>({0, 0, 2, 0}) == 2);
  }
}

BOOST_FIXTURE_TEST_CASE(other_numbers_of_sequences_are_errors, Fixture) {
  const auto model = [](const Variable& tokens, nn::KvCaches&) { return tokens; };
  BOOST_CHECK_THROW(nn::with_caches({}, {}, 1), esp::Error);
  BOOST_CHECK_THROW(nn::with_caches(model, {}, 0), esp::ShapeError);
  BOOST_CHECK_THROW(nn::with_caches(model, caches, 2), esp::ShapeError);
}

BOOST_AUTO_TEST_SUITE_END()
