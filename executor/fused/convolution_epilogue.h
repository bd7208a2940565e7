// A convolution with what is computed of its result element by element, in one call of oneDNN or cuDNN.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "espalier/executor/fused/epilogue.h"
#include "espalier/ops/convolution/convolution_primitive.h"

namespace espalier {

/// A program as activation(scale · y + bias + residual), where scale and bias are a number for each channel:
/// what follows a convolution in inference, batch normalization included.
struct ChannelProgram {
  /// A step towards scale and bias: by an input of the program, or by a number.
  struct Step {
    enum class Kind : uint8_t { add, subtract, multiply, divide } kind;
    std::optional<size_t> input;
    double number = 0;
  };
  std::vector<Step> steps;
  std::optional<size_t> residual;  ///< an input of the program
  bool wide_residual = false;      ///< it is float32, whatever y is
  ConvolutionAfter::Activation activation = ConvolutionAfter::Activation::none;
  float low = 0, high = 0;
  bool casts = false;  ///< between 16 bits and float32

  bool scales() const;
  /// Whether it is ReLU at most, of a sum with one bias for each channel, and a residual at most: what cuDNN
  /// computes.
  bool is_biased() const;
  /// Whether a NaN of the convolution is lost on a CPU: oneDNN's maximum of NaN and 0 is 0.
  bool hides_nan() const {
    using Activation = ConvolutionAfter::Activation;
    return activation == Activation::relu || activation == Activation::clip ||
           (onednn_for_arm && activation == Activation::sigmoid);
  }
  /// `program` in this form, or nothing if it does not have it. The program reads the result of a
  /// convolution, with `places` axes behind the channels, as its input `result`. Only inputs for which
  /// `steps_by` is true become steps.
  static std::optional<ChannelProgram> of(const Program& program, size_t result, const Spec& output,
                                          const InputSpecs& inputs, const std::vector<bool>& steps_by,
                                          size_t places);
};

/// The convolution is computed with kernels · scale. With a `key`, which says of which leaves kernels, scale
/// and bias are made and how, kernels are scaled and put into oneDNN's layout once for each version of the
/// leaves; else scale is 1. With a key, kernels may be float32 where the anchor takes 16 bits: they are
/// rounded after they are scaled.
class ConvolutionEpilogue : public EpilogueOp {
 public:
  ConvolutionEpilogue(Epilogue epilogue, ChannelProgram channels, std::string key)
      : EpilogueOp(std::move(epilogue)), channels_(std::move(channels)), key_(std::move(key)) {}
  std::string_view name() const override { return "conv_epilogue"; }
  Attributes attributes() const override;
  std::unique_ptr<BoundKernel> bind_cpu(const KernelCall& call, const BindContext& context) const override;
  int64_t workspace_bytes(const PlannedCall& call) const override;
  /// A residual lies elsewhere than y.
  bool can_write_over(size_t output, size_t input) const override {
    return !(channels_.residual && input == seat(*channels_.residual)) &&
           EpilogueOp::can_write_over(output, input);
  }

  /// Whether it is a convolution of which this can be made on such a device, for some dtypes of its result.
  static bool anchors(const Op& op, DeviceType device);
  const ChannelProgram& channels() const { return channels_; }
  /// Empty: kernels and bias may differ from run to run.
  const std::string& key() const { return key_; }
  /// Where an input of the program is among those of the node.
  size_t seat(size_t program_input) const {
    return anchor_inputs() + program_input - (program_input > this->program_input());
  }

 private:
  ConvolutionAfter after() const;
  /// Whether oneDNN can read operands that lie so.
  bool reads(const SmallVector<const Layout*, 4>& inputs) const;
  /// The anchor's kernel, and the program behind it.
  std::unique_ptr<BoundKernel> bind_parts(const KernelCall& call, const BindContext& context) const;
  int64_t workspace_of_parts(const PlannedCall& call) const;

  ChannelProgram channels_;
  std::string key_;
};

}  // namespace espalier
