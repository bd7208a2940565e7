#include "espalier/nn/decoding.h"

#include "espalier/core/node.h"
#include "espalier/nn/decoding_rows.h"

namespace espalier::nn {

std::vector<std::vector<int64_t>> generate(const DecodingStep& step, const std::vector<int64_t>& first,
                                           DecodingState state, const GenerateOptions& options,
                                           std::source_location where) {
  const CallScope scope(where);
  const NoGrad no_gradients;
  return located(where, [&] {
    if (options.most_tokens < 0)
      throw Error(fmt::format("generate: most_tokens is {}; it must not be negative", options.most_tokens));
    std::vector<std::vector<int64_t>> sequences(first.size());
    DecodingRows rows("generate", step, std::move(state), static_cast<int64_t>(first.size()));
    std::vector<int64_t> last = first;
    std::vector<size_t> open(first.size());  // the sequence of each row
    for (size_t i = 0; i < open.size(); ++i) open[i] = i;
    for (int64_t t = 0; t < options.most_tokens && !open.empty(); ++t) {
      const Variable logits = rows.next(last);
      const Variable chosen =
          options.sampling ? sample_logits(logits, *options.sampling) : argmax(logits, -1);
      const Tensor tokens = chosen.value().to(cpu());
      std::vector<int64_t> kept;
      last.clear();
      for (size_t i = 0; i < open.size(); ++i) {
        const int64_t token = tokens.at<int64_t>({static_cast<int64_t>(i)});
        if (options.end_token && token == *options.end_token) continue;
        sequences[open[i]].push_back(token);
        kept.push_back(static_cast<int64_t>(i));
        last.push_back(token);
      }
      rows.take(kept, open.size());
      for (size_t i = 0; i < kept.size(); ++i) open[i] = open[static_cast<size_t>(kept[i])];
      open.resize(kept.size());
    }
    return sequences;
  });
}

}  // namespace espalier::nn
