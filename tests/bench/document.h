// The network of samples/static_and_dynamic.cpp: 32 convolutions, each with batch normalization and tanh.
#pragma once
#include <espalier/espalier.h>

#include <string>

namespace bench {

inline constexpr int kDeep = 30;  // convolutions of 128 channels

inline espalier::Variable document(const espalier::nn::Parameters& scope, const espalier::Variable& x) {
  namespace esp = espalier;
  namespace nn = espalier::nn;
  const auto block = [](const nn::Parameters& conv, const esp::Variable& h, int64_t channels) {
    return esp::tanh(
        nn::batch_norm(conv, nn::convolution(conv, h, channels, {.kernel = {3, 3}, .padding = {1, 1}})));
  };
  esp::Variable h = block(scope["conv1"], x, 64);
  for (int i = 0; i < kDeep; ++i) h = block(scope["conv" + std::to_string(i + 2)], h, 128);
  h = esp::avg_pool(block(scope["conv_last"], h, 512), {.kernel = {2, 2}});
  h = esp::tanh(nn::dense(scope["fc"], esp::flatten(h, 1), 1024));
  return nn::dense(scope["classifier"], h, 10);
}

}  // namespace bench
