#include "espalier/core/feed.h"

#include <fmt/format.h>

#include "espalier/core/error.h"

namespace espalier {

void Feed::read_part(int64_t epoch, int64_t step, int64_t first, std::span<Tensor> outputs) const {
  const std::vector<Tensor> whole = batch(epoch, step);
  for (size_t i = 0; i < outputs.size(); ++i) {
    const bool rows = outputs[i].rank() > 0;  // else a number for all
    copy_elements(rows ? whole[i].slice(0, first, first + outputs[i].shape()[0]) : whole[i], outputs[i]);
  }
}

std::vector<Tensor> Feed::batch(int64_t epoch, int64_t step) const {
  const std::vector<Shape> all = shapes(epoch, step);
  const std::vector<Spec> full = specs();
  std::vector<Tensor> outputs;
  for (size_t i = 0; i < all.size(); ++i) outputs.emplace_back(all[i], full[i].dtype);
  read(epoch, step, outputs);
  return outputs;
}

std::vector<Shape> Feed::shapes(int64_t epoch, int64_t step) const {
  std::vector<Shape> all;
  for (const Spec& spec : specs()) {
    all.push_back(spec.shape);
    if (spec.shape.rank()) all.back().dims()[0] = rows(step);
  }
  std::vector<int64_t> sizes;
  add_open_sizes(epoch, step, sizes);
  const std::vector<OpenAxis> open = open_axes();
  for (size_t i = 0; i < sizes.size(); ++i) all[open[i].output].dims()[open[i].axis] = sizes[i];
  return all;
}

FeedUse::FeedUse(std::span<Feed* const> feeds) {
  static thread_local const char here = 0;
  for (Feed* feed : feeds) {
    const void* user = nullptr;
    if (feed->user_.compare_exchange_strong(user, &here, std::memory_order_acquire)) {
      taken_.push_back(feed);
    } else if (user != &here) {
      release();
      throw Error(fmt::format(
          "{}: another thread is evaluating a tree below this feed, which one thread at a time may",
          feed->name()));
    }
  }
}
FeedUse::~FeedUse() { release(); }
void FeedUse::release() {
  for (Feed* feed : taken_) feed->user_.store(nullptr, std::memory_order_release);
}

}  // namespace espalier
