// An external program that writes a tree as an ONNX file and reads it again.
#include <espalier/onnx.h>

#include <cstdio>
namespace esp = espalier;

int main() {
  const char* const file = "consumer.onnx";
  const esp::Variable x = esp::placeholder("x", {2, 3});
  const esp::nn::Dense layer(2);
  const esp::Variable y = esp::tanh(layer(x));
  const esp::Tensor row = esp::ones({2, 3});
  const esp::Tensor expected = y.get_executor().run({{"x", row}});
  esp::onnx::save(file, {{"x", x}}, {{"y", y}});
  const esp::onnx::Model model = esp::onnx::load(file);
  std::remove(file);
  const esp::Tensor read = model.output("y").get_executor().run({{"x", row}});
  for (int64_t i = 0; i < 2; ++i)
    for (int64_t j = 0; j < 2; ++j)
      if (read.at<float>({i, j}) != expected.at<float>({i, j})) return 1;
  try {
    esp::onnx::load("there is no such file");
    return 2;
  } catch (const esp::FileError&) {
  }
}
