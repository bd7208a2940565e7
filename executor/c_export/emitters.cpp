#include "espalier/executor/c_export/emitters.h"

#include <algorithm>

#include "espalier/executor/c_export/program_text.h"
#include "espalier/executor/c_export/scalar_text.h"
#include "espalier/executor/fused/fused_op.h"

namespace espalier::c_export {

namespace {

using Table = std::map<std::string, Emitter, std::less<>>;

Table make_table() {
  Table table{
      {"fused", write_fused},
      {"matmul", write_matmul},
      {"sum_of_products", write_sum_of_products},
      {"conv", write_convolution},
      {"conv_transpose", write_convolution_transpose},
      {"conv_kernels", write_convolution_kernels},
      {"pool_argmax", write_pool_argmax},
      {"pool_max", write_pool_max},
      {"pool_sum", write_pool_sum},
      {"pool_spread", write_pool_spread},
      {"pool_count", write_pool_count},
      {"pool_take", write_pool_take},
      {"pool_add_like", write_pool_add_like},
      {"count_ratio", write_count_ratio},
      {"softmax", write_softmax},
      {"log_softmax", write_softmax},
      {"log_softmax_pick", write_log_softmax_pick},
      {"log_softmax_pick_gradient", write_log_softmax_pick_gradient},
      {"argmax", write_arg_extreme},
      {"argmin", write_arg_extreme},
      {"concat", write_concat},
      {"concat_part", write_concat_part},
      {"stack", write_stack},
      {"pad_like", write_pad_like},
      {"pad_steps_like", write_pad_steps_like},
      {"pad_constant", write_pad_constant},
      {"pad_from_axis", write_pad_from_axis},
      {"flip", write_flip},
      {"roll", write_roll},
      {"join", write_join},
      {"full_like", write_full_like},
      {"no_attention_keys", write_zeros},
      {"gather", write_gather},
      {"look_up", write_gather},
      {"scatter_add_like", write_scatter_add},
      {"pick", write_pick},
      {"put_like", write_put},
      {"one_hot", write_one_hot},
      {"take_along_axis", write_take_along_axis},
      {"add_along_axis_like", write_add_along_axis},
      {"sum_rows", write_sum_rows},
      {"take_rows", write_take_rows},
      {"put_rows", write_put_rows},
      {"checked_indices", write_checked_indices},
      {"dropout_mask", write_dropout_mask},
      {"rand_like", write_uniform},
      {"rand_in_training_like", write_uniform},
      {"uniform", write_uniform},
      {"attention", write_attention},
      {"attention_gradient", write_attention_gradient},
      {"recurrence", write_recurrence},
      {"padded_recurrence", write_recurrence},
      {"recurrence_gradient", write_recurrence_gradient},
      {"padded_recurrence_gradient", write_recurrence_gradient},
      {"checked_lengths", write_checked_lengths},
      {"scan", write_scan},
  };
  for (const char* reduction : {"sum", "mean", "max", "min", "sum_to_like"})
    table[reduction] = write_reduction;
  for (const char* copy :
       {"reshape", "reshape_like", "unfold_like", "flatten", "fold_rows", "unsqueeze", "squeeze",
        "merge_axes", "unflatten", "reshape_by", "store", "keep", "recompute_input"})
    table[copy] = write_copy;
  for (const std::string_view op : scalar_ops()) table.emplace(op, write_pointwise);
  return table;
}

const Table& table() {
  static const Table all = make_table();
  return all;
}

}  // namespace

Emitter emitter_of(std::string_view op) {
  const auto found = table().find(op);
  return found == table().end() ? nullptr : found->second;
}

std::vector<std::string> emitted_ops() {
  std::vector<std::string> names;
  for (const auto& [op, emitter] : table()) names.push_back(op);
  return names;
}

void write_fused(Function& f) { write_program(f, dynamic_cast<const FusedOp&>(f.op()).program()); }

}  // namespace espalier::c_export
