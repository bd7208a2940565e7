#define BOOST_TEST_MODULE espalier
#include <boost/test/unit_test.hpp>
