// Finds the part of speech of each word of a sentence by a bidirectional LSTM and a conditional random field.
// Words such as "watch" are nouns and verbs, and only their neighbours tell. Huang, Xu and Yu, Bidirectional
// LSTM-CRF models for sequence tagging, 2015.
#include <espalier/espalier.h>

#include <array>
#include <iostream>
#include <iterator>
#include <map>
#include <random>
#include <sstream>
#include <string>
#include <vector>
namespace esp = espalier;
using namespace espalier::nn;

constexpr int64_t kLongest = 26;  // words of a sentence
enum Tag { kDeterminer, kAdjective, kNoun, kVerb, kPreposition, kPronoun, kAdverb };
constexpr int64_t kTags = 7;
const std::array<std::string, kTags> kNames{"determiner",  "adjective", "noun",  "verb",
                                            "preposition", "pronoun",   "adverb"};
const std::array<std::string, kTags> kWords{
    "the a every this that",
    "light quick old plain fast clean open last warm empty",
    "watch light guide plant record train rest cook dog river",
    "watch light guide plant record train rest cook clean open empty last",
    "in on near by past",
    "they we you this that",
    "fast often now past last"};

struct Sentence {
  std::vector<std::string> words;
  std::vector<int64_t> tags;
};

/// sentence: subject verb (object) (preposition object) (adverb).
class Grammar {
 public:
  explicit Grammar(unsigned seed) : random_(seed) {}
  Sentence sentence() {
    sentence_ = {};
    noun_phrase();
    if (chance(0.2)) add(kPreposition), noun_phrase();
    if (chance(0.2)) add(kAdverb);
    add(kVerb);
    if (chance(0.7)) noun_phrase();
    for (int i = 0; i < 2; ++i)
      if (chance(0.4)) add(kPreposition), noun_phrase();
    if (chance(0.3)) add(kAdverb);
    return sentence_;
  }

 private:
  bool chance(double p) { return std::bernoulli_distribution(p)(random_); }
  void noun_phrase() {
    if (chance(0.25)) return add(kPronoun);
    add(kDeterminer);
    for (int i = 0; i < 2; ++i)
      if (chance(0.3)) add(kAdjective);
    add(kNoun);
  }
  void add(Tag tag) {
    std::istringstream words(kWords[tag]);
    const std::vector<std::string> all{std::istream_iterator<std::string>(words), {}};
    sentence_.words.push_back(all[random_() % all.size()]);
    sentence_.tags.push_back(tag);
  }
  std::mt19937 random_;
  Sentence sentence_;
};

struct Tagger : Module {
  explicit Tagger(int64_t words) : embedding(add("embedding", Embedding(words, 32))) {}
  /// Words [batch, steps] to the scores of their tags, [batch, steps, kTags].
  esp::Variable operator()(const esp::Variable& words) const { return out(lstm(embedding(words)).outputs); }

  Embedding embedding;
  Lstm lstm = add("lstm", Lstm(32, 32, {.bidirectional = true, .batch_first = true}));
  Dense out = add("out", Dense(64, kTags));
  Crf crf = add("crf", Crf(kTags));
};

struct Sentences {
  esp::Tensor words, tags;  // int64 [sentences, kLongest], filled up by 0
  esp::Tensor mask;         // bool, the same: whether there is a word
};

/// Words get their numbers in `numbers`, from 1 on.
Sentences rows_of(const std::vector<Sentence>& sentences, std::map<std::string, int64_t>& numbers) {
  std::vector<int64_t> words, tags, lengths;
  for (const Sentence& sentence : sentences) {
    for (const std::string& word : sentence.words)
      words.push_back(numbers.try_emplace(word, static_cast<int64_t>(numbers.size()) + 1).first->second);
    tags.insert(tags.end(), sentence.tags.begin(), sentence.tags.end());
    lengths.push_back(static_cast<int64_t>(sentence.words.size()));
    words.resize(lengths.size() * kLongest, 0);
    tags.resize(lengths.size() * kLongest, 0);
  }
  const auto count = static_cast<int64_t>(sentences.size());
  const esp::Variable places = esp::arange(0, kLongest, 1, esp::int64);
  return {esp::tensor_from(words, {count, kLongest}), esp::tensor_from(tags, {count, kLongest}),
          (places < esp::tensor_from(lengths, {count, 1})).value()};
}

/// The share of the words of `rows` whose tags are right.
double share(const esp::Variable& found, const Sentences& rows) {
  const esp::Variable right = esp::equal(found, rows.tags) && rows.mask;
  return esp::sum(right.cast(esp::float32)).item() / esp::count_nonzero(rows.mask).item();
}

int main() {
  esp::set_num_threads(1);  // the products are small
  esp::seed(1);
  Grammar grammar(1);
  std::vector<Sentence> read(2000), unseen(500);
  for (Sentence& sentence : read) sentence = grammar.sentence();
  for (Sentence& sentence : unseen) sentence = grammar.sentence();
  std::map<std::string, int64_t> numbers;
  const Sentences learn = rows_of(read, numbers), test = rows_of(unseen, numbers);

  Tagger tagger(static_cast<int64_t>(numbers.size()) + 1);
  const esp::data::Distributor feed({learn.words, learn.tags, learn.mask},
                                    {.batch_size = 32, .shuffle = true});
  const auto [words, tags, mask] = feed.get_output_graphs<3>();
  const esp::Variable loss = -esp::mean(tagger.crf.log_likelihood(tagger(words), tags, mask));
  const auto executor = loss.get_executor({.optimizer = esp::optim::Adam({.lr = 5e-3, .clip_norm = 5})});
  const auto epochs = executor.execute({.epochs = 8, .progress = false}).epochs;
  std::cout << "loss " << epochs.front().loss_mean << " to " << epochs.back().loss_mean << "\n";

  // Without the context: the tag that each word has most often.
  const esp::NoGrad no_grad;
  esp::Variable counts = esp::zeros({static_cast<int64_t>(numbers.size()) + 1, kTags});
  counts =
      esp::scatter_nd_add(counts, esp::stack({learn.words, learn.tags}, -1), learn.mask.to(esp::float32));
  const double alone = share(esp::argmax(counts[test.words], 2), test);

  const esp::Variable found = tagger.crf.decode(tagger(test.words), test.mask);
  const double accuracy = share(found, test);
  for (size_t i = 0; i < unseen[0].words.size(); ++i)
    std::cout << unseen[0].words[i] << "/" << kNames[static_cast<size_t>(found.value().span<int64_t>()[i])]
              << " ";
  std::cout << "\nof the words of unseen sentences " << alone
            << " get the right tag by their most frequent one, " << accuracy << " by their context\n";
  return accuracy > 0.95 ? 0 : 1;
}
