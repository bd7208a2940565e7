// A step of a skip-gram network, whose two tables have 1,000 or 50,000 rows of 100 columns: the batch looks
// up 256 rows and 256 · 6. Frozen and eagerly, for optimizers that change the rows of a step alone; "dense"
// reads the tables in a way whose gradient is a whole table.
//   bench_embedding [rounds]
#include <espalier/espalier.h>

#include <functional>

#include "timing.h"
namespace esp = espalier;

namespace {

constexpr int64_t kWidth = 100, kBatch = 256, kWords = 6;

using Step = std::function<void()>;

struct SkipGram {
  SkipGram(int64_t rows, bool dense)
      : centers((esp::randn({rows, kWidth}) * 0.01f).value()),
        words((esp::randn({rows, kWidth}) * 0.01f).value()) {
    const esp::Variable in = esp::parameter(centers), out = esp::parameter(words);
    const auto look_up = [dense](const esp::Variable& table, const esp::Variable& at) {
      return esp::gather(dense ? table * 1.0f : table, at);
    };
    tree = [=](const esp::Variable& center, const esp::Variable& word, const esp::Variable& label) {
      const esp::Variable a = esp::unsqueeze(look_up(in, center), 2), b = look_up(out, word);
      return esp::softmax_cross_entropy(esp::squeeze(esp::matmul(b, a), {2}), label);
    };
    center = esp::Tensor({kBatch}, esp::int64);
    word = esp::Tensor({kBatch, kWords}, esp::int64);
    for (int64_t i = 0; i < kBatch; ++i) {
      center.at<int64_t>({i}) = i * 7919 % rows;
      for (int64_t k = 0; k < kWords; ++k) word.at<int64_t>({i, k}) = (i * kWords + k) * 104729 % rows;
    }
    label = esp::zeros({kBatch}, esp::int64);  // the first word is the right one
  }

  /// One step of the executor.
  Step frozen(const esp::optim::Optimizer& optimizer) const {
    const esp::Variable c = esp::placeholder("center", center.shape(), esp::int64),
                        w = esp::placeholder("word", word.shape(), esp::int64),
                        l = esp::placeholder("label", label.shape(), esp::int64);
    const auto executor = tree(c, w, l).get_executor({.mode = esp::Mode::training, .optimizer = optimizer});
    return [=, this] { (void)executor.run({{"center", center}, {"word", word}, {"label", label}}); };
  }
  Step eagerly(const esp::optim::Optimizer& optimizer) const {
    const esp::Variable c(center), w(word), l(label);
    return [=, this] { tree(c, w, l).update(optimizer); };
  }

  esp::Tensor centers, words, center, word, label;
  std::function<esp::Variable(const esp::Variable&, const esp::Variable&, const esp::Variable&)> tree;
};

/// Medians of both, which take turns of ten steps: other load on the machine affects them alike, and each
/// finds the caches as it has left them.
void compare(const std::string& name, const Step& few_rows, const Step& many_rows, const Step& whole,
             int steps) {
  std::vector<double> few, many;
  for (int turn = 0; turn < std::max(1, steps / 10); ++turn)
    for (auto& [step, times] : {std::pair(&few_rows, &few), std::pair(&many_rows, &many)}) {
      (*step)();
      for (int i = 0; i < 10; ++i) times->push_back(bench::seconds(*step));
    }
  const double of_few = bench::median(few), of_many = bench::median(many);
  bench::report(name + "_1k_ms", of_few * 1e3);
  bench::report(name + "_50k_ms", of_many * 1e3);
  bench::report(name + "_50k/1k", of_many / of_few);
  bench::report(name + "_dense_50k_ms", bench::median_seconds(std::max(3, steps / 20), whole) * 1e3);
}

}  // namespace

int main(int argc, char** argv) {
  esp::set_num_threads(bench::threads());
  esp::seed(1);
  const int steps = 20 * bench::rounds(argc, argv);
  const std::vector<std::pair<std::string, std::function<esp::optim::Optimizer()>>> optimizers = {
      {"sgd", [] { return esp::optim::Sgd(0.1); }},
      {"adagrad", [] { return esp::optim::Adagrad(0.1); }},
      {"sparse_adam", [] { return esp::optim::Adam({.sparse = true}); }},
      {"sparse_momentum", [] { return esp::optim::Sgd({.lr = 0.1, .momentum = 0.9, .sparse = true}); }},
      {"sparse_adamw", [] { return esp::optim::AdamW({.sparse = true}); }},
      {"sparse_rms_prop", [] { return esp::optim::RmsProp({.sparse = true}); }},
      {"sparse_adadelta", [] { return esp::optim::Adadelta({.sparse = true}); }},
      {"sparse_adamax", [] { return esp::optim::Adamax({.sparse = true}); }},
      {"sparse_nadam", [] { return esp::optim::NAdam({.sparse = true}); }},
      {"sparse_radam", [] { return esp::optim::RAdam({.sparse = true}); }},
      {"sparse_lion", [] { return esp::optim::Lion({.sparse = true}); }},
      {"sparse_rprop", [] { return esp::optim::Rprop({.sparse = true}); }}};
  const SkipGram small(1000, false), large(50000, false), dense(50000, true);
  for (const auto& [name, make] : optimizers) {
    compare("embedding_" + name, small.frozen(make()), large.frozen(make()), dense.frozen(make()), steps);
    const esp::optim::Optimizer few = make(), many = make(), whole = make();
    compare("embedding_" + name + "_eager", small.eagerly(few), large.eagerly(many), dense.eagerly(whole),
            steps);
  }
}
