// The memory of all devices. The host can access it only while a device works: it is guarded by protection
// keys where the processor has them, else with ESPALIER_EMULATED_GUARD=1 by page protection, which is slow.
#pragma once
#include <cstddef>
#include <map>

namespace emulated {

class DeviceRegion {
 public:
  DeviceRegion();
  /// Allocates whole pages; null if there is no space.
  void* allocate(size_t bytes);
  void release(void* block);
  /// Returns true if an access by the host fails.
  bool is_guarded() const;

  /// Makes the region accessible during its lifetime.
  class Open {
   public:
    explicit Open(DeviceRegion& region) : region_(region) { region_.open(1); }
    ~Open() { region_.open(-1); }
    Open(const Open&) = delete;
    Open& operator=(const Open&) = delete;

   private:
    DeviceRegion& region_;
  };

 private:
  void open(int by);

  char* begin_;
  size_t end_ = 0;                      // of all allocations so far
  std::map<size_t, size_t> used_;       // offsets and sizes
  std::multimap<size_t, size_t> free_;  // sizes and offsets
  int key_ = -1;                        // protection key, -1 for none
  bool pages_ = false;                  // page protection is used
  int open_threads_ = 0;                // guarded by the runtime's lock
};

}  // namespace emulated
