// Parameters of files in other element types, and files of maps.
#include <boost/test/unit_test.hpp>

#include <map>
#include <unordered_map>

#include "espalier/espalier.h"
#include "file_errors.h"
#include "temporary_folder.h"

namespace esp = espalier;
using namespace espalier::testing;

namespace {

const esp::NamedTensors weights{{"weight", esp::tensor({{1.0, 0.1}, {-3.0, 1e-3}})},
                                {"bias", esp::tensor({0.3, -7.0})}};

esp::NamedTensors in(esp::DType dtype) {
  esp::NamedTensors converted;
  for (const auto& [name, tensor] : weights) converted.emplace_back(name, tensor.to(dtype));
  return converted;
}

void check_weights(const esp::nn::Module& module, esp::DType stored, esp::DType dtype,
                   const std::string& prefix = {}) {
  for (const auto& [name, tensor] : weights) {
    const esp::Tensor value = module.parameter(prefix + name).value();
    BOOST_TEST((value.dtype() == dtype));
    BOOST_TEST(esp::all(esp::equal(value, tensor.to(stored).to(dtype))).value().item() == 1);
  }
}

}  // namespace

BOOST_AUTO_TEST_SUITE(converted_files)

BOOST_AUTO_TEST_CASE(reals_become_those_of_the_parameters) {
  const TemporaryFolder folder;
  const esp::DType reals[] = {esp::float16, esp::bfloat16, esp::float32, esp::float64};
  for (const esp::DType stored : reals)
    for (const esp::DType dtype : reals) {
      esp::write_safetensors(folder / "f", in(stored));
      const esp::nn::Dense dense(2, 2, {.dtype = dtype});
      if (stored != dtype) {
        const std::string error = file_error([&] { esp::nn::load(dense, folder / "f"); });
        BOOST_TEST((has(error, "weight") && has(error, ".convert = true")), error);
      }
      esp::nn::load(dense, folder / "f", {.convert = true});
      check_weights(dense, stored, dtype);
    }
}

BOOST_AUTO_TEST_CASE(layers_that_have_not_been_called_get_float32) {
  const TemporaryFolder folder;
  esp::write_safetensors(folder / "f", in(esp::bfloat16));
  const esp::nn::Dense open(2), as_it_is(2);
  esp::nn::load(open, folder / "f", {.convert = true});
  check_weights(open, esp::bfloat16, esp::float32);
  BOOST_TEST((open(esp::ones({1, 2})).dtype() == esp::float32));
  esp::nn::load(as_it_is, folder / "f");
  check_weights(as_it_is, esp::bfloat16, esp::bfloat16);
  // What waits in a scope for its layer.
  esp::NamedTensors below;
  for (const auto& [name, tensor] : in(esp::float16)) below.emplace_back("dense." + name, tensor);
  esp::write_safetensors(folder / "g", below);
  esp::nn::Parameters converting, strict;
  esp::nn::load(converting, folder / "g", {.convert = true});
  esp::nn::load(strict, folder / "g");
  const esp::Tensor x = esp::ones({1, 2});
  esp::nn::dense(converting, x, 2);
  check_weights(converting, esp::float16, esp::float32, "dense.");
  BOOST_TEST(has(file_error([&] { esp::nn::dense(strict, x, 2, {.dtype = esp::float32}); }), "float16"));
}

BOOST_AUTO_TEST_CASE(buffers_are_converted_and_integers_are_not) {
  const TemporaryFolder folder;
  esp::nn::BatchNorm norm(3);
  norm(esp::randn({5, 3}));
  esp::NamedTensors halves;
  esp::nn::save(norm, folder / "f");
  bool has_integers = false;
  for (const auto& [name, tensor] : esp::read_safetensors(folder / "f")) {
    has_integers |= !esp::is_real(tensor.dtype());
    halves.emplace_back(name, esp::is_real(tensor.dtype()) ? tensor.to(esp::float16) : tensor);
  }
  BOOST_TEST(has_integers);
  esp::write_safetensors(folder / "g", halves);
  const esp::nn::BatchNorm other(3);
  esp::nn::load(other, folder / "g", {.convert = true});
  esp::nn::save(other, folder / "h");
  for (const auto& [name, tensor] : esp::read_safetensors(folder / "h"))
    BOOST_TEST((tensor.dtype() == esp::float32 || !esp::is_real(tensor.dtype())), name);
  // Integers of a file are no weights, and the counter is no real.
  esp::write_safetensors(folder / "i", in(esp::int64));
  BOOST_TEST(has(file_error([&] { esp::nn::load(esp::nn::Dense(2, 2), folder / "i", {.convert = true}); }),
                 "int64"));
  for (auto& [name, tensor] : halves)
    if (!esp::is_real(tensor.dtype())) tensor = tensor.to(esp::float32);
  esp::write_safetensors(folder / "i", halves);
  BOOST_TEST(has(file_error([&] { esp::nn::load(other, folder / "i", {.convert = true}); }), "int64"));
}

BOOST_AUTO_TEST_CASE(maps_are_written) {
  const TemporaryFolder folder;
  const std::map<std::string, esp::Tensor> ordered{{"a", esp::ones({2})}, {"b", esp::zeros({3})}};
  const std::unordered_map<std::string, esp::Tensor> hashed(ordered.begin(), ordered.end());
  esp::write_safetensors(folder / "f", ordered);
  BOOST_TEST(esp::read_safetensors(folder / "f").size() == 2u);
  esp::write_safetensors(folder / "f", hashed, {{"note", "of a map"}});
  esp::FileNotes notes;
  BOOST_TEST(esp::read_safetensors(folder / "f", &notes).size() == 2u);
  BOOST_TEST(notes.at("note") == "of a map");
}

BOOST_AUTO_TEST_SUITE_END()
