// torch_tagger [rounds]: the tagger of ../tagger.cpp in libtorch, on packed batches of sentences. Prints
// words a second, in processor time of one thread.
#include <torch/torch.h>

#include <random>
#include <tuple>
#include <vector>

#include "../timing.h"

namespace {

constexpr int64_t kVocabulary = 5000, kEmbedding = 128, kHidden = 50, kMlp = 32, kTags = 20;
constexpr size_t kSentences = 256, kBatch = 16;

using Sequences = std::vector<torch::Tensor>;
using torch::nn::utils::rnn::PackedSequence;

struct TaggerImpl : torch::nn::Module {
  torch::Tensor forward(const PackedSequence& words) {
    const PackedSequence x(embedding(words.data()), words.batch_sizes(), words.sorted_indices(),
                           words.unsorted_indices());
    return out(torch::tanh(mlp(std::get<0>(lstm->forward_with_packed_input(x)).data())));
  }
  torch::nn::Embedding embedding =
      register_module("embedding", torch::nn::Embedding(kVocabulary, kEmbedding));
  torch::nn::LSTM lstm = register_module(
      "lstm", torch::nn::LSTM(torch::nn::LSTMOptions(kEmbedding, kHidden).bidirectional(true)));
  torch::nn::Linear mlp = register_module("mlp", torch::nn::Linear(2 * kHidden, kMlp));
  torch::nn::Linear out = register_module("out", torch::nn::Linear(kMlp, kTags));
};
TORCH_MODULE(Tagger);

PackedSequence packed(const Sequences& rows, size_t first) {
  return torch::nn::utils::rnn::pack_sequence(torch::ArrayRef<torch::Tensor>(rows).slice(first, kBatch),
                                              /*enforce_sorted=*/false);
}

}  // namespace

int main(int argc, char** argv) {
  torch::set_num_threads(1);
  torch::manual_seed(1);
  std::mt19937 random(1);
  Sequences words, tags;
  int64_t count = 0;
  for (size_t i = 0; i < kSentences; ++i) {
    const int64_t length = 5 + static_cast<int64_t>(random() % 36);
    words.push_back(torch::randint(kVocabulary, {length}, torch::kLong));
    tags.push_back(torch::randint(kTags, {length}, torch::kLong));
    count += length;
  }
  Tagger net;
  const std::vector<torch::Tensor> parameters = net->parameters();
  torch::optim::SGD sgd(parameters, 1e-3);
  const auto options = torch::nn::functional::CrossEntropyFuncOptions().reduction(torch::kSum);
  const auto epoch = [&] {
    for (size_t first = 0; first < kSentences; first += kBatch) {
      for (const torch::Tensor& parameter : parameters) parameter.mutable_grad().reset();
      const torch::Tensor loss = torch::nn::functional::cross_entropy(net->forward(packed(words, first)),
                                                                      packed(tags, first).data(), options);
      loss.backward();
      sgd.step();
      (void)loss.item<float>();
    }
  };
  epoch();
  std::vector<double> times;
  for (int round = bench::rounds(argc, argv); round > 0; --round) {
    const double start = bench::processor_seconds();
    epoch();
    times.push_back(bench::processor_seconds() - start);
  }
  bench::report("tagger_torch_words_per_s", static_cast<double>(count) / bench::median(times));
}
