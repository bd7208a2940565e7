// A checkpoint is one safetensors file: the leaves and the numbers of the run are tensors; all else is JSON
// in the metadata, which also has a checksum over everything.
#include "espalier/executor/training/checkpoint.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "espalier/core/error.h"
#include "espalier/core/files/crc64.h"
#include "espalier/executor/training/checkpoint_folder.h"

namespace espalier {

namespace {

using Json = nlohmann::json;
constexpr const char *format_key = "format", *format = "espalier checkpoint 1", *state_key = "state",
                     *checksum_key = "checksum";
constexpr int64_t history_columns = 4;

/// Over the metadata and the tensors with their names, types and shapes, independent of their order.
std::string checksum_of(const std::string& state, const NamedTensors& tensors) {
  Crc64 crc;
  const auto add_number = [&](uint64_t n) { crc.add(&n, sizeof n); };
  const auto add_text = [&](std::string_view text) {
    add_number(text.size());
    crc.add(text.data(), text.size());
  };
  add_text(format);
  add_text(state);
  std::vector<const std::pair<std::string, Tensor>*> order;
  for (const auto& named : tensors) order.push_back(&named);
  std::sort(order.begin(), order.end(), [](const auto* a, const auto* b) { return a->first < b->first; });
  for (const auto* named : order) {
    const Tensor plain = named->second.contiguous_copy();
    add_text(named->first);
    add_text(name(plain.dtype()));
    add_number(plain.rank());
    for (const int64_t size : plain.shape()) add_number(static_cast<uint64_t>(size));
    add_number(plain.bytes());
    if (plain.bytes()) crc.add(plain.address(), plain.bytes());
  }
  return fmt::format("crc64-xz {:016x}", crc.value());
}

std::string leaf_key(size_t index, const std::string& name) {
  return fmt::format("leaves.{}.{}", index, name);
}

Tensor doubles(const std::vector<double>& values, const Shape& shape) { return tensor_from(values, shape); }

// --- JSON -------------------------------------------------------------------------------------------------

Json to_json(const Spec& spec) {
  return {static_cast<int>(spec.dtype), std::vector<int64_t>(spec.shape.begin(), spec.shape.end())};
}
/// JSON takes any number for an integer, also one that does not fit.
template <class T = int64_t>
T integer_from(const Json& json, T least = std::numeric_limits<T>::min(),
               T most = std::numeric_limits<T>::max()) {
  if (json.is_number_integer()) {
    const bool large = json.is_number_unsigned() && json.get<uint64_t>() > uint64_t{INT64_MAX};
    if (large ? std::cmp_less_equal(json.get<uint64_t>(), most)
              : std::cmp_less_equal(least, json.get<int64_t>()) &&
                    std::cmp_less_equal(json.get<int64_t>(), most))
      return json.get<T>();
  }
  throw FileError(fmt::format("a checkpoint has {} for an integer of {} to {}", json.dump(), least, most));
}
/// A number that stands for one of an enumeration's values, of which `last` is the last.
template <class E>
E enumerator_from(const Json& json, E last) {
  return static_cast<E>(integer_from<int>(json, 0, static_cast<int>(last)));
}
Spec spec_from(const Json& json) {
  Spec spec{enumerator_from(json.at(0), DType::int16), {}};
  for (const Json& size : json.at(1)) spec.shape.dims().push_back(integer_from(size));
  return spec;
}

Json to_json(const FeedState& feed) {
  Json specs = Json::array();
  for (const Spec& spec : feed.specs) specs.push_back(to_json(spec));
  return {{"name", feed.name},
          {"epoch", feed.epoch},
          {"steps", feed.steps},
          {"last_rows", feed.last_rows},
          {"specs", specs}};
}
FeedState feed_from(const Json& json) {
  FeedState feed{json.at("name").get<std::string>(),
                 integer_from(json.at("epoch")),
                 integer_from(json.at("steps")),
                 integer_from(json.at("last_rows")),
                 {}};
  for (const Json& spec : json.at("specs")) feed.specs.push_back(spec_from(spec));
  return feed;
}

Json to_json(const GemmChoice& choice) {
  const Gemm& g = choice.gemm;
  return {static_cast<int>(g.dtype),
          g.transpose_a,
          g.transpose_b,
          g.m,
          g.n,
          g.k,
          choice.threads,
          choice.library,
          static_cast<int>(g.epilogue),
          g.keeps_b};
}
GemmChoice choice_from(const Json& json) {
  const auto size = [&](size_t i) { return integer_from(json.at(i), int64_t{0}, int64_t{INT32_MAX}); };
  Gemm gemm{enumerator_from(json.at(0), DType::int16),
            json.at(1).get<bool>(),
            json.at(2).get<bool>(),
            size(3),
            size(4),
            size(5),
            0,
            0,
            0};
  gemm.epilogue = enumerator_from(json.at(8), GemmEpilogue::accumulate);
  gemm.keeps_b = json.size() > 9 && json.at(9).get<bool>();  // since products may pack
  const auto last = gemm.keeps_b ? GemmLibrary::onednn_inner : GemmLibrary::onednn_matmul;
  const GemmLibrary library = enumerator_from(json.at(7), last);
  if (gemm.dtype != DType::float32 && library != GemmLibrary::openblas)
    throw FileError(fmt::format("a checkpoint has {} for products of {}", name(library), name(gemm.dtype)));
  return {gemm, integer_from<int>(json.at(6), 1), library};
}

std::string state_of(const Checkpoint& c) {
  Json leaves = Json::array(), feeds = Json::array(), products = Json::array(), samples = Json::array(),
       validated = Json::array();
  for (const auto& [name, value] : c.leaves) leaves.push_back(name);
  for (const FeedState& feed : c.feeds) feeds.push_back(to_json(feed));
  for (const GemmChoice& choice : c.products) products.push_back(to_json(choice));
  for (const EpochRecord& epoch : c.run.history.epochs) {
    samples.push_back(epoch.samples);
    validated.push_back(!epoch.validation_outputs.empty());
  }
  Json state{{"leaves", leaves},
             {"feeds", feeds},
             {"products", products},
             {"random", {c.random.seed, c.random.next_stream, c.random.next_parameter_stream}},
             {"step", c.run.step},
             {"begun", c.run.begun},
             {"samples", c.run.record.samples},
             {"samples_of_epochs", samples}};
  if (!c.scalars.empty()) {
    state["scalars"] = c.scalars;
    state["validated_epochs"] = validated;
  }
  if (c.run.weighted_outputs.size() != c.scalars.size()) state["scalar_sums"] = c.run.weighted_outputs.size();
  if (c.optimizer) {
    Json settings = Json::array();
    for (const auto& [name, value] : c.optimizer->values) settings.push_back(name);
    state["optimizer"] = {{"name", c.optimizer->name}, {"settings", settings}};
  }
  return state.dump();
}

/// A row for each finished epoch, with the means in training and in validation (NaN without), and one for the
/// epoch under way, with its sums.
Tensor scalars_of(const Checkpoint& c) {
  std::vector<double> values;
  const auto mean_of = [](const std::map<std::string, double>& means, const std::string& name) {
    const auto found = means.find(name);
    return found == means.end() ? std::numeric_limits<double>::quiet_NaN() : found->second;
  };
  for (const EpochRecord& e : c.run.history.epochs)
    for (const auto* means : {&e.outputs, &e.validation_outputs})
      for (const std::string& name : c.scalars) values.push_back(mean_of(*means, name));
  values.insert(values.end(), c.run.weighted_outputs.begin(), c.run.weighted_outputs.end());
  const auto size = static_cast<int64_t>(values.size());
  return doubles(values, {size});
}

/// Doubles are stored in tensors, because JSON has neither NaN nor infinity.
NamedTensors tensors_of(const Checkpoint& c) {
  NamedTensors tensors;
  for (size_t i = 0; i < c.leaves.size(); ++i)
    tensors.emplace_back(leaf_key(i, c.leaves[i].first), c.leaves[i].second);
  const auto& epochs = c.run.history.epochs;
  std::vector<double> history, settings;
  for (const EpochRecord& e : epochs)
    history.insert(history.end(), {e.loss_sum, e.loss_mean, e.validation_loss, e.seconds});
  if (c.optimizer)
    for (const auto& [name, value] : c.optimizer->values) settings.push_back(value);
  tensors.emplace_back("run.history",
                       doubles(history, {static_cast<int64_t>(epochs.size()), history_columns}));
  tensors.emplace_back("run.epoch",
                       doubles({c.run.record.loss_sum, c.run.weighted, c.run.record.seconds}, {3}));
  if (!c.scalars.empty()) tensors.emplace_back("run.scalars", scalars_of(c));
  tensors.emplace_back("optimizer.settings", doubles(settings, {static_cast<int64_t>(settings.size())}));
  return tensors;
}

// --- reading ----------------------------------------------------------------------------------------------

class Reader {
 public:
  Reader(std::filesystem::path path, NamedTensors tensors) : path_(std::move(path)) {
    for (auto& [name, tensor] : tensors) tensors_.emplace(std::move(name), std::move(tensor));
  }

  Checkpoint read(const Json& state) {
    Checkpoint c;
    for (const Json& leaf : state.at("leaves")) {
      const auto name = leaf.get<std::string>();
      c.leaves.emplace_back(name, take(leaf_key(c.leaves.size(), name)));
    }
    for (const Json& feed : state.at("feeds")) c.feeds.push_back(feed_from(feed));
    for (const Json& choice : state.at("products")) c.products.push_back(choice_from(choice));
    const Json& random = state.at("random");
    c.random = {integer_from<uint64_t>(random.at(0)), integer_from<uint64_t>(random.at(1)),
                integer_from<uint64_t>(random.at(2))};
    read_optimizer(c, state);
    c.scalars = scalars_in(state);
    read_run(c.run, state);
    read_scalars(c.run, c.scalars, state);
    return c;
  }

 private:
  [[noreturn]] void fail(const std::string& reason) const {
    throw FileError(fmt::format("{} {}", path_.string(), reason));
  }
  Tensor take(const std::string& name) {
    auto found = tensors_.extract(name);
    if (!found) fail(fmt::format("has no tensor '{}'", name));
    return found.mapped();
  }
  std::vector<double> take_doubles(const std::string& name, const Shape& shape) {
    const Tensor tensor = take(name);
    if (tensor.dtype() != float64 || !(tensor.shape() == shape))
      fail(fmt::format("has '{}' in another form", name));
    const auto values = tensor.span<double>();
    return {values.begin(), values.end()};
  }

  void read_optimizer(Checkpoint& c, const Json& state) {
    if (!state.contains("optimizer")) {
      (void)take_doubles("optimizer.settings", {0});
      return;
    }
    const Json& optimizer = state.at("optimizer");
    const auto names = optimizer.at("settings").get<std::vector<std::string>>();
    const auto values = take_doubles("optimizer.settings", {static_cast<int64_t>(names.size())});
    c.optimizer = OptimizerSettings{optimizer.at("name").get<std::string>(), {}};
    for (size_t i = 0; i < names.size(); ++i) c.optimizer->values.emplace_back(names[i], values[i]);
  }

  void read_run(RunState& run, const Json& state) {
    std::vector<int64_t> samples;
    for (const Json& number : state.at("samples_of_epochs")) samples.push_back(integer_from(number));
    const auto history = take_doubles("run.history", {static_cast<int64_t>(samples.size()), history_columns});
    for (size_t e = 0; e < samples.size(); ++e) {
      const double* row = history.data() + e * history_columns;
      run.history.epochs.push_back({.loss_sum = row[0],
                                    .loss_mean = row[1],
                                    .validation_loss = row[2],
                                    .samples = samples[e],
                                    .seconds = row[3]});
    }
    const auto epoch = take_doubles("run.epoch", {3});
    run.record.loss_sum = epoch[0];
    run.weighted = epoch[1];
    run.record.seconds = epoch[2];
    run.record.samples = integer_from(state.at("samples"));
    run.step = integer_from(state.at("step"));
    run.begun = state.at("begun").get<bool>();
  }

  static std::vector<std::string> scalars_in(const Json& state) {
    return state.contains("scalars") ? state.at("scalars").get<std::vector<std::string>>()
                                     : std::vector<std::string>();
  }
  void read_scalars(RunState& run, const std::vector<std::string>& names, const Json& state) {
    if (names.empty()) return;
    const size_t n = names.size(), epochs = run.history.epochs.size();
    const size_t sums =
        state.contains("scalar_sums") ? integer_from<size_t>(state.at("scalar_sums"), 0, 1'000'000) : n;
    size_t count = 0;
    if (__builtin_mul_overflow(2 * epochs, n, &count) || count > size_t{INT64_MAX} - sums)
      fail("has too many scalars");
    const auto values = take_doubles("run.scalars", {static_cast<int64_t>(count + sums)});
    const double* next = values.data();
    for (size_t i = 0; i < epochs; ++i) {
      EpochRecord& e = run.history.epochs[i];
      // Older files do not tell.
      const bool validated = state.contains("validated_epochs") ? state["validated_epochs"].at(i).get<bool>()
                                                                : !std::isnan(e.validation_loss);
      for (const std::string& name : names) e.outputs[name] = *next++;
      for (const std::string& name : names)
        if (const double mean = *next++; validated) e.validation_outputs[name] = mean;
    }
    run.weighted_outputs.assign(next, next + sums);
  }

  std::filesystem::path path_;
  std::map<std::string, Tensor> tensors_;
};

Checkpoint read_file_of(const std::filesystem::path& path) {
  FileNotes notes;
  NamedTensors tensors = read_safetensors(path, &notes, {});
  if (notes[format_key] != format)
    throw FileError(fmt::format("{} is no checkpoint, or one of another version", path.string()));
  // From here on the contents are as they were written.
  if (notes[checksum_key] != checksum_of(notes[state_key], tensors))
    throw FileError(fmt::format("{} is damaged: it does not have its checksum", path.string()));
  return checkpoint_from(path, notes[state_key], std::move(tensors));
}

}  // namespace

std::string checkpoint_text(const Checkpoint& checkpoint) { return state_of(checkpoint); }
NamedTensors checkpoint_tensors(const Checkpoint& checkpoint) { return tensors_of(checkpoint); }

Checkpoint checkpoint_from(const std::filesystem::path& path, const std::string& text, NamedTensors tensors) {
  try {
    return Reader(path, std::move(tensors)).read(Json::parse(text));
  } catch (const Json::exception& error) {
    throw FileError(fmt::format("{} cannot be understood: {}", path.string(), error.what()));
  }
}

void make_checkpoint_folder(const std::filesystem::path& folder) {
  const CheckpointFolder made(folder, CheckpointFolder::Access::write);
  if (::access(folder.c_str(), W_OK | X_OK) != 0)
    throw FileError(fmt::format("the checkpoint folder {} cannot be written", folder.string()));
}

void write_checkpoint(const std::filesystem::path& path, const Checkpoint& checkpoint) {
  const CheckpointFolder folder(path, CheckpointFolder::Access::write);
  folder.remove_leftovers();
  const std::vector<int64_t> before = folder.numbers();
  const int64_t number = before.empty() ? 1 : before[0] + 1;
  const NamedTensors tensors = tensors_of(checkpoint);
  std::string state;
  try {
    state = state_of(checkpoint);
  } catch (const Json::exception& error) {
    throw FileError(fmt::format("{} cannot be written: {}", folder.file(number).string(), error.what()));
  }
  write_safetensors(folder.file(number), tensors,
                    {{format_key, format}, {state_key, state}, {checksum_key, checksum_of(state, tensors)}},
                    {});
  folder.sync();
  for (size_t i = 1; i < before.size(); ++i) folder.remove(before[i]);
}

CheckpointFile read_checkpoint(const std::filesystem::path& path) {
  const CheckpointFolder folder(path, CheckpointFolder::Access::read);
  const std::vector<int64_t> numbers = folder.numbers();
  if (numbers.empty()) throw FileError(fmt::format("there is no checkpoint in {}", path.string()));
  const std::filesystem::path file = folder.file(numbers[0]);
  try {
    return {file, read_file_of(file)};
  } catch (const FileError& error) {
    if (numbers.size() < 2) throw;
    throw FileError(fmt::format("{}; the one before it, {}, counts once this one is removed", error.what(),
                                folder.file(numbers[1]).filename().string()));
  }
}

}  // namespace espalier
