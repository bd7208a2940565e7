// Executor::export_c: how large code is on a small device.
#include <boost/test/unit_test.hpp>

#include <fstream>

#include "c_module.h"
#include "espalier/espalier.h"
#include "temporary_folder.h"

namespace esp = espalier;
using namespace espalier::testing;
using esp::Variable;

namespace {

/// What `size` says of a file that is compiled as for a small device: bytes of code and constants, and of
/// memory.
struct ObjectSizes {
  int64_t text = 0, data = 0, bss = 0;
};
ObjectSizes object_sizes(const std::filesystem::path& file) {
  const std::string object = file.string() + ".o", sizes = file.string() + ".sizes";
  BOOST_REQUIRE(runs("${CC:-cc} " + std::string(c_warnings) + " -Os -c -o " + object + " " + file.string()));
  BOOST_REQUIRE(runs("size " + object + " > " + sizes));
  ObjectSizes result;
  std::ifstream in(sizes);
  in.ignore(1000, '\n');
  BOOST_REQUIRE(in >> result.text >> result.data >> result.bss);
  return result;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(c_export_sizes)

BOOST_AUTO_TEST_CASE(the_classifier_of_digits_fits_a_small_device) {
  const Variable x = esp::placeholder("x", {1, 64}), y = esp::placeholder("y", {1}, esp::int64);
  const esp::nn::Sequential net{esp::nn::Dense(128), esp::nn::Relu(), esp::nn::Dropout(0.2),
                                esp::nn::Dense(10)};  // that of samples/digits.cpp
  const Variable output = net(x);
  const TemporaryFolder folder;
  const esp::ExportedSizes sizes = output.get_executor({.mode = esp::Mode::inference})
                                       .export_c(folder / "net.c", {.weights = folder / "weights.c"});
  BOOST_TEST(sizes.arena < 8'000);
  const ObjectSizes inference = object_sizes(folder / "net.c");
  BOOST_TEST(inference.text < 60'000);
  BOOST_TEST(inference.data + inference.bss < 8'000);

  (void)esp::nn::SoftmaxCrossEntropy()(output, y)
      .get_executor({.mode = esp::Mode::training, .optimizer = esp::optim::Adam({.lr = 3e-3})})
      .export_c(folder / "learns.c", {.weights = folder / "begin.c", .predict = output});
  BOOST_TEST(object_sizes(folder / "learns.c").text < 60'000);
}

BOOST_AUTO_TEST_SUITE_END()
