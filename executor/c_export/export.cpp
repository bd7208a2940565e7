#include "espalier/executor/c_export/export.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "espalier/core/error.h"
#include "espalier/core/files/file.h"
#include "espalier/core/random.h"
#include "espalier/executor/c_export/program.h"
#include "espalier/executor/compile.h"
#include "espalier/executor/training/batch_readers.h"
#include "espalier/executor/training/optimizer_settings.h"

namespace espalier::c_export {

namespace {

std::string name_of(const std::filesystem::path& file, const ExportOptions& options) {
  const std::string name = options.name.empty() ? file.stem().string() : options.name;
  const auto is_part = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; };
  if (name.empty() || !std::ranges::all_of(name, is_part) ||
      !std::isalpha(static_cast<unsigned char>(name[0])))
    throw Error(
        fmt::format("export_c: '{}' is no identifier of C, with which names could begin; give .name", name));
  return name;
}

/// The sizes of a batch of that tree.
BatchSignature batch_of(const TreeFeeds& feeds, const ExportOptions& options) {
  FeedShapes shapes;
  for (const auto& shape : options.shapes)
    for (const auto& feed : feeds.all())
      if (feed->is_placeholder() && feed->name() == shape.first) shapes.push_back(shape);
  if (!shapes.empty()) return signature_of(feeds, shapes, "export_c");
  if (feeds.has_open_placeholders())
    throw Error("export_c: a placeholder has open axes; give .shapes, the sizes to write code for");
  BatchSignature batch;
  feeds.read_sizes(0, {}, batch);
  if (options.rows == 0) return batch;
  if (options.rows < 0) throw Error(fmt::format("export_c: a batch cannot have {} rows", options.rows));
  const BatchSignature whole = batch;
  bool shows = false;
  for (size_t f = 0; f < feeds.size(); ++f) {
    if (!feeds.shows_rows(f, whole)) continue;
    shows |= !feeds[f].is_placeholder();
    batch.rows[f] = options.rows;
  }
  if (!shows)
    throw Error(
        "export_c: .rows is for trees with a feed that has data of its own; placeholders have .shapes");
  return batch;
}

/// Whether all given shapes are those of placeholders.
void check_shapes(const ExportOptions& options, std::initializer_list<const Setup*> setups) {
  for (const auto& given : options.shapes) {
    const std::string& name = given.first;
    const bool known = std::ranges::any_of(setups, [&](const Setup* setup) {
      return setup && std::ranges::any_of(setup->feeds.all(), [&](const auto& feed) {
               return feed->is_placeholder() && feed->name() == name;
             });
    });
    if (!known) throw DataError(fmt::format("export_c: there is no placeholder '{}'", name));
  }
}

/// Whether two trees read a leaf or a feed in common.
bool are_related(const Setup& a, const Setup& b) {
  const auto has_leaf = [&](const Variable& leaf) {
    return std::ranges::any_of(a.leaves, [&](const Variable& other) { return other.node() == leaf.node(); });
  };
  const auto has_feed = [&](const auto& feed) { return std::ranges::count(a.feeds.all(), feed) > 0; };
  return std::ranges::any_of(b.leaves, has_leaf) || std::ranges::any_of(b.feeds.all(), has_feed);
}

std::shared_ptr<const PlanData> compile(const Setup& given, const ExportOptions& options) {
  if (given.sharded())
    throw UnsupportedError("export_c: C code runs on one device, and takes a batch in one part");
  if (given.options.precision != Precision::float32)
    throw UnsupportedError("export_c: C code computes in float32, and this executor does not");
  Setup setup = given;
  setup.target = {.device = DeviceType::cpu};
  setup.gather_gradients = false;
  setup.options.find_nan = false;
  setup.options.memory_budget = 0;
  for (const std::string& pass : passes_without_code()) setup.options.without.push_back(pass);
  return compile_step(setup, batch_of(setup.feeds, options), {}, !setup.training());
}

std::vector<Variable> learning_rates_of(const Setup& setup) {
  std::vector<Variable> rates = optimizer_settings(setup);
  std::erase_if(rates, [](const Variable& setting) {
    return setting.node()->op().name() != "lr" || !is_real(setting.dtype());
  });
  return rates;
}

EntryPoint entry_of(const Setup& setup, const ExportOptions& options) {
  EntryPoint entry{.name = setup.training() ? "step" : "run",
                   .plan = compile(setup, options),
                   .results = {},
                   .rates = learning_rates_of(setup)};
  const PlanData& plan = *entry.plan;
  entry.results.emplace_back(setup.training() ? "loss" : "output", plan.value);
  for (size_t i = 0; i < setup.options.outputs.size(); ++i) {
    const auto& [name, output] = setup.options.outputs[i];
    const size_t count = output.variables().size();
    for (size_t k = 0; k < count; ++k)
      entry.results.emplace_back(count == 1 ? name : fmt::format("{}_{}", name, k),
                                 plan.outputs[setup.first_outputs[i] + k]);
  }
  return entry;
}

/// Where a path leads, so that two spellings of one file compare equal.
std::filesystem::path target_of(const std::filesystem::path& path) {
  return std::filesystem::weakly_canonical(std::filesystem::absolute(path));
}

void write(const std::filesystem::path& path, const std::string& text) {
  AtomicFile file(path);
  file.write(text.data(), text.size());
  file.commit();
}

}  // namespace

ExportedSizes export_files(const Setup& setup, const std::filesystem::path& file,
                           const ExportOptions& options) {
  CodeOptions how{.name = name_of(file, options),
                  .file = file.filename().string(),
                  .weight_file = options.weights.filename().string()};
  how.linked_weights = options.weights.extension() == ".c";
  how.loaded_weights = !options.weights.empty() && !how.linked_weights;
  if (!options.weights.empty() && target_of(options.weights) == target_of(file))
    throw Error(fmt::format("export_c: .weights, {}, is the file of the code itself, {}",
                            options.weights.string(), file.string()));
  std::optional<Setup> predict;
  if (options.predict.defined()) {
    if (!setup.training()) throw Error("export_c: .predict goes with training only");
    predict.emplace(options.predict,
                    ExecutorOptions{.mode = Mode::inference, .without = setup.options.without});
    if (!are_related(setup, *predict))
      throw Error(
          "export_c: .predict has no parameter, state or feed in common with the tree that is trained");
  }
  check_shapes(options, {&setup, predict ? &*predict : nullptr});
  std::vector<EntryPoint> entries{entry_of(setup, options)};
  if (predict) entries.push_back(entry_of(*predict, options));
  const Code code = write_code(entries, how, {generator().seed, generator().next_stream});
  if (!options.weights.empty()) write(options.weights, code.weights);
  write(file, code.text);
  return code.sizes;
}

}  // namespace espalier::c_export
