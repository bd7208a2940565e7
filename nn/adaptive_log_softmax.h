// AdaptiveLogSoftmax and ClassFactoredSoftmax: probabilities of many classes, such as words.
#pragma once
#include <cstdint>
#include <vector>

#include "espalier/nn/layer.h"

namespace espalier::nn {

/// What a softmax over many classes makes of inputs and targets.
struct TargetLogProbs {
  Variable output;  ///< [n]: the logarithm of the probability of each target
  Variable loss;    ///< −mean(output)
};

struct AdaptiveLogSoftmaxOptions {
  double div_value = 4;    ///< by which the inputs of a cluster are narrower than those of the one before
  bool head_bias = false;  ///< whether the head has a bias
  DType dtype = float32;   ///< of the parameters: a real one
};

/// Logarithms of probabilities of classes that stand in the order of their frequency, the most frequent
/// first. Those below the first of `cutoffs` are in the head, which also has a logit for each cluster of the
/// others; cluster i has the classes from cutoff i on, and reads the inputs through a matrix of
/// in / div_value^(i + 1) columns. Inputs are [n, in]. Parameters: `head.weight` [cutoffs[0] + clusters, in],
/// `head.bias`, and of each cluster `tail.i.0.weight` [width, in] and `tail.i.1.weight` [classes, width];
/// names and formula are those of PyTorch's AdaptiveLogSoftmaxWithLoss. All clusters are computed for all
/// rows, for sizes that are known before values are. Joulin et al., Efficient softmax approximation for GPUs,
/// 2017. Throws Error unless in > 0, 0 < cutoffs[0] < cutoffs[1] < … < classes, and no width is 0; a call
/// throws ShapeError, TypeError, or IndexError for a target that is no class.
class AdaptiveLogSoftmax : public LayerOf<AdaptiveLogSoftmax> {
 public:
  AdaptiveLogSoftmax(int64_t in, int64_t classes, std::vector<int64_t> cutoffs,
                     AdaptiveLogSoftmaxOptions options = {}, Where where = Where::current());

  using LayerOf::operator();  // the same as log_prob
  /// Of targets [n], integers.
  TargetLogProbs operator()(const Variable& x, const Variable& target, Where where = Where::current()) const;
  /// Of all classes: [n, classes].
  Variable log_prob(const Variable& x, Where where = Where::current()) const;
  /// The most probable class: [n], int64.
  Variable predict(const Variable& x, Where where = Where::current()) const;
};

struct ClassFactoredSoftmaxOptions {
  bool bias = true;
  DType dtype = float32;  ///< of the parameters: a real one
};

/// Logarithms of probabilities of words that are in classes: that of the class times that of the word among
/// those of its class. `class_of_word` has the class of each word, from 0 on. For a target only the words of
/// its class are computed, as many for each row as the largest class has. Inputs are [n, in]. Parameters:
/// `class_weight` [classes, in], `class_bias` [classes], `word_weight` [words, in], `word_bias` [words].
/// DyNet's ClassFactoredSoftmaxBuilder. Goodman, Classes for fast maximum entropy training, 2001. Throws
/// Error unless in > 0, there is a word, and each number of a class from 0 on has one; a call throws
/// ShapeError, TypeError, or IndexError for a target that is no word.
class ClassFactoredSoftmax : public LayerOf<ClassFactoredSoftmax> {
 public:
  ClassFactoredSoftmax(int64_t in, std::vector<int64_t> class_of_word,
                       ClassFactoredSoftmaxOptions options = {}, Where where = Where::current());

  using LayerOf::operator();  // the same as log_prob
  /// Of targets [n], integers.
  TargetLogProbs operator()(const Variable& x, const Variable& target, Where where = Where::current()) const;
  /// Of all words: [n, words].
  Variable log_prob(const Variable& x, Where where = Where::current()) const;
  /// The most probable word: [n], int64.
  Variable predict(const Variable& x, Where where = Where::current()) const;
  /// A word drawn with its probability: [n], int64.
  Variable sample(const Variable& x, Where where = Where::current()) const;
};

}  // namespace espalier::nn
