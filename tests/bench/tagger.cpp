// bench_tagger [eager|deferred|packed|executor] [rounds]: training a bidirectional LSTM that tags words:
// vocabulary 5,000, embedding 128, hidden 50 for each direction, a layer of 32, 20 tags, sentences of 5 to 40
// words in batches of 16, Sgd; one thread. Words a second, in processor time, since other programs may run.
// `eager` computes sentence by sentence, `deferred` word by word by cells, `packed` a batch of packed
// sentences, and `executor` padded batches of sentences of alike lengths: its backward recurrence reads the
// padding, of which the loss takes nothing. peer/tagger.cpp, peer/pytorch/tagger.py and peer/dynet/tagger.py
// are the same in libtorch, PyTorch and DyNet.
#include <espalier/espalier.h>

#include <cstring>
#include <ctime>
#include <optional>
#include <random>

#include "timing.h"
namespace esp = espalier;
using namespace esp::nn;

namespace {

constexpr int64_t kVocabulary = 5000, kEmbedding = 128, kHidden = 50, kMlp = 32, kTags = 20;
constexpr size_t kSentences = 256, kBatch = 16;
constexpr int64_t kPadding = -1;  // a label that does not count

struct Corpus {
  std::vector<esp::Tensor> words, tags;  // of each sentence, int64 [length]
  std::vector<int64_t> lengths;
  int64_t count = 0;
};

Corpus corpus() {
  std::mt19937 random(1);
  Corpus all;
  for (size_t i = 0; i < kSentences; ++i) {
    const int64_t length = 5 + static_cast<int64_t>(random() % 36);
    all.words.push_back(esp::randint(0, kVocabulary, {length}));
    all.tags.push_back(esp::randint(0, kTags, {length}));
    all.lengths.push_back(length);
    all.count += length;
  }
  return all;
}

struct Tagger : Module {
  /// Outputs of the recurrence [..., 2 · kHidden] to the sum of the losses of the words.
  esp::Variable loss(const esp::Variable& y, const esp::Variable& tags,
                     std::optional<int64_t> padding = std::nullopt) const {
    return esp::softmax_cross_entropy(out(esp::tanh(mlp(y))), tags,
                                      {.ignored_label = padding, .reduction = esp::LossReduction::sum});
  }
  Embedding embedding = add("embedding", Embedding(kVocabulary, kEmbedding));
  Lstm lstm = add("lstm", Lstm(kEmbedding, kHidden, {.bidirectional = true}));
  LSTMCell forward = add("forward", LSTMCell(kEmbedding, kHidden));
  LSTMCell backward = add("backward", LSTMCell(kEmbedding, kHidden));
  Dense mlp = add("mlp", Dense(2 * kHidden, kMlp)), out = add("out", Dense(kMlp, kTags));
};

/// One sentence, all words of a direction in one op.
esp::Variable sentence_loss(const Tagger& net, const esp::Tensor& words, const esp::Tensor& tags) {
  return net.loss(net.lstm(net.embedding(esp::unsqueeze(words, 1))).outputs, esp::unsqueeze(tags, 1));
}
/// Word by word.
esp::Variable cells_loss(const Tagger& net, const esp::Tensor& words, const esp::Tensor& tags) {
  const int64_t length = words.elements();
  std::vector<esp::Variable> x, y(static_cast<size_t>(length)), losses;
  for (int64_t t = 0; t < length; ++t) x.push_back(net.embedding(words.slice(0, t, t + 1)));
  LSTMState state = net.backward(x.back());
  for (size_t t = x.size(); t-- > 0;) {
    if (t + 1 < x.size()) state = net.backward(x[t], state);
    y[t] = state.h;
  }
  state = net.forward(x[0]);
  for (size_t t = 0; t < x.size(); ++t) {
    if (t > 0) state = net.forward(x[t], state);
    const auto at = static_cast<int64_t>(t);
    losses.push_back(net.loss(esp::concat({state.h, y[t]}, 1), tags.slice(0, at, at + 1)));
  }
  return esp::sum(esp::stack(losses));
}

template <auto LossOfSentence>
esp::Variable batch_loss(const Tagger& net, const Corpus& all, size_t first) {
  std::vector<esp::Variable> losses;
  for (size_t i = first; i < first + kBatch; ++i)
    losses.push_back(LossOfSentence(net, all.words[i], all.tags[i]));
  return esp::sum(esp::stack(losses));
}

esp::Variable packed_loss(const Tagger& net, const Corpus& all, size_t first) {
  const auto from = static_cast<std::ptrdiff_t>(first), to = from + static_cast<std::ptrdiff_t>(kBatch);
  const auto part = [&](const std::vector<esp::Tensor>& rows) {
    return esp::data::pack({rows.begin() + from, rows.begin() + to});
  };
  const esp::data::PackedSequence words = part(all.words);
  return net.loss(net.lstm(words.with(net.embedding(words.data))).outputs.data, part(all.tags).data);
}

/// Trains an epoch by a function that writes the loss of the batch from a sentence on.
template <class Loss>
std::function<void()> epoch_of(Loss loss) {
  return [loss, all = corpus(), net = Tagger(), sgd = esp::optim::Sgd(1e-3)] {
    for (size_t first = 0; first < kSentences; first += kBatch) {
      const esp::Variable sum = loss(net, all, first);
      sum.backward().update(sgd);
      (void)sum.item();
    }
  };
}

std::function<void()> frozen() {
  const Corpus all = corpus();
  constexpr auto rows = static_cast<int64_t>(kSentences), batch = static_cast<int64_t>(kBatch);
  const esp::data::Distributor feed(
      esp::data::by_length(esp::data::padded({all.words, all.tags}, {.values = {0, kPadding}}),
                           esp::tensor_from(all.lengths, {rows}), {.batch_size = batch}),
      {.batch_size = batch});
  const auto [words, tags] = feed.get_output_graphs<2>();
  const Tagger net;
  const esp::Variable outputs = net.lstm(net.embedding(esp::transpose(words))).outputs;
  const esp::Variable loss = net.loss(outputs, esp::transpose(tags), kPadding);
  return [feed, executor = loss.get_executor({.optimizer = esp::optim::Sgd(1e-3)})] {
    (void)executor.execute({.epochs = 1, .progress = false});
  };
}

void report(const std::string& contestant, int rounds, const std::function<void()>& epoch) {
  epoch();
  std::vector<double> times;
  for (int round = 0; round < rounds; ++round) {
    const std::clock_t start = std::clock();
    epoch();
    times.push_back(static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC);
  }
  bench::report("tagger_" + contestant + "_words_per_s",
                static_cast<double>(corpus().count) / bench::median(times));
}

}  // namespace

int main(int argc, char** argv) {
  esp::set_num_threads(1);
  esp::seed(1);
  const int rounds = bench::rounds(argc, argv);
  const auto wanted = [&](const char* name) {
    return argc < 2 || std::atoi(argv[1]) > 0 || std::strcmp(argv[1], name) == 0;
  };
  if (wanted("eager")) report("eager", rounds, epoch_of(batch_loss<sentence_loss>));
  if (wanted("deferred")) {
    const esp::Deferred deferred;
    report("deferred", rounds, epoch_of(batch_loss<cells_loss>));
  }
  if (wanted("packed")) report("packed", rounds, epoch_of(packed_loss));
  if (wanted("executor")) report("executor", rounds, frozen());
}
