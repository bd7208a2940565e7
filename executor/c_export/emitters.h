// The emitters by subject, each in a file of its own.
#pragma once
#include "espalier/executor/c_export/function.h"

namespace espalier::c_export {

void write_fused(Function& f);
void write_matmul(Function& f);
void write_sum_of_products(Function& f);
void write_convolution(Function& f);
void write_convolution_transpose(Function& f);
void write_convolution_kernels(Function& f);
void write_pool_argmax(Function& f);
void write_pool_max(Function& f);
void write_pool_sum(Function& f);
void write_pool_spread(Function& f);
void write_pool_count(Function& f);
void write_pool_take(Function& f);
void write_pool_add_like(Function& f);
void write_reduction(Function& f);
void write_count_ratio(Function& f);
void write_softmax(Function& f);
void write_log_softmax_pick(Function& f);
void write_log_softmax_pick_gradient(Function& f);
void write_arg_extreme(Function& f);
void write_copy(Function& f);
void write_concat(Function& f);
void write_concat_part(Function& f);
void write_stack(Function& f);
void write_pad_like(Function& f);
void write_pad_steps_like(Function& f);
void write_pad_constant(Function& f);
void write_pad_from_axis(Function& f);
void write_flip(Function& f);
void write_roll(Function& f);
void write_join(Function& f);
void write_full_like(Function& f);
void write_zeros(Function& f);
void write_gather(Function& f);
void write_scatter_add(Function& f);
void write_pick(Function& f);
void write_put(Function& f);
void write_one_hot(Function& f);
void write_take_along_axis(Function& f);
void write_add_along_axis(Function& f);
void write_sum_rows(Function& f);
void write_take_rows(Function& f);
void write_put_rows(Function& f);
void write_checked_indices(Function& f);
void write_dropout_mask(Function& f);
void write_uniform(Function& f);
void write_attention(Function& f);
void write_attention_gradient(Function& f);
void write_recurrence(Function& f);
void write_recurrence_gradient(Function& f);
void write_checked_lengths(Function& f);
void write_scan(Function& f);

}  // namespace espalier::c_export
