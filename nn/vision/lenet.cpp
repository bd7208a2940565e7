#include "espalier/core/error.h"
#include "espalier/core/node.h"
#include "espalier/nn/activation.h"
#include "espalier/nn/pooling.h"
#include "espalier/nn/vision/models.h"
#include "espalier/nn/vision/parts.h"

namespace espalier::nn::vision {

Sequential lenet5(const LeNetOptions& options, std::source_location where) {
  const CallScope scope(where);
  return located(where, [&] {
    check_model("lenet5", options.classes, options.channels, options.dtype);
    const DenseOptions dense{.initializer = init::XavierUniform(), .dtype = options.dtype};
    const auto conv = [&](int64_t in, int64_t out, int64_t padding) {
      return Conv2d(
          in, out,
          {.kernel = 5, .padding = padding, .initializer = dense.initializer, .dtype = options.dtype});
    };
    Sequential net;
    net.append("conv1", conv(options.channels, 6, 2)).append("tanh1", Tanh());
    net.append("pool1", AvgPool2d({.kernel = 2}));
    net.append("conv2", conv(6, 16, 0)).append("tanh2", Tanh()).append("pool2", AvgPool2d({.kernel = 2}));
    net.append("flatten", Flatten());
    net.append("fc1", Dense(120, dense)).append("tanh3", Tanh());
    net.append("fc2", Dense(120, 84, dense)).append("tanh4", Tanh());
    if (options.classes) net.append("fc3", Dense(84, *options.classes, dense));
    return net;
  });
}

}  // namespace espalier::nn::vision
