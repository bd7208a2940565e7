// The text of CUDA kernels of fused programs, and how they share the work. None of this needs a GPU.
#include <boost/test/unit_test.hpp>

#include "espalier/core/error.h"
#include "espalier/executor/cuda/fused_access.h"
#include "fused_programs.h"

namespace esp = espalier;
using namespace espalier::testing;

namespace {

esp::Variable leaf(const esp::Shape& shape, uint64_t which) {
  return esp::parameter(numbers(shape, -1, 1, which).to(esp::float32), "p");
}

FusedCase only_case(const std::vector<esp::Variable>& results) {
  std::vector<FusedCase> cases = fused_cases(results);
  BOOST_TEST_REQUIRE(cases.size() == 1u);
  return cases[0];
}
/// What comes after the text that all kernels share.
std::string own_text(const esp::FusedSource& source) {
  return source.text.substr(source.text.rfind("using namespace espalier;"));
}

}  // namespace

BOOST_AUTO_TEST_SUITE(fused_source)

BOOST_AUTO_TEST_CASE(a_map_over_elements_in_order) {
  const FusedCase c = only_case({esp::tanh(leaf({6, 40}, 1) * leaf({6, 40}, 2) + 0.5)});
  const esp::FusedSource source = esp::fused_source(c.program(), met(c));
  BOOST_TEST(own_text(source) == R"(GOLDEN_MAP)");
  BOOST_TEST(source.threads == 256);
  BOOST_TEST(source.launch(132).blocks == 1);
}

BOOST_AUTO_TEST_CASE(rows_are_folded_by_the_threads_of_a_warp) {
  const esp::Variable x = leaf({50, 100}, 1);
  const FusedCase c = only_case({x - esp::mean(x, -1, true)});
  const esp::FusedSource source = esp::fused_source(c.program(), met(c));
  BOOST_TEST(own_text(source) == R"(GOLDEN_ROWS)");
  BOOST_TEST(source.launch(132).blocks == 7);
}

BOOST_AUTO_TEST_CASE(texts_do_not_depend_on_how_many_rows_there_are) {
  const auto text = [](int64_t rows) {
    const esp::Variable x = leaf({rows, 64}, 1), bias = leaf({64}, 2);
    const FusedCase c = only_case({esp::softmax(x + bias)});
    return esp::fused_source(c.program(), met(c)).text;
  };
  BOOST_TEST((text(32) == text(17)));
}

BOOST_AUTO_TEST_CASE(blocks_keep_a_device_busy_and_sums_have_few_parts) {
  const esp::Variable x = leaf({20000, 64}, 1);
  const FusedCase c = only_case({esp::sum(esp::tanh(x) * 2.0, 0)});
  const esp::FusedSource source = esp::fused_source(c.program(), met(c));
  BOOST_TEST(source.has_finals());
  BOOST_TEST(source.column_bytes.size() == 1u);
  BOOST_TEST(source.width == 64);
  const esp::FusedLaunch launch = source.launch(132);
  BOOST_TEST(launch.blocks == launch.chunks * source.tiles);
  BOOST_TEST(launch.blocks >= 132);
  BOOST_TEST(launch.stage * launch.stage >= launch.chunks);
  BOOST_TEST(launch.stage * launch.stage <= 2 * launch.chunks);
}

BOOST_AUTO_TEST_CASE(groups_take_what_lies_in_order) {
  const FusedCase c = only_case({esp::tanh(leaf({6, 40}, 1)) * 2.0});
  const auto grouped = esp::fused_group_source(c.program(), met(c), false);
  BOOST_TEST_REQUIRE(grouped.has_value());
  BOOST_TEST(own_text(*grouped).find("const Member* members;") != std::string::npos);
  const esp::Variable x = leaf({6, 40}, 1);
  const FusedCase turned = only_case({esp::tanh(esp::transpose(x)) * leaf({40, 6}, 2)});
  BOOST_TEST(!esp::fused_group_source(turned.program(), met(turned), false).has_value());
}

BOOST_AUTO_TEST_CASE(layouts_become_arithmetic) {
  using esp::fused::access;
  using esp::fused::Reading;
  esp::Layout turned(esp::Shape{4, 8});
  turned.strides = {1, 4};
  const auto a = access(turned, 8, 4, 4);
  BOOST_TEST(a.divided);
  BOOST_TEST(esp::fused::offset_text(a.row, "r") == "r");
  BOOST_TEST(esp::fused::offset_text(a.column, "c") == "c * 4");
  BOOST_TEST((a.reading == Reading::each));
  const auto b = access(esp::Layout(esp::Shape{4, 8}), 8, 4, 4);
  BOOST_TEST(esp::fused::offset_text(b.row, "r") == "r * 8");
  BOOST_TEST((b.reading == Reading::all));
  BOOST_TEST((access(esp::Layout(esp::Shape{4, 8}), 8, 4, 2).reading == Reading::each));
  const auto bias = access(esp::broadcast_layout(esp::Layout(esp::Shape{8}), {4, 8}), 8, 4, 4);
  BOOST_TEST(bias.repeats_rows());
  const auto column = access(esp::broadcast_layout(esp::Layout(esp::Shape{4, 1}), {4, 8}), 8, 4, 4);
  BOOST_TEST((column.reading == Reading::same));
  const auto flat = access(esp::broadcast_layout(esp::Layout(esp::Shape{6}), {5, 6}), 0, 4, 4);
  BOOST_TEST(esp::fused::offset_text(flat.column, "c") == "c % 6");
  BOOST_TEST((flat.reading == Reading::each));
}

BOOST_AUTO_TEST_SUITE_END()
