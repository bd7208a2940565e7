// espalier-run: computes the outputs of a plan file.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>

#include "espalier/data/npy.h"
#include "espalier/data/npz.h"
#include "espalier/executor/load.h"
#include "espalier/executor/programs/program.h"
#include "espalier/ops/matmul/tuning.h"

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
    const esp::data::NpyReadOptions as_it_is{.small_integers = esp::data::SmallIntegers::keep};
    if (name.empty() && file.extension() == ".npz")
      for (auto& array : esp::data::read_npz(file, as_it_is, nowhere)) all.push_back(std::move(array));
    else
      all.emplace_back(name, esp::data::read_npy(file, as_it_is, nowhere));
  }
  return all;
}

std::string listed(const std::vector<esp::ValueInfo>& values) {
  std::string names;
  for (const esp::ValueInfo& value : values) names += (names.empty() ? "" : ", ") + value.name;
  return names.empty() ? "none" : names;
}

/// The files of the command line and the outputs that go there.
std::vector<std::pair<std::string, fs::path>> targets_of(const std::vector<std::string>& arguments,
                                                         const std::vector<esp::ValueInfo>& outputs) {
  std::vector<std::pair<std::string, fs::path>> targets;
  for (const std::string& argument : arguments) {
    auto [name, file] = named_file(argument);
    if (name.empty()) name = "value";
    if (std::ranges::find(outputs, name, &esp::ValueInfo::name) == outputs.end())
      throw Failure{usage, "there is no output '" + name + "'; the plan has " + listed(outputs)};
    for (const auto& [other, taken] : targets)
      if (same_file(taken, file))
        throw Failure{usage, "--output " + argument + ": " + taken.string() + " is that of '" + other + "'"};
    check_output(file);
    targets.emplace_back(std::move(name), std::move(file));
  }
  return targets;
}

esp::Feeds feeds_of(const esp::Executor& executor, const esp::NamedTensors& arrays) {
  const std::vector<esp::ValueInfo> inputs = executor.inputs();
  esp::Feeds feeds;
  for (const auto& [given, array] : arrays) {
    const std::string name = given.empty() && inputs.size() == 1 ? inputs[0].name : given;
    const auto input = std::ranges::find(inputs, name, &esp::ValueInfo::name);
    if (input == inputs.end())
      throw Failure{usage, "there is no input '" + name + "'; the plan has " + listed(inputs)};
    if (std::ranges::count(feeds, name, [](const auto& feed) { return feed.first; }))
      throw Failure{usage, "--input gives '" + name + "' twice"};
    feeds.emplace_back(name, converted(array, input->dtype, name));
  }
  for (const esp::ValueInfo& input : inputs)
    if (std::ranges::count(feeds, input.name, [](const auto& feed) { return feed.first; }) == 0)
      throw Failure{usage,
                    "--input gives no '" + input.name + "', which is " + text_of(input.dtype, input.shape)};
  return feeds;
}

void run(const Arguments& arguments) {
  esp::set_runs_once(true);
  const std::vector<esp::Device> devices = arguments.common.apply();
  check_input(arguments.plan);
  const esp::NamedTensors arrays = read_inputs(arguments.inputs);
  esp::LoadOptions options{.mode = esp::Mode::inference, .devices = devices, .tune = false};
  if (arguments.precision == "bfloat16") options.precision = esp::Precision::bfloat16;
  if (arguments.precision == "float32") options.precision = esp::Precision::float32;
  const esp::Executor executor = esp::load_executor(arguments.plan, options, nowhere);
  const auto targets = targets_of(arguments.outputs, executor.outputs());
  const esp::Tensor value = executor.run(feeds_of(executor, arrays), nowhere);
  for (const auto& [name, file] : targets) {
    const esp::Tensor output = name == "value" ? value : executor.output(name, nowhere);
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
