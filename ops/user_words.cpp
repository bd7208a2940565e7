#include "espalier/ops/user_words.h"

#include <fmt/format.h>

#include <array>
#include <string_view>

#include "espalier/core/op_names.h"

namespace espalier {

namespace {

struct UserName {
  std::string_view op, words;
};
/// Ops that no function is called like, and what they are a part of. Those that many functions are made of,
/// such as products and sums, keep their names.
constexpr std::array names{
    UserName{"conv_kernels", "the gradient of a convolution"},
    UserName{"count_ratio", "the number of elements"},
    UserName{"dropout_mask", "'dropout'"},
    UserName{"log_softmax_pick", "'softmax_cross_entropy'"},
    UserName{"log_softmax_pick_gradient", "the gradient of 'softmax_cross_entropy'"},
    UserName{"lu_determinant", "the determinant"},
    UserName{"lu_factor", "the factors of a matrix"},
    UserName{"lu_solve", "the solution of a system"},
    UserName{"pair_positions_like", "the positions of pairs"},
    UserName{"positions_like", "'arange_like'"},
    UserName{"scan_draws", "'scan'"},
    UserName{"checkpointed_scan", "'scan'"},
    UserName{"sum_of_products", "the sum of products"},
};

}  // namespace

std::string in_user_words(const Op& op) {
  if (op.feed()) return "the feed";
  for (const UserName& name : names)
    if (is_op(op, name.op)) return std::string(name.words);
  return fmt::format("'{}'", op.name());
}

}  // namespace espalier
