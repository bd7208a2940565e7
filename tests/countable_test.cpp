// Results of more elements than 64 bits can count are refused in the name of the function that was called.
#include <boost/test/unit_test.hpp>

#include <functional>
#include <string>

#include "espalier/core/error.h"
#include "espalier/ops/ops.h"

namespace esp = espalier;
using esp::Variable;

BOOST_AUTO_TEST_SUITE(countable)

BOOST_AUTO_TEST_CASE(results_of_more_elements_than_can_be_counted) {
  // One element, repeated: 2³¹ · 2³¹ can be counted, and the largest image of which all borders cannot.
  const int64_t large = int64_t{1} << 31, edge = 3'037'000'499;
  const Variable one(esp::ones({1})),
      matrix = esp::broadcast_to(one, {large, large}), plane = esp::broadcast_to(one, {1, 1, edge, edge}),
      list = esp::broadcast_to(one, {large * large}), channels = esp::broadcast_to(one, {1, large, 1, 1}),
      corners = esp::broadcast_to(one, {large, 4}),
      images = esp::broadcast_to(esp::zeros({1}, esp::int64), {large});
  const auto refused = [](const std::string& function, const std::function<void()>& call) {
    BOOST_CHECK_EXCEPTION(call(), esp::ShapeError, [&](const esp::Error& error) {
      const std::string text = error.what();
      return text.starts_with(function + ": ") &&
             text.find("more elements than 64 bits can count") != std::string::npos &&
             text.find("countable_test.cpp") != std::string::npos;
    });
  };
  refused("broadcast_to", [=] { esp::broadcast_to(one, {large, large, 2}); });
  refused("concat", [=] { esp::concat({matrix, matrix}, 0); });
  refused("pad", [=] { esp::pad(matrix, {{0, large}}); });
  refused("repeat_on_axis", [=] { esp::tile(matrix, {2, 1}); });
  refused("diag_embed", [=] { esp::diag_embed(list); });
  refused("sliding_windows", [=] { esp::sliding_windows(list, 0, 4); });
  refused("max_pool", [=] { esp::max_pool(plane, {.kernel = 2, .stride = 1, .padding = 1}); });
  refused("avg_pool", [=] { esp::avg_pool(plane, {.kernel = 2, .stride = 1, .padding = 1}); });
  refused("conv", [=] { esp::conv(plane, esp::ones({1, 1, 2, 2}), {.padding = 1}); });
  refused("interpolate", [] {
    esp::interpolate(esp::ones({1, 1, 2, 2}), {.size = {int64_t{1} << 32, int64_t{1} << 31}});
  });
  refused("affine_grid", [] {
    esp::affine_grid(esp::ones({1, 2, 3}), {int64_t{1} << 32, int64_t{1} << 31});
  });
  refused("roi_align", [=] { esp::roi_align(channels, corners, images, {.size = 2}); });
  refused("roi_pool", [=] { esp::roi_pool(channels, corners, images, {.size = 2}); });
}

BOOST_AUTO_TEST_SUITE_END()
