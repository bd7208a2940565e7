// Tensors on a GPU: their memory, and copies of every layout and element size. Runs nothing without a GPU.
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>

#include "espalier/core/error.h"
#include "espalier/core/tensor.h"
#include "espalier/ops/ops.h"
#include "gpu_testing.h"
#include "testing.h"

namespace esp = espalier;
using namespace espalier::testing;

namespace {

/// A tensor in which adjacent bytes differ.
esp::Tensor patterned(const esp::Shape& shape, esp::DType dtype) {
  esp::Tensor t(shape, dtype);
  auto* bytes = static_cast<unsigned char*>(t.address());
  for (size_t i = 0; i < t.bytes(); ++i)
    bytes[i] = static_cast<unsigned char>(dtype == esp::boolean ? i * 7 % 3 == 0 : i * 37 + i / 251);
  return t;
}

esp::Tensor permuted(const esp::Tensor& t, const std::vector<size_t>& order) {
  esp::Layout layout = t.layout();
  for (size_t i = 0; i < order.size(); ++i) {
    layout.shape.dims()[i] = t.shape().dims()[order[i]];
    layout.strides[i] = t.strides()[order[i]];
  }
  return {t.storage(), layout, t.dtype()};
}

/// Returns true if the bits of all elements are equal.
bool same_bits(const esp::Tensor& a, const esp::Tensor& b) {
  const esp::Tensor x = a.to(esp::cpu()).contiguous_copy(), y = b.to(esp::cpu()).contiguous_copy();
  return x.spec() == y.spec() && (x.bytes() == 0 || std::memcmp(x.address(), y.address(), x.bytes()) == 0);
}

void check_copies(const esp::Tensor& view) {
  const esp::Tensor source = on_gpu(view);
  BOOST_TEST(same_bits(source.clone(), view), view.shape().str() << " of " << esp::name(view.dtype()));
  // Into a target with gaps, which must not be written.
  esp::Dims wide(view.rank(), 0);
  for (size_t i = 0; i < view.rank(); ++i) wide[i] = view.shape().dims()[i] + 2;
  esp::Tensor target = patterned(esp::Shape(wide), view.dtype()), gpu_target = target.clone().to(esp::gpu());
  const auto inside = [&](esp::Tensor t) {
    for (size_t i = 0; i < view.rank(); ++i)
      t = t.slice(static_cast<int64_t>(i), 1, 1 + view.shape().dims()[i]);
    return t;
  };
  esp::Tensor part = inside(target), gpu_part = inside(gpu_target);
  esp::copy_elements(view, part);
  esp::copy_elements(source, gpu_part);
  BOOST_TEST(same_bits(gpu_target, target), view.shape().str() << " of " << esp::name(view.dtype()));
}

constexpr auto& dtypes = esp::all_dtypes;

}  // namespace

BOOST_AUTO_TEST_SUITE(cuda_copy, *boost::unit_test::precondition(has_gpu))

BOOST_AUTO_TEST_CASE(contiguous_sliced_and_broadcast) {
  for (esp::DType dtype : dtypes) {
    const esp::Tensor t = patterned({6, 10, 16}, dtype);
    check_copies(t);
    check_copies(t.slice(2, 4, 12));
    check_copies(t.slice(2, 1, 12));
    check_copies(t.slice(1, 3, 8).slice(0, 1, 5));
    check_copies({t.storage(), esp::broadcast_layout(t.slice(1, 2, 3).layout(), {6, 7, 16}), dtype});
    check_copies({t.storage(), esp::broadcast_layout(esp::Layout(esp::Shape{1}), {5, 3}), dtype});
    check_copies(patterned({}, dtype));
    check_copies(patterned({0, 3}, dtype));
  }
}

BOOST_AUTO_TEST_CASE(transposed) {
  for (esp::DType dtype : dtypes)
    for (const auto& [rows, columns] : {std::pair{1, 9}, {8, 8}, {32, 32}, {31, 33}, {65, 130}, {3, 70}}) {
      check_copies(permuted(patterned({rows, columns}, dtype), {1, 0}));
      check_copies(permuted(patterned({3, rows, columns}, dtype), {0, 2, 1}));
    }
  check_copies(permuted(patterned({2, 9, 10, 11}, esp::float32), {3, 1, 0, 2}));
  check_copies(permuted(patterned({2, 9, 10, 11}, esp::float32), {0, 2, 1, 3}));
}

BOOST_AUTO_TEST_CASE(many_axes) {
  const esp::Tensor t = patterned({2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 3}, esp::int32);
  std::vector<size_t> order(t.rank());
  std::iota(order.begin(), order.end(), size_t{0});
  std::mt19937 random(4);
  for (int i = 0; i < 4; ++i) {
    std::shuffle(order.begin(), order.end(), random);
    const esp::Tensor view = permuted(t, order);
    BOOST_TEST(same_bits(on_gpu(view).clone(), view));
  }
}

BOOST_AUTO_TEST_CASE(zeros) {
  for (esp::DType dtype : dtypes) {
    esp::Tensor t = patterned({33}, dtype).to(esp::gpu());
    esp::zero_elements(t);
    BOOST_TEST(same_bits(t, esp::zeros({33}, dtype)));
  }
}

BOOST_AUTO_TEST_CASE(memory_is_counted_and_kept) {
  esp::release_cached_memory(esp::gpu());
  const esp::MemoryStats before = esp::memory_stats(esp::gpu());
  void* address = nullptr;
  {
    const esp::Tensor a({1000}, esp::float32, esp::gpu()), b({3, 1 << 20}, esp::float32, esp::gpu());
    const esp::Tensor none({0, 4}, esp::float32, esp::gpu());
    BOOST_TEST(none.defined());
    BOOST_TEST(reinterpret_cast<uintptr_t>(a.address()) % 256 == 0);
    const esp::MemoryStats now = esp::memory_stats(esp::gpu());
    BOOST_TEST(now.live_bytes - before.live_bytes == 4000 + (12 << 20));
    BOOST_TEST(now.allocations - before.allocations == 3);
    address = b.address();
  }
  BOOST_TEST(esp::memory_stats(esp::gpu()).live_bytes == before.live_bytes);
  BOOST_TEST(esp::memory_stats(esp::gpu()).cached_bytes >= 12 << 20);
  BOOST_TEST(esp::Tensor({3, 1 << 20}, esp::float32, esp::gpu()).address() == address);
  esp::release_cached_memory(esp::gpu());
  BOOST_TEST(esp::memory_stats(esp::gpu()).cached_bytes <= before.cached_bytes);
  esp::reset_peak_memory(esp::gpu());
  { const esp::Tensor c({1 << 10}, esp::float64, esp::gpu()); }
  BOOST_TEST(esp::memory_stats(esp::gpu()).peak_bytes == before.live_bytes + (8 << 10));
}

BOOST_AUTO_TEST_CASE(blocks_lie_apart) {
  std::mt19937 random(11);
  std::vector<esp::Tensor> tensors;
  for (int i = 0; i < 400; ++i) {
    const auto n = static_cast<int64_t>(random() % (i % 9 ? 3000 : 700'000));
    esp::Tensor t({n}, esp::int32, esp::gpu());
    if (tensors.size() < 40)
      tensors.push_back(t);
    else
      tensors[random() % tensors.size()] = t;
    for (const esp::Tensor& other : tensors) {
      const auto* a = static_cast<const char*>(t.address());
      const auto* b = static_cast<const char*>(other.address());
      if (other.storage().get() != t.storage().get())
        BOOST_REQUIRE((a + t.bytes() <= b || b + other.bytes() <= a));
    }
  }
  const int64_t live = esp::memory_stats(esp::gpu()).live_bytes;
  int64_t held = 0;
  for (const esp::Tensor& t : tensors) held += static_cast<int64_t>(t.bytes());
  tensors.clear();
  BOOST_TEST(esp::memory_stats(esp::gpu()).live_bytes == live - held);
}

BOOST_AUTO_TEST_CASE(more_than_there_is) {
  const esp::MemoryStats before = esp::memory_stats(esp::gpu());
  BOOST_CHECK_EXCEPTION(esp::Tensor({int64_t{1} << 43}, esp::float32, esp::gpu()), esp::OutOfMemory,
                        says({"8796093022208", "float32", "cuda:0", "free on the device"}));
  BOOST_CHECK_THROW(esp::Tensor({int64_t{1} << 50}, esp::float32, esp::gpu()), esp::OutOfMemory);
  BOOST_TEST(esp::memory_stats(esp::gpu()).live_bytes == before.live_bytes);
  BOOST_TEST(esp::ones({3}).to(esp::gpu()).to(esp::cpu()).at<float>({2}) == 1.0f);
}

BOOST_AUTO_TEST_CASE(devices_do_not_mix) {
  for (const esp::Device gpu : gpus_to_test()) {
    const esp::Variable here = esp::ones({2}), there = esp::ones({2}).to(gpu);
    BOOST_CHECK_THROW(here + there, esp::DeviceError);
    BOOST_TEST((there * 2 + 1).value().device() == gpu);  // numbers are created on the operand's device
    BOOST_TEST(esp::sum(here.to(gpu) + there).item() == 4);
    BOOST_CHECK_THROW((void)there.value().span<float>(), esp::DeviceError);
  }
}

BOOST_AUTO_TEST_SUITE_END()
