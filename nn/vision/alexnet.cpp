#include "espalier/core/error.h"
#include "espalier/core/node.h"
#include "espalier/nn/activation.h"
#include "espalier/nn/dropout.h"
#include "espalier/nn/pooling.h"
#include "espalier/nn/vision/models.h"
#include "espalier/nn/vision/parts.h"

namespace espalier::nn::vision {

Sequential alexnet(const AlexNetOptions& options, std::source_location where) {
  const CallScope scope(where);
  return located(where, [&] {
    check_model("alexnet", options.classes, options.channels, options.dtype);
    const auto conv = [&](int64_t in, int64_t out, int64_t kernel, int64_t stride, int64_t padding) {
      return Conv2d(in, out,
                    {.kernel = kernel, .stride = stride, .padding = padding, .dtype = options.dtype});
    };
    const auto pool = [] { return MaxPool2d({.kernel = 3, .stride = 2}); };
    const Sequential features{conv(options.channels, 64, 11, 4, 2),
                              Relu(),
                              pool(),
                              conv(64, 192, 5, 1, 2),
                              Relu(),
                              pool(),
                              conv(192, 384, 3, 1, 1),
                              Relu(),
                              conv(384, 256, 3, 1, 1),
                              Relu(),
                              conv(256, 256, 3, 1, 1),
                              Relu(),
                              pool()};
    const DenseOptions dense{.dtype = options.dtype};
    Sequential classifier{Dropout(options.dropout), Dense(256 * 6 * 6, 4096, dense), Relu(),
                          Dropout(options.dropout), Dense(4096, 4096, dense),        Relu()};
    if (options.classes) classifier.append(Dense(4096, *options.classes, dense));
    Sequential net;
    net.append("features", features).append("avgpool", AdaptiveAvgPool2d(6));
    return net.append("flatten", Flatten()).append("classifier", classifier);
  });
}

}  // namespace espalier::nn::vision
