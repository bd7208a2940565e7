// Writes the plan that run_plan.py and ../static_program.sh run: write_plan FILE.
#include <espalier/espalier.h>

#include <iostream>
namespace esp = espalier;

int main(int argc, char** argv) try {
  if (argc != 2) throw esp::Error("usage: write_plan FILE");
  const esp::nn::Sequential network{esp::nn::Unflatten(1, {1, 6}),
                                    esp::nn::Conv1d(4, {.kernel = 3}),
                                    esp::nn::Flatten(),
                                    esp::nn::Dense(9),
                                    esp::nn::Relu(),
                                    esp::nn::Dense(3)};
  esp::softmax(network(esp::placeholder("x", {-1, 6}))).get_executor().save(argv[1]);
} catch (const std::exception& error) {
  std::cerr << error.what() << "\n";
  return 1;
}
