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

std::string listed(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text.empty() ? "none" : text;
}
std::vector<std::string> names_of(const std::vector<esp::ValueInfo>& values) {
  std::vector<std::string> names;
  for (const esp::ValueInfo& value : values) names.push_back(value.name);
  return names;
}

/// The outputs of the command line, and the files where they go.
using Targets = std::vector<std::pair<std::string, fs::path>>;
Targets targets_of(const std::vector<std::string>& arguments) {
  Targets targets;
  for (const std::string& argument : arguments) {
    auto [name, file] = named_file(argument);
    if (name.empty()) name = "value";
    for (const auto& [other, taken] : targets)
      if (same_file(taken, file))
        throw Failure{usage, "--output " + argument + ": " + taken.string() + " is that of '" + other + "'"};
    targets.emplace_back(std::move(name), std::move(file));
  }
  return targets;
}

/// What is computed of a plan: all if that is its value, else the outputs that were named.
struct Choice {
  std::vector<std::string> outputs;  ///< each once; empty: all
  std::vector<std::string> inputs;   ///< of the plan, with those that the outputs do not read

  Choice(const std::string& plan, const Targets& targets) {
    if (std::ranges::all_of(targets, [](const auto& target) { return target.first == "value"; })) return;
    const esp::PlanFileInfo info = esp::plan_file_info(plan, nowhere);
    std::vector<std::string> known = info.outputs;
    known.insert(known.begin(), "value");
    for (const auto& [name, file] : targets) {
      if (!std::ranges::count(known, name))
        throw Failure{usage, "there is no output '" + name + "'; the plan has " + listed(known)};
      if (!std::ranges::count(outputs, name)) outputs.push_back(name);
    }
    for (const esp::PlanFeedInfo& feed : info.feeds)
      for (const esp::ValueInfo& column : feed.columns) inputs.push_back(column.name);
  }
};

esp::Feeds feeds_of(const esp::Executor& executor, const Choice& choice, const esp::NamedTensors& arrays) {
  const std::vector<esp::ValueInfo> inputs = executor.inputs();
  esp::Feeds feeds;
  for (const auto& [given, array] : arrays) {
    const std::string name = given.empty() && inputs.size() == 1 ? inputs[0].name : given;
    const auto input = std::ranges::find(inputs, name, &esp::ValueInfo::name);
    if (input == inputs.end() && std::ranges::count(choice.inputs, name)) continue;
    if (input == inputs.end())
      throw Failure{usage, "there is no input '" + name + "'; the plan has " + listed(names_of(inputs))};
    if (std::ranges::count(feeds, name, [](const auto& feed) { return feed.first; }))
      throw Failure{usage, "--input gives '" + name + "' twice"};
    feeds.emplace_back(name, converted(array, input->dtype, name));
  }
  for (const esp::ValueInfo& input : inputs)
    if (std::ranges::count(feeds, input.name, [](const auto& feed) { return feed.first; }) == 0) {
      std::string text =
          "--input gives no '" + input.name + "', which is " + text_of(input.dtype, input.shape);
      if (executor.outputs().size() > 1)
        text += "; the plan has " + listed(names_of(executor.outputs())) +
                ", and --output name=file.npy needs only the inputs of that";
      throw Failure{usage, text};
    }
  return feeds;
}

void run(const Arguments& arguments) {
  esp::set_runs_once(true);
  const std::vector<esp::Device> devices = arguments.common.apply();
  check_input(arguments.plan);
  const Targets targets = targets_of(arguments.outputs);
  const Choice choice(arguments.plan, targets);
  for (const auto& [name, file] : targets) check_output(file);
  const esp::NamedTensors arrays = read_inputs(arguments.inputs);
  esp::LoadOptions options{
      .mode = esp::Mode::inference, .devices = devices, .outputs = choice.outputs, .tune = false};
  if (arguments.precision == "bfloat16") options.precision = esp::Precision::bfloat16;
  if (arguments.precision == "float32") options.precision = esp::Precision::float32;
  const esp::Executor executor = esp::load_executor(arguments.plan, options, nowhere);
  const esp::Tensor value = executor.run(feeds_of(executor, choice, arrays), nowhere);
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
  app.add_option("--output", arguments.outputs,
                 "file.npy for the plan's value, name=file.npy for another output: inputs that none of them "
                 "reads need "
                 "no values; without any, the shape of the value is printed")
      ->allow_extra_args(false);
  app.add_option("--precision", arguments.precision, "Of products: float32 or bfloat16 (default: as saved)")
      ->check(CLI::IsMember({"float32", "bfloat16"}));
  arguments.common.add_to(app);
  return run_program(app, argc, argv, [&] { run(arguments); });
}
