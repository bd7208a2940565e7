// NumberTable: numbers of things that are known by their hashes.
#pragma once
#include <cstdint>
#include <vector>

namespace espalier {

/// Adds a word to a hash.
inline uint64_t mixed(uint64_t hash, uint64_t word) {
  hash = (hash ^ word) * 0x9E3779B97F4A7C15u;
  return hash ^ (hash >> 29);
}

/// An open-addressed table of numbers. The things themselves are in a list of the caller.
class NumberTable {
 public:
  static constexpr uint32_t none = UINT32_MAX;

  /// The number with that hash for which `same` is true, or `none`.
  template <class Same>
  uint32_t find(uint64_t hash, const Same& same) const {
    for (size_t i = hash; !slots_.empty(); ++i) {
      const Slot slot = slots_[i & (slots_.size() - 1)];
      if (slot.number == none) return none;
      if (slot.hash == static_cast<uint32_t>(hash) && same(slot.number)) return slot.number;
    }
    return none;
  }
  void insert(uint64_t hash, uint32_t number) {
    if ((count_ + 1) * 2 > slots_.size()) grow();
    place({static_cast<uint32_t>(hash), number});
    ++count_;
  }
  /// Memory stays for as many numbers again, but not for many times more.
  void clear() {
    if (count_ * 16 < slots_.size())
      slots_ = std::vector<Slot>(64);
    else
      slots_.assign(slots_.size(), Slot{});
    count_ = 0;
  }

 private:
  struct Slot {
    uint32_t hash = 0, number = none;
  };
  void place(Slot slot) {
    size_t i = slot.hash;
    while (slots_[i & (slots_.size() - 1)].number != none) ++i;
    slots_[i & (slots_.size() - 1)] = slot;
  }
  void grow() {
    std::vector<Slot> before(slots_.empty() ? 64 : slots_.size() * 4);
    before.swap(slots_);
    for (const Slot& slot : before)
      if (slot.number != none) place(slot);
  }

  std::vector<Slot> slots_;  // a power of two
  size_t count_ = 0;
};

}  // namespace espalier
