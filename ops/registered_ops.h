// One function for each file of ops: what adds them to a registry (core/op_registry.h).
#pragma once

namespace espalier {

class OpRegistry;

void add_along_axis_ops(OpRegistry& ops);
void add_arg_extreme_ops(OpRegistry& ops);
void add_arithmetic_ops(OpRegistry& ops);
void add_axis_group_ops(OpRegistry& ops);
void add_axis_view_ops(OpRegistry& ops);
void add_band_op(OpRegistry& ops);
void add_bitwise_ops(OpRegistry& ops);
void add_cast_op(OpRegistry& ops);
void add_checked_indices_op(OpRegistry& ops);
void add_cholesky_op(OpRegistry& ops);
void add_comparison_ops(OpRegistry& ops);
void add_concat_ops(OpRegistry& ops);
void add_convolution_ops(OpRegistry& ops);
void add_count_op(OpRegistry& ops);
void add_counting_ops(OpRegistry& ops);
void add_cross_entropy_ops(OpRegistry& ops);
void add_ctc_ops(OpRegistry& ops);
void add_cumulative_extreme_ops(OpRegistry& ops);
void add_cumulative_ops(OpRegistry& ops);
void add_diagonal_ops(OpRegistry& ops);
void add_eigh_ops(OpRegistry& ops);
void add_elementary_ops(OpRegistry& ops);
void add_exponential_ops(OpRegistry& ops);
void add_flip_ops(OpRegistry& ops);
void add_fractional_pool_op(OpRegistry& ops);
void add_index_ops(OpRegistry& ops);
void add_linear_scan_ops(OpRegistry& ops);
void add_lu_ops(OpRegistry& ops);
void add_mask_ops(OpRegistry& ops);
void add_pad_ops(OpRegistry& ops);
void add_piecewise_activation_ops(OpRegistry& ops);
void add_pinv_op(OpRegistry& ops);
void add_pool_largest_ops(OpRegistry& ops);
void add_pool_ops(OpRegistry& ops);
void add_pool_take_ops(OpRegistry& ops);
void add_position_ops(OpRegistry& ops);
void add_product_ops(OpRegistry& ops);
void add_qr_op(OpRegistry& ops);
void add_random_ops(OpRegistry& ops);
void add_recurrence_ops(OpRegistry& ops);
void add_reduce_ops(OpRegistry& ops);
void add_region_ops(OpRegistry& ops);
void add_reshape_ops(OpRegistry& ops);
void add_rounding_ops(OpRegistry& ops);
void add_row_ops(OpRegistry& ops);
void add_sample_correction_op(OpRegistry& ops);
void add_sampling_ops(OpRegistry& ops);
void add_scatter_extreme_ops(OpRegistry& ops);
void add_scatter_ops(OpRegistry& ops);
void add_scan_op(OpRegistry& ops);
void add_search_op(OpRegistry& ops);
void add_simplex_ops(OpRegistry& ops);
void add_slice_steps_ops(OpRegistry& ops);
void add_smooth_activation_ops(OpRegistry& ops);
void add_softmax_ops(OpRegistry& ops);
void add_stack_rows_ops(OpRegistry& ops);
void add_sort_ops(OpRegistry& ops);
void add_special_ops(OpRegistry& ops);
void add_stop_gradient_op(OpRegistry& ops);
void add_suppression_op(OpRegistry& ops);
void add_svd_ops(OpRegistry& ops);
void add_target_check_ops(OpRegistry& ops);
void add_triangular_ops(OpRegistry& ops);
void add_trigonometry_ops(OpRegistry& ops);
void add_window_ops(OpRegistry& ops);

}  // namespace espalier
