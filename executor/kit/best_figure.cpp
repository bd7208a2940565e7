#include "espalier/executor/kit/best_figure.h"

#include <fmt/format.h>

#include <utility>

#include "espalier/core/error.h"

namespace espalier {

BestFigure::BestFigure(std::string caller, BestFigureOptions options)
    : caller_(std::move(caller)), options_(std::move(options)) {
  if (options_.monitor.empty()) throw Error(fmt::format("{}: .monitor names no figure", caller_));
  if (!(options_.minimum_delta >= 0))
    throw Error(
        fmt::format("{}: .minimum_delta is {}; it cannot be negative", caller_, options_.minimum_delta));
}

void BestFigure::begin(const TrainingRun& run, Past past) {
  run.check_figure(caller_, options_.monitor);
  best_.reset();
  epochs_since_ = 0;
  if (past == Past::ignored) return;
  for (const EpochRecord& epoch : run.history().epochs) (void)add(epoch);
}

bool BestFigure::add(const EpochRecord& epoch) {
  const double sign = options_.maximize ? -1 : 1;
  const auto figure = epoch.figure(options_.monitor);
  ++epochs_since_;
  if (!figure || !(*figure == *figure)) return false;
  if (best_ && !(sign * *figure < sign * *best_ - options_.minimum_delta)) return false;
  best_ = figure;
  epochs_since_ = 0;
  return true;
}

}  // namespace espalier
