// Programs made of basic operations and layers: a convolution, a transformer, vectors of words, a table of
// prices, and trees of cells.
#include <boost/test/unit_test.hpp>

#include <fstream>

#include "attention_block.h"
#include "espalier/espalier.h"
#include "temporary_folder.h"
#include "training_task.h"

namespace esp = espalier;
namespace nn = espalier::nn;
namespace optim = espalier::optim;
using namespace espalier::testing;
using esp::Tensor;
using esp::Variable;

namespace {

constexpr int64_t rows = 20, side = 8;

/// x [rows, height, width, channels] from (top, left) on.
Variable window(const Variable& x, int64_t top, int64_t left, int64_t height, int64_t width) {
  return esp::slice(esp::slice(x, 1, top, top + height), 2, left, left + width);
}

/// The convolution with w [size · size · channels, filters]: as a product of all patches with w, or as a sum
/// of products of shifted images with parts of w.
Variable convolution(const Variable& x, const Variable& w, int64_t size, bool patches) {
  const int64_t height = x.shape()[1] - size + 1, width = x.shape()[2] - size + 1, channels = x.shape()[3];
  Variables columns;
  Variable sum;
  for (int64_t place = 0; place < size * size; ++place) {
    columns.push_back(window(x, place / size, place % size, height, width));
    if (patches) continue;
    const Variable one =
        esp::matmul(columns.back(), esp::slice(w, 0, place * channels, (place + 1) * channels));
    sum = sum.defined() ? sum + one : one;
  }
  return patches ? esp::matmul(esp::concat(columns, -1), w) : sum;
}

/// A border of zeros.
Variable padded(const Variable& x) {
  const Variable row = esp::zeros_like(esp::slice(x, 1, 0, 1)), tall = esp::concat({row, x, row}, 1);
  const Variable column = esp::zeros_like(esp::slice(tall, 2, 0, 1));
  return esp::concat({column, tall, column}, 2);
}

/// The largest of each 2 × 2 elements.
Variable pooled(const Variable& x) {
  return esp::max(esp::reshape(x, {-1, x.shape()[1] / 2, 2, x.shape()[2] / 2, 2, x.shape()[3]}), {2, 4});
}

struct Convolutional : nn::Module {
  Variable operator()(const Variables& columns) {
    const Variable x = pooled(esp::relu(convolution(columns[0], first, 3, true) + bias));  // [rows, 3, 3, 4]
    const Variable y = esp::relu(convolution(padded(x), second, 3, false));
    return esp::softmax_cross_entropy(out(esp::flatten(y, 1)), columns[1]);
  }
  Variable first = add_parameter("first", numbers({9, 4}, -0.5, 0.5, 1)),
           bias = add_parameter("bias", esp::zeros({4}, esp::float64)),
           second = add_parameter("second", numbers({36, 5}, -0.3, 0.3, 2));
  nn::Dense out = add("out", nn::Dense(2));
};

/// Bars, upright or lying, with some noise.
std::vector<Tensor> bars() {
  Tensor x = numbers({rows, side, side, 1}, 0, 0.5, 3), labels({rows}, esp::int64);
  for (int64_t r = 0; r < rows; ++r) {
    labels.at<int64_t>({r}) = r % 2;
    const int64_t at = r * 5 % side;
    for (int64_t i = 0; i < side; ++i) x.at<double>({r, r % 2 ? at : i, r % 2 ? i : at, 0}) += 1;
  }
  return {x, labels};
}

/// Three symbols, a mark, and the symbols again: what comes after the mark is to be predicted.
std::vector<Tensor> copies() {
  Tensor tokens({rows, time_steps}, esp::int64), next({rows, time_steps}, esp::int64);
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t sequence[] = {r % 6, r * 5 / 3 % 6, r / 2 % 6, 6, r % 6, r * 5 / 3 % 6, r / 2 % 6};
    for (int64_t t = 0; t < time_steps; ++t) {
      tokens.at<int64_t>({r, t}) = sequence[t];
      next.at<int64_t>({r, t}) = t < 3 ? -1 : sequence[t + 1];
    }
  }
  return {tokens, next};
}

/// What comes before the mark has no label to predict: it is left out, or has the label -1, which is ignored.
template <bool ignoring>
struct Copier : nn::Module {
  Variable operator()(const Variables& columns) {
    const Variable logits = head(last(block(embed(columns[0]) + place)));
    if (ignoring) return esp::softmax_cross_entropy(logits, columns[1], {.ignored_label = -1});
    return esp::softmax_cross_entropy(esp::slice(logits, 1, 3, time_steps),
                                      esp::slice(columns[1], 1, 3, time_steps));
  }
  nn::Embedding embed = add("embed", nn::Embedding(words, width, {.dtype = esp::float64}));
  Variable place = add_parameter("place", numbers({time_steps, width}, -1, 1, 1));
  Block block = add("block", Block());
  nn::LayerNorm last = add("last", nn::LayerNorm());
  nn::Dense head = add("head", nn::Dense(words));
};

template <bool ignoring>
TrainingTask<Copier<ignoring>> copying() {
  return {copies(), [](const auto&) { return optim::AdamW({.lr = 0.02, .epsilon = 1e-6}); }, 8, 10};
}

constexpr int64_t vocabulary = 20, dimension = 6, negatives = 3;

/// Words beside words of their own group of five; word 14 comes in the first batch alone, the last five
/// never.
std::vector<Tensor> pairs() {
  Tensor centre({2 * rows}, esp::int64), context({2 * rows}, esp::int64),
      negative({2 * rows, negatives}, esp::int64);
  for (int64_t r = 0; r < 2 * rows; ++r) {
    const int64_t group = r % 3;
    const auto word = [&](int64_t of, int64_t i) { return of * 5 + i % (of == 2 ? 4 : 5); };
    centre.at<int64_t>({r}) = r == 2 ? 14 : word(group, r / 3);
    context.at<int64_t>({r}) = word(group, r / 4 + 1);
    for (int64_t i = 0; i < negatives; ++i)
      negative.at<int64_t>({r, i}) = word((group + 1 + i % 2) % 3, r + i);
  }
  return {centre, context, negative};
}

Variable log_sigmoid(const Variable& x) {
  return esp::minimum(x, 0.0) - esp::log(esp::exp(-esp::abs(x)) + 1.0);
}

/// Mikolov and others, Distributed representations of words and phrases, 2013.
struct SkipGram : nn::Module {
  Variable operator()(const Variables& columns) {
    const Variable centre = esp::unsqueeze(in(columns[0]), 1), context = out(columns[1]),
                   negative = out(columns[2]);  // [rows, 1, d], [rows, d], [rows, negatives, d]
    const Variable near = esp::sum(esp::squeeze(centre, 1) * context, 1);
    const Variable far = esp::squeeze(esp::matmul(centre, esp::transpose(negative)), 1);
    return -esp::mean(log_sigmoid(near) + esp::sum(log_sigmoid(-far), 1));
  }
  nn::Embedding in = add("in", nn::Embedding(vocabulary, dimension, {.dtype = esp::float64})),
                out = add("out", nn::Embedding(vocabulary, dimension, {.dtype = esp::float64}));
};

TrainingTask<SkipGram> skip_gram(optim::Optimizer (*rule)()) {
  return {pairs(), [rule](const SkipGram&) { return rule(); }};
}

/// A file of houses, of which some have no number of rooms: what is missing is NaN.
std::vector<Tensor> houses() {
  const TemporaryFolder folder;
  std::ofstream file(folder / "houses.csv");
  file << "area,rooms,town,price\n";
  const char* towns[] = {"Aix", "Bern", "Como"};
  for (int i = 0; i < 40; ++i) {
    const int area = 40 + i * 37 % 90, rooms = 1 + area / 30 + i % 2, town = i * 7 % 3;
    file << area << ',' << (i % 9 == 4 ? "NA" : std::to_string(rooms)) << ',' << towns[town] << ','
         << 1.5 * area + 20 * rooms + 40 * town << '\n';
  }
  file.close();
  const esp::data::CsvTable table = esp::data::read_csv_table(folder / "houses.csv", {.dtype = esp::float64});
  BOOST_TEST(table["rooms"].missing == 4);
  BOOST_TEST(table["town"].categories.size() == 3u);
  return {table.matrix({"area", "rooms"}), table["town"].values, table.matrix({"price"})};
}

/// Columns as differences from their means over their deviations, which belong to the network.
struct Prices : nn::Module {
  Prices() {
    const std::vector<Tensor> all = houses();
    const Tensor known = (esp::nan_to_num(all[0])).value();
    for (const auto& [name, column] : {std::pair("numbers", known), std::pair("price", all[2])}) {
      add_buffer(std::string(name) + "_mean", esp::mean(column, 0).value());
      add_buffer(std::string(name) + "_deviation", esp::std(column, 0).value());
    }
  }
  Variable scaled(const Variable& x, const std::string& name) const {
    return (x - buffer(name + "_mean")) / buffer(name + "_deviation");
  }
  Variable operator()(const Variables& columns) {
    const Variable numbers = scaled(esp::nan_to_num(columns[0]), "numbers");
    const Variable all =
        esp::concat({numbers, esp::cast(esp::isnan(columns[0]), esp::float64), town(columns[1])}, 1);
    return esp::mean_squared_error(out(esp::tanh(hidden(all))), scaled(columns[2], "price"));
  }
  nn::Embedding town = add("town", nn::Embedding(3, 2, {.dtype = esp::float64}));
  nn::Dense hidden = add("hidden", nn::Dense(8)), out = add("out", nn::Dense(1));
};

/// Sentences of four words under one tree, ((a b) (c d)): which half has more of the words 3 and 4?
std::vector<Tensor> sentences() {
  Tensor words({rows, 4}, esp::int64), labels({rows}, esp::int64);
  for (int64_t r = 0; r < rows; ++r) {
    labels.at<int64_t>({r}) = r % 2;
    for (int64_t i = 0; i < 4; ++i)
      words.at<int64_t>({r, i}) = i / 2 == r % 2 ? 3 + (r + i) / 2 % 2 : (r * 5 + i) % 3;
  }
  return {words, labels};
}

/// Tai and others, Improved semantic representations from tree-structured LSTM networks, 2015.
struct Trees : nn::Module {
  Variable operator()(const Variables& columns) {
    std::vector<nn::LSTMState> nodes;
    for (int64_t i = 0; i < 4; ++i)
      nodes.push_back(cell(embed(esp::squeeze(esp::slice(columns[0], 1, i, i + 1), 1))));
    const nn::LSTMState left = cell(Variable(), {nodes[0], nodes[1]}),
                        right = cell(Variable(), {nodes[2], nodes[3]});
    return esp::softmax_cross_entropy(out(cell(Variable(), {left, right}).h), columns[1]);
  }
  nn::Embedding embed = add("embed", nn::Embedding(5, 4, {.dtype = esp::float64}));
  nn::NaryTreeLstm cell = add("cell", nn::NaryTreeLstm(4, 6, {.dtype = esp::float64}));
  nn::Dense out = add("out", nn::Dense(2));
};

}  // namespace

BOOST_AUTO_TEST_SUITE(research_programs)

BOOST_AUTO_TEST_CASE(convolution_by_hand) {
  check_training<Convolutional>({bars(), [](const Convolutional&) { return optim::Adam({.lr = 0.01}); }},
                                0.5);
}

BOOST_AUTO_TEST_CASE(prices_of_a_csv_file) {
  check_training<Prices>({houses(), [](const Prices&) { return optim::Adam({.lr = 0.02}); }}, 0.3);
}

BOOST_AUTO_TEST_CASE(trees_of_cells) {
  check_training<Trees>({sentences(), [](const Trees&) { return optim::Adam({.lr = 0.03}); }}, 0.7);
}

BOOST_AUTO_TEST_CASE(patches_and_shifted_images_are_the_same_convolution) {
  const Variable x = esp::variable(numbers({3, 6, 5, 2}, -1, 1, 1)),
                 w = esp::variable(numbers({18, 4}, -1, 1, 2));
  const Variable by_patches = convolution(padded(x), w, 3, true),
                 by_shifts = convolution(padded(x), w, 3, false);
  BOOST_TEST(difference(by_patches.value(), by_shifts.value()) < 1e-12);
  for (const Variable& v : {x, w})
    BOOST_TEST(difference(esp::square(by_patches).gradient(v).value(),
                          esp::square(by_shifts).gradient(v).value()) < 1e-12);
}

BOOST_AUTO_TEST_CASE(transformer_that_copies) {
  check_training(copying<false>(), 0.6, 1e-9);
  const TrainingRun sliced = train(copying<false>(), Training::eager);
  for (const Training how : {Training::rebuilt, Training::eager, Training::frozen})
    BOOST_TEST(difference_of(train(copying<true>(), how), sliced) < 1e-9);
}

BOOST_AUTO_TEST_CASE(skip_gram_with_negative_samples) {
  check_training(skip_gram([]() -> optim::Optimizer { return optim::Sgd(0.3); }), 0.7);
  check_training(skip_gram([]() -> optim::Optimizer { return optim::Adagrad({.lr = 0.2}); }), 0.7);
  check_training(skip_gram([]() -> optim::Optimizer { return optim::Adam({.lr = 0.05, .sparse = true}); }),
                 0.5);
}

BOOST_AUTO_TEST_CASE(words_that_do_not_come_keep_their_vectors) {
  for (const Training how : {Training::rebuilt, Training::eager, Training::frozen, Training::replicas}) {
    const auto table = [&](int64_t batches, bool sparse) {
      TrainingTask<SkipGram> task{
          pairs(), [=](const SkipGram&) { return optim::Adam({.lr = 0.05, .sparse = sparse}); }, 8, 1};
      for (Tensor& column : task.columns) column = column.slice(0, 0, batches * task.batch);
      return train(task, how).parameters[0];
    };
    const Tensor once = table(1, true), often = table(5, true), dense = table(5, false);
    esp::seed(12);
    const Tensor start = SkipGram().in.parameter("weight").value();
    BOOST_TEST(difference(often.slice(0, 15, 20), start.slice(0, 15, 20)) == 0);
    BOOST_TEST(difference(often.slice(0, 14, 15), once.slice(0, 14, 15)) == 0);
    BOOST_TEST(difference(once.slice(0, 14, 15), start.slice(0, 14, 15)) > 0.001);
    BOOST_TEST(difference(dense.slice(0, 14, 15), once.slice(0, 14, 15)) > 0.001);  // by its momentum
  }
}

BOOST_AUTO_TEST_SUITE_END()
