#include "espalier/executor/metric_functions.h"

#include <fmt/format.h>

#include <map>
#include <mutex>
#include <utility>

#include "espalier/core/error.h"
#include "espalier/executor/metric_figures.h"

namespace espalier {

namespace {

struct Registered {
  size_t means;  ///< 0: any number
  Metric::Finish function;
  internal::AlignMeans align = {};
};
using Functions = std::map<std::string, Registered, std::less<>>;

/// A function with its name, which std::function::target finds again.
struct Named {
  Functions::const_iterator entry;  // entries stay until the process ends
  double operator()(std::span<const double> means) const { return entry->second.function(means); }
};

struct Registry {
  std::mutex mutex;
  Functions functions{{"precision", {0, figures::precision}},
                      {"recall", {0, figures::recall}},
                      {"f1_score", {0, figures::f1_score}},
                      {"ratio", {2, figures::ratio}},
                      {"r2_score", {4, figures::r2_score}},
                      {"perplexity", {2, figures::perplexity}},
                      {"centered_r2_score", {5, figures::centered_r2_score, figures::move_center}},
                      {"auc", {0, figures::auc}},
                      {"confusion", {0, figures::accuracy}}};
};

Registry& registry() {
  static auto* const made = new Registry;
  return *made;
}

Functions::const_iterator find(std::string_view name) {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  const auto found = all.functions.find(name);
  if (found == all.functions.end())
    throw Error(
        fmt::format("metric_function: there is no function '{}'; register_metric_function names one", name));
  return found;
}

}  // namespace

Metric::Finish register_metric_function(std::string_view name, size_t means, Metric::Finish function,
                                        std::source_location where) {
  return located(where, [&]() -> Metric::Finish {
    if (name.empty() || !function) throw Error("register_metric_function: it needs a name and a function");
    Registry& all = registry();
    const std::lock_guard lock(all.mutex);
    const auto [entry, added] =
        all.functions.try_emplace(std::string(name), Registered{means, std::move(function), {}});
    if (!added) throw Error(fmt::format("register_metric_function: there is a function '{}' already", name));
    return Named{entry};
  });
}

Metric::Finish metric_function(std::string_view name, std::source_location where) {
  return located(where, [&]() -> Metric::Finish { return Named{find(name)}; });
}

namespace internal {

AlignMeans alignment_of(const Metric::Finish& function) {
  const auto* const named = function.target<Named>();
  return named ? named->entry->second.align : AlignMeans();
}

std::string name_of_metric_function(const Metric::Finish& function) {
  const auto* const named = function.target<Named>();
  return named ? named->entry->first : std::string();
}

Metric metric_of(std::vector<Variable> means, std::string_view function, const std::source_location& where) {
  const auto entry = find(function);
  const size_t count = entry->second.means;
  int64_t numbers = 0;
  for (const Variable& mean : means) numbers += mean.shape().elements();
  if (count != 0 && static_cast<size_t>(numbers) != count)
    throw Error(fmt::format("metric_function: '{}' is of {} means, not of {}", function, count, numbers));
  return Metric(std::move(means), Named{entry}, where);
}

}  // namespace internal

}  // namespace espalier
