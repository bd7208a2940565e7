// Kernels that are compiled at run time.
#include <string>

#include "device_buffer.h"
#include "nvrtc.h"

namespace {

/// Compiles a source; returns the image and the log.
std::pair<std::string, std::string> compile(const std::string& source, std::vector<const char*> options = {},
                                            nvrtcResult expected = NVRTC_SUCCESS) {
  nvrtcProgram program = nullptr;
  const char* header = "inline __device__ float twice(float x) { return 2 * x; }\n";
  const char* name = "espalier/twice.h";
  BOOST_REQUIRE_EQUAL(nvrtcCreateProgram(&program, source.c_str(), "fused", 1, &header, &name),
                      NVRTC_SUCCESS);
  options.push_back("--gpu-architecture=sm_90");
  options.push_back("-std=c++20");
  BOOST_TEST(nvrtcCompileProgram(program, static_cast<int>(options.size()), options.data()) == expected);
  size_t size = 0;
  std::string image, log;
  if (expected == NVRTC_SUCCESS) {
    BOOST_REQUIRE_EQUAL(nvrtcGetCUBINSize(program, &size), NVRTC_SUCCESS);
    image.resize(size);
    BOOST_REQUIRE_EQUAL(nvrtcGetCUBIN(program, image.data()), NVRTC_SUCCESS);
  } else {
    BOOST_TEST(nvrtcGetCUBINSize(program, &size) == NVRTC_ERROR_INVALID_PROGRAM);
  }
  BOOST_REQUIRE_EQUAL(nvrtcGetProgramLogSize(program, &size), NVRTC_SUCCESS);
  log.resize(size);
  BOOST_REQUIRE_EQUAL(nvrtcGetProgramLog(program, log.data()), NVRTC_SUCCESS);
  BOOST_TEST(nvrtcDestroyProgram(&program) == NVRTC_SUCCESS);
  return {image, log};
}

cudaError_t load(cudaLibrary_t* library, const std::string& image) {
  return cudaLibraryLoadData(library, image.data(), nullptr, nullptr, 0, nullptr, nullptr, 0);
}

const std::string fused = R"(
#include "espalier/twice.h"
struct Arguments {
  const float* in;
  float* out;
  long long count;
  float factor[2];
};
extern "C" __global__ void __launch_bounds__(256) fused_1(const Arguments arguments) {
  __shared__ float last[256];
  const long long i = 1ll * blockIdx.x * blockDim.x + threadIdx.x;
  last[threadIdx.x] = i < arguments.count ? exp(arguments.in[i]) + twice(FACTOR * arguments.factor[1]) : 0.0f;
  __syncthreads();
  float* dynamic = static_cast<float*>(espalier_emulated_shared());
  dynamic[threadIdx.x] = __shfl_xor_sync(0xffffffffu, last[threadIdx.x], 1);
  __syncthreads();
  if (i < arguments.count) arguments.out[i] = dynamic[threadIdx.x];
}
)";

}  // namespace

BOOST_FIXTURE_TEST_SUITE(emulated_nvrtc, Fresh)

BOOST_AUTO_TEST_CASE(a_compiled_kernel_runs) {
  const auto [image, log] = compile(fused, {"-DFACTOR=3"});
  cudaLibrary_t library = nullptr;
  cudaKernel_t kernel = nullptr;
  BOOST_REQUIRE_EQUAL(load(&library, image), cudaSuccess);
  BOOST_TEST(cudaLibraryGetKernel(&kernel, library, "another") == cudaErrorSymbolNotFound);
  BOOST_REQUIRE_EQUAL(cudaLibraryGetKernel(&kernel, library, "fused_1"), cudaSuccess);

  std::vector<float> x(512);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i) / 512;
  const DeviceBuffer<float> in(x), out(512);
  struct {
    const float* in;
    float* out;
    long long count;
    float factor[2];
  } arguments{in.data(), out.data(), 512, {0, 1}};
  void* pointers[] = {&arguments};
  cudaLaunchConfig_t config{};
  config.gridDim = 2;
  config.blockDim = 256;
  config.dynamicSmemBytes = 1024;
  BOOST_TEST(cudaLaunchKernelExC(&config, kernel, pointers) == cudaSuccess);
  arguments = {};                                         // they were copied
  BOOST_TEST(cudaLibraryUnload(library) == cudaSuccess);  // the kernel stays loaded until it has run
  const auto y = out.values();
  for (size_t i = 0; i < x.size(); ++i)
    BOOST_REQUIRE_CLOSE(static_cast<double>(y[i]), std::exp(static_cast<double>(x[i ^ 1])) + 6, 1e-4);
  BOOST_TEST(cudaLaunchKernelExC(&config, kernel, pointers) == cudaErrorInvalidDeviceFunction);
}

BOOST_AUTO_TEST_CASE(mistakes_are_reported) {
  const auto [image, log] =
      compile("struct Arguments {}; extern \"C\" __global__ void f(const Arguments a) { b; }", {},
              NVRTC_ERROR_COMPILATION);
  BOOST_TEST(log.find("fused:1") != std::string::npos);
  BOOST_TEST(log.find("not declared") != std::string::npos);
  compile(fused, {"-fno-such-option"}, NVRTC_ERROR_INVALID_OPTION);
  // No header of the C++ library is included implicitly.
  compile("std::vector<int> x;", {}, NVRTC_ERROR_COMPILATION);
  compile("int64_t x;", {}, NVRTC_ERROR_COMPILATION);
}

BOOST_AUTO_TEST_CASE(a_damaged_image_is_refused) {
  auto [image, log] = compile(fused, {"-DFACTOR=3"});
  cudaLibrary_t library = nullptr;
  image[image.size() / 2] ^= 1;
  BOOST_TEST(load(&library, image) == cudaErrorInvalidKernelImage);
  BOOST_TEST(load(&library, "something else altogether") == cudaErrorInvalidKernelImage);
}

BOOST_AUTO_TEST_CASE(compilations_are_counted_and_can_fail) {
  const auto before = emulated::counters().compilations;
  compile(fused, {"-DFACTOR=3"});
  BOOST_TEST(emulated::counters().compilations == before + 1);
  emulated::fail_next("nvrtcCompileProgram");
  compile(fused, {"-DFACTOR=3"}, NVRTC_ERROR_COMPILATION);
}

BOOST_AUTO_TEST_SUITE_END()
