#include <algorithm>

#include "espalier/nn/adaptive_log_softmax.h"
#include "espalier/nn/init.h"
#include "espalier/nn/target_calls.h"
#include "espalier/ops/indexing/look_up.h"
#include "espalier/ops/ops.h"

namespace espalier::nn {

namespace {

class ClassFactoredSoftmaxState : public LayerStateOf<ClassFactoredSoftmaxState> {
 public:
  ClassFactoredSoftmaxState(int64_t in, const std::vector<int64_t>& class_of_word,
                            const ClassFactoredSoftmaxOptions& options)
      : LayerStateOf("ClassFactoredSoftmax"), in_(in), bias_(options.bias) {
    const auto words = static_cast<int64_t>(class_of_word.size());
    if (in <= 0) throw Error(fmt::format("ClassFactoredSoftmax: {} inputs; it needs at least one", in));
    if (words == 0) throw Error("ClassFactoredSoftmax: there is no word");
    make_tables(class_of_word);
    declare("class_weight", {classes(), in}, init::KaimingUniform());
    if (bias_) declare("class_bias", {classes()}, init::Zeros());
    declare("word_weight", {words, in}, init::KaimingUniform());
    if (bias_) declare("word_bias", {words}, init::Zeros());
    create_with("number of inputs", in, options.dtype);
  }

  Variable forward(const Variable& x) override {
    const Variable of_class = classes_of(x);
    Variable logits = matmul(x, transpose(parameter("word_weight")));
    if (bias_) logits = logits + parameter("word_bias");
    // [n, classes, members], and back to the order of the words.
    const Variable members = gather(logits, on(members_, x), 1);
    const Variable all = among_members(members, on(is_member_, x)) + unsqueeze(of_class, -1);
    return gather(flatten(all, 1), on(position_, x), 1);
  }

  TargetLogProbs of_targets(const Variable& x, const Variable& target) {
    check_targets(kind(), x, target);
    const Variable of_class = classes_of(x);
    const auto looked_up = [&](const Tensor& table) {
      return look_up(kind(), on(table, target), target, false);
    };
    const Variable c = looked_up(class_), words = gather(on(members_, target), c);  // [n, members]
    const Variable weights = gather(parameter("word_weight"), words);               // [n, members, in]
    Variable logits = sum(weights * unsqueeze(x, 1), -1);
    if (bias_) logits = logits + gather(parameter("word_bias"), words);
    const Variable own = pick(among_members(logits, gather(on(is_member_, target), c)), looked_up(place_));
    const Variable output = pick(of_class, c) + own;
    return {output, -mean(output)};
  }

 private:
  int64_t classes() const { return members_.shape()[0]; }

  void make_tables(const std::vector<int64_t>& class_of_word) {
    const auto words = static_cast<int64_t>(class_of_word.size());
    std::vector<std::vector<int64_t>> members;
    for (int64_t w = 0; w < words; ++w) {
      const int64_t c = class_of_word[static_cast<size_t>(w)];
      if (c < 0 || c >= words)
        throw Error(
            fmt::format("ClassFactoredSoftmax: word {} has class {}; {} words have at most {} classes, "
                        "from 0 on",
                        w, c, words, words));
      if (c >= static_cast<int64_t>(members.size())) members.resize(static_cast<size_t>(c) + 1);
      members[static_cast<size_t>(c)].push_back(w);
    }
    size_t most = 0;
    for (size_t c = 0; c < members.size(); ++c) {
      if (members[c].empty()) throw Error(fmt::format("ClassFactoredSoftmax: class {} has no word", c));
      most = std::max(most, members[c].size());
    }
    const auto count = static_cast<int64_t>(members.size()), width = static_cast<int64_t>(most);
    members_ = zeros({count, width}, int64);
    is_member_ = zeros({count, width}, boolean);
    class_ = zeros({words}, int64), place_ = zeros({words}, int64), position_ = zeros({words}, int64);
    for (size_t c = 0; c < members.size(); ++c)
      for (size_t k = 0; k < members[c].size(); ++k) {
        const auto word = static_cast<size_t>(members[c][k]);
        members_.span<int64_t>()[c * most + k] = members[c][k];
        is_member_.span<bool>()[c * most + k] = true;
        class_.span<int64_t>()[word] = static_cast<int64_t>(c);
        place_.span<int64_t>()[word] = static_cast<int64_t>(k);
        position_.span<int64_t>()[word] = static_cast<int64_t>(c * most + k);
      }
  }

  static Variable on(const Tensor& table, const Variable& beside) { return table.to(beside.device()); }

  Variable classes_of(const Variable& x) {
    check_rows_of(kind(), x, in_);
    fit(x, {});
    const Variable logits = matmul(x, transpose(parameter("class_weight")));
    return log_softmax(bias_ ? logits + parameter("class_bias") : logits);
  }
  /// The log softmax of those logits of the last axis that belong to members.
  static Variable among_members(const Variable& logits, const Variable& is_member) {
    const double lowest = logits.dtype() == float16 ? -65504.0 : -3e38;
    return log_softmax(where(is_member, logits, full_like(logits, lowest)));
  }

  int64_t in_;
  bool bias_;
  Tensor members_, is_member_;       // [classes, members of the largest]
  Tensor class_, place_, position_;  // [words]: of each, its class, its place there, and that of both
};

}  // namespace

ClassFactoredSoftmax::ClassFactoredSoftmax(int64_t in, std::vector<int64_t> class_of_word,
                                           ClassFactoredSoftmaxOptions options, Where where)
    : LayerOf(located(where, [&] {
        const CallScope scope(where);
        return std::make_shared<ClassFactoredSoftmaxState>(in, class_of_word, options);
      })) {}

TargetLogProbs ClassFactoredSoftmax::operator()(const Variable& x, const Variable& target,
                                                Where where) const {
  return call_with_target<ClassFactoredSoftmaxState>(layer_state(), x, target, where);
}
Variable ClassFactoredSoftmax::log_prob(const Variable& x, Where where) const { return (*this)(x, where); }
Variable ClassFactoredSoftmax::predict(const Variable& x, Where where) const {
  const CallScope scope(where);
  return argmax((*this)(x, where), -1);
}
Variable ClassFactoredSoftmax::sample(const Variable& x, Where where) const {
  const CallScope scope(where);
  return categorical((*this)(x, where));
}

}  // namespace espalier::nn
