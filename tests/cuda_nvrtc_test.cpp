// Compilation at run time, which needs no GPU: all fused kernels, errors, and the cache of machine code.
#include <boost/test/unit_test.hpp>

#include <fstream>

#include "espalier/core/cuda/nvrtc.h"
#include "espalier/core/error.h"
#include "espalier/core/files/file.h"
#include "fused_programs.h"

namespace esp = espalier;
using namespace espalier::testing;

namespace {

constexpr int architecture = 90;
const std::string empty_kernel = "extern \"C\" __global__ void nothing(int* to) { *to = 1; }\n";

}  // namespace

BOOST_AUTO_TEST_SUITE(cuda_nvrtc)

BOOST_AUTO_TEST_CASE(fused_kernels_compile) {
  for (const FusedCase& c : fused_cases(trees_to_fuse(esp::float32, {100, 4100}))) {
    BOOST_TEST_CONTEXT(c.program().str())
    BOOST_TEST(
        !esp::cu::compile_to_machine_code(esp::fused_source(c.program(), met(c)).text, architecture).empty());
    if (const auto group = esp::fused_group_source(c.program(), met(c), true))
      BOOST_TEST(!esp::cu::compile_to_machine_code(group->text, architecture).empty());
  }
}

BOOST_AUTO_TEST_CASE(gpus_that_cannot_round_to_bfloat16) {
  const auto cases = fused_cases(trees_to_fuse(esp::bfloat16, {100}));
  const std::string source = esp::fused_source(cases.front().program(), met(cases.front())).text;
  BOOST_TEST(source.find("BFloat16") != std::string::npos);
  BOOST_TEST(!esp::cu::compile_to_machine_code(source, 75).empty());
}

BOOST_AUTO_TEST_CASE(gpus_newer_than_nvrtc_get_ptx) {
  const std::string code = esp::cu::compile_to_machine_code(empty_kernel, 999);
  BOOST_TEST(code.ends_with('\0'));
  BOOST_TEST(code.find("nothing") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(errors_show_the_log_and_the_source) {
  try {
    (void)esp::cu::compile_to_machine_code(
        "// first\nextern \"C\" __global__ void broken() { undeclared(); }\n", architecture);
    BOOST_ERROR("it compiled");
  } catch (const esp::Error& error) {
    const std::string text = error.what();
    BOOST_TEST(text.find("undeclared") < text.find("   2 extern"), text);
    BOOST_TEST(text.find("   1 // first") != std::string::npos, text);
  }
}

BOOST_AUTO_TEST_CASE(machine_code_is_kept_in_files) {
  const TemporaryFolder folder;
  const esp::cu::MachineCodeFiles files(folder.path() / "kernels");
  BOOST_TEST(files.find(empty_kernel, architecture).empty());
  const std::string code("\0machine\ncode", 13);
  files.keep(empty_kernel, architecture, code);
  BOOST_TEST((files.find(empty_kernel, architecture) == code));
  BOOST_TEST(files.find(empty_kernel, 100).empty());
  BOOST_TEST(files.find(empty_kernel + " ", architecture).empty());
  // A change of any byte is detected.
  const std::filesystem::path file = files.file(empty_kernel, architecture);
  const std::string whole = esp::read_file(file);
  for (const size_t at : {size_t{0}, whole.find('\n'), whole.find("nothing"), whole.size() - 1}) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 1);
    std::ofstream(file, std::ios::binary) << damaged;
    BOOST_TEST(files.find(empty_kernel, architecture).empty(), "byte " << at);
  }
  std::ofstream(file, std::ios::binary) << whole.substr(0, whole.size() - 1);
  BOOST_TEST(files.find(empty_kernel, architecture).empty());
  files.keep(empty_kernel, architecture, code);
  BOOST_TEST((files.find(empty_kernel, architecture) == code));
  const esp::cu::MachineCodeFiles nowhere{{}};
  nowhere.keep(empty_kernel, architecture, code);
  BOOST_TEST(nowhere.find(empty_kernel, architecture).empty());
}

BOOST_AUTO_TEST_SUITE_END()
