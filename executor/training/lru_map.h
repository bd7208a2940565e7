// LruMap: a map of bounded size, from which the entry goes that was not used for longest.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>

namespace espalier {

template <class Key, class Value>
class LruMap {
 public:
  /// `most` is at least 1.
  explicit LruMap(size_t most) : most_(most) {}

  /// Null if there is none.
  Value* find(const Key& key) {
    const auto known = entries_.find(key);
    if (known == entries_.end()) return nullptr;
    known->second.used = ++uses_;
    return &known->second.value;
  }
  /// Adds a value for a new key, and drops another entry where there is no room.
  Value& add(const Key& key, Value value) {
    if (entries_.size() >= most_)
      entries_.erase(
          std::ranges::min_element(entries_, {}, [](const auto& entry) { return entry.second.used; }));
    return entries_.emplace(key, Entry{std::move(value), ++uses_}).first->second.value;
  }
  void clear() { entries_.clear(); }
  size_t size() const { return entries_.size(); }

 private:
  struct Entry {
    Value value;
    uint64_t used;
  };
  size_t most_;
  uint64_t uses_ = 0;
  std::map<Key, Entry> entries_;
};

}  // namespace espalier
