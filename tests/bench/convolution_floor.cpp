#include "convolution_floor.h"

#include <algorithm>
#include <dnnl.hpp>
#include <limits>
#include <memory>
#include <unordered_map>

#include "espalier/ops/convolution/winograd_convolution.h"
#include "timing.h"

namespace bench {

using dnnl::memory;

std::vector<Convolution> document_convolutions(int64_t batch) {
  return {{.batch = batch, .in = 1, .out = 64, .side = 8, .kernel = 3, .of_feed = true},
          {.batch = batch, .in = 64, .out = 128, .side = 8, .kernel = 3},
          {.batch = batch, .in = 128, .out = 128, .side = 8, .kernel = 3, .count = 29},
          {.batch = batch, .in = 128, .out = 512, .side = 8, .kernel = 3}};
}

std::vector<Convolution> resnet18_convolutions(int64_t batch, int64_t side) {
  std::vector<Convolution> all = {
      {.batch = batch, .in = 3, .out = 64, .side = side, .kernel = 7, .stride = 2, .of_feed = true},
      {.batch = batch, .in = 64, .out = 64, .side = side / 4, .kernel = 3, .count = 4}};
  for (int64_t in = 64, at = side / 4; in < 512; in *= 2, at /= 2) {
    all.push_back({.batch = batch, .in = in, .out = 2 * in, .side = at, .kernel = 3, .stride = 2});
    all.push_back({.batch = batch, .in = in, .out = 2 * in, .side = at, .kernel = 1, .stride = 2});
    all.push_back({.batch = batch, .in = 2 * in, .out = 2 * in, .side = at / 2, .kernel = 3, .count = 3});
  }
  return all;
}

std::vector<Convolution> mobilenet_convolutions(int64_t batch, int64_t side) {
  struct Stage {
    int64_t expansion, channels, blocks, stride;
  };
  std::vector<Convolution> all = {
      {.batch = batch, .in = 3, .out = 32, .side = side, .kernel = 3, .stride = 2, .of_feed = true}};
  int64_t before = 32, at = side / 2;
  for (const Stage& stage : {Stage{1, 16, 1, 1}, Stage{6, 24, 2, 2}, Stage{6, 32, 3, 2}, Stage{6, 64, 4, 2},
                             Stage{6, 96, 3, 1}, Stage{6, 160, 3, 2}, Stage{6, 320, 1, 1}})
    for (int64_t block = 0; block < stage.blocks; ++block) {
      const int64_t wide = before * stage.expansion, stride = block == 0 ? stage.stride : 1;
      if (stage.expansion > 1)
        all.push_back({.batch = batch, .in = before, .out = wide, .side = at, .kernel = 1});
      all.push_back({.batch = batch,
                     .in = wide,
                     .out = wide,
                     .side = at,
                     .kernel = 3,
                     .stride = stride,
                     .groups = wide});
      at /= stride;
      all.push_back({.batch = batch, .in = wide, .out = stage.channels, .side = at, .kernel = 1});
      before = stage.channels;
    }
  all.push_back({.batch = batch, .in = before, .out = 1280, .side = at, .kernel = 1});
  return all;
}

namespace {

dnnl::engine& engine() {
  static dnnl::engine cpu(dnnl::engine::kind::cpu, 0);
  return cpu;
}

enum class Part { forward, kernel_gradient, input_gradient };

// One primitive with memory of its own.
struct Call {
  dnnl::primitive primitive;
  std::unordered_map<int, memory> arguments;

  void operator()() const {
    static dnnl::stream stream(engine());
    primitive.execute(stream, arguments);
    stream.wait();
  }
};

memory filled(const memory::desc& desc) {
  memory made(desc, engine());
  std::fill_n(static_cast<float*>(made.get_data_handle()), desc.get_size() / sizeof(float), 0.5f);
  return made;
}

// Throws dnnl::error where there is no such primitive.
Call make_call(const Convolution& c, Part part, dnnl::algorithm algorithm, bool training) {
  const int64_t before = c.kernel / 2, out = (c.side + 2 * before - c.kernel) / c.stride + 1;
  const auto any = [](const memory::dims& sizes) {
    return memory::desc(sizes, memory::data_type::f32, memory::format_tag::any);
  };
  const memory::desc x = any({c.batch, c.in, c.side, c.side}),
                     kernels = c.groups == 1
                                   ? any({c.out, c.in, c.kernel, c.kernel})
                                   : any({c.groups, c.out / c.groups, c.in / c.groups, c.kernel, c.kernel}),
                     y = any({c.batch, c.out, out, out});
  const memory::dims stride(2, c.stride), padding(2, before);
  const auto kind = training ? dnnl::prop_kind::forward_training : dnnl::prop_kind::forward_inference;
  const dnnl::convolution_forward::primitive_desc forward(
      {kind, algorithm, x, kernels, y, stride, padding, padding}, engine());
  if (part == Part::forward)
    return {dnnl::convolution_forward(forward),
            {{DNNL_ARG_SRC, filled(forward.src_desc())},
             {DNNL_ARG_WEIGHTS, filled(forward.weights_desc())},
             {DNNL_ARG_DST, filled(forward.dst_desc())}}};
  if (part == Part::kernel_gradient) {
    const dnnl::convolution_backward_weights::primitive_desc made(
        {algorithm, x, kernels, y, stride, padding, padding}, engine(), forward);
    return {dnnl::convolution_backward_weights(made),
            {{DNNL_ARG_SRC, filled(made.src_desc())},
             {DNNL_ARG_DIFF_WEIGHTS, filled(made.diff_weights_desc())},
             {DNNL_ARG_DIFF_DST, filled(made.diff_dst_desc())}}};
  }
  const dnnl::convolution_backward_data::primitive_desc made(
      {algorithm, x, kernels, y, stride, padding, padding}, engine(), forward);
  return {dnnl::convolution_backward_data(made),
          {{DNNL_ARG_DIFF_SRC, filled(made.diff_src_desc())},
           {DNNL_ARG_WEIGHTS, filled(made.weights_desc())},
           {DNNL_ARG_DIFF_DST, filled(made.diff_dst_desc())}}};
}

// By Espalier, channels last, with memory of its own. The convolution is one that it computes.
std::function<void()> make_winograd(const Convolution& c, const espalier::ConvolutionSizes& sizes,
                                    Part part) {
  const auto filled_floats = [](int64_t count) {
    return std::make_shared<std::vector<float>>(static_cast<size_t>(count), 0.5f);
  };
  const auto x = filled_floats(c.batch * c.side * c.side * c.in),
             kernels = filled_floats(c.in * c.out * c.kernel * c.kernel),
             y = filled_floats(c.batch * c.side * c.side * c.out);
  const auto steps = [&](int64_t channels) {
    return espalier::Dims{c.side * c.side * channels, 1, c.side * channels, channels};
  };
  const int64_t taps = c.kernel * c.kernel;
  const espalier::ConvolutionStrides strides{
      steps(c.in), {c.in * taps, taps, c.kernel, 1}, steps(c.out), espalier::DType::float32, true};
  const auto result = part == Part::forward           ? espalier::ConvolutionResult::y
                      : part == Part::kernel_gradient ? espalier::ConvolutionResult::kernels
                                                      : espalier::ConvolutionResult::x;
  const bool packed = part == Part::forward;
  const std::shared_ptr<espalier::ConvolutionMethod> method =
      espalier::winograd::convolution(sizes, result, strides, {}, {.packed = packed});
  espalier::Tensor memory;
  if (packed) {
    memory = espalier::Tensor({method->packed_bytes()}, espalier::DType::boolean, espalier::Device());
    method->pack(kernels->data(), memory.address());
  }
  return [=]() mutable { method->run({x->data(), packed ? memory.address() : kernels->data(), y->data()}); };
}

espalier::ConvolutionSizes sizes_of(const Convolution& c) {
  espalier::ConvolutionSizes s;
  const int64_t before = c.kernel / 2, out = (c.side + 2 * before - c.kernel) / c.stride + 1;
  s.batch = c.batch;
  s.in_channels = c.in / c.groups;
  s.out_channels = c.out / c.groups;
  s.groups = c.groups;
  s.in = {1, c.side, c.side};
  s.out = {1, out, out};
  s.kernel = {1, c.kernel, c.kernel};
  s.stride = {1, c.stride, c.stride};
  s.before = {0, before, before};
  return s;
}

// Makes the fastest of all ways, each time with other memory.
std::function<std::function<void()>()> fastest(const Convolution& c, Part part, bool training) {
  std::vector<std::function<std::function<void()>()>> ways;
  for (const auto algorithm : {dnnl::algorithm::convolution_direct, dnnl::algorithm::convolution_winograd})
    ways.push_back([=]() -> std::function<void()> { return make_call(c, part, algorithm, training); });
  if (const espalier::ConvolutionSizes sizes = sizes_of(c); espalier::winograd::computes(sizes))
    ways.push_back([=] { return make_winograd(c, sizes, part); });
  size_t best = 0;
  double least = std::numeric_limits<double>::infinity();
  for (size_t i = 0; i < ways.size(); ++i) try {
      const double seconds = median_seconds(5, ways[i]());
      if (seconds < least) least = seconds, best = i;
    } catch (const dnnl::error& error) {
      if (error.status != dnnl_unimplemented) throw;  // oneDNN has no Winograd for these sizes, or here
    }
  return ways[best];
}

}  // namespace

std::function<void()> convolution_floor(const std::vector<Convolution>& convolutions, bool training) {
  std::vector<std::function<void()>> calls;
  for (const Convolution& c : convolutions)
    for (const Part part : {Part::forward, Part::kernel_gradient, Part::input_gradient}) {
      if (part != Part::forward && !training) continue;
      if (part == Part::input_gradient && c.of_feed) continue;
      const auto make = fastest(c, part, training);
      for (int i = 0; i < c.count; ++i) calls.push_back(make());
    }
  return [calls = std::move(calls)] {
    for (const auto& call : calls) call();
  };
}

}  // namespace bench
