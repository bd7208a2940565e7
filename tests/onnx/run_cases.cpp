// Runs cases of ONNX's backend test suite: run_cases < folders
//
// Each folder has model.onnx, and inputs and outputs as messages in test_data_set_0/. For each it prints the
// folder, a tab, and how the outputs came about ("fed", "constants" or "eager") or what went wrong ("wrong",
// "error" with its class), and the reason. It prints the folder before it begins, so that a crash has a name.
#include <cmath>
#include <filesystem>
#include <iostream>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "espalier/core/feed.h"
#include "espalier/core/files/file.h"
#include "espalier/core/node.h"
#include "espalier/core/tree.h"
#include "espalier/nn/onnx/tensors.h"
#include "espalier/onnx.h"

namespace esp = espalier;
namespace fs = std::filesystem;

namespace {

esp::Tensor read_message(const fs::path& file) {
  esp::onnx::pb::TensorProto proto;
  if (!proto.ParseFromString(espalier::read_file(file))) throw esp::FileError(file.string() + ": no tensor");
  return esp::onnx::read_tensor(proto, file);
}

std::vector<esp::Tensor> read_all(const fs::path& folder, const std::string& kind) {
  std::vector<esp::Tensor> list;
  for (int i = 0; fs::exists(folder / (kind + "_" + std::to_string(i) + ".pb")); ++i)
    list.push_back(read_message(folder / (kind + "_" + std::to_string(i) + ".pb")));
  return list;
}

/// Throws std::runtime_error with the reason unless both are as close as the suite asks.
void compare(const std::string& name, const esp::Tensor& got, const esp::Tensor& wanted) {
  constexpr double relative = 1e-3, absolute = 1e-7;
  if (got.dtype() != wanted.dtype())
    throw std::runtime_error(name + " is " + std::string(espalier::name(got.dtype())) + ", not " +
                             std::string(espalier::name(wanted.dtype())));
  if (!(got.shape() == wanted.shape()))
    throw std::runtime_error(name + " has shape " + got.shape().str() + ", not " + wanted.shape().str());
  const esp::Tensor a = got.to(esp::float64).contiguous_copy(), b = wanted.to(esp::float64).contiguous_copy();
  const auto have = a.span<double>(), want = b.span<double>();
  for (size_t i = 0; i < have.size(); ++i) {
    if (std::isnan(have[i]) && std::isnan(want[i])) continue;
    if (have[i] == want[i]) continue;
    if (!(std::abs(have[i] - want[i]) <= absolute + relative * std::abs(want[i])))
      throw std::runtime_error(name + "[" + std::to_string(i) + "] is " + std::to_string(have[i]) + ", not " +
                               std::to_string(want[i]));
  }
}

/// The outputs of a model whose inputs have these values.
std::vector<esp::Tensor> outputs_of(const esp::onnx::Model& model,
                                    const std::map<std::string, esp::Tensor>& values) {
  const auto& outputs = model.outputs();
  std::vector<esp::Tensor> results(outputs.size());
  std::vector<size_t> fed;
  for (size_t i = 0; i < outputs.size(); ++i)
    if (outputs[i].second.node()->lazy)
      fed.push_back(i);
    else
      results[i] = outputs[i].second.value();
  if (fed.empty()) return results;
  esp::ExecutorOptions options{.mode = esp::Mode::inference};
  for (size_t k = 1; k < fed.size(); ++k)
    options.outputs.emplace_back(std::to_string(fed[k]), outputs[fed[k]].second);
  const esp::Variable root = outputs[fed[0]].second;
  const esp::Executor executor = root.get_executor(options);
  // The values of those inputs that the outputs are made of.
  std::set<std::string> used;
  for (const size_t i : fed) {
    espalier::TreeWalk walk(outputs[i].second.node());
    while (const espalier::Node* node = walk.next()) {
      if (const auto* feed = node->op().feed()) used.insert((*feed)->name());
      walk.enter_inputs(*node);
    }
  }
  esp::Feeds feeds;
  for (const std::string& name : used) feeds.emplace_back(name, values.at(name));
  results[fed[0]] = executor.run(feeds);
  for (size_t k = 1; k < fed.size(); ++k) results[fed[k]] = executor.output(std::to_string(fed[k]));
  return results;
}

std::string run(const fs::path& folder) {
  const fs::path data = folder / "test_data_set_0";
  const std::vector<esp::Tensor> inputs = read_all(data, "input"), wanted = read_all(data, "output");
  esp::onnx::pb::ModelProto proto;
  proto.ParseFromString(espalier::read_file(folder / "model.onnx"));
  std::set<std::string> initializers;
  for (const auto& initializer : proto.graph().initializer()) initializers.insert(initializer.name());
  std::map<std::string, esp::Tensor> values;
  size_t next = 0;
  for (const auto& input : proto.graph().input())
    if ((inputs.size() == static_cast<size_t>(proto.graph().input_size()) ||
         !initializers.contains(input.name())) &&
        next < inputs.size())
      values[input.name()] = inputs[next++];
  esp::onnx::LoadOptions options;
  std::set<std::string> known;
  const auto know = [&](const std::string& name) {
    if (known.insert(name).second) options.inputs.emplace_back(name, esp::Variable(values.at(name)));
  };
  const char* way = "fed";
  for (;;) {
    std::vector<esp::Tensor> results;
    try {
      results = outputs_of(esp::onnx::load(folder / "model.onnx", options), values);
    } catch (const esp::onnx::ConstantNeeded& needed) {
      const size_t before = known.size();
      for (const std::string& name : needed.inputs()) know(name);
      if (known.size() == before) throw;
      way = "constants";
      continue;
    } catch (const esp::UnsupportedError&) {
      // What has no shape before there are values is computed eagerly.
      if (known.size() == values.size()) throw;
      for (const auto& [name, value] : values) know(name);
      way = "eager";
      continue;
    }
    const esp::onnx::Model model = esp::onnx::load(folder / "model.onnx", options);
    for (size_t i = 0; i < wanted.size(); ++i) compare(model.outputs()[i].first, results[i], wanted[i]);
    return way;
  }
}

std::string one_line(std::string text) {
  for (char& c : text)
    if (c == '\n' || c == '\t') c = ' ';
  return text;
}

}  // namespace

int main() {
  std::string folder;
  while (std::getline(std::cin, folder)) {
    std::cout << folder << std::flush;
    std::string result;
    try {
      result = run(folder);
    } catch (const esp::UnsupportedError& error) {
      result = std::string("unsupported\t") + one_line(error.what());
    } catch (const esp::Error& error) {
      result = std::string("error\t") + one_line(error.what());
    } catch (const std::exception& error) {
      result = std::string("wrong\t") + one_line(error.what());
    }
    std::cout << "\t" << result << "\n" << std::flush;
  }
}
