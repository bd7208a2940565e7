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

BOOST_TEST_GLOBAL_FIXTURE(OwnCache);
