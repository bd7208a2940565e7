// A model of a text, character by character, and what it writes after training.
//   character_model [lstm | transformer] [text]
// The text is by default the GNU General Public License, which every Debian machine has.
#include <espalier/espalier.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iostream>
#include <iterator>
#include <string>
#include <vector>
namespace esp = espalier;
using namespace espalier::nn;

constexpr int64_t kWindow = 128, kWidth = 128;

struct LstmModel : Module {
  explicit LstmModel(int64_t characters)
      : embedding(add("embedding", Embedding(characters, kWidth))),
        lstm(add("lstm", Lstm(kWidth, 2 * kWidth, {.batch_first = true}))),
        out(add("out", Dense(2 * kWidth, characters))) {}

  /// Characters [batch, time] to the logits of what follows each, [batch, time, characters].
  esp::Variable operator()(const esp::Variable& x) const { return out(lstm(embedding(x)).outputs); }

  /// For `generate`. The states of the LSTM are [1, sequences, width], those of decoding have sequences
  /// first.
  Decoding begin(int64_t sequences) const {
    const auto step = [this](const esp::Variable& last, const DecodingState& state) -> NextTokens {
      const auto [y, next] = lstm(embedding(esp::unsqueeze(last, 1)),
                                  LSTMState{esp::unsqueeze(state[0], 0), esp::unsqueeze(state[1], 0)});
      return {out(esp::squeeze(y, 1)), {esp::squeeze(next.h, 0), esp::squeeze(next.c, 0)}};
    };
    const esp::Tensor zeros = esp::zeros({sequences, 2 * kWidth});
    return {step, {zeros, zeros}};
  }

  Embedding embedding;
  Lstm lstm;
  Dense out;
};

struct TransformerModel : Module {
  explicit TransformerModel(int64_t characters)
      : embedding(add("embedding", Embedding(characters, kWidth))),
        layers(add("layers", TransformerEncoder(2, kWidth, 4,
                                                {.feedforward = 4 * kWidth,
                                                 .dropout = 0,
                                                 .activation = [](auto& x) { return esp::gelu(x); },
                                                 .norm_first = true,
                                                 .rotary = RotaryOptions{}},
                                                true))),
        out(add("out", Dense(kWidth, characters))) {}

  esp::Variable operator()(const esp::Variable& x) const {
    return out(layers(embedding(x), {.causal = true}));
  }

  Decoding begin(int64_t sequences) const {
    const auto model = [this](const esp::Variable& last, KvCaches& caches) {
      return esp::squeeze(out(layers.step(embedding(last), caches)), 1);
    };
    return with_caches(model, {}, sequences);
  }

  Embedding embedding;
  TransformerEncoder layers;
  Dense out;
};

/// Each character as its position in `alphabet`, int64 [characters].
esp::Tensor encoded(const std::string& text, const std::string& alphabet) {
  std::vector<int64_t> positions;
  for (const char c : text) positions.push_back(static_cast<int64_t>(alphabet.find(c)));
  return esp::tensor_from(positions, {static_cast<int64_t>(positions.size())});
}

/// Windows [rows, kWindow + 1] that begin every `stride` characters.
esp::Tensor windows(const esp::Tensor& text, int64_t stride) {
  std::vector<esp::Variable> rows;
  for (int64_t at = 0; at + kWindow < text.elements(); at += stride)
    rows.push_back(text.slice(0, at, at + kWindow + 1));
  return esp::stack(rows).value();
}

template <class Model>
int run(const esp::Tensor& text, const std::string& alphabet) {
  Model model(static_cast<int64_t>(alphabet.size()));
  // The last tenth of the text is for validation. Each window predicts its characters from those before them.
  const int64_t learn = text.elements() * 9 / 10;
  const esp::data::Distributor feed({windows(text.slice(0, 0, learn), kWindow / 2)},
                                    {.batch_size = 8, .shuffle = true});
  const esp::data::Distributor rest({windows(text.slice(0, learn, text.elements()), kWindow)},
                                    {.batch_size = 8});
  const auto [window] = feed.get_output_graphs<1>();
  const esp::Variable loss = SoftmaxCrossEntropy()(model(window[{esp::range(), esp::range(0, kWindow)}]),
                                                   window[{esp::range(), esp::range(1, esp::end)}]);
  auto executor =
      loss.get_executor({.optimizer = esp::optim::AdamW({.lr = 4e-3, .clip_norm = 1}), .validation = rest});
  executor.on(esp::Event::epoch_finish, [](const esp::StepInfo& info) {
    std::cout << "epoch " << info.epoch + 1 << ": perplexity " << std::exp(info.loss)
              << ", of the last tenth " << std::exp(info.validation_loss) << std::endl;
  });
  const auto epochs = executor.execute({.epochs = 5, .progress = false}).epochs;

  // The transformer has learned to look back by a window, so it is not asked for more.
  model.train(false);
  const auto first = static_cast<int64_t>(alphabet.find('\n'));
  const auto [step, state] = model.begin(2);
  const auto written =
      generate(step, {first, first}, state,
               {.most_tokens = kWindow, .sampling = esp::TokenSampling{.temperature = 0.7, .top_p = 0.95}});
  for (const auto& characters : written) {
    std::cout << "--------\n";
    for (const int64_t c : characters) std::cout << alphabet[static_cast<size_t>(c)];
    std::cout << "\n";
  }
  return epochs.back().validation_loss < 0.9 * epochs.front().validation_loss ? 0 : 1;
}

int main(int argc, char** argv) try {
  const std::string kind = argc > 1 ? argv[1] : "lstm";
  const std::string path = argc > 2 ? argv[2] : "/usr/share/common-licenses/GPL-3";
  std::ifstream file(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  if (text.size() < 10 * (kWindow + 1) || text.find('\n') == std::string::npos) {
    std::cerr << path << " is not a text of some hundred characters in lines; "
              << "usage: character_model [lstm | transformer] [text]\n";
    return 2;
  }
  std::string alphabet = text;
  std::ranges::sort(alphabet);
  alphabet.erase(std::ranges::unique(alphabet).begin(), alphabet.end());
  std::cout << text.size() << " characters, " << alphabet.size() << " different ones\n";

  esp::set_num_threads(1);  // the products are small
  esp::seed(1);
  if (kind == "lstm") return run<LstmModel>(encoded(text, alphabet), alphabet);
  if (kind == "transformer") return run<TransformerModel>(encoded(text, alphabet), alphabet);
  std::cerr << "there is no model '" << kind << "'; usage: character_model [lstm | transformer] [text]\n";
  return 2;
} catch (const esp::Error& error) {
  std::cerr << error.what() << "\n";
  return 1;
}
