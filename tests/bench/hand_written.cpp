#include "hand_written.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "mlp_task.h"
#include "products.h"

namespace bench {
namespace {

using namespace task;

std::vector<float> uniform(int64_t count, float bound, std::mt19937& random) {
  std::uniform_real_distribution<float> draw(-bound, bound);
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = draw(random);
  return values;
}

// parameter -= rate * gradient
void descend(std::vector<float>& parameter, const float* gradient) {
  const float rate = kLearningRate;
  float* p = parameter.data();
  for (size_t i = 0; i < parameter.size(); ++i) p[i] -= rate * gradient[i];
}

// bias -= rate * the sum of the rows of `gradient`
void descend_by_rows(std::vector<float>& bias, const std::vector<float>& gradient) {
  std::vector<float> sum(bias.size());
  float* s = sum.data();
  for (int64_t row = 0; row < kBatch; ++row) {
    const float* g = gradient.data() + row * static_cast<int64_t>(bias.size());
    for (size_t i = 0; i < bias.size(); ++i) s[i] += g[i];
  }
  descend(bias, s);
}

}  // namespace

HandWritten::HandWritten(const GemmFloor& floor) : floor_(floor) {
  std::mt19937 random(1);
  x_ = uniform(kRows * kInputs, 1, random), y_ = uniform(kRows * kOutputs, 1, random);
  w1_ = uniform(kHidden * kInputs, 0.1f, random), w2_ = uniform(kOutputs * kHidden, 0.03f, random);
  b1_.resize(kHidden), b2_.resize(kOutputs);
  dw1_.resize(w1_.size()), dw2_.resize(w2_.size());
  batch_x_.resize(kBatch * kInputs), batch_y_.resize(kBatch * kOutputs);
  h_.resize(kBatch * kHidden), dh_.resize(kBatch * kHidden), o_.resize(kBatch * kOutputs);
}

float HandWritten::step(const int64_t* rows) {
  auto product = [&](MlpProduct i, const std::vector<float>& a, const std::vector<float>& b,
                     std::vector<float>& c) { floor_.run(i, a.data(), b.data(), c.data()); };
  for (int64_t i = 0; i < kBatch; ++i) {
    std::copy_n(&x_[rows[i] * kInputs], kInputs, &batch_x_[i * kInputs]);
    std::copy_n(&y_[rows[i] * kOutputs], kOutputs, &batch_y_[i * kOutputs]);
  }

  product(kForward1, batch_x_, w1_, h_);
  for (int64_t i = 0; i < kBatch; ++i) {
    float* h = &h_[i * kHidden];
    const float* b = b1_.data();
    for (int64_t j = 0; j < kHidden; ++j) h[j] = std::max(h[j] + b[j], 0.0f);
  }
  product(kForward2, h_, w2_, o_);

  float loss = 0;  // the mean of squares; o becomes its gradient
  for (int64_t i = 0; i < kBatch; ++i)
    for (int64_t j = 0; j < kOutputs; ++j) {
      float& o = o_[i * kOutputs + j];
      const float difference = o + b2_[j] - batch_y_[i * kOutputs + j];
      loss += difference * difference;
      o = difference * (2.0f / (kBatch * kOutputs));
    }

  product(kWeight2, o_, h_, dw2_);
  product(kData2, o_, w2_, dh_);
  float* dh = dh_.data();
  const float* h = h_.data();
  for (size_t i = 0; i < dh_.size(); ++i) dh[i] = h[i] > 0 ? dh[i] : 0;
  product(kWeight1, dh_, batch_x_, dw1_);

  descend(w1_, dw1_.data()), descend(w2_, dw2_.data());
  descend_by_rows(b1_, dh_), descend_by_rows(b2_, o_);
  return loss / (kBatch * kOutputs);
}

double HandWritten::train(int epochs) {
  std::vector<int64_t> order(kRows);
  std::iota(order.begin(), order.end(), 0);
  std::mt19937 random(2);
  double sum = 0;
  for (int epoch = 0; epoch < epochs; ++epoch) {
    std::shuffle(order.begin(), order.end(), random);
    sum = 0;
    for (int64_t begin = 0; begin + kBatch <= kRows; begin += kBatch) sum += step(&order[begin]);
  }
  return sum / (kRows / kBatch);
}

}  // namespace bench
