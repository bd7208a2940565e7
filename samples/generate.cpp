// A GPT with 11 million parameters continues a prompt token by token: with caches of keys and values, and by
// computing the whole sequence again for each token. Its weights are random, so the tokens mean nothing.
#include <espalier/espalier.h>

#include <chrono>
#include <iostream>
#include <numeric>
#include <vector>
namespace esp = espalier;
using namespace espalier::nn;

constexpr int64_t kTokens = 1000, kWidth = 384, kPrompt = 64, kNew = 64;

struct Gpt : Module {
  /// Tokens [batch, time] to the logits of what follows each, [batch, time, kTokens].
  esp::Variable operator()(const esp::Variable& x) const {
    return out(layers(embedding(x), {.causal = true}));
  }
  /// The same for the next tokens alone, [batch, new]: `caches` have what the layers need of those before.
  esp::Variable step(const esp::Variable& x, KvCaches& caches) const {
    return out(layers.step(embedding(x), caches));
  }
  Embedding embedding = add("embedding", Embedding(kTokens, kWidth));
  TransformerEncoder layers = add(
      "layers",
      TransformerEncoder(
          6, kWidth, 6,
          {.feedforward = 4 * kWidth, .dropout = 0, .norm_first = true, .rotary = RotaryOptions{}}, true));
  Dense out = add("out", Dense(kWidth, kTokens, {.bias = false}));
};

/// The most probable token after each row: [batch, 1].
esp::Variable best(const esp::Variable& logits) {
  return esp::unsqueeze(esp::argmax(logits[{esp::range(), -1}], -1), 1);
}

struct Run {
  esp::Variable tokens, logits = {};  ///< [batch, time]; of the last step
  double per_second = 0;
};

/// Continues the prompt by kNew tokens: `next` returns the logits from all tokens, or from the new ones.
template <class Next>
Run timed(const esp::Variable& prompt, bool whole, Next next) {
  const esp::NoGrad no_grad;
  const auto start = std::chrono::steady_clock::now();
  Run run{.tokens = prompt};
  for (int64_t i = 0; i < kNew; ++i) {
    run.logits = next(whole || i == 0 ? run.tokens : run.tokens[{esp::range(), esp::range(-1, esp::end)}]);
    run.tokens = esp::concat({run.tokens, best(run.logits)}, 1);
  }
  (void)run.tokens.value();
  const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - start;
  run.per_second = static_cast<double>(kNew * prompt.shape()[0]) / passed.count();
  return run;
}

int main() {
  esp::set_num_threads(1);  // figures are those of one core
  esp::seed(1);
  Gpt gpt;
  gpt.train(false);
  int64_t count = 0;
  for (const auto& [name, p] : gpt.parameters()) count += p.shape().elements();
  std::cout << count << " parameters, a prompt of " << kPrompt << " tokens, " << kNew << " new ones\n";

  const auto cached = [&](const esp::Variable& prompt) {
    KvCaches caches;
    return timed(prompt, false, [&](const esp::Variable& x) { return gpt.step(x, caches); });
  };
  const esp::Variable prompt = esp::randint(0, kTokens, {1, kPrompt});
  const Run with = cached(prompt);
  const Run without = timed(prompt, true, [&](const esp::Variable& x) { return gpt(x); });
  const Run eight = cached(esp::randint(0, kTokens, {8, kPrompt}));
  std::cout << "without caches           " << without.per_second << " tokens/s\n"
            << "with caches              " << with.per_second << " tokens/s\n"
            << "with caches, 8 sequences " << eight.per_second << " tokens/s\n";

  // What the caches gave is what the whole sequence gives.
  const esp::Variable whole = gpt(with.tokens[{esp::range(), esp::range(0, -1)}])[{esp::range(), -1}];
  const double difference = esp::max(esp::abs(whole - with.logits[{esp::range(), -1}])).item();
  std::cout << "largest difference of the last logits " << difference << "\n";
  return difference < 1e-3 ? 0 : 1;
}
