// Nested expressions such as (MAX 3 (SM 4 9) 1) are read by a tree of LSTM cells, one tree for each
// expression. Nangia and Bowman, ListOps: a diagnostic dataset for latent tree learning, 2018; Tai and
// others, Improved semantic representations from tree-structured long short-term memory networks, 2015.
#include <espalier/espalier.h>

#include <algorithm>
#include <array>
#include <iostream>
#include <numeric>
#include <random>
#include <string>
#include <vector>
namespace esp = espalier;
using namespace espalier::nn;

constexpr int64_t kWidth = 64;
enum Operator { kMin, kMax, kMed, kSm, kOperators };  // minimum, maximum, median, sum modulo 10
const std::array<std::string, kOperators> kNames{"MIN", "MAX", "MED", "SM"};

struct Expression {
  int64_t value = 0;                      // what it evaluates to, 0 to 9
  int64_t op = 0;                         // if it has operands
  std::vector<Expression> operands = {};  // a digit has none
};

int64_t evaluate(int64_t op, const std::vector<Expression>& operands) {
  std::vector<int64_t> values;
  for (const Expression& x : operands) values.push_back(x.value);
  std::ranges::sort(values);
  if (op == kMin) return values.front();
  if (op == kMax) return values.back();
  if (op == kMed) return values[(values.size() - 1) / 2];  // of two in the middle the smaller one
  return std::accumulate(values.begin(), values.end(), int64_t{0}) % 10;
}

/// An operator of 2 or 3 operands, in which operators are nested `depth` deep.
Expression random_expression(int depth, std::mt19937& random) {
  if (depth == 0) return {.value = static_cast<int64_t>(random() % 10)};
  Expression all{.op = static_cast<int64_t>(random() % kOperators)};
  all.operands.resize(2 + random() % 2);
  const size_t deepest = random() % all.operands.size();
  for (size_t i = 0; i < all.operands.size(); ++i)
    all.operands[i] = random_expression(
        i == deepest ? depth - 1 : static_cast<int>(random() % static_cast<unsigned>(depth)), random);
  all.value = evaluate(all.op, all.operands);
  return all;
}

std::string text(const Expression& x) {
  if (x.operands.empty()) return std::to_string(x.value);
  std::string all = "(" + kNames[static_cast<size_t>(x.op)];
  for (const Expression& operand : x.operands) all += " " + text(operand);
  return all + ")";
}

struct Reader : Module {
  /// The state of an expression from those of its operands. The loss of each operator is added to `losses`.
  LSTMState operator()(const Expression& x, std::vector<esp::Variable>* losses = nullptr) const {
    const auto word = [this](int64_t number) { return words(esp::full({1}, number, esp::int64)); };
    if (x.operands.empty()) return cell(word(x.value));
    std::vector<LSTMState> states;
    for (const Expression& operand : x.operands) states.push_back((*this)(operand, losses));
    const LSTMState state = cell(word(10 + x.op), states);
    if (losses) losses->push_back(SoftmaxCrossEntropy()(out(state.h), esp::full({1}, x.value, esp::int64)));
    return state;
  }
  Embedding words = add("words", Embedding(10 + kOperators, kWidth));  // digits, then operators
  NaryTreeLstm cell = add("cell", NaryTreeLstm(kWidth, kWidth, {.children = 3}));
  Sequential out = add("out", Sequential{Dense(kWidth, kWidth), Relu(), Dense(kWidth, 10)});
};

/// The share of expressions whose value the reader finds.
double accuracy(const Reader& reader, const std::vector<Expression>& expressions) {
  const esp::NoGrad no_grad;
  const esp::Deferred deferred;
  std::vector<esp::Variable> logits;
  for (const Expression& x : expressions) logits.push_back(reader.out(reader(x).h));
  const esp::Tensor found = esp::argmax(esp::concat(logits, 0), 1).value();
  int right = 0;
  for (size_t i = 0; i < expressions.size(); ++i) right += found.span<int64_t>()[i] == expressions[i].value;
  return static_cast<double>(right) / static_cast<double>(expressions.size());
}

int main() {
  esp::set_num_threads(1);  // the products are small
  esp::seed(1);
  std::mt19937 random(1);
  const auto expressions = [&](int count, int depth) {
    std::vector<Expression> all;
    for (int i = 0; i < count; ++i) all.push_back(random_expression(depth, random));
    return all;
  };
  const std::vector<Expression> unseen = expressions(500, 2), deeper = expressions(500, 4);

  // Every tree has another form, so no plan fits two batches. Under Deferred the cells of all trees of a
  // batch wait, and those that can be computed at the same time are one call of a kernel.
  const Reader reader;
  constexpr int kSteps = 1500;
  const esp::optim::Adam adam(
      {.lr = 3e-3, .clip_norm = 1, .schedule = esp::optim::cosine({.steps = kSteps})});
  for (int step = 1; step <= kSteps; ++step) {
    const esp::Deferred deferred;
    std::vector<esp::Variable> losses;
    for (const Expression& x : expressions(32, 1 + step % 2)) (void)reader(x, &losses);
    const esp::Variable loss = esp::mean(esp::stack(losses));
    loss.backward().update(adam);
    if (step % 250 == 0)
      std::cout << "step " << step << ": loss " << loss.item() << ", accuracy on unseen expressions "
                << accuracy(reader, unseen) << std::endl;
  }

  std::array<int, 10> counts{};
  for (const Expression& x : deeper) ++counts[static_cast<size_t>(x.value)];
  const double majority = *std::ranges::max_element(counts) / static_cast<double>(deeper.size());
  const double found = accuracy(reader, deeper);
  std::cout << text(deeper[0]) << " is " << deeper[0].value << ", read as "
            << esp::argmax(reader.out(reader(deeper[0]).h), 1).item() << "\n"
            << "accuracy on deeper ones " << found << "; the most frequent value has " << majority << "\n";
  return found > 2 * majority ? 0 : 1;
}
