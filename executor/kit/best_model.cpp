#include "espalier/executor/kit/best_model.h"

#include <utility>

#include "espalier/core/error.h"
#include "espalier/nn/serialize.h"

namespace espalier {

BestModel::BestModel(const nn::Module& module, std::filesystem::path file, const BestModelOptions& options,
                     Where where)
    : module_(module), file_(std::move(file)), where_(where), best_(located(where, [&] {
        if (file_.empty()) throw FileError("BestModel: the model needs the name of a file");
        return BestFigure("BestModel", {options.monitor, options.minimum_delta, options.maximize});
      })) {}

void BestModel::initialize(TrainingRun& run) { best_.begin(run); }

void BestModel::epoch_finish(TrainingRun& run) {
  if (best_.add(run.epoch()) && run.is_first()) nn::save(module_, file_, where_);
}

}  // namespace espalier
