// A variational autoencoder of handwritten digits: it learns to draw new ones.
// Kingma and Welling, Auto-encoding variational Bayes, 2014.
//   vae [drawn.png]
#include <espalier/espalier.h>

#include <filesystem>
#include <iostream>
namespace esp = espalier;
using namespace espalier::nn;

constexpr int64_t kPixels = 64, kLatent = 6;

struct Vae : Module {
  /// A bound on −log p(x) in nats, the mean over the rows of x.
  esp::Variable loss(const esp::Variable& x) {
    const esp::Variable h = encoder(x);
    const esp::Variable mean = to_mean(h), log_variance = to_log_variance(h);
    const esp::Variable z = mean + esp::exp(log_variance / 2) * esp::randn_like(mean);
    const esp::Variable pixels =
        esp::binary_cross_entropy_with_logits(decoder(z), x, {.reduction = esp::LossReduction::none});
    const esp::Variable divergence = (esp::square(mean) + esp::exp(log_variance) - log_variance - 1) / 2;
    return esp::mean(esp::sum(pixels, 1) + esp::sum(divergence, 1));
  }

  Sequential encoder = add("encoder", Sequential{Dense(kPixels, 128), Relu(), Dense(128, 64), Relu()});
  Dense to_mean = add("to_mean", Dense(64, kLatent));
  Dense to_log_variance = add("to_log_variance", Dense(64, kLatent));
  Sequential decoder = add("decoder", Sequential{Dense(kLatent, 128), Relu(), Dense(128, kPixels)});
};

void print(const esp::Tensor& pixels) {
  for (int64_t y = 0; y < 8; ++y) {
    for (int64_t image = 0; image < pixels.shape()[0]; ++image) {
      for (int64_t x = 0; x < 8; ++x) {
        const float ink = pixels.at<float>({image, 8 * y + x});
        std::cout << (ink > 0.75f ? "##" : ink > 0.5f ? "++" : ink > 0.25f ? ".." : "  ");
      }
      std::cout << "  ";
    }
    std::cout << "\n";
  }
}

/// A sheet of digits, `columns` in a row, each pixel eight times as large.
void draw(const std::filesystem::path& file, const esp::Tensor& pixels, int64_t columns) {
  const esp::Variable rows =
      esp::permute(esp::reshape(1 - pixels, {-1, columns, 8, 8}), {0, 2, 1, 3});  // side by side
  const esp::Variable sheet = esp::reshape(rows, {-1, 8 * columns}) * 255;
  esp::data::write_image(file, esp::repeat_interleave(esp::repeat_interleave(sheet, 8, 0), 8, 1).value());
}

int main(int argc, char** argv) {
  esp::seed(1);
  const esp::Tensor table = esp::data::read_csv("samples/data/digits.csv");
  const esp::Tensor pixels = (esp::slice(table, 1, 0, kPixels) / 16).value();
  const auto [train, test] = esp::data::split({pixels}, 0.8);

  Vae vae;
  esp::data::Distributor feed({train[0]}, {.batch_size = 64, .shuffle = true});
  esp::data::Distributor held_out({test[0]}, {.batch_size = 64});
  const auto [x] = feed.get_output_graphs<1>();
  const auto executor =
      vae.loss(x).get_executor({.optimizer = esp::optim::Adam({.lr = 2e-3}), .validation = held_out});
  executor.on(esp::Event::epoch_finish, [](const esp::StepInfo& info) {
    if (info.epoch % 10 == 9)
      std::cout << "epoch " << info.epoch + 1 << ": " << info.validation_loss
                << " nats for a digit that is held out\n";
  });
  const esp::History history = executor.execute({.epochs = 40, .progress = false});

  // What a model costs that takes pixels for independent: the cross entropy with their means.
  const esp::Tensor means = esp::mean(train[0], 0, true).value();
  const double independent =
      esp::binary_cross_entropy(esp::broadcast_to(means, test[0].shape()), test[0]).item() * kPixels;
  std::cout << "by independent pixels: " << independent << " nats\ndrawn from noise:\n";
  const esp::Tensor drawn = esp::sigmoid(vae.decoder(esp::randn({40, kLatent}))).value();
  print(drawn.slice(0, 0, 5));
  const std::filesystem::path file =
      argc > 1 ? argv[1] : std::filesystem::temp_directory_path() / "drawn_digits.png";
  draw(file, drawn, 10);
  std::cout << "40 of them are in " << file << "\n";
  return history.epochs.back().validation_loss < independent - 2 ? 0 : 1;
}
