// After the first steps of a run, steps allocate no memory: neither the loop, nor batches, nor the plan.
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <new>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "espalier/core/device.h"
#include "espalier/core/random.h"
#include "espalier/data/distributor.h"
#include "espalier/executor/executor.h"
#include "espalier/nn/activation.h"
#include "espalier/nn/container.h"
#include "espalier/nn/dense.h"
#include "espalier/nn/dropout.h"
#include "espalier/nn/layer_norm.h"
#include "espalier/nn/losses.h"
#include "espalier/ops/ops.h"
#include "espalier/optim/adam.h"
#include "espalier/optim/sgd.h"

namespace esp = espalier;
namespace nn = espalier::nn;

namespace {
std::atomic<int64_t> news{0};  // calls of new in all threads

void* counted(size_t bytes, size_t alignment) {
  ++news;
  void* memory = alignment ? std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment)
                           : std::malloc(bytes ? bytes : 1);
  if (!memory) throw std::bad_alloc();
  return memory;
}
// Not inline, else the compiler warns of a mismatch of new and free.
[[gnu::noinline]] void given_back(void* memory) noexcept { std::free(memory); }
}  // namespace

void* operator new(size_t bytes) { return counted(bytes, 0); }
void* operator new[](size_t bytes) { return counted(bytes, 0); }
void* operator new(size_t bytes, const std::nothrow_t&) noexcept {
  return ++news, std::malloc(bytes ? bytes : 1);
}
void* operator new[](size_t bytes, const std::nothrow_t&) noexcept {
  return ++news, std::malloc(bytes ? bytes : 1);
}
void* operator new(size_t bytes, std::align_val_t a) { return counted(bytes, static_cast<size_t>(a)); }
void* operator new[](size_t bytes, std::align_val_t a) { return counted(bytes, static_cast<size_t>(a)); }
void operator delete(void* p) noexcept { given_back(p); }
void operator delete[](void* p) noexcept { given_back(p); }
void operator delete(void* p, const std::nothrow_t&) noexcept { given_back(p); }
void operator delete[](void* p, const std::nothrow_t&) noexcept { given_back(p); }
void operator delete(void* p, size_t) noexcept { given_back(p); }
void operator delete[](void* p, size_t) noexcept { given_back(p); }
void operator delete(void* p, std::align_val_t) noexcept { given_back(p); }
void operator delete[](void* p, std::align_val_t) noexcept { given_back(p); }
void operator delete(void* p, size_t, std::align_val_t) noexcept { given_back(p); }
void operator delete[](void* p, size_t, std::align_val_t) noexcept { given_back(p); }

namespace {

/// A slow dataset, so that a thread prefetches its rows.
struct Slow : esp::data::Dataset {
  int64_t rows() const override { return 203; }
  std::vector<esp::Spec> specs() const override {
    return {{esp::float32, {203, 6}}, {esp::float32, {203, 1}}};
  }
  void read(std::span<const int64_t> rows, std::span<esp::Tensor> outputs) const override {
    std::this_thread::sleep_for(std::chrono::microseconds(100));
    for (esp::Tensor& t : outputs)
      for (float& v : t.span<float>()) v = static_cast<float>(rows[0] % 7);
  }
};

struct Case {
  std::string name;
  std::function<esp::data::Distributor()> feed;
  std::function<esp::Variable(const esp::Variable&, const esp::Variable&)> loss;
  esp::optim::Optimizer optimizer;
};

/// The calls of new and the tensor allocations in the third epoch, without its first two steps, in which
/// batches are read without prefetching.
std::pair<int64_t, int64_t> count(const Case& c) {
  esp::seed(1);
  const esp::data::Distributor feed = c.feed();
  const auto [x, y] = feed.get_output_graphs<2>();
  const auto executor = c.loss(x, y).get_executor({.mode = esp::Mode::training, .optimizer = c.optimizer});
  std::pair<int64_t, int64_t> before, counted{-1, -1};
  const std::string large_capture(100, 'x');  // copying a function that holds this would allocate
  executor.on(esp::Event::step_finish, [&, large_capture](const esp::StepInfo& info) {
    const std::pair<int64_t, int64_t> now{news, esp::memory_stats().allocations};
    if (info.epoch == 2 && info.step == 1) before = now;
    if (info.epoch == 2 && info.step + 1 == info.steps)
      counted = {now.first - before.first, now.second - before.second};
  });
  executor.execute({.epochs = 3, .progress = false});
  return counted;
}

}  // namespace

int main() {
  const esp::Tensor x = esp::randn({203, 6}), y = esp::randn({203, 1});
  const auto tensors = [&](bool shuffle) {
    return [&, shuffle] { return esp::data::Distributor({x, y}, {.batch_size = 10, .shuffle = shuffle}); };
  };
  const auto slow = [] {
    return esp::data::Distributor(std::make_shared<Slow>(), {.batch_size = 10, .shuffle = true});
  };
  using V = esp::Variable;
  const auto model = [](const V& x, const V& y) {
    return nn::MeanSquared()(nn::Sequential{nn::Dense(16), nn::Relu(), nn::Dense(1)}(x), y);
  };
  const auto mixed = [](const V& x, const V& y) {
    const nn::Sequential net{nn::Dense(16), nn::LayerNorm(), nn::Gelu(), nn::Dropout(0.2), nn::Dense(1)};
    return nn::MeanSquared()(net(x), y);
  };
  // Attention with two heads over four parts of a row, which classifies its sign.
  const auto attention = [](const V& x, const V& y) {
    const auto heads = [](const V& v) {
      return esp::transpose(esp::reshape(nn::Dense(16)(v), {-1, 4, 2, 8}), {0, 2, 1, 3});
    };
    const V parts = esp::reshape(nn::Dense(32)(x), {-1, 4, 8});
    const V weights = esp::softmax(esp::matmul(heads(parts), esp::transpose(heads(parts))) * 0.35);
    const V seen = esp::reshape(esp::transpose(esp::matmul(weights, heads(parts)), {0, 2, 1, 3}), {-1, 64});
    return esp::softmax_cross_entropy(nn::Dense(2)(seen), esp::cast(esp::greater(y, 0.0), esp::int32));
  };
  // A GEMM cannot take what is broadcast: its copy lies in the workspace of the product.
  const V column = esp::parameter(esp::randn({16, 1}), "column");
  const auto broadcast = [&](const V& x, const V& y) {
    const V copied = esp::matmul(nn::Dense(16)(x), esp::broadcast_to(column, {16, 4}));
    return nn::MeanSquared()(esp::mean(copied, 1, true), y);
  };
  const std::vector<Case> cases = {
      {"in order", tensors(false), model, esp::optim::Sgd(0.01)},
      {"shuffled", tensors(true), model, esp::optim::Sgd(0.01)},
      {"momentum", tensors(true), model, esp::optim::Sgd({.momentum = 0.9})},
      {"Adam", tensors(true), model, esp::optim::Adam(0.01)},
      {"norm, gelu, dropout, clipping", tensors(true), mixed,
       esp::optim::Adam({.lr = 0.01, .clip_norm = 1, .schedule = esp::optim::cosine({.steps = 100})})},
      {"attention, cross-entropy", tensors(true), attention, esp::optim::Adam(0.01)},
      {"operands that are copied", tensors(true), broadcast, esp::optim::Adam(0.01)},
      {"read ahead", slow, model, esp::optim::Sgd(0.01)}};
  int failures = 0;
  for (const Case& c : cases) {
    const auto [calls, buffers] = count(c);
    std::printf("%s: %ld calls of new, %ld buffers\n", c.name.c_str(), static_cast<long>(calls),
                static_cast<long>(buffers));
    failures += calls != 0 || buffers != 0;
  }
  return failures;
}
