#include "espalier/nn/cached_decoding.h"

#include <fmt/format.h>

#include <memory>
#include <utility>

#include "espalier/core/error.h"
#include "espalier/core/node.h"
#include "espalier/ops/ops.h"

namespace espalier::nn {

namespace {

/// The state says which row of the last call each sequence continues; a step leaves them numbered.
class CachedStep {
 public:
  CachedStep(CachedModel model, const KvCaches& caches, int64_t sequences)
      : model_(std::move(model)), rows_(sequences) {
    const NoGrad no_gradients;
    for (const KvCache& cache : caches) {
      // Appending writes behind the steps of a cache, which its copies share.
      KvCache own;
      if (cache.length() > 0) own.append(cache.keys(), cache.values());
      caches_.push_back(std::move(own));
    }
  }

  NextTokens operator()(const Variable& tokens, const DecodingState& state) {
    const Tensor rows = state.at(0).value();
    if (!continues_all(rows.to(cpu())))
      for (KvCache& cache : caches_)
        if (cache.length() > 0) cache.select(rows);
    rows_ = rows.elements();
    return {model_(unsqueeze(tokens, 1), caches_), {Variable(arange(rows_, int64).to(rows.device()))}};
  }

 private:
  bool continues_all(const Tensor& rows) const {
    if (rows.elements() != rows_) return false;
    for (int64_t i = 0; i < rows_; ++i)
      if (rows.at<int64_t>({i}) != i) return false;
    return true;
  }

  CachedModel model_;
  KvCaches caches_;
  int64_t rows_;  // of the last call
};

void check_cache(const KvCache& cache, int64_t sequences) {
  if (cache.length() == 0) return;
  if (cache.keys().shape()[0] != sequences)
    throw ShapeError(fmt::format("with_caches: {} sequences, and a cache with keys of shape {}", sequences,
                                 cache.keys().shape().str()));
}

}  // namespace

Decoding with_caches(CachedModel model, const KvCaches& caches, int64_t sequences, Device device,
                     std::source_location where) {
  return located(where, [&]() -> Decoding {
    if (!model) throw Error("with_caches: the model is empty");
    if (sequences < 1) throw ShapeError(fmt::format("with_caches: {} sequences", sequences));
    for (const KvCache& cache : caches) check_cache(cache, sequences);
    auto step = std::make_shared<CachedStep>(std::move(model), caches, sequences);
    return {[step](const Variable& tokens, const DecodingState& state) { return (*step)(tokens, state); },
            {Variable(arange(sequences, int64).to(device))}};
  });
}

}  // namespace espalier::nn
