// Where all threads of a block wait and sleep, the next of the blocks that cooperate goes on.
#include "grid.h"

#include <memory>
#include <span>
#include <vector>

#include "block.h"

namespace emulated {
namespace {

/// Runs blocks in turn until all have ended. Returns an error message, or "".
std::string run_blocks(std::span<const std::unique_ptr<Block>> blocks) {
  constexpr int most_idle_rounds = 1000;
  std::vector<Block*> left;
  for (const auto& block : blocks) left.push_back(block.get());
  for (int idle = 0; !left.empty(); ++idle) {
    std::string complaint;
    std::erase_if(left, [&](Block* block) {
      if (!complaint.empty()) return false;
      const uint64_t before = block->events();
      const bool ended = block->run();
      if (block->events() != before) idle = 0;
      if (ended) complaint = block->complaint();
      return ended;
    });
    if (idle == most_idle_rounds) complaint = "a deadlock: threads sleep until something happens";
    if (complaint.empty()) continue;
    for (Block* block : left) block->abandon();
    return complaint;
  }
  return {};
}

}  // namespace

std::string run_grid(const dim3& grid, const dim3& block, size_t shared_bytes, GridOrder order,
                     const std::function<void()>& body) {
  static std::vector<std::unique_ptr<Block>> runners;
  the_device.grid_size = grid;
  const uint64_t blocks = static_cast<uint64_t>(grid.x) * grid.y * grid.z;
  const uint64_t at_once = order.cooperative ? blocks : 1;
  while (runners.size() < at_once) runners.push_back(std::make_unique<Block>());
  for (uint64_t first = 0; first < blocks; first += at_once) {
    for (uint64_t i = 0; i < at_once; ++i) {
      const uint64_t b = order.reverse ? blocks - 1 - first - i : first + i;
      runners[i]->start(block,
                        {static_cast<unsigned>(b % grid.x), static_cast<unsigned>(b / grid.x % grid.y),
                         static_cast<unsigned>(b / grid.x / grid.y)},
                        shared_bytes, order.reverse, body);
    }
    std::string complaint = run_blocks({runners.data(), at_once});
    if (!complaint.empty()) return complaint;
  }
  return {};
}

}  // namespace emulated
