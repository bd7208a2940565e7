#!/usr/bin/env bash
# Fails unless each function of docs/ops.md has a row in the op table: an OpCase whose name begins with the function's;
# and an Operation that is compared with PyTorch, or a reason in tests/peers/without.py.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# Those without, and why.
without=$(
  sed 's/#.*//' <<'END'
atleast_1d atleast_2d            # reshape
arange_like axis_size            # of sizes alone: batch_sizes_test
argsort                          # the indices of sort
eigh lstsq matrix_rank           # decompositions_test: results up to signs
eigvalsh svdvals slogdet         # the same
broadcast_tensors chunk split    # lists of broadcast_to and slice: arrange_test
dropout alpha_dropout feature_alpha_dropout gumbel_softmax # random: random_ops_test, composed_functions_test, simplex_test
blackman_window hamming_window hann_window # of no operand: composed_functions_test
histogram                        # integers: counting_test
masked_scatter masked_select nonzero unique # the shape depends on values: masks_test, counting_test
nll_loss                         # a row of losses_test has the name of its options
nms batched_nms                  # the shape depends on values: regions_test
non_max_suppression              # the same
pinv qr svd                      # rows of decompositions_test, named by what is looked at
sample_logits truncated_logits   # random: token_sampling_test
scaled_dot_product_attention     # rows of attention
scaled_dot_product_attention_and_weights
scan                             # takes a function: loop_test
slice_scatter                    # rows of arrange_test, named by their steps
set_winograd uses_winograd       # a switch
END
)
functions=$(grep -o '^- `[^`]*`' docs/ops.md | sed -E 's/^- `//; s/\(.*//; s/.* //' | grep -E '^[a-z][a-z0-9_]*$' | sort -u)
# Not those that errors are compared with.
rows=$(grep -lE 'check_op|OpCase' tests/*_test.cpp | xargs sed -zE 's/says\(\{[^}]*\}//g' | tr '\0' '\n' |
  grep -oE '((\{|name = |\? |: )"[a-z][a-z0-9_]*\b)|(^ *(of_matrix\()?"[a-z][a-z0-9_]*",)' | sed -E 's/",$//; s/.*"//' | sort -u)

for name in $(comm -23 <(echo "$functions") <(echo "$rows")); do
  grep -qw -- "$name" <<<"$without" || { echo "$name of docs/ops.md has no row in the op table, nor a reason in $0" >&2 && failed=1; }
done
for name in $without; do
  grep -qx -- "$name" <<<"$functions" || { echo "$name stands in $0, and not in docs/ops.md" >&2 && failed=1; }
done
compared=$(cat tests/peers/*.py)
for name in $functions; do
  grep -qF "\"$name\"" <<<"$compared" || { echo "$name of docs/ops.md has no row in tests/peers, nor a reason in its without.py" >&2 && failed=1; }
done
[ -z "${failed:-}" ]
