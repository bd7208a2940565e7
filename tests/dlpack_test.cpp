// DLPack: tensors that share their memory with other libraries, here with plain arrays.
#include <boost/test/unit_test.hpp>

#include <dlpack/dlpack.h>

#include <cstdint>
#include <initializer_list>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "espalier/espalier.h"
#include "gpu_testing.h"
#include "testing.h"

namespace esp = espalier;
using namespace espalier::testing;

namespace {

/// A tensor of another library, which counts how often it is deleted.
struct Foreign {
  std::vector<float> values{0, 1, 2, 3, 4, 5, 6};
  std::vector<int64_t> shape{2, 3}, strides;
  DLManagedTensor managed{};
  int deleted = 0;

  Foreign() {
    managed.manager_ctx = this;
    managed.deleter = [](DLManagedTensor* self) { ++static_cast<Foreign*>(self->manager_ctx)->deleted; };
    managed.dl_tensor.dtype = {kDLFloat, 32, 1};
    managed.dl_tensor.device = {kDLCPU, 0};
  }
  Foreign(const Foreign&) = delete;
  DLTensor& tensor() { return managed.dl_tensor; }
  DLManagedTensor* get() {
    if (!tensor().data) tensor().data = values.data();
    tensor().ndim = static_cast<int>(shape.size());
    tensor().shape = shape.data();
    tensor().strides = strides.empty() ? nullptr : strides.data();
    return &managed;
  }
};

/// Expects an error, and that the tensor is still its owner's.
template <class E>
void refused(Foreign& foreign, std::initializer_list<std::string> words) {
  BOOST_CHECK_EXCEPTION(esp::from_dlpack(foreign.get()), E, says(words));
  BOOST_TEST(foreign.deleted == 0);
}

}  // namespace

BOOST_AUTO_TEST_SUITE(dlpack)

BOOST_AUTO_TEST_CASE(memory_is_shared_until_the_last_tensor_goes) {
  Foreign foreign;
  {
    esp::Tensor x = esp::from_dlpack(foreign.get());
    BOOST_TEST(x.shape() == esp::Shape({2, 3}));
    BOOST_TEST(x.dtype() == esp::float32);
    BOOST_TEST(x.device() == esp::cpu());
    BOOST_TEST(x.address() == foreign.values.data());
    BOOST_TEST(x.at<float>({1, 2}) == 5);
    x.at<float>({0, 1}) = 7;
    BOOST_TEST(foreign.values[1] == 7);
    const esp::Tensor row = x.slice(0, 1, 2);
    x = {};
    BOOST_TEST(foreign.deleted == 0);
    BOOST_TEST(row.at<float>({0, 0}) == 3);
  }
  BOOST_TEST(foreign.deleted == 1);
}

BOOST_AUTO_TEST_CASE(strides_and_offsets_are_kept) {
  Foreign foreign;
  foreign.shape = {3, 2, 1};
  foreign.strides = {1, 3, -8};  // the transposed matrix; no element is behind the last stride
  foreign.tensor().byte_offset = sizeof(float);
  const esp::Tensor x = esp::from_dlpack(foreign.get());
  BOOST_TEST(!x.contiguous());
  const esp::Tensor plain = x.contiguous_copy();
  const std::vector<float> expected{1, 4, 2, 5, 3, 6};
  BOOST_TEST(plain.span<float>() == expected, boost::test_tools::per_element());
  Foreign repeated;
  repeated.shape = {2, 2};
  repeated.strides = {0, 1};
  const esp::Tensor rows = esp::from_dlpack(repeated.get()).contiguous_copy();
  const std::vector<float> twice{0, 1, 0, 1};
  BOOST_TEST(rows.span<float>() == twice, boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(operations_do_not_write_over_it) {
  Foreign foreign;
  const std::vector<float> before = foreign.values;
  // A temporary's buffer would be that of the result.
  const esp::Variable y = esp::exp(esp::from_dlpack(foreign.get()));
  BOOST_TEST(y.value().at<float>({0, 0}) == 1);
  BOOST_TEST(foreign.values == before, boost::test_tools::per_element());
  BOOST_TEST(y.value().address() != foreign.values.data());
}

BOOST_AUTO_TEST_CASE(scalars_and_empty_tensors) {
  Foreign scalar;
  scalar.shape = {};
  BOOST_TEST(esp::from_dlpack(scalar.get()).item() == 0);
  Foreign none;
  none.shape = {0, 3};
  none.values.clear();
  const esp::Tensor x = esp::from_dlpack(none.get());
  BOOST_TEST(x.elements() == 0);
  Foreign far;
  far.shape = {3, 0};
  far.strides = {std::numeric_limits<int64_t>::max(), 1};  // never used
  BOOST_TEST(esp::from_dlpack(far.get()).contiguous());
  DLManagedTensor* out = esp::to_dlpack(x);
  BOOST_TEST(out->dl_tensor.data == nullptr);
  out->deleter(out);
}

BOOST_AUTO_TEST_CASE(what_cannot_be_taken_stays_its_owners) {
  BOOST_CHECK_EXCEPTION(esp::from_dlpack(nullptr), esp::Error, says({"from_dlpack", "dlpack_test.cpp"}));
  {
    Foreign f;
    f.tensor().dtype = {kDLUInt, 16, 1};
    refused<esp::TypeError>(f, {"code 1", "16 bits"});
    f.tensor().dtype = {kDLFloat, 32, 4};
    refused<esp::TypeError>(f, {"4 lanes"});
  }
  {
    Foreign f;
    f.tensor().device = {kDLMetal, 0};
    refused<esp::DeviceError>(f, {"device type 8"});
    f.tensor().device = {kDLCUDAHost, 0};
    refused<esp::DeviceError>(f, {"page-locked"});
    f.tensor().device = {kDLCUDA, 63};
    refused<esp::DeviceError>(f, {"cuda:63"});
    f.tensor().device = {kDLCUDA, -1};
    refused<esp::DeviceError>(f, {"-1"});
  }
  {
    Foreign f;
    f.strides = {-3, 1};
    refused<esp::UnsupportedError>(f, {"backwards", "axis 0", "[2, 3]"});
    f.strides = {std::numeric_limits<int64_t>::max(), std::numeric_limits<int64_t>::max()};
    refused<esp::ShapeError>(f, {"further"});
    f.strides.clear();
    f.shape = {2, -1};
    refused<esp::ShapeError>(f, {"size -1"});
  }
  {
    Foreign f;
    f.tensor().byte_offset = 2;
    refused<esp::UnsupportedError>(f, {"float32", "aligned to 4"});
  }
  BOOST_CHECK_EXCEPTION(esp::to_dlpack({}), esp::TypeError, says({"undefined"}));
}

BOOST_AUTO_TEST_CASE(tensors_go_out_and_come_back) {
  struct Row {
    esp::DType dtype;
    int code, bits;
  };
  for (const Row& row : {Row{esp::float32, kDLFloat, 32}, Row{esp::float64, kDLFloat, 64},
                         Row{esp::float16, kDLFloat, 16}, Row{esp::bfloat16, kDLBfloat, 16},
                         Row{esp::int32, kDLInt, 32}, Row{esp::int64, kDLInt, 64}, Row{esp::boolean, 6, 8}}) {
    const int64_t live = esp::memory_stats().live_bytes;
    esp::Tensor x = esp::tensor({{1, 0, 1}, {0, 1, 1}}).to(row.dtype);
    const void* address = x.address();
    DLManagedTensor* out = esp::to_dlpack(x.slice(1, 1, 3));
    x = {};
    const DLTensor& seen = out->dl_tensor;
    BOOST_TEST(seen.dtype.code == row.code);
    BOOST_TEST(seen.dtype.bits == row.bits);
    BOOST_TEST(seen.dtype.lanes == 1);
    BOOST_TEST(seen.ndim == 2);
    BOOST_TEST(seen.shape[1] == 2);
    BOOST_TEST(seen.strides[0] == 3);
    BOOST_TEST(seen.byte_offset == 0u);
    BOOST_TEST(
        (static_cast<const char*>(seen.data) == static_cast<const char*>(address) + esp::size_of(row.dtype)));
    const esp::Tensor back = esp::from_dlpack(out);
    BOOST_TEST(back.dtype() == row.dtype);
    BOOST_TEST(back.address() == seen.data);
    const std::vector<double> expected{0, 1, 1, 1};
    const esp::Tensor doubles = back.to(esp::float64).contiguous_copy();
    if (row.dtype != esp::float64)
      BOOST_TEST(doubles.span<double>() == expected, boost::test_tools::per_element());
    BOOST_TEST(esp::memory_stats().live_bytes > live);
  }
}

BOOST_AUTO_TEST_CASE(a_tensor_that_is_out_is_kept_and_may_be_dropped_by_any_thread) {
  const int64_t live = esp::memory_stats().live_bytes;
  DLManagedTensor* out = esp::to_dlpack(esp::ones({100}));
  BOOST_TEST(esp::memory_stats().live_bytes == live + 400);
  BOOST_TEST(static_cast<const float*>(out->dl_tensor.data)[99] == 1);
  std::thread([&] { out->deleter(out); }).join();
  BOOST_TEST(esp::memory_stats().live_bytes == live);
}

BOOST_AUTO_TEST_CASE(a_plan_reads_it, *boost::unit_test::precondition(has_gpu)) {
  Foreign foreign;
  const esp::Variable w = esp::parameter(esp::from_dlpack(foreign.get()), "w");
  const esp::Variable loss = esp::sum(esp::square(w));
  const esp::Executor executor =
      loss.get_executor({.mode = esp::Mode::training, .optimizer = esp::optim::Sgd(0.25)});
  executor.execute({.epochs = 1});
  BOOST_TEST(w.value().at<float>({1, 2}) == 2.5f);
}

BOOST_AUTO_TEST_CASE(device_memory_is_shared, *boost::unit_test::precondition(has_gpu)) {
  const esp::Tensor x = esp::arange(12).to(esp::gpu()).reshape({3, 4}).slice(1, 1, 3);
  DLManagedTensor* out = esp::to_dlpack(x);
  BOOST_TEST(out->dl_tensor.device.device_type == kDLCUDA);
  BOOST_TEST(out->dl_tensor.device.device_id == 0);
  BOOST_TEST(out->dl_tensor.data == x.address());
  const esp::Tensor back = esp::from_dlpack(out);
  BOOST_TEST(back.device() == esp::gpu());
  const esp::Variable y = esp::square(esp::square(back));
  const esp::Tensor host = y.value().to(esp::cpu());
  const std::vector<float> expected{1, 16, 625, 1296, 6561, 10000};
  BOOST_TEST(host.span<float>() == expected, boost::test_tools::per_element());
  BOOST_TEST(x.to(esp::cpu()).at<float>({2, 1}) == 10);  // not written over
}

BOOST_AUTO_TEST_SUITE_END()
