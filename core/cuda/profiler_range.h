// Ranges in the timelines of profilers (NVTX).
#pragma once
#include <string_view>

namespace espalier::cu {

/// A range of that name, in NVTX's domain "Espalier", while it lives in a thread. Without a profiler it does
/// nothing.
class ProfilerRange {
 public:
  explicit ProfilerRange(std::string_view name) : open_(is_attached()) {
    if (open_) push(name);
  }
  ~ProfilerRange() {
    if (open_) pop();
  }
  ProfilerRange(const ProfilerRange&) = delete;
  ProfilerRange& operator=(const ProfilerRange&) = delete;

 private:
  static bool is_attached() noexcept;
  static void push(std::string_view name) noexcept;
  static void pop() noexcept;
  const bool open_;
};

}  // namespace espalier::cu
