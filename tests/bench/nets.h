// The networks of the workloads, written as user code.
#pragma once
#include <espalier/espalier.h>

#include <cmath>
#include <limits>

#include "gpt_task.h"
#include "mlp_task.h"

namespace nets {

namespace esp = espalier;

struct Mlp {
  esp::nn::Dense hidden{task::kHidden}, output{task::kOutputs};
  esp::Variable operator()(const esp::Variable& x) const { return output(esp::relu(hidden(x))); }
};

// A pre-norm transformer block: x + attention(norm(x)), then x + mlp(norm(x)).
struct GptBlock {
  gpt_task::Size size;
  esp::nn::LayerNorm norm1, norm2;
  esp::nn::Dense qkv{3 * size.width}, out{size.width};
  esp::nn::Dense up{size.hidden()}, down{size.width};
  esp::Tensor mask = causal_mask(size.tokens);

  explicit GptBlock(const gpt_task::Size& s = {}) : size(s) {}

  esp::Variable operator()(const esp::Variable& x) const {
    const esp::Variable y = x + attention(norm1(x));
    return y + down(esp::gelu(up(norm2(y))));
  }

  esp::Variable attention(const esp::Variable& x) const {
    const int d = size.width / size.heads;
    const esp::Variable all = qkv(x);
    const auto heads = [&](int which) {  // [batch, heads, tokens, d]
      const esp::Variable one = esp::slice(all, -1, which * size.width, (which + 1) * size.width);
      return esp::transpose(esp::reshape(one, {-1, size.tokens, size.heads, d}), {0, 2, 1, 3});
    };
    const auto by_products = [&] {
      const esp::Variable scores =
          esp::matmul(heads(0), esp::transpose(heads(1))) * (1 / std::sqrt(static_cast<double>(d))) + mask;
      return esp::matmul(esp::softmax(scores), heads(2));
    };
    const esp::Variable mixed =
        size.attention_op ? esp::scaled_dot_product_attention(heads(0), heads(1), heads(2), {.causal = true})
                          : by_products();
    return out(esp::reshape(esp::transpose(mixed, {0, 2, 1, 3}), {-1, size.tokens, size.width}));
  }

  // 0 where a token may attend, -infinity for later tokens.
  static esp::Tensor causal_mask(int tokens) {
    esp::Tensor mask = esp::zeros({tokens, tokens});
    for (int i = 0; i < tokens; ++i)
      for (int j = i + 1; j < tokens; ++j) mask.at<float>({i, j}) = -std::numeric_limits<float>::infinity();
    return mask;
  }
};

}  // namespace nets
