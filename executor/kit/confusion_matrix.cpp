#include "espalier/executor/kit/confusion_matrix.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <exception>
#include <numeric>
#include <ostream>
#include <string>

#include "espalier/core/countable.h"
#include "espalier/core/error.h"
#include "espalier/executor/training/trainer.h"

namespace espalier {

namespace {

double fraction_of(int64_t a, int64_t b) { return b ? static_cast<double>(a) / static_cast<double>(b) : 0; }

/// The elements as int64, on the CPU. Throws TypeError.
Tensor class_numbers(const Tensor& x, std::string_view what) {
  if (!x.defined()) throw Error(fmt::format("ConfusionMatrix: the {} are an undefined Tensor", what));
  if (x.dtype() != int32 && x.dtype() != int64)
    throw TypeError(fmt::format("ConfusionMatrix: {} are integers, not {}", what, name(x.dtype())));
  return x.to(cpu()).to(int64).contiguous_copy();
}

Shape without_last_one(Shape shape) {
  if (shape.rank() > 1 && shape[-1] == 1) shape.dims().pop_back();
  return shape;
}

}  // namespace

ConfusionMatrix::ConfusionMatrix(int64_t classes, Where where) : classes_(classes) {
  located(where, [&] {
    if (classes < 1) throw Error(fmt::format("ConfusionMatrix: there cannot be {} classes", classes));
    const Shape shape{classes, classes};
    check_countable(shape, "ConfusionMatrix");
    const auto refuse = [&] {
      throw OutOfMemory(
          fmt::format("ConfusionMatrix: there is no memory for the counts of {} classes", classes));
    };
    constexpr int64_t most = int64_t{1} << 43;  // counts, more than any machine has room for
    if (shape.elements() > most) refuse();
    try {
      counts_.resize(static_cast<size_t>(shape.elements()));
    } catch (const std::bad_alloc&) {
      refuse();
    }
  });
}

ConfusionMatrix::ConfusionMatrix(const Tensor& predicted, const Tensor& labels, int64_t classes, Where where)
    : ConfusionMatrix(classes, where) {
  update(predicted, labels, where);
}

ConfusionMatrix ConfusionMatrix::of_counts(const Tensor& counts, Where where) {
  return located(where, [&] {
    if (!counts.defined()) throw Error("ConfusionMatrix: the counts are an undefined Tensor");
    if (counts.rank() != 2 || counts.shape()[0] != counts.shape()[1] || counts.elements() == 0)
      throw ShapeError(fmt::format("ConfusionMatrix: counts of shape {} are not [classes, classes]",
                                   counts.shape().str()));
    if (counts.dtype() != DType::int64)
      throw TypeError(fmt::format("ConfusionMatrix: counts are int64, not {}", name(counts.dtype())));
    const Tensor plain = counts.to(cpu()).contiguous_copy();
    ConfusionMatrix matrix(counts.shape()[0], where);
    const auto all = plain.span<int64_t>();
    for (const int64_t count : all)
      if (count < 0) throw DataError(fmt::format("ConfusionMatrix: a count is {}", count));
    matrix.counts_.assign(all.begin(), all.end());
    return matrix;
  });
}

void ConfusionMatrix::update(const Tensor& predicted, const Tensor& labels, Where where) {
  located(where, [&] {
    const Tensor p = class_numbers(predicted, "predictions"), l = class_numbers(labels, "labels");
    if (!(without_last_one(p.shape()) == without_last_one(l.shape())))
      throw ShapeError(fmt::format("ConfusionMatrix: predictions of shape {} and labels of shape {}",
                                   p.shape().str(), l.shape().str()));
    for (const Tensor& numbers : {p, l})
      for (const int64_t c : numbers.span<int64_t>())
        if (c < 0 || c >= classes_)
          throw IndexError(fmt::format("ConfusionMatrix: {} is none of {} classes", c, classes_));
    const auto of = p.span<int64_t>(), as = l.span<int64_t>();
    for (size_t i = 0; i < of.size(); ++i) ++counts_[static_cast<size_t>(as[i] * classes_ + of[i])];
  });
}

int64_t ConfusionMatrix::total() const { return std::accumulate(counts_.begin(), counts_.end(), int64_t{0}); }

void ConfusionMatrix::check(int64_t c, const char* what, const Where& where) const {
  if (c >= 0 && c < classes_) return;
  located(where, [&] { throw IndexError(fmt::format("{}: {} is none of {} classes", what, c, classes_)); });
}

int64_t ConfusionMatrix::count(int64_t label, int64_t predicted, Where where) const {
  check(label, "count", where);
  check(predicted, "count", where);
  return at(label, predicted);
}

Tensor ConfusionMatrix::counts() const { return tensor_from(counts_, {classes_, classes_}); }

int64_t ConfusionMatrix::labels_of(int64_t c) const {
  int64_t sum = 0;
  for (int64_t other = 0; other < classes_; ++other) sum += at(c, other);
  return sum;
}
int64_t ConfusionMatrix::predictions_of(int64_t c) const {
  int64_t sum = 0;
  for (int64_t other = 0; other < classes_; ++other) sum += at(other, c);
  return sum;
}

double ConfusionMatrix::accuracy() const {
  int64_t hits = 0;
  for (int64_t c = 0; c < classes_; ++c) hits += at(c, c);
  return fraction_of(hits, total());
}
double ConfusionMatrix::precision(int64_t c, Where where) const {
  check(c, "precision", where);
  return fraction_of(at(c, c), predictions_of(c));
}
double ConfusionMatrix::recall(int64_t c, Where where) const {
  check(c, "recall", where);
  return fraction_of(at(c, c), labels_of(c));
}
double ConfusionMatrix::f1_score(int64_t c, Where where) const {
  check(c, "f1_score", where);
  return fraction_of(2 * at(c, c), predictions_of(c) + labels_of(c));
}

template <class F>
double ConfusionMatrix::average_of(Average average, F&& f) const {
  if (average == Average::micro) return accuracy();
  double sum = 0;
  int64_t present = 0;
  for (int64_t c = 0; c < classes_; ++c) {
    if (labels_of(c) == 0 && predictions_of(c) == 0) continue;
    sum += f(c);
    ++present;
  }
  return present ? sum / static_cast<double>(present) : 0;
}
double ConfusionMatrix::precision(Average average) const {
  return average_of(average, [&](int64_t c) { return precision(c); });
}
double ConfusionMatrix::recall(Average average) const {
  return average_of(average, [&](int64_t c) { return recall(c); });
}
double ConfusionMatrix::f1_score(Average average) const {
  return average_of(average, [&](int64_t c) { return f1_score(c); });
}

std::ostream& operator<<(std::ostream& out, const ConfusionMatrix& matrix) {
  const int64_t n = matrix.classes();
  const Tensor counts = matrix.counts();
  int64_t largest = n - 1;
  for (const int64_t count : counts.span<int64_t>()) largest = std::max(largest, count);
  const size_t width = std::max<size_t>(5, fmt::format("{}", largest).size());
  std::string text = "label\\predicted";
  for (int64_t c = 0; c < n; ++c) text += fmt::format(" {:>{}}", c, width);
  text += "  recall\n";
  for (int64_t label = 0; label < n; ++label) {
    text += fmt::format("{:>15}", label);
    for (int64_t c = 0; c < n; ++c) text += fmt::format(" {:>{}}", matrix.count(label, c), width);
    text += fmt::format("  {:.4f}\n", matrix.recall(label));
  }
  text += "      precision";
  for (int64_t c = 0; c < n; ++c) text += fmt::format(" {:>{}.3f}", matrix.precision(c), width);
  return out << text
             << fmt::format("\n{} of {} right: accuracy {:.4f}\n",
                            std::llround(matrix.accuracy() * static_cast<double>(matrix.total())),
                            matrix.total(), matrix.accuracy());
}

ConfusionLog::ConfusionLog(std::string figure, Where where) : figure_(std::move(figure)), where_(where) {
  located(where_, [&] {
    if (figure_.empty()) throw Error("ConfusionLog: the name of the figure is empty");
  });
}

void ConfusionLog::initialize(TrainingRun& run) {
  located(where_, [&] { run.check_figure("ConfusionLog", figure_); });
  matrices_->clear();
}

void ConfusionLog::epoch_finish(TrainingRun& run) {
  located(where_, [&] {
    const std::vector<double> sums = Trainer::sums(run, "ConfusionLog", figure_);
    const auto classes = std::lround(std::sqrt(static_cast<double>(sums.size())));
    if (classes < 2 || static_cast<size_t>(classes * classes) != sums.size())
      throw Error(fmt::format("ConfusionLog: the figure '{}' is not that of the Metric confusion", figure_));
    std::vector<int64_t> counts;
    for (const double sum : sums) counts.push_back(std::llround(sum));
    matrices_->push_back(ConfusionMatrix::of_counts(tensor_from(counts, {classes, classes})));
  });
}

}  // namespace espalier
