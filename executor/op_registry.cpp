// The one place that knows all ops, as backends.cpp knows all backends.
#include "espalier/core/op_registry.h"

#include "espalier/core/assignment_ops.h"
#include "espalier/core/recompute.h"
#include "espalier/core/train_phase.h"
#include "espalier/executor/fused/matmul_ops.h"
#include "espalier/executor/passes/passes.h"
#include "espalier/ops/attention/attention_ops.h"
#include "espalier/ops/matmul/matmul.h"
#include "espalier/ops/registered_ops.h"
#include "espalier/optim/assign.h"

namespace espalier {

OpRegistry make_op_registry() {
  OpRegistry ops;
  for (const auto add : {
           add_along_axis_ops,
           add_arg_extreme_ops,
           add_arithmetic_ops,
           add_attention_ops,
           add_axis_group_ops,
           add_axis_view_ops,
           add_band_op,
           add_bitwise_ops,
           add_cast_op,
           add_checked_indices_op,
           add_cholesky_op,
           add_comparison_ops,
           add_concat_ops,
           add_convolution_ops,
           add_count_op,
           add_counting_ops,
           add_cross_entropy_ops,
           add_ctc_ops,
           add_cumulative_extreme_ops,
           add_cumulative_ops,
           add_diagonal_ops,
           add_eigh_ops,
           add_elementary_ops,
           add_exponential_ops,
           add_flip_ops,
           add_fractional_pool_op,
           add_index_ops,
           add_linear_scan_ops,
           add_lu_ops,
           add_mask_ops,
           add_pad_ops,
           add_piecewise_activation_ops,
           add_pinv_op,
           add_pool_largest_ops,
           add_pool_ops,
           add_pool_take_ops,
           add_position_ops,
           add_product_ops,
           add_qr_op,
           add_random_ops,
           add_recurrence_ops,
           add_reduce_ops,
           add_region_ops,
           add_reshape_ops,
           add_rounding_ops,
           add_row_ops,
           add_sample_correction_op,
           add_sampling_ops,
           add_scatter_extreme_ops,
           add_scatter_ops,
           add_scan_op,
           add_search_op,
           add_simplex_ops,
           add_slice_steps_ops,
           add_smooth_activation_ops,
           add_softmax_ops,
           add_stack_rows_ops,
           add_sort_ops,
           add_special_ops,
           add_stop_gradient_op,
           add_suppression_op,
           add_svd_ops,
           add_target_check_ops,
           add_triangular_ops,
           add_trigonometry_ops,
           add_window_ops,
           add_transfer_op,
           add_assignment_ops,
           add_phase_ops,
           add_recompute_ops,
           add_assign_op,
           add_keep_op,
           add_shape_op,
           add_join_op,
       })
    add(ops);
  ops.add("matmul", 2, [](AttributeReader& a) {
    return matmul_op({a.flag("transpose_a"), a.flag("transpose_b")});
  });
  ops.add("sum_of_products", Arity::at_least(2), [](AttributeReader& a) {
    return sum_of_products_op({a.flag("transpose_a"), a.flag("transpose_b")}, a.flag("adds"));
  });
  ops.add("matmul_update", Arity::passes_only(), [](AttributeReader& a) {
    return std::make_shared<MatmulUpdate>(MatmulForm{a.flag("transpose_a"), a.flag("transpose_b")});
  });
  ops.add("rounded_matmul", Arity::passes_only(), [](AttributeReader& a) {
    return std::make_shared<RoundedMatmul>(MatmulForm{a.flag("transpose_a"), a.flag("transpose_b")});
  });
  for (const auto leaf : {"constant", "variable"}) ops.add_unsupported(leaf, "a value");
  ops.add_unsupported("source", "a feed");
  for (const auto collective : {"all_reduce", "all_gather", "reduce_scatter", "broadcast", "sum_at_root"})
    ops.add_unsupported(collective, "a communicator");
  for (const auto program : {"fused", "fused_group", "fused_rows", "matmul_epilogue"})
    ops.add_unsupported(program, "a program");
  for (const auto exchange : {"gradient_bucket", "wait_for_gradients", "gather_parameters",
                              "reduce_over_replicas", "gather_over_replicas"})
    ops.add_unsupported(exchange, "the parameters of a tree and its replicas");
  return ops;
}

}  // namespace espalier
