// A generator learns to draw points of a ring by playing against a discriminator that tells them from true
// ones. Goodfellow and others, Generative adversarial networks, 2014.
#include <espalier/espalier.h>

#include <algorithm>
#include <cmath>
#include <iostream>
#include <numbers>
#include <vector>
namespace esp = espalier;
using namespace espalier::nn;

/// Points near the circle of radius 1, [count, 2].
esp::Tensor ring(int64_t count) {
  const esp::Tensor angle = (esp::rand({count, 1}) * (2 * std::numbers::pi)).value();
  const esp::Variable radius = 1 + 0.05 * esp::randn({count, 1});
  return esp::concat({radius * esp::cos(angle), radius * esp::sin(angle)}, 1).value();
}

int main() {
  esp::seed(1);
  Sequential generator{Dense(2, 64), Relu(), Dense(64, 64), Relu(), Dense(64, 2)};
  Sequential discriminator{Dense(2, 64), LeakyRelu(0.2), Dense(64, 64), LeakyRelu(0.2), Dense(64, 1)};

  // One tree: a batch of true points, as many drawn ones, and the discriminator's logits of both, those of
  // "true". The noise is drawn anew in each step.
  esp::data::Distributor feed({ring(4096)}, {.batch_size = 128, .shuffle = true});
  const auto [real] = feed.get_output_graphs<1>();
  const esp::Variable drawn = generator(esp::randn_like(real));
  const esp::Variable real_logits = discriminator(real), drawn_logits = discriminator(drawn);
  const SigmoidCrossEntropy loss;
  const esp::Variable discriminator_loss =
      loss(real_logits, esp::ones_like(real_logits)) + loss(drawn_logits, esp::zeros_like(drawn_logits));
  const esp::Variable generator_loss = loss(drawn_logits, esp::ones_like(drawn_logits));

  // Two executors of this tree. Each trains what is trainable when it is made.
  const esp::optim::AdamOptions adam{.lr = 1e-3, .beta1 = 0.5};
  generator.trainable(false);
  const auto train_discriminator = discriminator_loss.get_executor({.optimizer = esp::optim::Adam(adam)});
  generator.trainable(true);
  discriminator.trainable(false);
  const auto train_generator = generator_loss.get_executor({.optimizer = esp::optim::Adam(adam)});

  for (int epoch = 1; epoch <= 60; ++epoch) {
    double losses[2] = {};
    try {
      // Both show the same batch; the first one that finds no more begins the next epoch of both.
      while (true) {
        losses[0] = train_discriminator.step().loss;
        losses[1] = train_generator.step().loss;
      }
    } catch (const esp::EndOfData&) {
    }
    if (epoch % 10 == 0)
      std::cout << "epoch " << epoch << ": discriminator " << losses[0] << " (a draw is 1.386), generator "
                << losses[1] << "\n";
  }

  // All parts of the ring should be drawn, and points should lie on it.
  constexpr int64_t count = 4000;
  const esp::Tensor points = esp::predict(generator, esp::randn({count, 2}));
  std::vector<int> sectors(12);
  double distance = 0;
  for (int64_t i = 0; i < count; ++i) {
    const float x = points.at<float>({i, 0}), y = points.at<float>({i, 1});
    distance += std::abs(std::hypot(x, y) - 1) / count;
    ++sectors[static_cast<size_t>((std::atan2(y, x) / (2 * std::numbers::pi) + 0.5) * 11.999)];
  }
  const int rarest = *std::ranges::min_element(sectors);
  std::cout << "drawn points are " << distance
            << " away from the ring; of its 12 sectors, each with 333 of them, the rarest has " << rarest
            << "\n";
  return distance < 0.15 && rarest > 100 ? 0 : 1;
}
