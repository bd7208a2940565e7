#include "espalier/ops/products/contract.h"

#include <algorithm>
#include <numeric>

#include "espalier/ops/ops.h"
#include "espalier/ops/reductions/sum_mapped.h"
#include "espalier/ops/shape_like_ops.h"
#include "espalier/ops/views/axis_groups.h"
#include "espalier/ops/views/axis_views.h"
#include "espalier/ops/widened.h"

namespace espalier {

namespace {

bool has_label(const AxisLabels& labels, int label) {
  return std::find(labels.begin(), labels.end(), label) != labels.end();
}
size_t place_of_label(const AxisLabels& labels, int label) {
  return static_cast<size_t>(std::find(labels.begin(), labels.end(), label) - labels.begin());
}

/// The axes in that order.
Labelled in_label_order(const Labelled& operand, const AxisLabels& order) {
  if (operand.labels == order) return operand;
  Dims axes;
  for (const int label : order) axes.push_back(static_cast<int64_t>(place_of_label(operand.labels, label)));
  return {transpose(operand.x, Axes(std::move(axes))), order};
}

/// Without the labels that are not in `kept`: the sum over them.
Labelled summed_to(const Labelled& operand, const AxisLabels& kept) {
  Labelled result;
  Dims axes;
  for (size_t i = 0; i < operand.labels.size(); ++i)
    if (has_label(kept, operand.labels[i]))
      result.labels.push_back(operand.labels[i]);
    else
      axes.push_back(static_cast<int64_t>(i));
  result.x = axes.empty() ? operand.x : sum(operand.x, Axes(std::move(axes)));
  return result;
}

AxisLabels joined_labels(std::initializer_list<const AxisLabels*> lists) {
  AxisLabels all;
  for (const AxisLabels* labels : lists) all.insert(all.end(), labels->begin(), labels->end());
  return all;
}

/// A pair of operands, its labels sorted by where they are.
class LabelledProduct {
 public:
  LabelledProduct(const Labelled& a, const Labelled& b, const AxisLabels& kept)
      : a_(summed_to(a, joined_labels({&b.labels, &kept}))),
        b_(summed_to(b, joined_labels({&a.labels, &kept}))) {
    for (const int label : a_.labels)
      (!has_label(b_.labels, label) ? rows_ : has_label(kept, label) ? batch_ : inner_).push_back(label);
    for (const int label : b_.labels)
      if (!has_label(a_.labels, label)) columns_.push_back(label);
  }

  Labelled result() const {
    if (inner_.empty()) return multiplied();
    if (rows_.empty() && columns_.empty()) {
      const AxisLabels order = joined_labels({&batch_, &inner_});
      Dims inner(inner_.size());
      std::iota(inner.begin(), inner.end(), static_cast<int64_t>(batch_.size()));
      return {
          summed_products(in_label_order(a_, order).x, in_label_order(b_, order).x, Axes(std::move(inner))),
          batch_};
    }
    return matrix_product();
  }

 private:
  Labelled multiplied() const {
    const AxisLabels order = joined_labels({&batch_, &rows_, &columns_});
    const Variable a = in_label_order(a_, joined_labels({&batch_, &rows_})).x,
                   b = in_label_order(b_, joined_labels({&batch_, &columns_})).x;
    const size_t batch = batch_.size(), rows = rows_.size();
    Dims behind, between;
    for (size_t i = 0; i < columns_.size(); ++i) behind.push_back(static_cast<int64_t>(batch + rows + i));
    for (size_t i = 0; i < rows; ++i) between.push_back(static_cast<int64_t>(batch + i));
    return {unsqueeze_axes(a, behind) * unsqueeze_axes(b, between), order};
  }

  Labelled matrix_product() const {
    const Variable product = matmul(matrix(a_, rows_, inner_), matrix(b_, inner_, columns_));
    const AxisLabels order = joined_labels({&batch_, &rows_, &columns_});
    if (rows_.size() == 1 && columns_.size() == 1) return {product, order};
    std::vector<std::vector<AxisOf>> sizes;
    for (const int label : order) {
      const bool first = has_label(a_.labels, label);
      const auto axis = static_cast<int64_t>(place_of_label((first ? a_ : b_).labels, label));
      sizes.push_back({{first ? 1 : 2, axis}});
    }
    return {reshape_by(product, {a_.x, b_.x}, sizes), order};
  }

  /// [batch…, rows, columns], each of both merged. What lies the other way round is merged so, for a product
  /// takes transposed matrices as they are.
  Variable matrix(const Labelled& x, const AxisLabels& rows, const AxisLabels& columns) const {
    const bool swapped = !rows.empty() && !columns.empty() &&
                         place_of_label(x.labels, columns.front()) < place_of_label(x.labels, rows.front());
    const AxisLabels &first = swapped ? columns : rows, &second = swapped ? rows : columns;
    std::vector<int64_t> counts(batch_.size(), 1);
    Variable result = in_label_order(x, joined_labels({&batch_, &first, &second})).x;
    for (const AxisLabels* group : {&first, &second})
      if (!group->empty()) counts.push_back(static_cast<int64_t>(group->size()));
    result = merge_axes(result, Dims(counts.begin(), counts.end()));
    if (rows.empty()) return unsqueeze(result, -2);
    if (columns.empty()) return unsqueeze(result, -1);
    return swapped ? transpose(result) : result;
  }

  Labelled a_, b_;
  AxisLabels batch_, rows_, inner_, columns_;
};

}  // namespace

Variable summed_products(const Variable& x, const Variable& y, const Axes& axes) {
  if (x.dtype() != y.dtype()) return sum(x * y, axes);  // refuses them
  return rounded(sum_of_pairs(widened(x), widened(y), axes), x.dtype());
}

Variable contract(std::vector<Labelled> operands, const AxisLabels& output) {
  if (operands.size() == 1) return in_label_order(summed_to(operands[0], output), output).x;
  std::vector<AxisLabels> labels;
  std::vector<int64_t> sizes;
  for (const Labelled& operand : operands) {
    labels.push_back(operand.labels);
    for (size_t i = 0; i < operand.labels.size(); ++i) {
      const auto label = static_cast<size_t>(operand.labels[i]);
      if (label >= sizes.size()) sizes.resize(label + 1, 1);
      sizes[label] = operand.x.shape().dims()[i];
    }
  }
  const std::vector<ContractionStep> path = contraction_path(labels, output, sizes);
  std::vector<bool> used(operands.size());
  for (const ContractionStep& step : path) {
    used[step.first] = used[step.second] = true;
    AxisLabels kept = output;
    for (size_t k = 0; k < operands.size(); ++k)
      if (!used[k]) kept.insert(kept.end(), operands[k].labels.begin(), operands[k].labels.end());
    Labelled result = LabelledProduct(operands[step.first], operands[step.second], kept).result();
    operands[step.first] = operands[step.second] = {};
    operands.push_back(std::move(result));
    used.push_back(false);
  }
  return in_label_order(operands.back(), output).x;
}

}  // namespace espalier
