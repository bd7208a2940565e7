#include <vector>

#include "espalier/core/error.h"
#include "espalier/core/node.h"
#include "espalier/nn/activation.h"
#include "espalier/nn/dropout.h"
#include "espalier/nn/pooling.h"
#include "espalier/nn/vision/models.h"
#include "espalier/nn/vision/parts.h"

namespace espalier::nn::vision {

namespace {

/// How many convolutions each of the five stages has; their channels are 64, 128, 256, 512 and 512.
using StageDepths = std::vector<int>;

Sequential vgg_features(const StageDepths& depths, const VggOptions& options) {
  constexpr int64_t kWidths[] = {64, 128, 256, 512, 512};
  Sequential features;
  int64_t channels = options.channels;
  for (size_t stage = 0; stage < depths.size(); ++stage) {
    for (int i = 0; i < depths[stage]; ++i) {
      const int64_t out = kWidths[stage];
      features.append(Conv2d(channels, out,
                             {.kernel = 3,
                              .padding = 1,
                              .initializer = init::KaimingNormal(0, init::Fan::out),
                              .dtype = options.dtype}));
      if (options.batch_norm) features.append(batch_norm_of(out, options.dtype));
      features.append(Relu());
      channels = out;
    }
    features.append(MaxPool2d({.kernel = 2}));
  }
  return features;
}

Sequential vgg(std::string_view model, const StageDepths& depths, const VggOptions& options,
               const std::source_location& where) {
  const CallScope scope(where);
  return located(where, [&] {
    check_model(model, options.classes, options.channels, options.dtype);
    const DenseOptions dense{.initializer = init::Normal(0, 0.01), .dtype = options.dtype};
    Sequential classifier{Dense(512 * 7 * 7, 4096, dense), Relu(), Dropout(options.dropout),
                          Dense(4096, 4096, dense),        Relu(), Dropout(options.dropout)};
    if (options.classes) classifier.append(Dense(4096, *options.classes, dense));
    Sequential net;
    net.append("features", vgg_features(depths, options)).append("avgpool", AdaptiveAvgPool2d(7));
    return net.append("flatten", Flatten()).append("classifier", classifier);
  });
}

}  // namespace

Sequential vgg11(const VggOptions& options, std::source_location where) {
  return vgg("vgg11", {1, 1, 2, 2, 2}, options, where);
}
Sequential vgg13(const VggOptions& options, std::source_location where) {
  return vgg("vgg13", {2, 2, 2, 2, 2}, options, where);
}
Sequential vgg16(const VggOptions& options, std::source_location where) {
  return vgg("vgg16", {2, 2, 3, 3, 3}, options, where);
}
Sequential vgg19(const VggOptions& options, std::source_location where) {
  return vgg("vgg19", {2, 2, 4, 4, 4}, options, where);
}

}  // namespace espalier::nn::vision
