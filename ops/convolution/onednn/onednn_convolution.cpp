#include "espalier/ops/convolution/onednn_convolution.h"

#include <fmt/format.h>

#include <dnnl.hpp>
#include <limits>
#include <unordered_map>
#include <utility>

#include "espalier/core/device.h"
#include "espalier/core/error.h"
#include "espalier/ops/functions/winograd.h"
#include "espalier/ops/matmul/gemm.h"

namespace espalier {

/// How a residual comes into a convolution: it is added element by element as y is written, or lies where y
/// will be before.
enum class ConvolutionResidual : uint8_t { none, added, below };

namespace {

using dnnl::memory;

const dnnl::engine& cpu_engine() {
  static const auto* engine = new dnnl::engine(dnnl::engine::kind::cpu, 0);  // outlives all primitives
  return *engine;
}

[[noreturn]] void rethrow(const dnnl::error& error) {
  if (error.status == dnnl_out_of_memory) throw OutOfMemory("conv: oneDNN found no memory for its primitive");
  if (error.status == dnnl_unimplemented || error.status == dnnl_invalid_arguments)
    throw UnsupportedError("conv: oneDNN has no primitive for these sizes");
  throw Error(fmt::format("conv: oneDNN failed with status {}", int{error.status}));
}

/// Threads during its lifetime: one if the work is too little for several.
GemmThreads threads_for(const ConvolutionSizes& s) {
  constexpr double worth_a_thread = 4e6;  // operations, as for products
  return GemmThreads(s.flops() < worth_a_thread ? 1 : num_threads());
}

struct Layouts {
  memory::desc x, kernels, y;
};

/// Axes of size 1 in front say nothing, but oneDNN needs one axis. With padding, their only window may begin
/// in it and read nothing of x.
size_t first_axis(const ConvolutionSizes& s) {
  size_t first = 0;
  while (first + 1 < most_convolution_axes && s.in[first] == 1 && s.out[first] == 1 && s.kernel[first] == 1 &&
         s.before[first] == 0)
    ++first;
  return first;
}

memory::dims tail(const ConvolutionSizes& s, const ConvolutionSizes::PerAxis3& sizes) {
  return {sizes.begin() + static_cast<std::ptrdiff_t>(first_axis(s)), sizes.end()};
}
memory::dims with(memory::dims first, const memory::dims& rest) {
  first.insert(first.end(), rest.begin(), rest.end());
  return first;
}
/// Of a tensor in memory, by the steps along two axes and those that are convolved.
memory::desc as_it_lies(const ConvolutionSizes& s, memory::data_type type, const memory::dims& sizes,
                        const Dims& strides) {
  const size_t missing = most_convolution_axes + 2 - strides.size();
  memory::dims steps(strides.begin(), strides.begin() + 2);
  steps.insert(steps.end(), strides.begin() + 2 + (first_axis(s) - missing), strides.end());
  if (sizes.size() > steps.size())  // kernels of groups: axis 0 is divided
    steps.insert(steps.begin(), steps[0] * sizes[1]);
  return {sizes, type, steps};
}
memory::desc any_layout(memory::data_type type, const memory::dims& sizes) {
  return {sizes, type, memory::format_tag::any};
}
/// [batch, channels, …] with the channels innermost, without gaps.
memory::desc channels_innermost(memory::data_type type, const memory::dims& sizes) {
  memory::dims strides(sizes.size(), 1);
  int64_t step = sizes[1];
  for (size_t i = sizes.size() - 1; i > 1; --i) {
    strides[i] = step;
    step *= sizes[i];
  }
  strides[0] = step;
  return {sizes, type, strides};
}

/// Whether Winograd's algorithm of oneDNN is worth it, F(4×4, 3×3): a quarter of the multiplications, but
/// windows in whole tiles, transforms of the kernels in each run, and copies in oneDNN's layouts. Lavin and
/// Gray, Fast algorithms for convolutional neural networks, 2016. The constants are fitted to times over
/// those of the direct algorithm, measured with AVX-512, which oneDNN's kernels of it need.
bool is_onednn_winograd_faster(const ConvolutionSizes& s) {
  constexpr int64_t side = 4, fewest_channels = 32;
  if (!uses_winograd() || s.groups != 1 || std::min(s.in_channels, s.out_channels) < fewest_channels)
    return false;
  if (first_axis(s) != 1) return false;
  int64_t tiles = s.batch;
  for (const size_t i : {1, 2}) {
    if (s.kernel[i] != 3 || s.stride[i] != 1 || s.dilation[i] != 1 || s.before[i] > 1) return false;
    // oneDNN's gradients of inputs are wrong for uneven padding.
    if (s.before[i] != s.out[i] + 2 - s.in[i] - s.before[i]) return false;
    tiles *= (s.out[i] + side - 1) / side;
  }
  const double windows = static_cast<double>(s.batch * s.out_places()), all = static_cast<double>(tiles);
  return 0.5 * (all * side * side / windows) + 22 / all < 0.85;
}

/// Whether kernels are longer than x, so that a window may reach beyond both ends of it.
bool are_kernels_longer(const ConvolutionSizes& s) {
  for (size_t i = 0; i < most_convolution_axes; ++i)
    if ((s.kernel[i] - 1) * s.dilation[i] + 1 > s.in[i]) return true;
  return false;
}

/// One of the three primitives, and the layouts that it takes.
class ConvolutionDescription {
 public:
  ConvolutionDescription(const ConvolutionSizes& s, ConvolutionResult result,
                         const ConvolutionStrides& strides, const ConvolutionAfter& after)
      : after_(after), residual_(after.residual ? ConvolutionResidual::below : ConvolutionResidual::none) {
    const memory::dims x = with({s.batch, s.groups * s.in_channels}, tail(s, s.in)),
                       y = with({s.batch, s.groups * s.out_channels}, tail(s, s.out));
    memory::dims kernels = with({s.out_channels, s.in_channels}, tail(s, s.kernel));
    if (s.groups > 1) kernels.insert(kernels.begin(), s.groups);
    const bool wide = strides.dtype == DType::float32;
    const auto type = wide ? memory::data_type::f32 : memory::data_type::bf16;
    const auto y_type = after.wide_y ? memory::data_type::f32 : type;
    residual_type_ = after.wide_residual ? memory::data_type::f32 : type;
    plain = {as_it_lies(s, type, x, strides.x), as_it_lies(s, type, kernels, strides.kernels),
             as_it_lies(s, y_type, y, strides.y)};
    wide_kernels = as_it_lies(s, memory::data_type::f32, kernels, strides.kernels);
    plain_residual = as_it_lies(s, residual_type_, y, strides.y);
    if (!wide && result == ConvolutionResult::kernels && are_kernels_longer(s))
      throw dnnl::error(
          dnnl_unimplemented,
          "gradients of such kernels are wrong with AMX, oneDNN 2.6, and not measured elsewhere");
    const Layouts any{any_layout(type, x), any_layout(type, kernels), any_layout(y_type, y)};
    if (wide && is_onednn_winograd_faster(s) &&
        can_choose(s, result, any, dnnl::algorithm::convolution_winograd))
      return;
    const auto direct = dnnl::algorithm::convolution_direct;
    if (strides.channels_last) {
      const Layouts innermost{channels_innermost(type, x), any.kernels, channels_innermost(y_type, y)};
      for (const ConvolutionResidual how : {ConvolutionResidual::added, ConvolutionResidual::below}) {
        if (after.residual) residual_ = how;
        if (residual_ == ConvolutionResidual::below && residual_type_ != y_type) break;
        if (can_choose(s, result, innermost, direct) && !is_reference() && !adds_wrongly()) return;
      }
    }
    if (after.residual && residual_type_ != y_type)
      throw dnnl::error(dnnl_unimplemented, "a residual below y is of its type");
    choose(s, result, any, direct);
  }

  ConvolutionResidual residual() const { return residual_; }

  Layouts plain, chosen;
  memory::desc wide_kernels;  // as those of `plain`, float32
  memory::desc plain_residual;
  memory::desc bias;
  memory::desc scratch;
  dnnl::primitive primitive;

 private:
  bool is_reference() const { return implementation_.starts_with("ref"); }  // plain loops
  /// Products of columns ("x64:gemm:jit", "gemm:ref") add other elements of a residual than they should.
  bool adds_wrongly() const {
    return residual_ == ConvolutionResidual::added && implementation_.find("gemm") != std::string::npos;
  }
  /// The same, and false if oneDNN has no such primitive.
  bool can_choose(const ConvolutionSizes& s, ConvolutionResult result, const Layouts& layouts,
                  dnnl::algorithm algorithm) {
    try {
      choose(s, result, layouts, algorithm);
      return true;
    } catch (const dnnl::error& error) {
      if (error.status != dnnl_unimplemented) throw;
      return false;
    }
  }
  /// Sets the members for tensors in these layouts.
  void choose(const ConvolutionSizes& s, ConvolutionResult result, const Layouts& layouts,
              dnnl::algorithm algorithm) {
    const auto& [x, kernels, y] = layouts;
    memory::dims stride = tail(s, s.stride), dilation = tail(s, s.dilation), before = tail(s, s.before),
                 after;
    for (int64_t& d : dilation) --d;  // oneDNN counts the elements between
    const size_t first = first_axis(s);
    for (size_t i = first; i < most_convolution_axes; ++i)  // what no window reads is cut off
      after.push_back((s.out[i] - 1) * s.stride[i] + (s.kernel[i] - 1) * s.dilation[i] + 1 - s.in[i] -
                      s.before[i]);
    const dnnl::primitive_attr attributes = attributes_for(y);
    bias = memory::desc({s.groups * s.out_channels}, memory::data_type::f32, memory::format_tag::x);
    const auto kind = dnnl::prop_kind::forward_training;
    const dnnl::convolution_forward::primitive_desc forward(
        after_.bias ? dnnl::convolution_forward::desc{kind, algorithm, x, kernels, bias, y, stride, dilation,
                                                      before, after}
                    : dnnl::convolution_forward::desc{kind, algorithm, x, kernels, y, stride, dilation,
                                                      before, after},
        attributes, cpu_engine());
    const auto keep = [&](const auto& made) {
      scratch = made.scratchpad_desc();
      implementation_ = made.impl_info_str();
      return made;
    };
    if (result == ConvolutionResult::y) {
      const auto made = keep(forward);
      chosen = {made.src_desc(), made.weights_desc(), made.dst_desc()};
      primitive = dnnl::convolution_forward(made);
    } else if (result == ConvolutionResult::x) {
      const auto made = keep(dnnl::convolution_backward_data::primitive_desc(
          {algorithm, x, kernels, y, stride, dilation, before, after}, attributes, cpu_engine(), forward));
      chosen = {made.diff_src_desc(), made.weights_desc(), made.diff_dst_desc()};
      primitive = dnnl::convolution_backward_data(made);
    } else {
      const auto made = keep(dnnl::convolution_backward_weights::primitive_desc(
          {algorithm, x, kernels, y, stride, dilation, before, after}, attributes, cpu_engine(), forward));
      chosen = {made.src_desc(), made.diff_weights_desc(), made.diff_dst_desc()};
      primitive = dnnl::convolution_backward_weights(made);
    }
  }

  dnnl::primitive_attr attributes_for(const memory::desc& y) const {
    using Activation = ConvolutionAfter::Activation;
    dnnl::post_ops post;
    if (residual_ == ConvolutionResidual::added) {
      memory::desc residual = y;
      residual.data.data_type = memory::convert_to_c(residual_type_);
      post.append_binary(dnnl::algorithm::binary_add, residual);
    }
    if (residual_ == ConvolutionResidual::below) post.append_sum();
    switch (after_.activation) {
      case Activation::none: break;
      case Activation::relu:
        if (onednn_for_arm)
          post.append_eltwise(1, dnnl::algorithm::eltwise_clip, 0, std::numeric_limits<float>::infinity());
        else
          post.append_eltwise(1, dnnl::algorithm::eltwise_relu, 0, 0);
        break;
      case Activation::tanh: post.append_eltwise(1, dnnl::algorithm::eltwise_tanh, 0, 0); break;
      case Activation::sigmoid: post.append_eltwise(1, dnnl::algorithm::eltwise_logistic, 0, 0); break;
      case Activation::clip:
        post.append_eltwise(1, dnnl::algorithm::eltwise_clip, after_.low, after_.high);
        break;
    }
    dnnl::primitive_attr attributes;
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    attributes.set_post_ops(post);
    return attributes;
  }

  ConvolutionAfter after_;
  ConvolutionResidual residual_;
  memory::data_type residual_type_ = memory::data_type::f32;
  std::string implementation_;
};

int64_t bytes_of(const memory::desc& desc) { return static_cast<int64_t>(desc.get_size()); }

/// What `f` returns. Errors of oneDNN become those of the library.
template <class F>
auto translate_errors(const F& f) {
  try {
    return f();
  } catch (const dnnl::error& error) {
    rethrow(error);
  }
}

/// A tensor in the layout of the caller and in that of the primitive.
struct Side {
  memory user, chosen;
  Tensor buffer;
  dnnl::reorder reorder;

  void make(const memory::desc& plain, const memory::desc& desc, bool written, Workspace& workspace) {
    user = memory(plain, cpu_engine(), nullptr);
    if (plain == desc) return;
    buffer = workspace.take({bytes_of(desc)}, DType::boolean, Device());
    chosen = memory(desc, cpu_engine(), buffer.address());
    reorder = written ? dnnl::reorder(chosen, user) : dnnl::reorder(user, chosen);
  }
  memory& seen() { return buffer.defined() ? chosen : user; }
  void read(void* address, dnnl::stream& stream) {
    user.set_data_handle(address);
    if (buffer.defined()) reorder.execute(stream, user, chosen);
  }
  void write(dnnl::stream& stream) {
    if (buffer.defined()) reorder.execute(stream, chosen, user);
  }
};

class OnednnConvolution : public ConvolutionMethod {
 public:
  OnednnConvolution(const ConvolutionSizes& sizes, ConvolutionResult result,
                    const ConvolutionStrides& strides, Workspace& workspace, const ConvolutionAfter& after)
      : sizes_(sizes), result_(result), stream_(cpu_engine()) {
    const ConvolutionDescription description(sizes, result, strides, after);
    primitive_ = description.primitive;
    const Layouts &plain = description.plain, &chosen = description.chosen;
    x_.make(plain.x, chosen.x, result == ConvolutionResult::x, workspace);
    kernel_layout_ = chosen.kernels;
    if (after.packed)
      pack_kernels_ = dnnl::reorder(memory(description.wide_kernels, cpu_engine(), nullptr),
                                    memory(chosen.kernels, cpu_engine(), nullptr));
    kernels_.make(after.packed ? chosen.kernels : plain.kernels, chosen.kernels,
                  result == ConvolutionResult::kernels, workspace);
    residual_way_ = description.residual();
    if (residual_way_ != ConvolutionResidual::none) {
      residual_ = memory(description.plain_residual, cpu_engine(), nullptr);
      if (residual_way_ == ConvolutionResidual::below)
        place_residual_ = dnnl::reorder(residual_, memory(chosen.y, cpu_engine(), nullptr));
    }
    if (after.bias) bias_ = memory(description.bias, cpu_engine(), nullptr);
    wide_kernels_ = description.wide_kernels;
    y_.make(plain.y, chosen.y, result == ConvolutionResult::y, workspace);
    if (const int64_t bytes = bytes_of(description.scratch)) {
      scratch_ = workspace.take({bytes}, DType::boolean, Device());
      scratch_memory_ = memory(description.scratch, cpu_engine(), scratch_.address());
    }
  }

  void run(const ConvolutionAddresses& at) override {
    const GemmThreads threads = threads_for(sizes_);
    translate_errors([&] {
      if (bias_) bias_.set_data_handle(at.bias);
      if (residual_) residual_.set_data_handle(at.residual);
      const auto prepare = [&](Side& side, void* address, ConvolutionResult written) {
        if (result_ == written)
          side.user.set_data_handle(address);
        else
          side.read(address, stream_);
      };
      prepare(x_, at.x, ConvolutionResult::x);
      prepare(kernels_, at.kernels, ConvolutionResult::kernels);
      prepare(y_, at.y, ConvolutionResult::y);
      execute();
      Side& written = result_ == ConvolutionResult::x ? x_ : result_ == ConvolutionResult::y ? y_ : kernels_;
      written.write(stream_);
    });
  }

  int64_t packed_bytes() const override { return bytes_of(kernel_layout_); }
  std::string packed_layout() const override {
    const auto* bytes = reinterpret_cast<const char*>(&kernel_layout_.data);
    return {bytes, sizeof(kernel_layout_.data)};
  }
  void pack(void* kernels, void* packed) override {
    const GemmThreads threads = threads_for(sizes_);
    translate_errors([&] {
      memory from(wide_kernels_, cpu_engine(), kernels), to(kernel_layout_, cpu_engine(), packed);
      pack_kernels_.execute(stream_, from, to);
    });
  }

 private:
  void execute() {
    std::unordered_map<int, memory> arguments;
    const bool to_x = result_ == ConvolutionResult::x, to_y = result_ == ConvolutionResult::y,
               to_kernels = result_ == ConvolutionResult::kernels;
    arguments.emplace(to_x ? DNNL_ARG_DIFF_SRC : DNNL_ARG_SRC, x_.seen());
    arguments.emplace(to_kernels ? DNNL_ARG_DIFF_WEIGHTS : DNNL_ARG_WEIGHTS, kernels_.seen());
    arguments.emplace(to_y ? DNNL_ARG_DST : DNNL_ARG_DIFF_DST, y_.seen());
    if (bias_) arguments.emplace(DNNL_ARG_BIAS, bias_);
    if (residual_way_ == ConvolutionResidual::added)
      arguments.emplace(DNNL_ARG_ATTR_MULTIPLE_POST_OP(0) | DNNL_ARG_SRC_1, residual_);
    if (residual_way_ == ConvolutionResidual::below) place_residual_.execute(stream_, residual_, y_.seen());
    if (scratch_.defined()) arguments.emplace(DNNL_ARG_SCRATCHPAD, scratch_memory_);
    primitive_.execute(stream_, arguments);
  }

  ConvolutionSizes sizes_;
  ConvolutionResult result_;
  dnnl::stream stream_;
  dnnl::primitive primitive_;
  Side x_, kernels_, y_;
  memory::desc wide_kernels_, kernel_layout_;
  dnnl::reorder pack_kernels_, place_residual_;
  memory bias_, residual_;
  ConvolutionResidual residual_way_ = ConvolutionResidual::none;
  Tensor scratch_;
  memory scratch_memory_;
};

}  // namespace

std::unique_ptr<ConvolutionMethod> onednn_convolution(const ConvolutionSizes& sizes, ConvolutionResult result,
                                                      const ConvolutionStrides& strides, Workspace workspace,
                                                      const ConvolutionAfter& after) {
  const GemmThreads threads = threads_for(sizes);
  return translate_errors(
      [&] { return std::make_unique<OnednnConvolution>(sizes, result, strides, workspace, after); });
}

std::optional<int64_t> onednn_workspace_bytes(const ConvolutionSizes& sizes, ConvolutionResult result,
                                              const ConvolutionStrides& strides,
                                              const ConvolutionAfter& after) {
  const GemmThreads threads = threads_for(sizes);
  try {
    const ConvolutionDescription description(sizes, result, strides, after);
    const auto of = [](const memory::desc& plain, const memory::desc& chosen) {
      return plain == chosen ? 0 : aligned_bytes(bytes_of(chosen));
    };
    return of(description.plain.x, description.chosen.x) +
           (after.packed ? 0 : of(description.plain.kernels, description.chosen.kernels)) +
           of(description.plain.y, description.chosen.y) + aligned_bytes(bytes_of(description.scratch));
  } catch (const dnnl::error& error) {
    if (error.status == dnnl_unimplemented || error.status == dnnl_invalid_arguments) return std::nullopt;
    rethrow(error);
  }
}

}  // namespace espalier
