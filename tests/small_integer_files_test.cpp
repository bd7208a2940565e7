// int8, uint8 and int16 in files, and shared with other libraries.
#include <boost/test/unit_test.hpp>

#include <dlpack/dlpack.h>

#include <cstring>

#include "espalier/core/dlpack.h"
#include "espalier/core/error.h"
#include "espalier/core/files/file.h"
#include "espalier/core/files/safetensors.h"
#include "espalier/core/files/safetensors_map.h"
#include "espalier/data/distributor.h"
#include "espalier/data/idx.h"
#include "espalier/data/image.h"
#include "espalier/data/npy.h"
#include "espalier/data/npz.h"
#include "espalier/executor/executor.h"
#include "espalier/nn/module.h"
#include "espalier/nn/serialize.h"
#include "espalier/ops/ops.h"
#include "espalier/optim/sgd.h"
#include "file_samples.h"
#include "testing.h"

namespace esp = espalier;
namespace data = espalier::data;
using namespace espalier::testing;
using esp::Tensor;

namespace {

constexpr esp::DType small_types[] = {esp::int8, esp::uint8, esp::int16};

/// All numbers of one byte, or as many of two.
Tensor every_number(esp::DType dtype) {
  const Tensor from_zero = esp::arange(256, esp::float64);
  return (esp::cast(from_zero, esp::int32) * (dtype == esp::int16 ? 257 : 1))
      .value()
      .to(dtype)
      .reshape({4, 64});
}

bool same(const Tensor& a, const Tensor& b) {
  return a.spec() == b.spec() && std::memcmp(a.address(), b.address(), a.bytes()) == 0;
}

/// A module with two buffers.
struct Bytes : esp::nn::Module {
  Bytes(esp::DType first, esp::DType second) {
    add_buffer("first", esp::arange(3, first));
    add_buffer("second", esp::arange(4, second).reshape({2, 2}));
  }
};

struct Folder {
  TemporaryFolder folder;
};

}  // namespace

BOOST_FIXTURE_TEST_SUITE(small_integer_files, Folder)

BOOST_AUTO_TEST_CASE(numpy_s_arrays) {
  for (const esp::DType dtype : small_types) BOOST_TEST_CONTEXT(esp::name(dtype)) {
      const Tensor x = every_number(dtype);
      data::write_npy(folder / "a.npy", x);
      BOOST_TEST(same(data::read_npy(folder / "a.npy", {.small_integers = data::SmallIntegers::keep}), x));
      BOOST_TEST(same(data::read_npy(folder / "a.npy"), x.to(esp::int32)));
      data::write_npz(folder / "a.npz", {{"x", x}, {"y", esp::ones({2})}}, {.compress = true});
      const esp::NamedTensors kept =
          data::read_npz(folder / "a.npz", {.small_integers = data::SmallIntegers::keep});
      BOOST_TEST(same(kept[0].second, x));
      BOOST_TEST(same(kept[1].second, esp::ones({2})));
      BOOST_TEST(same(data::read_npz(folder / "a.npz")[0].second, x.to(esp::int32)));
    }
  data::write_npy(folder / "a.npy", esp::tensor({-2, 256}, esp::int16));
  BOOST_TEST(esp::read_file(folder / "a.npy").find("'<i2'") != std::string::npos);
  data::write_npy(folder / "a.npy", esp::tensor({1}, esp::uint8));
  BOOST_TEST(esp::read_file(folder / "a.npy").find("'|u1'") != std::string::npos);
  data::write_npy(folder / "a.npy", esp::tensor({1}, esp::int8));
  BOOST_TEST(esp::read_file(folder / "a.npy").find("'|i1'") != std::string::npos);
  // Big-endian, and column by column.
  std::string text = esp::read_file([&] {
    data::write_npy(folder / "b.npy", esp::tensor({{1, 2}, {3, 256}}, esp::int16));
    return folder / "b.npy";
  }());
  text.replace(text.find("'<i2'"), 5, "'>i2'");
  text.replace(text.find("False"), 5, "True ");
  const Tensor read =
      data::read_npy(folder.write("b.npy", text), {.small_integers = data::SmallIntegers::keep});
  BOOST_TEST(same(read, esp::tensor({{256, 768}, {512, 1}}, esp::int16)));
}

BOOST_AUTO_TEST_CASE(arrays_of_the_idx_format) {
  for (const esp::DType dtype : small_types) BOOST_TEST_CONTEXT(esp::name(dtype)) {
      const Tensor x = every_number(dtype);
      data::write_idx(folder / "some-idx", x);
      BOOST_TEST(same(data::read_idx(folder / "some-idx", {.small_integers = data::SmallIntegers::keep}), x));
      BOOST_TEST(same(data::read_idx(folder / "some-idx"), x.to(esp::int32)));
    }
}

BOOST_AUTO_TEST_CASE(images_of_bytes) {
  const auto path = folder.write("image", from_hex(png_rgb));
  const Tensor wide = data::read_image(path), bytes = data::read_image(path, {.dtype = esp::uint8});
  BOOST_TEST(same(bytes, wide.to(esp::uint8)));
  BOOST_TEST(same(bytes.to(esp::int32), wide));
  BOOST_TEST(same(data::read_image(path, {.channels = 1, .dtype = esp::uint8}),
                  data::read_image(path, {.channels = 1}).to(esp::uint8)));
  data::write_image(folder / "again.png", bytes);
  BOOST_TEST(same(data::read_image(folder / "again.png", {.dtype = esp::uint8}), bytes));
  const auto path16 = folder.write("image16", from_hex(png_gray16));
  BOOST_CHECK_EXCEPTION(data::read_image(path16, {.dtype = esp::uint8}), esp::DataError,
                        says({"image16", "16 bits", "int32", here()}));
  for (const esp::DType dtype : {esp::int8, esp::int16})
    BOOST_CHECK_EXCEPTION(data::read_image(path, {.dtype = dtype}), esp::TypeError,
                          says({"read_image", std::string(esp::name(dtype)), here()}));
}

BOOST_AUTO_TEST_CASE(safetensors_keep_them) {
  esp::NamedTensors tensors;
  for (const esp::DType dtype : small_types) tensors.emplace_back(esp::name(dtype), every_number(dtype));
  tensors.emplace_back("empty", esp::zeros({0, 3}, esp::int16));
  esp::write_safetensors(folder / "f", tensors);
  for (const esp::NamedTensors& read :
       {esp::read_safetensors(folder / "f"), esp::map_safetensors(folder / "f")}) {
    BOOST_TEST(read.size() == tensors.size());
    for (const auto& [name, tensor] : read)
      for (const auto& [written, x] : tensors)
        if (name == written) BOOST_TEST(same(tensor, x), name);
  }
  const std::string bytes = esp::read_file(folder / "f");
  for (const char* type : {"\"I8\"", "\"U8\"", "\"I16\""})
    BOOST_TEST(bytes.find(type) != std::string::npos, type);
}

BOOST_AUTO_TEST_CASE(buffers_of_modules) {
  const Bytes kept(esp::uint8, esp::int8);
  esp::nn::save(kept, folder / "f");
  const Bytes again(esp::uint8, esp::int8);
  for (const auto& named : {"first", "second"}) {
    esp::set_value(again.buffer(named), esp::zeros(again.buffer(named).shape(), again.buffer(named).dtype()));
    esp::nn::load(again, folder / "f");
    BOOST_TEST(same(again.buffer(named).value(), kept.buffer(named).value()));
  }
  // Integers of 32 bits take in smaller ones, and no others do.
  const Bytes wide(esp::int32, esp::int32);
  esp::nn::load(wide, folder / "f");
  BOOST_TEST(same(wide.buffer("first").value(), esp::arange(3, esp::int32)));
  const Bytes other(esp::int16, esp::int8);
  BOOST_CHECK_EXCEPTION(esp::nn::load(other, folder / "f"), esp::FileError,
                        says({"int16", "uint8", "first"}));
}

BOOST_AUTO_TEST_CASE(checkpoints) {
  const auto train = [&](const esp::Tensor& start, bool resume) {
    const data::Distributor feed({esp::ones({4, 2})}, {.batch_size = 2});
    const esp::Variable w = esp::parameter(esp::ones({2}), "w"), bytes = esp::state(start, "bytes");
    const esp::Variable loss =
        esp::sum(feed.get_output_graphs()[0] * w) + esp::sum(esp::cast(bytes, esp::float32) * w) * 0.01;
    const esp::Executor executor = loss.get_executor({.optimizer = esp::optim::Sgd(0.1)});
    if (resume) executor.resume(folder / "run");
    (void)executor.execute({.epochs = 2, .progress = false, .checkpoint = folder / "run"});
    return bytes.value().clone();
  };
  const Tensor start = esp::tensor({7, 200}, esp::uint8);
  (void)train(start, false);
  BOOST_TEST(same(train(esp::zeros({2}, esp::uint8), true), start));
}

BOOST_AUTO_TEST_CASE(tensors_of_other_libraries) {
  const struct {
    esp::DType dtype;
    uint8_t code, bits;
  } types[] = {{esp::int8, kDLInt, 8}, {esp::uint8, kDLUInt, 8}, {esp::int16, kDLInt, 16}};
  for (const auto& [dtype, code, bits] : types) BOOST_TEST_CONTEXT(esp::name(dtype)) {
      const Tensor x = every_number(dtype);
      DLManagedTensor* const shared = esp::to_dlpack(x);
      BOOST_TEST(shared->dl_tensor.dtype.code == code);
      BOOST_TEST(shared->dl_tensor.dtype.bits == bits);
      const Tensor back = esp::from_dlpack(shared);
      BOOST_TEST(back.address() == x.address());
      BOOST_TEST(same(back, x));
    }
  DLManagedTensor* const wide = esp::to_dlpack(every_number(esp::int16));
  wide->dl_tensor.dtype.code = kDLUInt;  // uint16
  BOOST_CHECK_EXCEPTION((void)esp::from_dlpack(wide), esp::TypeError, says({"16 bits", "uint8", "int16"}));
  wide->deleter(wide);
}

BOOST_AUTO_TEST_SUITE_END()
