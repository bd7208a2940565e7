// einsum: a contraction read from a text.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <string>

#include "espalier/core/open_note.h"
#include "espalier/ops/functions/diagonal.h"
#include "espalier/ops/functions/layout.h"
#include "espalier/ops/functions/products.h"
#include "espalier/ops/pointwise.h"
#include "espalier/ops/products/contract.h"

namespace espalier {

namespace {

/// One operand, or the result, as the equation writes it.
struct EinsumTerm {
  std::string letters;  ///< without the dots
  bool has_dots = false;
  size_t before_dots = 0;  ///< letters
};

class Einsum {
 public:
  Einsum(std::string_view equation, const std::vector<Variable>& operands)
      : equation_(equation), operands_(operands) {
    read();
    for (size_t k = 0; k < operands_.size(); ++k) label_operand(k);
    label_output();
  }

  Variable result() {
    for (Labelled& operand : labelled_) {
      take_diagonals(operand);
      drop_ones(operand);
    }
    return contract(std::move(labelled_), output_);
  }

 private:
  template <class E>
  [[noreturn]] void fail(const std::string& reason) const {
    std::vector<std::string> shapes;
    for (const Variable& x : operands_) shapes.push_back(x.defined() ? x.shape().str() : "undefined");
    throw E(fmt::format("einsum: \"{}\" of {}: {}", equation_, fmt::join(shapes, ", "), reason));
  }

  void read() {
    std::string text;
    for (const char c : equation_)
      if (c != ' ') text += c;
    const size_t arrow = text.find("->");
    const std::string inputs = text.substr(0, arrow);
    size_t begin = 0;
    for (size_t comma; (comma = inputs.find(',', begin)) != inputs.npos; begin = comma + 1)
      terms_.push_back(term(inputs.substr(begin, comma - begin)));
    terms_.push_back(term(inputs.substr(begin)));
    if (arrow != text.npos) result_ = term(text.substr(arrow + 2));
    has_arrow_ = arrow != text.npos;
    if (terms_.size() != operands_.size())
      fail<Error>(fmt::format("it names {} operands, and there are {}", terms_.size(), operands_.size()));
    for (const Variable& x : operands_) {
      if (!x.defined()) fail<Error>("an operand is an undefined Variable");
      if (!is_real(x.dtype()))
        fail<TypeError>(fmt::format("it takes real numbers, not {}; cast() them first", name(x.dtype())));
      if (x.dtype() != operands_[0].dtype())
        fail<TypeError>(fmt::format("element types {} and {} differ; cast() one of them",
                                    name(operands_[0].dtype()), name(x.dtype())));
    }
  }
  EinsumTerm term(const std::string& text) const {
    EinsumTerm result;
    for (size_t i = 0; i < text.size(); ++i) {
      if ((text[i] >= 'a' && text[i] <= 'z') || (text[i] >= 'A' && text[i] <= 'Z')) {
        result.letters += text[i];
      } else if (text.compare(i, 3, "...") == 0 && !result.has_dots) {
        result.has_dots = true;
        result.before_dots = result.letters.size();
        i += 2;
      } else {
        fail<Error>(fmt::format("'{}' is no list of letters with at most one \"...\"", text));
      }
    }
    return result;
  }

  int label_of(char letter) {
    const auto [at, is_new] = labels_.try_emplace(letter, static_cast<int>(sizes_.size()));
    if (is_new) {
      sizes_.push_back(1);
      names_.push_back(fmt::format("'{}'", letter));
    }
    return at->second;
  }
  /// The labels of the last `count` axes that "..." stands for.
  AxisLabels dots(size_t count) {
    while (dots_.size() < count) {
      dots_.insert(dots_.begin(), static_cast<int>(sizes_.size()));
      sizes_.push_back(1);
      names_.emplace_back("\"...\"");
    }
    return {dots_.end() - static_cast<std::ptrdiff_t>(count), dots_.end()};
  }

  void label_operand(size_t k) {
    const EinsumTerm& term = terms_[k];
    const Shape& shape = operands_[k].shape();
    if (term.has_dots ? shape.rank() < term.letters.size() : shape.rank() != term.letters.size())
      fail<ShapeError>(fmt::format("it gives operand {} {}{} axes", k, term.has_dots ? "at least " : "",
                                   term.letters.size()));
    const AxisLabels middle = dots(shape.rank() - term.letters.size());
    AxisLabels labels;
    for (size_t i = 0; i < term.letters.size() || (term.has_dots && i == term.letters.size()); ++i) {
      if (term.has_dots && i == term.before_dots) labels.insert(labels.end(), middle.begin(), middle.end());
      if (i < term.letters.size()) labels.push_back(label_of(term.letters[i]));
    }
    for (size_t i = 0; i < labels.size(); ++i) {
      const auto label = static_cast<size_t>(labels[i]);
      const int64_t size = shape.dims()[i];
      if (size == 1 || size == sizes_[label]) continue;
      if (sizes_[label] != 1)
        fail<ShapeError>(fmt::format("the sizes {} and {} of {} differ{}", size_text(sizes_[label]),
                                     size_text(size), names_[label], open_note(sizes_[label], size)));
      sizes_[label] = size;
    }
    labelled_.push_back({operands_[k], std::move(labels)});
  }

  void label_output() {
    std::map<char, int> uses;
    for (const EinsumTerm& term : terms_)
      for (const char letter : term.letters) ++uses[letter];
    if (!has_arrow_) {
      result_.has_dots = true;
      for (const auto& [letter, count] : uses)
        if (count == 1) result_.letters += letter;
    }
    for (size_t i = 0; i < result_.letters.size() || (result_.has_dots && i == result_.letters.size()); ++i) {
      if (result_.has_dots && i == result_.before_dots)
        output_.insert(output_.end(), dots_.begin(), dots_.end());
      if (i == result_.letters.size()) break;
      const char letter = result_.letters[i];
      if (uses.find(letter) == uses.end())
        fail<Error>(fmt::format("'{}' is behind the arrow, and no operand has it", letter));
      if (result_.letters.find(letter) != i)
        fail<Error>(fmt::format("'{}' is behind the arrow twice", letter));
      output_.push_back(label_of(letter));
    }
  }

  void take_diagonals(Labelled& operand) const {
    AxisLabels& labels = operand.labels;
    for (size_t i = 0; i < labels.size();) {
      const auto label = labels[i];
      const auto again = std::find(labels.begin() + static_cast<std::ptrdiff_t>(i) + 1, labels.end(), label);
      if (again == labels.end()) {
        ++i;
        continue;
      }
      const auto j = static_cast<size_t>(again - labels.begin());
      const Shape& shape = operand.x.shape();
      if (shape.dims()[i] != shape.dims()[j])
        fail<ShapeError>(fmt::format("one operand has the sizes {} and {} of {}{}",
                                     size_text(shape.dims()[i]), size_text(shape.dims()[j]),
                                     names_[static_cast<size_t>(label)],
                                     open_note(shape.dims()[i], shape.dims()[j])));
      // Its diagonal is a last axis in place of both.
      operand.x = diagonal(operand.x, 0, static_cast<int64_t>(i), static_cast<int64_t>(j));
      labels.erase(again);
      labels.erase(labels.begin() + static_cast<std::ptrdiff_t>(i));
      labels.push_back(label);
    }
  }
  /// Takes away axes of size 1 that another operand repeats.
  void drop_ones(Labelled& operand) const {
    Dims axes;
    AxisLabels kept;
    for (size_t i = 0; i < operand.labels.size(); ++i) {
      const auto label = static_cast<size_t>(operand.labels[i]);
      if (operand.x.shape().dims()[i] == 1 && sizes_[label] != 1)
        axes.push_back(static_cast<int64_t>(i));
      else
        kept.push_back(operand.labels[i]);
    }
    if (axes.empty()) return;
    operand.x = squeeze(operand.x, Axes(std::move(axes)));
    operand.labels = std::move(kept);
  }

  std::string_view equation_;
  const std::vector<Variable>& operands_;
  std::vector<EinsumTerm> terms_;
  EinsumTerm result_;
  bool has_arrow_ = false;
  std::map<char, int> labels_;
  AxisLabels dots_;                 ///< all axes that "..." stands for
  std::vector<int64_t> sizes_;      ///< by label
  std::vector<std::string> names_;  ///< by label, for errors
  std::vector<Labelled> labelled_;
  AxisLabels output_;
};

}  // namespace

Variable einsum(std::string_view equation, const std::vector<Variable>& operands,
                std::source_location where) {
  const CallScope scope(where);
  return located(where, [&] { return Einsum(equation, operands).result(); });
}

}  // namespace espalier
