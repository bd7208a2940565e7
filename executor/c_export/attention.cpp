// Attention, in which each query reads its keys twice, for the scores and for the weighted sum of the values,
// and its gradient, which computes the weights again.
#include "espalier/ops/attention/form.h"

#include "espalier/executor/c_export/emitters.h"

namespace espalier::c_export {

namespace {

/// The strides of the axes in front of the last `behind` ones.
Dims leading(const Dims& strides, size_t behind) { return Dims(strides.begin(), strides.end() - behind); }

/// The first element of a key or value of the head d<n>, which several heads of queries share.
std::string head_of_keys(const Shape& shape, const AttentionSizes& sizes) {
  Dims strides = leading(Layout(shape).strides, 2);
  if (strides.empty()) return "0";
  const size_t head = strides.size() - 1;
  const int64_t of_head = strides[head];
  strides[head] = 0;
  const std::string of_batch = position(strides, "d");
  return fmt::format("{}{}d{} / {} * {}", of_batch == "0" ? "" : of_batch, of_batch == "0" ? "" : " + ", head,
                     sizes.group(), of_head);
}

/// The loops over heads and queries, which forward and gradient share. `first`: the number of the input q.
class AttentionText {
 public:
  AttentionText(Function& f, size_t first, size_t values)
      : f_(f),
        form_(AttentionForm::of(f.op())),
        first_(first),
        values_(values),
        sizes_(f.input_shape(first), f.input_shape(first + 1), f.input_shape(first + 2)),
        lead_(f.input_shape(first).rank() - 2) {
    f.only({DType::float32, DType::boolean, DType::int64});
    if (form_.dropout > 0) f.refuse("there is no C code for attention with dropout");
  }

  const AttentionSizes& sizes() const { return sizes_; }
  /// Opens a loop for each axis of the heads.
  void begin_heads() {
    for (size_t i = 0; i < lead_; ++i) f_.loop(fmt::format("d{}", i), f_.input_shape(first_).dims()[i]);
  }
  void end_heads() { f_.close(lead_); }
  /// Opens one over the queries, of which each sees the first `seen` keys.
  void begin_queries() {
    const std::string q = f_.dense(first_);
    f_.loop("i", sizes_.queries);
    f_.line(fmt::format("const float *query = {};", row_of(q, f_.input_shape(first_))));
    if (form_.causal)
      f_.line(fmt::format("const long seen = i + {0} < {1} ? i + {0} : {1};", form_.past + 1, sizes_.keys));
    else
      f_.line(fmt::format("const long seen = {};", sizes_.keys));
  }
  /// The row of query i in a tensor of that shape.
  static std::string row_of(const std::string& tensor, const Shape& shape) {
    return fmt::format("{} + {} + i * {}", tensor, position(leading(Layout(shape).strides, 2), "d"),
                       shape[-1]);
  }
  /// The row of key j in a tensor of the shape of input k, which several heads share.
  std::string key_row_of(const std::string& tensor, size_t k) const {
    const Shape& shape = f_.input_shape(k);
    return fmt::format("{} + {} + j * {}", tensor, head_of_keys(shape, sizes_), shape[-1]);
  }
  /// Opens a loop over the keys j that are seen, and defines `key` and `score`.
  void begin_keys() {
    const std::string k = f_.dense(first_ + 1);
    f_.open("for (long j = 0; j < seen; ++j)");
    f_.line(fmt::format("const float *key = {};", key_row_of(k, first_ + 1)));
    f_.line("float score = 0;");
    f_.line(fmt::format("for (long c = 0; c < {}; ++c) score += query[c] * key[c];", sizes_.width));
    f_.line(fmt::format("score *= {};", scale()));
    write_masks();
  }
  std::string scale() const { return literal(form_.scale, DType::float32); }
  /// The element of the log sums that belongs to query i.
  static std::string log_sum_of(const std::string& tensor, const Shape& shape) {
    return fmt::format("{}[{} + i]", tensor, position(leading(Layout(shape).strides, 1), "d"));
  }

 private:
  /// Hides or shifts the score of query i and key j.
  void write_masks() {
    const size_t behind = values_;
    if (form_.masked) {
      const size_t k = form_.mask_at(behind);
      Shape scores = f_.input_shape(first_);
      scores.dims()[scores.rank() - 1] = sizes_.keys;
      const Dims strides = broadcast_layout(f_.layout(k), scores).strides;
      const std::string at =
          fmt::format("{}[{} + i * {} + j * {}]", f_.in(k), position(leading(strides, 2), "d"),
                      strides[lead_], strides[lead_ + 1]);
      f_.line(f_.input_spec(k).dtype == DType::boolean ? fmt::format("if (!{}) score = -INFINITY;", at)
                                                       : fmt::format("score += {};", at));
    }
    if (form_.keys_masked) {
      const size_t k = form_.key_mask_at(behind);
      const Dims& strides = f_.layout(k).strides;
      f_.line(fmt::format("if (!{}[{} + j * {}]) score = -INFINITY;", f_.in(k),
                          position(leading(strides, 1), "d"), strides.back()));
    }
  }

  Function& f_;
  const AttentionForm form_;
  size_t first_, values_;
  const AttentionSizes sizes_;
  size_t lead_;
};

}  // namespace

void write_attention(Function& f) {
  AttentionText text(f, 0, 3);
  const AttentionSizes& s = text.sizes();
  const std::string v = f.dense(2), y = f.out(0), log_sums = f.out(1),
                    row = f.scratch(s.keys, DType::float32);
  text.begin_heads();
  text.begin_queries();
  f.line(fmt::format("float *to = {};", text.row_of(y, f.output_shape(0))));
  f.line("float largest = -INFINITY, sum = 0;");
  text.begin_keys();
  f.line("largest = score > largest ? score : largest;");
  f.line(fmt::format("{}[j] = score;", row));
  f.close();
  f.line(fmt::format("for (long c = 0; c < {}; ++c) to[c] = 0;", s.value_width));
  f.open("for (long j = 0; j < seen; ++j)");
  f.line(fmt::format("const float *value = {};", text.key_row_of(v, 2)));
  f.line(fmt::format("const float weight = expf({}[j] - (largest == -INFINITY ? 0 : largest));", row));
  f.line("sum += weight;");
  f.line(fmt::format("for (long c = 0; c < {}; ++c) to[c] += weight * value[c];", s.value_width));
  f.close();
  f.line("const int none = largest == -INFINITY && sum == 0;");
  f.line("const float factor = none ? 0 : 1 / sum;");
  f.line(fmt::format("for (long c = 0; c < {}; ++c) to[c] *= factor;", s.value_width));
  f.line(fmt::format("{} = none ? INFINITY : largest + logf(sum);",
                     text.log_sum_of(log_sums, f.output_shape(1))));
  f.close();
  text.end_heads();
}

/// With w the weights, y the result and g its gradient: that of a value is Σ w g, and that of a score
/// w (g · value − g · y).
void write_attention_gradient(Function& f) {
  AttentionText text(f, 1, 6);
  const AttentionSizes& s = text.sizes();
  const std::string g = f.dense(0), v = f.dense(3), y = f.dense(4), log_sums = f.dense(5);
  const std::string of_q = f.out(0), of_k = f.out(1), of_v = f.out(2);
  f.fill_with_zeros(of_q, f.output_shape(0).elements());
  f.fill_with_zeros(of_k, f.output_shape(1).elements());
  f.fill_with_zeros(of_v, f.output_shape(2).elements());
  text.begin_heads();
  text.begin_queries();
  f.line(fmt::format("const float *given = {}, *result = {};", text.row_of(g, f.input_shape(0)),
                     text.row_of(y, f.input_shape(4))));
  f.line(fmt::format("float *to_query = {};", text.row_of(of_q, f.output_shape(0))));
  f.line(fmt::format("const float log_sum = {};", text.log_sum_of(log_sums, f.input_shape(5))));
  f.line("float mean = 0;");
  f.line(fmt::format("for (long c = 0; c < {}; ++c) mean += given[c] * result[c];", s.value_width));
  text.begin_keys();
  f.line("const float weight = expf(score - log_sum);");
  f.line(fmt::format("const float *value = {};", text.key_row_of(v, 3)));
  f.line(
      fmt::format("float *to_key = {}, *to_value = {};", text.key_row_of(of_k, 2), text.key_row_of(of_v, 3)));
  f.line("float of_score = 0;");
  f.line(fmt::format("for (long c = 0; c < {}; ++c) of_score += given[c] * value[c];", s.value_width));
  f.line(fmt::format("of_score = weight * (of_score - mean) * {};", text.scale()));
  f.line(fmt::format("for (long c = 0; c < {}; ++c) to_value[c] += weight * given[c];", s.value_width));
  f.line(fmt::format("for (long c = 0; c < {}; ++c) to_query[c] += of_score * key[c];", s.width));
  f.line(fmt::format("for (long c = 0; c < {}; ++c) to_key[c] += of_score * query[c];", s.width));
  f.close(2);
  text.end_heads();
}

}  // namespace espalier::c_export
