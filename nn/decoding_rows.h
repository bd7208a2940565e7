// The calls of a decoding step, with the rows of its state in order.
#pragma once
#include <fmt/format.h>

#include <string_view>

#include "espalier/core/error.h"
#include "espalier/nn/decoding.h"
#include "espalier/ops/ops.h"
#include "espalier/ops/random/logit_rows.h"

namespace espalier::nn {

class DecodingRows {
 public:
  DecodingRows(std::string_view function, const DecodingStep& step, DecodingState state, int64_t rows)
      : function_(function), step_(step), state_(std::move(state)) {
    if (!step) throw Error(fmt::format("{}: the step is empty", function));
    check_state(rows);
    if (!state_.empty()) device_ = state_[0].device();
  }

  /// The logits of the next tokens, [rows, vocabulary].
  Variable next(const std::vector<int64_t>& tokens) {
    const auto rows = static_cast<int64_t>(tokens.size());
    NextTokens next = step_(tensor_from(tokens, {rows}).to(device_), state_);
    if (!next.logits.defined()) throw Error(fmt::format("{}: the step returns no logits", function_));
    const Shape& shape = next.logits.shape();
    if (shape.rank() != 2 || shape[0] != rows || shape[1] == 0)
      throw ShapeError(fmt::format("{}: the step returns logits of shape {} for {} sequences", function_,
                                   shape.str(), rows));
    if (!is_real(next.logits.dtype()))
      throw TypeError(fmt::format("{}: the step returns logits of {}", function_, name(next.logits.dtype())));
    if (next.logits.device().type == DeviceType::cpu) check_logit_rows(next.logits.value(), function_);
    if (!state_.empty() && next.state.size() != state_.size())  // a first step may begin its states
      throw Error(fmt::format("{}: the step returns {} states; it got {}", function_, next.state.size(),
                              state_.size()));
    state_ = std::move(next.state);
    check_state(rows);
    device_ = next.logits.device();
    return next.logits;
  }

  /// Goes on with these rows of the last call, in this order.
  void take(const std::vector<int64_t>& rows, size_t before) {
    bool same = rows.size() == before;
    for (size_t i = 0; same && i < rows.size(); ++i) same = rows[i] == static_cast<int64_t>(i);
    if (same) return;
    const Tensor order = tensor_from(rows, {static_cast<int64_t>(rows.size())});
    for (Variable& x : state_) x = gather(x, order.to(x.device()));
  }

 private:
  void check_state(int64_t rows) const {
    for (const Variable& x : state_)
      if (!x.defined() || x.rank() == 0 || x.shape()[0] != rows)
        throw ShapeError(fmt::format("{}: a state {} for {} sequences", function_,
                                     x.defined() ? "of shape " + x.shape().str() : "that is undefined",
                                     rows));
  }

  std::string_view function_;
  const DecodingStep& step_;
  DecodingState state_;
  Device device_;
};

}  // namespace espalier::nn
