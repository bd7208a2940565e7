// Truncated and changed files of several networks are refused with a reason, or read as other networks.
#include <boost/test/unit_test.hpp>

#include "espalier/onnx.h"
#include "fuzz/fuzz_file.h"
#include "samples.h"
#include "temporary_folder.h"

namespace esp = espalier;
using espalier::testing::SampleFile;
using espalier::testing::TemporaryFolder;

namespace {

/// Reads the bytes as a file in memory. Returns whether they were refused.
bool refused(const std::string& bytes) {
  const std::filesystem::path file =
      esp::testing::fuzz_file(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
  try {
    const esp::onnx::Model model = esp::onnx::load(file, {.largest_constant = 1 << 20, .most_nodes = 10'000});
    for (const auto& [name, output] : model.outputs()) BOOST_TEST(output.defined());
    return false;
  } catch (const esp::Error& error) {
    BOOST_TEST(std::string(error.what()).find(file.string()) != std::string::npos, error.what());
    return true;
  }
}

}  // namespace

BOOST_AUTO_TEST_SUITE(onnx_damage)

BOOST_AUTO_TEST_CASE(truncated_files_are_refused) {
  const TemporaryFolder folder;
  for (const SampleFile& sample : esp::testing::sample_files(folder.path())) {
    BOOST_TEST_CONTEXT(sample.name) {
      BOOST_TEST(!refused(sample.bytes));
      const int cuts = 1000;
      int count = 0;
      for (int i = 0; i < cuts; ++i)
        count += refused(sample.bytes.substr(0, sample.bytes.size() * static_cast<size_t>(i) / cuts));
      BOOST_TEST(count > 900);  // a few end between two messages behind the graph
    }
  }
}

BOOST_AUTO_TEST_CASE(files_with_changed_bits_are_refused_or_harmless) {
  const TemporaryFolder folder;
  for (const SampleFile& sample : esp::testing::sample_files(folder.path())) {
    BOOST_TEST_CONTEXT(sample.name) {
      const size_t flips = 1000, bits = sample.bytes.size() * 8;
      size_t count = 0;
      for (size_t i = 0; i < flips; ++i) {
        std::string flipped = sample.bytes;
        const size_t bit = bits * i / flips / 8 * 8 + i % 8;
        flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ (1 << bit % 8));
        count += refused(flipped);
      }
      BOOST_TEST((count > 0 && count < flips));  // changed weights are weights
    }
  }
}

BOOST_AUTO_TEST_SUITE_END()
