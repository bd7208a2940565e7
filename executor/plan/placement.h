// The placement of buffers in an arena.
#pragma once
#include "espalier/executor/plan/memory.h"

namespace espalier {

/// The numbers of the buffers, largest first.
std::vector<size_t> by_size(const std::vector<ArenaBuffer>& buffers);
/// Sets the offsets of the buffers, in that order, each to the start of the smallest gap that holds it.
/// Returns the size of the arena.
int64_t place_in_order(std::vector<ArenaBuffer>& buffers, const std::vector<size_t>& order);

}  // namespace espalier
