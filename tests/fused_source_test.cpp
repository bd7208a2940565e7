// The source of CUDA kernels of fused programs, and how blocks divide the work. Needs no GPU.
#include <boost/test/unit_test.hpp>

#include "espalier/core/error.h"
#include "espalier/executor/fused/codegen/fused_access.h"
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
/// The source without the part common to all kernels.
std::string own_text(const esp::FusedSource& source) {
  return source.text.substr(source.text.rfind("using namespace espalier;"));
}

}  // namespace

BOOST_AUTO_TEST_SUITE(fused_source)

BOOST_AUTO_TEST_CASE(a_map_over_elements_in_order) {
  const FusedCase c = only_case({esp::tanh(leaf({6, 40}, 1) * leaf({6, 40}, 2) + 0.5)});
  const esp::FusedSource source = esp::fused_source(c.program(), met(c));
  BOOST_TEST(own_text(source) == R"cuda(using namespace espalier;
using Index = unsigned int;
struct Arguments {
  const float* i0;
  const float* i1;
  float* o0;
  long long columns;
};
extern "C" __global__ void __launch_bounds__(256) fused_multiply_add_tanh(const Arguments arguments) {
  const Arguments& a = arguments;
  const Index columns = static_cast<Index>(a.columns), t = threadIdx.x;
  const Index tiles = (columns + 1023) / 1024;
  for (Index tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    {
      float x0[1][4];
      float x1[1][4];
      for (int j = 0; j < 1; ++j) {
        const Index c = tile * 1024 + (j * 256 + t) * 4;
        const int count = c >= columns ? 0 : columns - c < 4 ? static_cast<int>(columns - c) : 4;
        load_some(x0[j], a.i0 + (c), count);
        load_some(x1[j], a.i1 + (c), count);
      }
      for (int j = 0; j < 1; ++j) {
        const Index c = tile * 1024 + (j * 256 + t) * 4;
        const int count = c >= columns ? 0 : columns - c < 4 ? static_cast<int>(columns - c) : 4;
        float y0[4];
        #pragma unroll
        for (int k = 0; k < 4; ++k) {
          const float v2 = static_cast<float>(scalar::Multiply()(x0[j][k], x1[j][k]));
          const float v4 = static_cast<float>(scalar::Add()(v2, 0x1p-1f));
          const float v5 = static_cast<float>(scalar::Tanh()(v4));
          y0[k] = v5;
        }
        store_some(a.o0 + (c), y0, count);
      }
    }
  }
}
)cuda");
  BOOST_TEST(source.threads == 256);
  BOOST_TEST(source.launch(132).blocks == 1);
}

BOOST_AUTO_TEST_CASE(rows_are_folded_by_the_threads_of_a_warp) {
  const esp::Variable x = leaf({50, 100}, 1);
  const FusedCase c = only_case({x - esp::mean(x, -1, true)});
  const esp::FusedSource source = esp::fused_source(c.program(), met(c));
  BOOST_TEST(own_text(source) == R"cuda(using namespace espalier;
using Index = unsigned int;
struct Arguments {
  const float* i0;
  float* o0;
  long long rows;
};
extern "C" __global__ void __launch_bounds__(256) fused_mean_subtract(const Arguments arguments) {
  const Arguments& a = arguments;
  const Index rows = static_cast<Index>(a.rows);
  const Index t = threadIdx.x % 32, group = threadIdx.x / 32;
  for (Index first = static_cast<Index>(blockIdx.x) * 8; first < rows; first += static_cast<Index>(gridDim.x) * 8) {
    const Index r = first + group;
    const bool valid = r < rows;
    float f1 = 0x0p+0f;
    float x0[1][4];
    {
      for (int j = 0; j < 1; ++j) {
        const Index c = (j * 32 + t) * 4;
        const bool inside = valid && c < 100;
        load_all(x0[j], a.i0 + (r * 100 + c), inside);
      }
      for (int j = 0; j < 1; ++j) {
        const Index c = (j * 32 + t) * 4;
        const bool inside = valid && c < 100;
        #pragma unroll
        for (int k = 0; k < 4; ++k) {
          if (inside) f1 = scalar::Add()(f1, x0[j][k]);
        }
      }
    }
    const float v1 = fold_lanes<scalar::Add, 32>(f1) / static_cast<float>(100);
    {
      for (int j = 0; j < 1; ++j) {
        const Index c = (j * 32 + t) * 4;
        const bool inside = valid && c < 100;
        float y0[4];
        #pragma unroll
        for (int k = 0; k < 4; ++k) {
          const float v2 = static_cast<float>(scalar::Subtract()(x0[j][k], v1));
          y0[k] = v2;
        }
        store_all(a.o0 + (r * 100 + c), y0, inside);
      }
    }
  }
}
)cuda");
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

BOOST_AUTO_TEST_CASE(every_kernel_has_a_source) {
  for (const esp::DType dtype : {esp::float32, esp::float64}) {
    const std::vector<FusedCase> cases = fused_cases(trees_to_fuse(dtype, {7, 100, 4100}));
    BOOST_TEST(cases.size() > 35u);
    for (const FusedCase& c : cases) {
      const esp::FusedSource source = esp::fused_source(c.program(), met(c));
      BOOST_TEST(source.launch(132).blocks >= 1);
      BOOST_TEST(own_text(source).find("__global__") != std::string::npos);
    }
  }
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

  const FusedCase small = only_case({esp::sum(esp::tanh(leaf({256, 1000}, 1)) * 2.0, 0)});
  const esp::FusedLaunch at_once = esp::fused_source(small.program(), met(small)).launch(132);
  BOOST_TEST(at_once.chunks > 1);
  BOOST_TEST(at_once.stage == at_once.chunks);
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

// Blocks of a member read the element that one of them overwrites.
BOOST_AUTO_TEST_CASE(members_of_a_group_have_results_of_one_element) {
  const esp::Variable step = leaf({}, 2) + 1.0;
  const FusedCase c = only_case({step, leaf({6, 40}, 1) * esp::tanh(step)});
  const auto grouped = esp::fused_group_source(c.program(), met(c), false);
  BOOST_TEST_REQUIRE(grouped.has_value());
  BOOST_TEST(grouped->counts_reads);
  BOOST_TEST(!grouped->has_finals());
  BOOST_TEST(own_text(*grouped).find("comes_last(a.counters + 1, block.count)") != std::string::npos);
  const FusedCase sum = only_case({esp::sum(esp::square(leaf({6, 40}, 1)))});
  const auto sums = esp::fused_group_source(sum.program(), met(sum), false);
  BOOST_TEST_REQUIRE(sums.has_value());
  BOOST_TEST(sums->has_finals());
  BOOST_TEST(sums->totals == 1);
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

BOOST_AUTO_TEST_CASE(kernels_are_called_by_their_ops) {
  esp::Variable x = leaf({6, 40}, 1);
  const FusedCase few = only_case({esp::exp(x) + 1.0});
  BOOST_TEST(esp::fused_source(few.program(), met(few)).name == "fused_exp_add");
  BOOST_TEST(esp::fused_group_source(few.program(), met(few), false)->name == "fused_group_exp_add");
  for (int i = 0; i < 20; ++i) x = esp::sigmoid(esp::tanh(x));
  const FusedCase many = only_case({x});
  const esp::FusedSource source = esp::fused_source(many.program(), met(many));
  BOOST_TEST(source.name.starts_with("fused_tanh_sigmoid_tanh_sigmoid_"));
  BOOST_TEST(source.name.ends_with("_more"));
  BOOST_TEST(source.name.size() < 100u);
  BOOST_TEST(source.text.find(source.name + "(const Arguments arguments)") != std::string::npos);
}

BOOST_AUTO_TEST_SUITE_END()
