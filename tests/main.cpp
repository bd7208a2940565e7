#define BOOST_TEST_MODULE espalier
#include <boost/test/unit_test.hpp>

#include "temporary_folder.h"

namespace {

/// Keeps measurements of tests out of the user's cache.
struct OwnCache {
  OwnCache() { setenv("ESPALIER_CACHE_DIR", folder.path().c_str(), 1); }
  const espalier::testing::TemporaryFolder folder;
};

}  // namespace

#ifdef __has_feature
#if __has_feature(address_sanitizer)
/// LLVM's OpenMP runtime loses some of what it keeps for threads that have ended, rarely: its memory is not
/// ours to release.
extern "C" const char* __lsan_default_suppressions() {  // NOLINT: the sanitizer's name
  return "leak:libomp.so";
}
#endif
#endif

BOOST_TEST_GLOBAL_FIXTURE(OwnCache);
