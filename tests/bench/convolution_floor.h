// The convolutions of a network without anything between them: a floor of a run of the network. They are
// oneDNN's own primitives, each in the layouts that oneDNN prefers and with packed kernels, or Espalier's
// Winograd.
#pragma once
#include <cstdint>
#include <functional>
#include <vector>

namespace bench {

// `count` convolutions of square images and kernels.
struct Convolution {
  int64_t batch, in, out, side, kernel, stride = 1;  // channels `in` and `out`; padded by kernel / 2
  int count = 1;
  bool of_feed = false;  // training needs no gradient of its input
  int64_t groups = 1;
};

std::vector<Convolution> document_convolutions(int64_t batch);
std::vector<Convolution> resnet18_convolutions(int64_t batch, int64_t side);
std::vector<Convolution> mobilenet_convolutions(int64_t batch, int64_t side);

// Computes all of them once, with gradients for training, each by the fastest of oneDNN's direct and
// Winograd's algorithm and Espalier's.
std::function<void()> convolution_floor(const std::vector<Convolution>& convolutions, bool training);

}  // namespace bench
