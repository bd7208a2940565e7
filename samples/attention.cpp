// A small transformer sorts digits: for each place of the output it attends to the places of the input.
// Vaswani and others, Attention is all you need, 2017.
#include <espalier/espalier.h>

#include <cmath>
#include <iostream>
namespace esp = espalier;
using namespace espalier::nn;

constexpr int64_t kLength = 8, kDigits = 10, kWidth = 32, kHeads = 4;

/// softmax(q kᵀ / √width) v, for each head. x [batch, length, width].
struct Attention : Module {
  esp::Variable operator()(const esp::Variable& x) {
    const auto heads = [&](const Dense& projection) {  // [batch, length, heads, width of a head]
      return esp::unflatten(projection(x), -1, {kHeads, kWidth / kHeads});
    };
    const esp::Variable scores = esp::einsum("bqhd,bkhd->bhqk", {heads(query), heads(key)});
    weights = esp::softmax(scores / std::sqrt(static_cast<double>(kWidth) / kHeads));
    return out(esp::flatten(esp::einsum("bhqk,bkhd->bqhd", {weights, heads(value)}), 2));
  }
  Dense query = add("query", Dense(kWidth, kWidth)), key = add("key", Dense(kWidth, kWidth));
  Dense value = add("value", Dense(kWidth, kWidth)), out = add("out", Dense(kWidth, kWidth));
  esp::Variable weights;  // of the last call
};

struct Block : Module {
  esp::Variable operator()(const esp::Variable& x) {
    const esp::Variable y = x + attention(norm1(x));
    return y + mlp(norm2(y));
  }
  LayerNorm norm1 = add("norm1", LayerNorm(kWidth)), norm2 = add("norm2", LayerNorm(kWidth));
  Attention attention = add("attention", Attention());
  Sequential mlp = add("mlp", Sequential{Dense(kWidth, 4 * kWidth), Gelu(), Dense(4 * kWidth, kWidth)});
};

struct Sorter : Module {
  /// digits [batch, length] to logits [batch, length, digits].
  esp::Variable operator()(const esp::Variable& digits) {
    return out(norm(second(first(embedding(digits) + places))));
  }
  Embedding embedding = add("embedding", Embedding(kDigits, kWidth));
  esp::Variable places = add_parameter("places", esp::randn({kLength, kWidth}));
  Block first = add("first", Block()), second = add("second", Block());
  LayerNorm norm = add("norm", LayerNorm(kWidth));
  Dense out = add("out", Dense(kWidth, kDigits));
};

int main() {
  esp::seed(1);
  const esp::Tensor train = esp::randint(0, kDigits, {4096, kLength}),
                    test = esp::randint(0, kDigits, {512, kLength});
  auto sorted = [](const esp::Tensor& digits) { return esp::sort(digits).values.value(); };

  Sorter sorter;
  const esp::History history = esp::fit(
      sorter, SoftmaxCrossEntropy(), {train, sorted(train)},
      {.optimizer = esp::optim::AdamW(
           {.lr = 3e-3, .clip_norm = 1, .schedule = esp::optim::cosine({.steps = 192, .warm_up = 20})}),
       .epochs = 3,
       .batch_size = 64,
       .validation = {test, sorted(test)},
       .metrics = {{"accuracy", esp::accuracy}},
       .progress = false});
  for (const auto& epoch : history.epochs)
    std::cout << "loss " << epoch.loss_mean << ", right places of unseen rows "
              << epoch.validation_outputs.at("accuracy") << "\n";

  const esp::Tensor row = esp::tensor({{3, 1, 4, 1, 5, 9, 2, 6}});
  std::cout << row << " sorted: " << esp::argmax(sorter(row), 2)
            << "\nplaces that the heads of the second block look at, for the first place of the output:\n"
            << esp::argmax(sorter.second.attention.weights, 3)[{0, esp::range(), 0}] << "\n";
  return history.epochs.back().validation_outputs.at("accuracy") > 0.95 ? 0 : 1;
}
