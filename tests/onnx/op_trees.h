// Trees of one operation or a few, which are written as files.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "espalier/espalier.h"
#include "espalier/ops/recurrent/memory_cell.h"

namespace espalier::testing {

using MakeTree = Variable (*)(const Variable& x);

/// Functions of x [batch, 6, 5], where the batch is open, by name.
inline std::vector<std::pair<std::string, MakeTree>> op_trees() {
  return {
      {"erfc", [](const Variable& x) { return erfc(x); }},
      {"infinities",
       [](const Variable& x) {
         const Variable y = 1.0 / relu(x), z = log(relu(x));  // which are infinite below 0
         return cast(isposinf(y), float32) * 2.0 + cast(isneginf(z), float32) + cast(isneginf(y), float32);
       }},
      {"cumsum", [](const Variable& x) { return cumsum(x, 1); }},
      {"flip",
       [](const Variable& x) {
         return flip(x, {1, 2});
       }},
      {"roll", [](const Variable& x) { return roll(x, 2, 1); }},
      {"tril", [](const Variable& x) { return tril(x, 1); }},
      {"triu", [](const Variable& x) { return triu(x, -1); }},
      {"reflected",
       [](const Variable& x) {
         return pad(x, {{2, 1}}, {.mode = PadMode::reflect});
       }},
      {"replicated",
       [](const Variable& x) {
         return pad(x, {{2, 1}}, {.mode = PadMode::replicate});
       }},
      {"circular",
       [](const Variable& x) {
         return pad(x, {{2, 1}}, {.mode = PadMode::circular});
       }},
      {"var", [](const Variable& x) { return var(x, 2); }},
      {"var_of_all", [](const Variable& x) { return x * var(x); }},
      {"logsumexp", [](const Variable& x) { return logsumexp(x, 1); }},
      {"norm", [](const Variable& x) { return norm(x, 2); }},
      {"prod", [](const Variable& x) { return prod(x, 2); }},
      {"argmax", [](const Variable& x) { return cast(argmax(x, 1), float32); }},
      {"topk", [](const Variable& x) { return topk(x, 3, 2).values; }},
      {"places_of_topk", [](const Variable& x) { return cast(topk(x, 3, 1).indices, float32); }},
      {"sort", [](const Variable& x) { return sort(x, 1).values; }},
      {"kthvalue", [](const Variable& x) { return kthvalue(x, 2, 2).values; }},
      {"median", [](const Variable& x) { return median(x, 2).values; }},
      {"one_hot", [](const Variable& x) { return cast(one_hot(argmax(x, 2), 5), float32); }},
      {"take_along_axis", [](const Variable& x) { return take_along_axis(x, argsort(x, 2), 2); }},
      {"take_along_axis of one column",
       [](const Variable& x) { return take_along_axis(x, argsort(slice(x, 1, 0, 1), 2), 2); }},
      {"take_along_axis from one column",
       [](const Variable& x) { return take_along_axis(slice(x, 1, 0, 1), argsort(x, 2), 2); }},
      {"put_along_axis", [](const Variable& x) { return put_along_axis(x, argsort(x, 2), x, 2); }},
      {"max_along_axis",
       [](const Variable& x) {
         return max_along_axis(x, argsort(slice(x, 1, 0, 2), 1), slice(x, 1, 1, 3), 1);
       }},
      {"scatter_min",
       [](const Variable& x) {
         return scatter_min(x, tensor({0, 0}), slice(x, 1, 0, 2), 1);
       }},
      {"add_along_axis", [](const Variable& x) { return add_along_axis(x, argsort(x, 1), x, 1); }},
      {"sliding_windows", [](const Variable& x) { return sliding_windows(x, 1, 3, 2); }},
      {"repeat", [](const Variable& x) { return repeat_interleave(x, 2, 1); }},
      {"slice_scatter",
       [](const Variable& x) { return slice_scatter(x, slice(x, 1, 0, 2) * 2.0, 1, 5, 0, -3); }},
      {"subscript",
       [](const Variable& x) {
         const Variable rows = tensor({0, -1, 2}), columns = tensor({4, 5, -6});
         return x[{rows, columns}];
       }},
      {"tile",
       [](const Variable& x) {
         return tile(x, {1, 2, 3});
       }},
      {"einsum",
       [](const Variable& x) {
         return einsum("bij,bkj->bik", {x, x});
       }},
      {"interpolated",
       [](const Variable& x) {
         return interpolate(unsqueeze(x, 1), {.size = {9, 10}});
       }},
      {"group_norm", [](const Variable& x) { return nn::GroupNorm(3)(x); }},
      {"instance_norm", [](const Variable& x) { return nn::InstanceNorm()(x); }},
      {"adaptive",
       [](const Variable& x) {
         return adaptive_avg_pool(unsqueeze(x, 1), {3, 1});
       }},
      {"adaptive in parts that overlap",
       [](const Variable& x) {
         return adaptive_avg_pool(unsqueeze(x, 1), {4, 7});
       }},
      {"adaptive maxima in parts that overlap",
       [](const Variable& x) {
         return adaptive_max_pool(unsqueeze(x, 1), {4, 7});
       }},
      {"lstm",
       [](const Variable& x) { return nn::Lstm(5, 4, {.layers = 2, .batch_first = true})(x).outputs; }},
      {"lstm_both_ways",
       [](const Variable& x) {
         return nn::Lstm(5, 4, {.bidirectional = true, .batch_first = true})(x).outputs;
       }},
      {"lstm_state", [](const Variable& x) { return nn::Lstm(5, 4, {.batch_first = true})(x).state.c; }},
      {"memory_cell",
       [](const Variable& x) {
         const MemoryCellForm form{.width = 5, .memories = 2, .blocks = {0, -1, -1, -1, 1, 0, 1, 2, 3, 4}};
         const std::vector<Variable> sums{concat({x, x * 0.5}, 2), linspace(-1, 1, 25)}, memories{x, -x};
         const MemoryStates states = memory_cell(form, sums, memories);
         return states.h + states.c;
       }},
      {"lstm_begun",
       [](const Variable& x) {
         const Variable c = slice(mean(x, 1), 1, 0, 4).unsqueeze(0), h = zeros_like(c);
         return nn::Lstm(5, 4, {.batch_first = true})(x, {h, c}).outputs;
       }},
      {"lstm_lengths",
       [](const Variable& x) {
         const Variable lengths = cast(greater(mean(x, {1, 2}), 0.0), int64) + 1;
         return nn::Lstm(5, 4, {.bidirectional = true, .batch_first = true})(x, nn::Lengths(lengths)).outputs;
       }},
      {"lstm_options",
       [](const Variable& x) {
         return nn::Lstm(5, 4,
                         {.batch_first = true,
                          .projection = 3,
                          .peepholes = true,
                          .coupled = true,
                          .layer_norm = true})(x)
             .outputs;
       }},
      {"gru", [](const Variable& x) { return nn::Gru(5, 4, {.batch_first = true})(x).outputs; }},
      {"rnn", [](const Variable& x) { return nn::Rnn(5, 4, {.batch_first = true})(x).outputs; }},
      {"scan",
       [](const Variable& x) {
         const Variable steps = transpose(x, {1, 0, 2}), weight = linspace(-1, 1, 25).reshape({5, 5});
         const auto step = [&](const std::vector<Variable>& state, const std::vector<Variable>& in) {
           const Variable next = tanh(matmul(state[0], weight) + in[0]) * 0.7;
           return ScanResult{{next, state[1] + next}, {next * next, in[0] - next}};
         };
         const Variable zero = zeros_like(steps[0]);
         const ScanResult all = scan(step, {zero, zero}, {steps}),
                          back = scan(step, {all.state[0], zero}, {steps * 0.5}, {.reverse = true});
         return transpose(
             concat({all.outputs[0], all.outputs[1], back.outputs[1], unsqueeze(back.state[1], 0)}, 0),
             {1, 0, 2});
       }},
      {"scans_in_each_other",
       [](const Variable& x) {
         const Variable steps = transpose(x, {1, 0, 2});
         const auto outer = [&](const std::vector<Variable>& state, const std::vector<Variable>& in) {
           const auto inner = [&](const std::vector<Variable>& s, const std::vector<Variable>& y) {
             return ScanResult{{sin(s[0] + y[0] * in[0])}, {}};
           };
           return ScanResult{{scan(inner, {state[0]}, {steps}).state[0]}, {}};
         };
         return scan(outer, {zeros_like(steps[0])}, {steps}).state[0];
       }},
      {"roi_align",
       [](const Variable& x) {
         const Tensor boxes = tensor_from(std::vector<float>{0, 0, 4, 5, 1, 0.5, 3.2, 4, 1, 1, 2, 2}, {3, 4}),
                      images = tensor_from(std::vector<int64_t>{0, 1, 0}, {3});
         const Variable planes = unsqueeze(x, 1);
         return roi_align(planes, boxes, images, {.size = {2, 3}, .scale = 0.9, .aligned = true}) +
                roi_align(planes, boxes, images, {.size = {2, 3}, .samples = 2});
       }},
      {"attention", [](const Variable& x) { return scaled_dot_product_attention(x, x, x); }},
      {"causal_attention",
       [](const Variable& x) { return scaled_dot_product_attention(x, x, x, {.causal = true}); }},
      {"masked_attention",
       [](const Variable& x) {
         return scaled_dot_product_attention(x, x, x, {.mask = matmul(x, transpose(x)) > 6.0});
       }},
  };
}

}  // namespace espalier::testing
