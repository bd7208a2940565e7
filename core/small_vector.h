// A vector whose first N elements live inside it: shapes, edges and kernel arguments are short.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <iterator>
#include <memory>
#include <new>
#include <type_traits>
#include <utility>

#include "espalier/core/cpu/block_pool.h"

namespace espalier {

template <class T, uint32_t N>
class SmallVector {
 public:
  using value_type = T;

  SmallVector() noexcept {
    if constexpr (copies_whole) std::memset(inline_, 0, sizeof inline_);
  }
  SmallVector(std::initializer_list<T> values) : SmallVector() { append(values.begin(), values.end()); }
  template <class Iterator>
  requires(!std::is_integral_v<Iterator>) SmallVector(Iterator first, Iterator last) : SmallVector() {
    append(first, last);
  }
  explicit SmallVector(size_t count, const T& value = T()) : SmallVector() {
    reserve(count);
    while (size_ < count) push_back(value);
  }
  SmallVector(const SmallVector& other) : SmallVector() {
    if (!other.heap_ && copies_whole)
      copy_inline(other);
    else
      append(other.begin(), other.end());
  }
  SmallVector(SmallVector&& other) noexcept : SmallVector() { take(other); }
  SmallVector& operator=(const SmallVector& other) {
    if (this == &other) return *this;
    if (!heap_ && !other.heap_ && copies_whole) {
      copy_inline(other);
      return *this;
    }
    SmallVector copy(other);
    clear_storage();
    take(copy);
    return *this;
  }
  SmallVector& operator=(SmallVector&& other) noexcept {
    if (this == &other) return *this;
    clear_storage();
    take(other);
    return *this;
  }
  ~SmallVector() { clear_storage(); }

  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  T* data() { return heap_ ? heap_ : inline_data(); }
  const T* data() const { return heap_ ? heap_ : const_cast<SmallVector*>(this)->inline_data(); }
  T* begin() { return data(); }
  T* end() { return data() + size_; }
  const T* begin() const { return data(); }
  const T* end() const { return data() + size_; }
  T& operator[](size_t i) { return data()[i]; }
  const T& operator[](size_t i) const { return data()[i]; }
  T& back() { return data()[size_ - 1]; }
  const T& back() const { return data()[size_ - 1]; }

  void reserve(size_t count) {
    if (count > capacity_) grow(count);
  }
  void push_back(const T& value) { emplace_back(value); }
  void push_back(T&& value) { emplace_back(std::move(value)); }
  template <class... Arguments>
  void emplace_back(Arguments&&... arguments) {
    if (size_ == capacity_) return add_behind_growth(T(std::forward<Arguments>(arguments)...));
    new (data() + size_) T(std::forward<Arguments>(arguments)...);
    ++size_;
  }
  /// Elements of this vector are no source.
  template <class Iterator>
  void append(Iterator first, Iterator last) {
    if constexpr (std::forward_iterator<Iterator>) {
      const size_t needed = size_ + static_cast<size_t>(std::distance(first, last));
      if (needed > capacity_) grow(std::max(needed, size_t{capacity_} * 2));
      for (T* to = end(); first != last; ++first, ++size_) new (to++) T(*first);
    } else {
      for (; first != last; ++first) push_back(*first);
    }
  }
  void pop_back() {
    --size_;
    data()[size_].~T();
  }
  void insert(size_t at, T value) {
    push_back(std::move(value));
    for (size_t i = size_ - 1; i > at; --i) std::swap(data()[i], data()[i - 1]);
  }
  void erase(size_t at) {
    for (size_t i = at; i + 1 < size_; ++i) data()[i] = std::move(data()[i + 1]);
    pop_back();
  }
  void clear() {
    std::destroy_n(data(), size_);
    size_ = 0;
  }

  friend bool operator==(const SmallVector& a, const SmallVector& b) {
    if (a.size_ != b.size_) return false;
    for (size_t i = 0; i < a.size_; ++i)
      if (!(a[i] == b[i])) return false;
    return true;
  }

 private:
  // Inline elements are copied with those that are not used (zeros at first), which is faster than to count
  // them.
  static constexpr bool copies_whole = std::is_trivially_copyable_v<T> && N * sizeof(T) <= 64;

  T* inline_data() { return std::launder(reinterpret_cast<T*>(inline_)); }

  void add_behind_growth(T value) {
    grow(size_t{capacity_} * 2);
    new (data() + size_) T(std::move(value));
    ++size_;
  }
  void copy_inline(const SmallVector& other) {
    std::memcpy(inline_, other.inline_, sizeof inline_);
    size_ = other.size_;
  }
  void grow(size_t count) {
    T* fresh = static_cast<T*>(pool_allocate(count * sizeof(T)));
    std::uninitialized_move_n(data(), size_, fresh);
    std::destroy_n(data(), size_);
    release_heap();
    heap_ = fresh;
    capacity_ = static_cast<uint32_t>(count);
  }
  void take(SmallVector& other) noexcept {
    if (other.heap_) {
      heap_ = std::exchange(other.heap_, nullptr);
      capacity_ = std::exchange(other.capacity_, N);
    } else if (copies_whole) {
      copy_inline(other);
    } else {
      std::uninitialized_move_n(other.data(), other.size_, inline_data());
      std::destroy_n(other.data(), other.size_);
    }
    size_ = std::exchange(other.size_, 0);
  }
  void clear_storage() {
    clear();
    release_heap();
    heap_ = nullptr;
    capacity_ = N;
  }
  void release_heap() {
    if (heap_) pool_free(heap_, size_t{capacity_} * sizeof(T));
  }

  T* heap_ = nullptr;
  uint32_t size_ = 0;
  uint32_t capacity_ = N;
  alignas(T) std::byte inline_[N * sizeof(T)];
};

}  // namespace espalier
