// A recurrent network reads the names of numbers letter by letter, and learns to make such names.
#include <espalier/espalier.h>

#include <iostream>
#include <iterator>
#include <set>
#include <sstream>
#include <string>
#include <vector>
namespace esp = espalier;
using namespace espalier::nn;

constexpr int64_t kLetters = 28, kWidth = 64, kLongest = 14;  // the end is 0, '-' is 27

/// All names but "zero".
std::vector<std::string> names() {
  std::istringstream small("one two three four five six seven eight nine ten eleven twelve");
  std::vector<std::string> all{std::istream_iterator<std::string>(small), {}};
  for (const std::string x : {"thir", "four", "fif", "six", "seven", "eigh", "nine"})
    all.push_back(x + "teen");
  for (const std::string tens : {"twen", "thir", "for", "fif", "six", "seven", "eigh", "nine"}) {
    all.push_back(tens + "ty");
    for (size_t unit = 0; unit < 9; ++unit) all.push_back(tens + "ty-" + all[unit]);
  }
  return all;
}

struct Writer : Module {
  Embedding embedding = add("embedding", Embedding(kLetters, kWidth));
  GRUCell cell = add("cell", GRUCell(kWidth, kWidth));
  Dense out = add("out", Dense(kLetters));
};

int main() {
  esp::seed(1);
  // Every seventh name is kept from the network. A row is a name, filled up with ends.
  std::vector<int64_t> letters;
  std::set<std::string> read, kept;
  for (int i = 1; const std::string& name : names()) {
    if (i++ % 7 == 0 && kept.insert(name).second) continue;
    read.insert(name);
    for (const char letter : name) letters.push_back(letter == '-' ? 27 : letter - 'a' + 1);
    letters.resize(read.size() * kLongest, 0);
  }
  const esp::Tensor rows = esp::tensor_from(letters, {static_cast<int64_t>(read.size()), kLongest});

  // Each letter is predicted from those before it. The executor freezes the tree that this loop writes.
  Writer writer;
  esp::data::Distributor feed({rows}, {.batch_size = 32, .shuffle = true});
  const auto [batch] = feed.get_output_graphs<1>();
  esp::Variable before = esp::zeros_like(batch[{esp::range(), 0}]);
  esp::Variable h = esp::zeros_like(writer.embedding(before)), loss = 0;
  for (int64_t place = 0; place < kLongest; ++place) {
    h = writer.cell(writer.embedding(before), h);
    before = batch[{esp::range(), place}];
    loss += SoftmaxCrossEntropy()(writer.out(h), before);
  }
  const auto executor = loss.get_executor({.optimizer = esp::optim::Adam({.lr = 5e-3, .clip_norm = 5})});
  const auto epochs = executor.execute({.epochs = 150, .progress = false}).epochs;
  std::cout << "loss " << epochs.front().loss_mean << " to " << epochs.back().loss_mean << "\n";

  const esp::NoGrad no_grad;  // 200 names are drawn at once, letter by letter
  std::vector<std::string> drawn(200);
  esp::Variable last = esp::zeros({200}, esp::int64), memory = esp::zeros({200, kWidth});
  for (int64_t place = 0; place < kLongest; ++place) {
    memory = writer.cell(writer.embedding(last), memory);
    last = esp::categorical(writer.out(memory));
    for (size_t i = 0; i < drawn.size(); ++i)
      drawn[i] += " abcdefghijklmnopqrstuvwxyz-"[last.value().span<int64_t>()[i]];
  }
  int known = 0, made = 0;
  for (std::string& name : drawn) {
    name.resize(std::min(name.size(), name.find(' ')));
    known += read.contains(name), made += kept.contains(name);
  }
  std::cout << "of 200 drawn names, such as " << drawn[0] << " and " << drawn[1] << ", " << known
            << " were read, and " << made << " are names of numbers that were not\n";
  return known + made > 160 && made > 0 ? 0 : 1;
}
