// espalier-train: goes on with the training in a plan file.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <optional>

#include "espalier/core/error.h"
#include "espalier/core/random.h"
#include "espalier/data/npz.h"
#include "espalier/executor/load.h"
#include "espalier/executor/programs/program.h"
#include "espalier/executor/settings.h"

namespace esp = espalier;
using namespace espalier::programs;
namespace fs = std::filesystem;

namespace {

struct Arguments {
  CommonOptions common;
  std::string plan, validation, save, checkpoint, history;
  std::vector<std::string> data, columns, settings;
  int64_t epochs = 1, batch_size = 0, checkpoint_every = 0;
  std::optional<uint64_t> seed;
  bool in_order = false, resume = false, ignore_nan = false, quiet = false;
};

/// Whether SaveOptions::columns gave it a name; else it is column_0, column_1, …
bool has_own_name(const esp::ValueInfo& column) {
  constexpr std::string_view numbered = "column_";
  return !column.name.starts_with(numbered) ||
         column.name.find_first_not_of("0123456789", numbered.size()) != column.name.npos;
}

/// The arrays of a file in the order of the columns: by `names`, else by the columns' own names. Where the
/// columns have none, and the file has as many arrays of other names, as they lie in the file.
std::vector<esp::Tensor> read_columns(const fs::path& file, const std::vector<std::string>& names,
                                      const esp::PlanFeedInfo& feed) {
  check_input(file);
  const esp::NamedTensors arrays = esp::data::read_npz(file, {}, nowhere);
  const auto find = [&](const std::string& name) {
    return std::ranges::find(arrays, name, [](const auto& array) { return array.first; });
  };
  const auto is_there = [&](const std::string& name) { return find(name) != arrays.end(); };
  std::vector<std::string> wanted = names;
  if (wanted.empty())
    for (const esp::ValueInfo& column : feed.columns) wanted.push_back(column.name);
  const bool in_order = names.empty() && arrays.size() == wanted.size() &&
                        std::ranges::none_of(feed.columns, has_own_name) &&
                        std::ranges::none_of(wanted, is_there);
  if (!in_order && (wanted.size() != feed.columns.size() || !std::ranges::all_of(wanted, is_there))) {
    std::string text = file.string() + " has the arrays";
    for (const auto& [name, array] : arrays) text += " " + name;
    text += ", and the plan is fed with";
    for (const esp::ValueInfo& column : feed.columns) text += " " + column.name;
    throw Failure{bad_data, text + "; --columns names them in this order"};
  }
  std::vector<esp::Tensor> columns;
  for (size_t i = 0; i < wanted.size(); ++i)
    columns.push_back(
        converted((in_order ? arrays.begin() + static_cast<ptrdiff_t>(i) : find(wanted[i]))->second,
                  feed.columns[i].dtype, wanted[i]));
  return columns;
}

/// The Distributors that feed a plan of training.
std::vector<esp::PlanFeedInfo> feeds_of(const std::string& plan) {
  check_input(plan);
  const esp::PlanFileInfo info = esp::plan_file_info(plan, nowhere);
  if (info.mode != esp::Mode::training) throw Failure{bad_data, plan + " was saved for inference"};
  for (const esp::PlanFeedInfo& feed : info.feeds)
    if (feed.placeholder)
      throw Failure{bad_data,
                    plan + " has the placeholder '" + feed.columns[0].name +
                        "', for which there are no values here: training is fed by Distributors alone"};
  if (info.feeds.empty())
    throw Failure{bad_data, plan + " is fed by no Distributor, which training needs here"};
  return info.feeds;
}

/// The data of all feeds, from a file for each.
std::vector<esp::data::Distributor> read_data(const Arguments& arguments,
                                              const std::vector<esp::PlanFeedInfo>& feeds) {
  if (arguments.data.size() != feeds.size())
    throw Failure{usage, arguments.plan + " is fed by " + std::to_string(feeds.size()) +
                             " Distributors, and " + std::to_string(arguments.data.size()) +
                             " files were given; --data has one for each, in their order"};
  size_t columns = 0;
  for (const esp::PlanFeedInfo& feed : feeds) columns += feed.columns.size();
  if (!arguments.columns.empty() && arguments.columns.size() != columns)
    throw Failure{bad_data, arguments.plan + " is fed with " + std::to_string(columns) +
                                " columns, and --columns has " + std::to_string(arguments.columns.size()) +
                                " names"};
  std::vector<esp::data::Distributor> all;
  auto name = arguments.columns.begin();
  for (size_t i = 0; i < feeds.size(); ++i) {
    std::vector<std::string> names;
    if (!arguments.columns.empty()) {
      const auto end = name + static_cast<ptrdiff_t>(feeds[i].columns.size());
      names.assign(name, end);
      name = end;
    }
    esp::data::DistributorOptions batches{.batch_size = arguments.batch_size, .shuffle = !arguments.in_order};
    if (batches.batch_size == 0) batches.batch_size = feeds[i].columns[0].shape.dims()[0];
    if (arguments.seed) batches.seed = *arguments.seed;
    all.emplace_back(read_columns(arguments.data[i], names, feeds[i]), batches, nowhere);
  }
  return all;
}

/// Settings of the optimizer, "lr=0.001".
void set_settings(const esp::Executor& executor, const std::vector<std::string>& settings) {
  for (const std::string& setting : settings) {
    const size_t equals = setting.find('=');
    char* end = nullptr;
    const double value = equals == setting.npos ? 0 : std::strtod(setting.c_str() + equals + 1, &end);
    if (!end || *end || end == setting.c_str() + equals + 1)
      throw Failure{usage, "--set takes name=number, such as lr=0.001, not " + setting};
    esp::set_scalar_state(executor, setting.substr(0, equals), value, nowhere);
  }
}

void print_epoch(int64_t epoch, int64_t epochs, const esp::EpochRecord& record) {
  std::printf("epoch %lld/%lld loss %.6g", static_cast<long long>(epoch), static_cast<long long>(epochs),
              record.loss_mean);
  for (const auto& [name, mean] : record.outputs) std::printf(" %s %.6g", name.c_str(), mean);
  if (!std::isnan(record.validation_loss)) std::printf(" validation_loss %.6g", record.validation_loss);
  for (const auto& [name, mean] : record.validation_outputs)
    std::printf(" validation_%s %.6g", name.c_str(), mean);
  std::printf(" seconds %.3g\n", record.seconds);
  std::fflush(stdout);
}

struct PrintEpochs : esp::Callback {
  int64_t epochs = 0;
  void epoch_finish(esp::TrainingRun& run) override {
    print_epoch(static_cast<int64_t>(run.history().epochs.size()), epochs, run.epoch());
  }
};

/// Throws Failure unless all files and folders of the result can be written.
void check_targets(const Arguments& arguments) {
  if (!arguments.history.empty() && same_file(arguments.history, arguments.save))
    throw Failure{usage, "--save and --history name one file, " + arguments.save};
  check_output(arguments.save);
  if (!arguments.history.empty()) check_output(arguments.history);
  if (arguments.checkpoint.empty()) return;
  std::error_code failed;
  if (arguments.resume && !fs::is_directory(arguments.checkpoint, failed))
    throw Failure{no_input, "--resume: there is no folder " + arguments.checkpoint};
  fs::create_directories(arguments.checkpoint, failed);
  if (!fs::is_directory(arguments.checkpoint))
    throw Failure{cannot_create, "--checkpoint: the folder " + arguments.checkpoint +
                                     " cannot be made: " + failed.message()};
  check_output(fs::path(arguments.checkpoint) / "trial");
}

esp::History execute(const esp::Executor& executor, const esp::ExecuteOptions& options) {
  try {
    return executor.execute(options, nowhere);
  } catch (const esp::NumericError& error) {
    std::string text = error.what();
    const std::string of_code = ".stop_on_nan = false";
    if (const size_t at = text.find(of_code); at != text.npos)
      text.replace(at, of_code.size(), "--ignore-nan");
    throw Failure{bad_data, text};
  }
}

void train(const Arguments& arguments) {
  const std::vector<esp::Device> devices = arguments.common.apply();
  const std::vector<esp::PlanFeedInfo> feeds = feeds_of(arguments.plan);
  if (feeds.size() > 1 && !arguments.validation.empty())
    throw Failure{usage, "--validation is for plans that one Distributor feeds; " + arguments.plan + " has " +
                             std::to_string(feeds.size())};
  check_targets(arguments);
  esp::LoadOptions options{.data = read_data(arguments, feeds), .devices = devices};
  if (!arguments.validation.empty())
    options.validation =
        esp::data::Distributor(read_columns(arguments.validation, arguments.columns, feeds[0]),
                               {.batch_size = options.data[0].batch_size()}, nowhere);
  const esp::Executor executor = esp::load_executor(arguments.plan, options, nowhere);
  if (arguments.seed) esp::seed(*arguments.seed);
  if (arguments.resume) executor.resume(arguments.checkpoint, nowhere);
  set_settings(executor, arguments.settings);
  if (!arguments.quiet) {
    const auto printer = std::make_shared<PrintEpochs>();
    printer->epochs = arguments.epochs;
    executor.use(printer, nowhere);
  }
  esp::ExecuteOptions run{.epochs = arguments.epochs,
                          .checkpoint = arguments.checkpoint,
                          .checkpoint_every = arguments.checkpoint_every,
                          .stop_on_nan = !arguments.ignore_nan};
  if (arguments.quiet) run.progress = false;
  const esp::History history = execute(executor, run);
  write_output([&] {
    std::vector<std::string> names;
    for (const esp::PlanFeedInfo& feed : feeds)
      for (const esp::ValueInfo& column : feed.columns) names.push_back(column.name);
    executor.save(arguments.save, {.columns = names}, nowhere);
  });
  if (!arguments.history.empty()) write_output([&] { history.write_csv(arguments.history, nowhere); });
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Goes on with the training in a plan file, which Executor::save wrote, and saves the result.",
               "espalier-train");
  Arguments a;
  app.add_option("plan", a.plan, "The plan file, saved from an executor of training")->required();
  app.add_option(
         "--data", a.data,
         "file.npz with an array for each column of the plan's Distributor; a file for each of several, in "
         "their order")
      ->required()
      ->allow_extra_args(false);
  app.add_option("--columns", a.columns,
                 "Names of the arrays in the order of the columns (default: the "
                 "columns' names; of a plan without names, the order of the file)")
      ->delimiter(',')
      ->allow_extra_args(false);
  app.add_option("--validation", a.validation,
                 "file.npz with the same arrays, for the loss after each epoch");
  constexpr uint64_t most = std::numeric_limits<int64_t>::max();
  app.add_option("--epochs", a.epochs, "Passes over the data (default 1)")->check(whole_number(1, most));
  app.add_option("--batch-size", a.batch_size, "Rows in a batch (default: as the plan was saved)")
      ->check(whole_number(1, most));
  app.add_option("--seed", a.seed,
                 "Of the orders of rows and of random numbers (default: go on with those of "
                 "the file)")
      ->check(whole_number(0, std::numeric_limits<uint64_t>::max()));
  app.add_option("--set", a.settings,
                 "lr=0.001: a setting of the optimizer from now on (default: those of the file)")
      ->allow_extra_args(false);
  app.add_flag("--in-order", a.in_order,
               "Keep the order of the rows instead of shuffling them in each epoch");
  app.add_option("--save", a.save, "The plan file to write, which may be the one that is read")->required();
  auto* checkpoint =
      app.add_option("--checkpoint", a.checkpoint, "A folder for a checkpoint after each epoch");
  app.add_option("--checkpoint-every", a.checkpoint_every, "Leave one after so many steps instead")
      ->check(whole_number(1, most))
      ->needs(checkpoint);
  app.add_flag("--resume", a.resume, "Go on from the last checkpoint in that folder")->needs(checkpoint);
  app.add_option("--history", a.history, "file.csv for a row of figures for each epoch");
  app.add_flag("--ignore-nan", a.ignore_nan, "Go on where the loss is NaN, instead of ending there");
  app.add_flag("--quiet", a.quiet, "Print no figures and show no progress");
  a.common.add_to(app);
  return run_program(app, argc, argv, [&] { train(a); });
}
