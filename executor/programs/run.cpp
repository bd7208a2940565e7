// espalier-run: computes the outputs of a plan file.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>

#include "espalier/data/npy.h"
#include "espalier/data/npz.h"
#include "espalier/executor/load.h"
#include "espalier/executor/programs/program.h"

namespace esp = espalier;
using namespace espalier::programs;
namespace fs = std::filesystem;

namespace {

struct Arguments {
  CommonOptions common;
  std::string plan, precision;
  std::vector<std::string> inputs, outputs;
};

/// The arrays of the command line: of .npy files by the names before '=', of .npz files by their own.
esp::NamedTensors read_inputs(const std::vector<std::string>& arguments) {
  esp::NamedTensors all;
  for (const std::string& argument : arguments) {
    auto [name, file] = named_file(argument);
    check_input(file);
    if (name.empty() && file.extension() == ".npz")
      for (auto& array : esp::data::read_npz(file, {}, nowhere)) all.push_back(std::move(array));
    else
      all.emplace_back(name, esp::data::read_npy(file, {}, nowhere));
  }
  return all;
}

esp::Feeds feeds_of(const esp::Executor& executor, const esp::NamedTensors& arrays) {
  const std::vector<esp::ValueInfo> inputs = executor.inputs();
  std::string names;
  for (const esp::ValueInfo& input : inputs) names += (names.empty() ? "" : ", ") + input.name;
  esp::Feeds feeds;
  for (const auto& [given, array] : arrays) {
    const std::string name = given.empty() && inputs.size() == 1 ? inputs[0].name : given;
    const auto input = std::ranges::find(inputs, name, &esp::ValueInfo::name);
    if (input == inputs.end())
      throw Failure{usage,
                    "there is no input '" + name + "'; the plan has " + (names.empty() ? "none" : names)};
    feeds.emplace_back(name, converted(array, input->dtype, name));
  }
  return feeds;
}

void run(const Arguments& arguments) {
  const std::vector<esp::Device> devices = arguments.common.apply();
  check_input(arguments.plan);
  const esp::NamedTensors arrays = read_inputs(arguments.inputs);
  esp::LoadOptions options{.mode = esp::Mode::inference, .devices = devices, .tune = false};
  if (arguments.precision == "bfloat16") options.precision = esp::Precision::bfloat16;
  if (arguments.precision == "float32") options.precision = esp::Precision::float32;
  const esp::Executor executor = esp::load_executor(arguments.plan, options, nowhere);
  const esp::Tensor value = executor.run(feeds_of(executor, arrays), nowhere);
  for (const std::string& argument : arguments.outputs) {
    const auto [name, file] = named_file(argument);
    const esp::Tensor output = name.empty() || name == "value" ? value : executor.output(name, nowhere);
    write_output([&] { esp::data::write_npy(file, output.to(esp::cpu()), nowhere); });
  }
  if (arguments.outputs.empty()) std::printf("value %s\n", text_of(value.dtype(), value.shape()).c_str());
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app(
      "Computes the outputs of a plan file, which Executor::save wrote, for inputs in NumPy's files.",
      "espalier-run");
  Arguments arguments;
  app.add_option("plan", arguments.plan, "The plan file")->required();
  app.add_option(
         "--input", arguments.inputs,
         "name=file.npy for each input; file.npz has all by their names; file.npy is enough for the only "
         "one. Reals become the reals that the input takes, integers the integers")
      ->allow_extra_args(false);
  app.add_option(
         "--output", arguments.outputs,
         "file.npy for the plan's value, name=file.npy for another output; without any, the shape of the "
         "value is printed")
      ->allow_extra_args(false);
  app.add_option("--precision", arguments.precision, "Of products: float32 or bfloat16 (default: as saved)")
      ->check(CLI::IsMember({"float32", "bfloat16"}));
  arguments.common.add_to(app);
  return run_program(app, argc, argv, [&] { run(arguments); });
}
