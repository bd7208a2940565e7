// espalier-inspect: what is in a plan file.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "espalier/executor/load.h"
#include "espalier/executor/programs/program.h"

namespace esp = espalier;
using namespace espalier::programs;

namespace {

struct Arguments {
  CommonOptions common;
  std::string plan, html;
  std::vector<std::string> shapes;
  bool steps = false;
};

long long bytes_of(const esp::ValueInfo& value) {
  return static_cast<long long>(value.shape.elements()) * static_cast<long long>(esp::size_of(value.dtype));
}

void print_leaves(const esp::PlanFileInfo& info, const char* kind, const char* title) {
  long long elements = 0, bytes = 0;
  for (const auto& [of, value] : info.leaves)
    if (of == kind) elements += value.shape.elements(), bytes += bytes_of(value);
  if (!bytes) return;
  std::printf("%s: %lld numbers, %lld bytes\n", title, elements, bytes);
  for (const auto& [of, value] : info.leaves)
    if (of == kind) std::printf("  %s %s\n", value.name.c_str(), text_of(value.dtype, value.shape).c_str());
}

/// "x=8,16"
std::pair<std::string, esp::Shape> shape_of(const std::string& argument) {
  const size_t equals = argument.find('=');
  if (equals == argument.npos || equals == 0)
    throw Failure{usage, "--shape takes name=8,16, not " + argument};
  esp::Shape shape;
  try {
    for (const std::string& size : CLI::detail::split(argument.substr(equals + 1), ','))
      if (!size.empty()) shape.dims().push_back(std::stoll(size));
  } catch (const std::exception&) {
    throw Failure{usage, "--shape takes name=8,16, not " + argument};
  }
  return {argument.substr(0, equals), shape};
}

bool is_open(const esp::ValueInfo& input) { return std::ranges::find(input.shape, -1) != input.shape.end(); }

/// The sizes of all inputs: those of --shape, and those without open axes.
esp::FeedShapes shapes_of(const std::vector<std::string>& arguments,
                          const std::vector<esp::ValueInfo>& inputs) {
  esp::FeedShapes shapes;
  const auto given = [&](const std::string& name) {
    return std::ranges::count(shapes, name, [](const auto& shape) { return shape.first; }) > 0;
  };
  for (const std::string& argument : arguments) {
    auto [name, shape] = shape_of(argument);
    const auto input = std::ranges::find(inputs, name, &esp::ValueInfo::name);
    if (input == inputs.end()) throw Failure{usage, "--shape " + argument + ": there is no such input"};
    if (given(name)) throw Failure{usage, "--shape gives '" + name + "' twice"};
    bool fits = shape.rank() == input->shape.rank();
    for (size_t i = 0; fits && i < shape.rank(); ++i) {
      const int64_t size = shape.dims()[i], wanted = input->shape.dims()[i];
      fits = size >= 0 && (size == wanted || wanted == -1);
    }
    if (!fits) throw Failure{usage, "--shape " + argument + ": '" + name + "' takes " + input->shape.str()};
    shapes.emplace_back(std::move(name), std::move(shape));
  }
  for (const esp::ValueInfo& input : inputs) {
    if (given(input.name)) continue;
    if (is_open(input))
      throw Failure{usage, "input '" + input.name + "' of shape " + input.shape.str() +
                               " has open axes, whose sizes --shape must tell"};
    shapes.emplace_back(input.name, input.shape);
  }
  return shapes;
}

void print_plan(const Arguments& arguments) {
  const esp::Executor executor =
      esp::load_executor(arguments.plan, {.devices = arguments.common.apply(), .tune = false}, nowhere);
  for (const esp::ValueInfo& output : executor.outputs())
    std::printf("output %s %s\n", output.name.c_str(), text_of(output.dtype, output.shape).c_str());
  const std::vector<esp::ValueInfo> inputs = executor.inputs();
  const bool open = std::ranges::any_of(inputs, is_open);
  if (open && arguments.shapes.empty() && arguments.html.empty() && !arguments.steps) {
    std::printf("memory: --shape tells for which sizes\n");
    return;
  }
  if (open || !arguments.shapes.empty()) executor.warm_up(shapes_of(arguments.shapes, inputs), 1, nowhere);
  const esp::Plan plan = executor.plan();
  std::printf("memory: %lld bytes of leaves, %lld of intermediate values, in %lld steps\n",
              static_cast<long long>(plan.leaf_bytes()), static_cast<long long>(plan.arena_bytes()),
              static_cast<long long>(plan.steps()));
  if (arguments.steps) std::printf("%s\n", plan.str().c_str());
  if (!arguments.html.empty()) write_output([&] { plan.report(arguments.html, nowhere); });
}

void inspect(const Arguments& arguments) {
  check_input(arguments.plan);
  const esp::PlanFileInfo info = esp::plan_file_info(arguments.plan, nowhere);
  std::printf("%s: %s, %lld bytes, written by Espalier %s\n", arguments.plan.c_str(),
              info.mode == esp::Mode::training ? "training" : "inference", static_cast<long long>(info.bytes),
              info.version.c_str());
  for (const esp::PlanFeedInfo& feed : info.feeds)
    for (const esp::ValueInfo& column : feed.columns)
      std::printf("%s %s %s\n", feed.placeholder ? "input" : "column", column.name.c_str(),
                  text_of(column.dtype, column.shape).c_str());
  print_plan(arguments);
  print_leaves(info, "parameter", "parameters");
  print_leaves(info, "variable", "variables");
  print_leaves(info, "state", "states");
  std::printf("operations:\n");
  for (const auto& [name, count] : info.operations)
    std::printf("  %lld %s\n", static_cast<long long>(count), name.c_str());
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app(
      "Shows what is in a plan file, which Executor::save wrote: inputs, outputs, memory, parameters and "
      "operations. -1 in a shape is any size.",
      "espalier-inspect");
  Arguments arguments;
  app.add_option("plan", arguments.plan, "The plan file")->required();
  app.add_option("--shape", arguments.shapes,
                 "name=8,16: the sizes of an input for which to show memory and plan")
      ->allow_extra_args(false);
  app.add_flag("--steps", arguments.steps, "Print the passes and the steps of the plan");
  app.add_option("--html", arguments.html, "Write a page with the graph, steps, memory and passes");
  arguments.common.add_to(app);
  return run_program(app, argc, argv, [&] { inspect(arguments); });
}
