#include "espalier/executor/training/plan_file/op_inputs.h"

#include <algorithm>
#include <limits>
#include <map>

namespace espalier {

namespace {

struct Inputs {
  size_t least, most;
  std::string_view ops;  // with spaces between them
};
constexpr size_t many = std::numeric_limits<size_t>::max();

constexpr Inputs all_inputs[] = {
    {0, 0, "normal uniform"},
    {1, 1,
     "abs acos acosh attention_keys argmax argmin asin asinh atan atanh band_like bernoulli bincount "
     "bitwise_not broadcast_to cast ceil checked_steps cholesky cos cosh count_nonzero cube cummax cummin "
     "cumprod cumsum diag_embed diagonal digamma dropout_mask eigh eigvalsh erf erfc erfinv exp "
     "exp2 expm1 flatten flip floor fold_rows former full_like gamma gelu gelu_tanh "
     "gelu_tanh_slope hardsigmoid hardswish isfinite isinf isnan kthvalue lgamma log log10 log1p "
     "log2 log_sigmoid log_softmax logcumsumexp logical_not lu_factor max mean median merge_axes "
     "min mish mish_slope multinomial negative no_attention_keys nonzero_positions one_hot pad_from_axis "
     "pair_positions_like poisson pool_argmax pool_count pool_sum positions_like prod qr "
     "rand_in_training_like rand_like randint_like randn_like reciprocal recompute_capture recompute_input "
     "relu repeat_on_axis "
     "reshape roll round row_range rsqrt selu selu_slope shift_by_one sigmoid sign silu silu_slope sin "
     "sinh slice slice_steps sliding_windows softmax softsign sort sparsemax sqrt square squeeze "
     "stop_gradient sum svd svdvals tan tanh tanhshrink to topk transpose trunc "
     "truncated_normal_like unflatten unique unsqueeze"},
    {1, 2, "add_windows"},
    {1, many, "concat memory_cell put_rows_like recompute reshape_by scan stack_rows"},
    {2, 2,
     "add assign atan2 bitwise_and bitwise_left_shift bitwise_or bitwise_right_shift bitwise_xor "
     "broadcast_beside broadcast_like celu celu_slope checked_indices checked_lengths clamp_max clamp_min "
     "conv "
     "count_ratio divide elu elu_slope equal floor_divide fmod fractional_argmax gather "
     "gelu_gradient greater greater_equal hardshrink heaviside hypot in_train_phase leaky_relu "
     "less less_equal linear_scan logaddexp logical_and logical_or logical_xor look_up matmul "
     "maximum minimum multiply not_equal pad_constant pad_like pad_steps_like pick pinv "
     "polygamma pool_spread power put_diagonal_like relu_gradient remainder reshape_like "
     "sample_correction saturate_max saturate_min searchsorted slice_like softplus softshrink "
     "subtract sum_to_like take_along_axis take_last take_rows triangular_solve unfold_like "
     "xlogy"},
    {2, 3, "conv_transpose non_max_suppression"},
    {2, 6, "attention_dropout"},
    {2, many, "add_all broadcast_together concat_part sum_of_products"},
    {3, 3,
     "add_along_axis_like broadcast_to_chosen conv_kernels lu_determinant put_along_axis "
     "put_like put_rows roi_align roi_argmax scatter scatter_add_like sum_rows where "
     "with_assignment"},
    {3, 6, "attention attention_weights recurrence"},
    {3, many, "recurrence_gradient"},
    {4, 7, "padded_recurrence"},
    {4, many, "padded_recurrence_gradient"},
    {4, 4, "ctc_loss lu_solve roi_align_spread"},
    {4, many, "memory_cell_gradient"},
    {5, 5, "ctc_loss_curvature"},
    {6, 6, "ctc_loss_gradient"},
    {6, 9, "attention_gradient"},
};

std::map<std::string_view, const Inputs*> make_table() {
  std::map<std::string_view, const Inputs*> table;
  for (const Inputs& inputs : all_inputs)
    for (std::string_view rest = inputs.ops; !rest.empty();) {
      const size_t end = std::min(rest.find(' '), rest.size());
      table.emplace(rest.substr(0, end), &inputs);
      rest.remove_prefix(std::min(end + 1, rest.size()));
    }
  return table;
}

}  // namespace

bool takes_inputs(std::string_view op, size_t inputs) {
  static const auto* const table = new std::map<std::string_view, const Inputs*>(make_table());
  const auto known = table->find(op);
  return known != table->end() && inputs >= known->second->least && inputs <= known->second->most;
}

}  // namespace espalier
