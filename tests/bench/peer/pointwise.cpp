// torch_pointwise forward|backward [rounds]: the expression of ../pointwise.cpp in libtorch.
#include "../pointwise_task.h"

#include <torch/torch.h>

#include <string>

#include "../timing.h"

int main(int argc, char** argv) {
  torch::set_num_threads(bench::threads());
  torch::manual_seed(1);
  const bool backward = argc > 1 && std::string(argv[1]) == "backward";
  const auto leaf = [&] { return torch::randn({pointwise_task::kElements}).requires_grad_(backward); };
  const torch::Tensor a = leaf(), b = leaf(), c = leaf();
  const auto step = [&] {
    if (!backward) {
      const torch::InferenceMode no_gradients;
      (void)pointwise_task::expression(a, b, c);
      return;
    }
    for (const torch::Tensor& tensor : {a, b, c}) tensor.mutable_grad().reset();
    pointwise_task::expression(a, b, c).sum().backward();
  };
  const std::string name = backward ? "pointwise_backward_torch" : "pointwise_forward_torch";
  bench::report(name + "_ms", bench::median_seconds(bench::rounds(argc, argv), step) * 1e3);
  bench::report(name + "_mb", bench::peak_megabytes());
}
