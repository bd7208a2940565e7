// Where the memory of all devices lies. The host can reach it only while a device works: by protection keys
// where the processor has them; else by changing the pages each time, which is slow, if
// ESPALIER_EMULATED_GUARD=1.
#pragma once
#include <cstddef>
#include <map>

namespace emulated {

class DeviceRegion {
 public:
  DeviceRegion();
  /// Whole pages; null if there is no room.
  void* allocate(size_t bytes);
  void release(void* block);
  /// Whether a host that reaches into it fails.
  bool is_guarded() const;

  /// The region can be read and written while one of these lives.
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
  size_t end_ = 0;                      // of what was ever allocated
  std::map<size_t, size_t> used_;       // offsets and sizes
  std::multimap<size_t, size_t> free_;  // sizes and offsets
  int key_ = -1;                        // of protection
  bool pages_ = false;                  // change
  int open_threads_ = 0;                // then; guarded by the runtime's lock
};

}  // namespace emulated
