// The placement of buffers: best fit, found without comparing all buffers with each other.
#include "espalier/executor/plan/placement.h"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <random>

#include "espalier/core/error.h"

namespace esp = espalier;

namespace {

using Buffers = std::vector<esp::ArenaBuffer>;

Buffers random_buffers(std::mt19937& random) {
  Buffers list(random() % 60);
  const int64_t steps = 1 + random() % 50, sizes = 1 + random() % 12;
  for (esp::ArenaBuffer& b : list) {
    b.bytes = 64 * static_cast<int64_t>(1 + random() % sizes);
    b.first = static_cast<int64_t>(random() % steps);
    b.last = b.first + static_cast<int64_t>(random() % (1 + random() % steps));
  }
  return list;
}

/// Best fit by comparing each buffer with all that are placed.
int64_t place_plainly(Buffers& buffers, const std::vector<size_t>& order) {
  std::vector<size_t> placed;
  int64_t total = 0;
  for (const size_t i : order) {
    esp::ArenaBuffer& buffer = buffers[i];
    std::ranges::sort(placed, {}, [&](size_t p) { return buffers[p].offset; });
    int64_t end = 0, best = -1, best_gap = INT64_MAX;
    for (const size_t p : placed) {
      if (buffers[p].last < buffer.first || buffer.last < buffers[p].first) continue;
      const int64_t gap = buffers[p].offset - end;
      if (gap >= buffer.bytes && gap < best_gap) {
        best = end;
        best_gap = gap;
      }
      end = std::max(end, buffers[p].offset + buffers[p].bytes);
    }
    buffer.offset = best >= 0 ? best : end;
    total = std::max(total, buffer.offset + buffer.bytes);
    placed.push_back(i);
  }
  return total;
}

esp::MemoryPlan plan_of(Buffers buffers, int64_t bytes) {
  esp::MemoryPlan plan;
  plan.buffers = std::move(buffers);
  plan.arena_bytes = bytes;
  return plan;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(placement)

BOOST_AUTO_TEST_CASE(agrees_with_the_plain_best_fit) {
  std::mt19937 random(1);
  for (int round = 0; round < 500; ++round) {
    Buffers list = random_buffers(random), plain = list;
    std::vector<size_t> order = esp::by_size(list);
    if (round % 3 == 0) std::ranges::shuffle(order, random);
    const int64_t total = esp::place_in_order(list, order);
    BOOST_TEST_REQUIRE(total == place_plainly(plain, order));
    for (size_t i = 0; i < list.size(); ++i) BOOST_TEST_REQUIRE(list[i].offset == plain[i].offset);
    verify(plan_of(list, total));
  }
}

BOOST_AUTO_TEST_CASE(two_buffers_that_overlap_are_found) {
  std::mt19937 random(2);
  int found = 0;
  for (int round = 0; round < 300; ++round) {
    Buffers list = random_buffers(random);
    if (list.size() < 2) continue;
    const int64_t total = esp::place_best_fit(list);
    esp::ArenaBuffer& moved = list[random() % list.size()];
    moved.offset = 64 * static_cast<int64_t>(random() % (total / 64));
    bool overlap = moved.offset + moved.bytes > total;
    for (const esp::ArenaBuffer& b : list)
      overlap |= &b != &moved && b.first <= moved.last && moved.first <= b.last &&
                 b.offset < moved.offset + moved.bytes && moved.offset < b.offset + b.bytes;
    found += overlap;
    if (overlap)
      BOOST_CHECK_THROW(verify(plan_of(list, total)), esp::Error);
    else
      verify(plan_of(list, total));
  }
  BOOST_TEST(found > 50);
}

BOOST_AUTO_TEST_SUITE_END()
