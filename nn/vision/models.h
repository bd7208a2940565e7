// Networks that classify images, and U-Net, which classifies their pixels.
//
// Images are [n, channels, height, width], and what comes out are logits [n, classes]. Parameters and buffers
// have the names and shapes of torchvision's models, whose files load() reads as they are.
#pragma once
#include <cstdint>
#include <optional>
#include <source_location>

#include "espalier/nn/container.h"

namespace espalier::nn::vision {

/// All of these throw Error unless the numbers of classes and channels are positive and rates are as Dropout
/// takes them, and TypeError for a dtype that is not a real one.
struct ClassifierOptions {
  /// Empty: without the last layer; the features that it would read come out.
  std::optional<int64_t> classes = 1000;
  int64_t channels = 3;   ///< of the images
  DType dtype = float32;  ///< of the parameters; normalizations compute 16-bit ones in float32
};

/// ResNet with 18 to 152 layers, v1.5: the 3×3 convolutions of bottlenecks have the strides. For images of
/// any size that stays above 0 when halved five times, rounded up. Features are [n, 512], with bottlenecks
/// (50 layers and more) [n, 2048]. He et al., Deep residual learning for image recognition, 2015.
Sequential resnet18(const ClassifierOptions& options = {},
                    std::source_location where = std::source_location::current());
Sequential resnet34(const ClassifierOptions& options = {},
                    std::source_location where = std::source_location::current());
Sequential resnet50(const ClassifierOptions& options = {},
                    std::source_location where = std::source_location::current());
Sequential resnet101(const ClassifierOptions& options = {},
                     std::source_location where = std::source_location::current());
Sequential resnet152(const ClassifierOptions& options = {},
                     std::source_location where = std::source_location::current());

struct MobileNetOptions {
  std::optional<int64_t> classes = 1000;
  int64_t channels = 3;
  /// Of all numbers of channels, which are rounded to multiples of 8. Throws Error unless positive.
  double width = 1;
  double dropout = 0.2;  ///< before the last layer
  DType dtype = float32;
};
/// MobileNet v2, with depthwise convolutions. Features are [n, 1280]. Sandler et al., MobileNetV2: Inverted
/// residuals and linear bottlenecks, 2018.
Sequential mobilenet_v2(const MobileNetOptions& options = {},
                        std::source_location where = std::source_location::current());

struct VggOptions {
  std::optional<int64_t> classes = 1000;
  int64_t channels = 3;
  bool batch_norm = false;  ///< behind each convolution, as torchvision's vgg16_bn has it
  double dropout = 0.5;     ///< behind both hidden layers
  DType dtype = float32;
};
/// VGG with 11 to 19 layers, for images of at least 32 pixels along both axes. Features are [n, 4096].
/// Simonyan and Zisserman, Very deep convolutional networks for large-scale image recognition, 2014.
Sequential vgg11(const VggOptions& options = {},
                 std::source_location where = std::source_location::current());
Sequential vgg13(const VggOptions& options = {},
                 std::source_location where = std::source_location::current());
Sequential vgg16(const VggOptions& options = {},
                 std::source_location where = std::source_location::current());
Sequential vgg19(const VggOptions& options = {},
                 std::source_location where = std::source_location::current());

struct AlexNetOptions {
  std::optional<int64_t> classes = 1000;
  int64_t channels = 3;
  double dropout = 0.5;  ///< before both hidden layers
  DType dtype = float32;
};
/// AlexNet as Krizhevsky, One weird trick for parallelizing convolutional neural networks, 2014, has it, for
/// images of at least 63 pixels along both axes. Features are [n, 4096].
Sequential alexnet(const AlexNetOptions& options = {},
                   std::source_location where = std::source_location::current());

struct LeNetOptions {
  std::optional<int64_t> classes = 10;
  int64_t channels = 1;
  DType dtype = float32;
};
/// LeNet-5, with tanh, means of 2×2 pixels and a linear last layer: parts conv1, conv2, fc1, fc2, fc3. The
/// first convolution pads images of 28×28 pixels to the 32×32 of the paper; of another size, fc1 gets another
/// width, which comes with the first image or from a file. Features are [n, 84]. LeCun et al., Gradient-based
/// learning applied to document recognition, 1998.
Sequential lenet5(const LeNetOptions& options = {},
                  std::source_location where = std::source_location::current());

struct UNetOptions {
  int64_t classes = 1;
  int64_t channels = 3;
  int64_t width = 32;  ///< channels behind the first block; they double with each level
  int64_t levels = 4;  ///< how often images are halved
  DType dtype = float32;
};
/// U-Net with padded convolutions and normalizations: [n, channels, height, width] becomes [n, classes,
/// height, width], logits of each pixel. Parts: encoder1…, bottleneck, upconv4, decoder4 … decoder1, conv.
/// Throws ShapeError for images whose sizes are no multiples of 2^levels; the constructor throws Error also
/// unless width and levels are positive. Ronneberger et al., U-Net: Convolutional networks for biomedical
/// image segmentation, 2015.
class UNet : public LayerOf<UNet> {
 public:
  explicit UNet(UNetOptions options = {}, Where where = Where::current());
};

}  // namespace espalier::nn::vision
