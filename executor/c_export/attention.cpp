// Attention, forward: each query reads its keys twice, for the scores and for the weighted sum of the values.
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

/// Hides or shifts the score of query i and key j.
void write_masks(Function& f, const AttentionForm& form, const Shape& scores) {
  if (form.masked) {
    const size_t k = form.mask_at(3);
    const Dims strides = broadcast_layout(f.layout(k), scores).strides;
    const size_t lead = strides.size() - 2;
    const std::string at = fmt::format("{}[{} + i * {} + j * {}]", f.in(k),
                                       position(leading(strides, 2), "d"), strides[lead], strides[lead + 1]);
    f.line(f.input_spec(k).dtype == DType::boolean ? fmt::format("if (!{}) score = -INFINITY;", at)
                                                   : fmt::format("score += {};", at));
  }
  if (form.keys_masked) {
    const size_t k = form.key_mask_at(3);
    const Dims& strides = f.layout(k).strides;
    f.line(fmt::format("if (!{}[{} + j * {}]) score = -INFINITY;", f.in(k),
                       position(leading(strides, 1), "d"), strides.back()));
  }
}

}  // namespace

void write_attention(Function& f) {
  f.only({DType::float32, DType::boolean, DType::int64});
  const AttentionForm form = AttentionForm::of(f.op());
  if (form.dropout > 0) f.refuse("there is no C code for attention with dropout");
  const Shape &q_shape = f.input_shape(0), &k_shape = f.input_shape(1), &v_shape = f.input_shape(2);
  const AttentionSizes s(q_shape, k_shape, v_shape);
  Shape scores = q_shape;
  scores.dims()[scores.rank() - 1] = s.keys;
  const std::string q = f.dense(0), k = f.dense(1), v = f.dense(2), y = f.out(0), log_sums = f.out(1),
                    row = f.scratch(s.keys, DType::float32);
  const size_t lead = q_shape.rank() - 2;
  for (size_t i = 0; i < lead; ++i) f.loop(fmt::format("d{}", i), q_shape.dims()[i]);
  f.loop("i", s.queries);
  f.line(fmt::format("const float *query = {} + {} + i * {};", q,
                     position(leading(Layout(q_shape).strides, 2), "d"), s.width));
  f.line(fmt::format("float *to = {} + {} + i * {};", y,
                     position(leading(Layout(f.output_shape(0)).strides, 2), "d"), s.value_width));
  if (form.causal)
    f.line(fmt::format("const long seen = i + {0} < {1} ? i + {0} : {1};", form.past + 1, s.keys));
  else
    f.line(fmt::format("const long seen = {};", s.keys));
  f.line("float largest = -INFINITY, sum = 0;");
  f.open("for (long j = 0; j < seen; ++j)");
  f.line(fmt::format("const float *key = {} + {} + j * {};", k, head_of_keys(k_shape, s), s.width));
  f.line("float score = 0;");
  f.line(fmt::format("for (long c = 0; c < {}; ++c) score += query[c] * key[c];", s.width));
  f.line(fmt::format("score *= {};", literal(form.scale, DType::float32)));
  write_masks(f, form, scores);
  f.line("largest = score > largest ? score : largest;");
  f.line(fmt::format("{}[j] = score;", row));
  f.close();
  f.line(fmt::format("for (long c = 0; c < {}; ++c) to[c] = 0;", s.value_width));
  f.open("for (long j = 0; j < seen; ++j)");
  f.line(fmt::format("const float *value = {} + {} + j * {};", v, head_of_keys(v_shape, s), s.value_width));
  f.line(fmt::format("const float weight = expf({}[j] - (largest == -INFINITY ? 0 : largest));", row));
  f.line("sum += weight;");
  f.line(fmt::format("for (long c = 0; c < {}; ++c) to[c] += weight * value[c];", s.value_width));
  f.close();
  f.line("const int none = largest == -INFINITY && sum == 0;");
  f.line("const float factor = none ? 0 : 1 / sum;");
  f.line(fmt::format("for (long c = 0; c < {}; ++c) to[c] *= factor;", s.value_width));
  f.line(fmt::format("{}[{} + i] = none ? INFINITY : largest + logf(sum);", log_sums,
                     position(leading(Layout(f.output_shape(1)).strides, 1), "d")));
  f.close(lead + 1);
}

}  // namespace espalier::c_export
