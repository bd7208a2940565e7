#include "espalier/ops/matmul/cuda/cublaslt_choice.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <map>
#include <mutex>
#include <span>

#include "espalier/core/cuda/runtime.h"
#include "espalier/core/error.h"
#include "espalier/ops/matmul/choice_file.h"
#include "espalier/ops/matmul/gemm_choice.h"
#include "espalier/ops/matmul/tuning.h"

namespace espalier::cu {

namespace {

using Suggestions = SmallVector<cublasLtMatmulHeuristicResult_t, 1>;

bool fits(const cublasLtMatmulHeuristicResult_t& x) {
  return x.state == CUBLAS_STATUS_SUCCESS && x.workspaceSize <= size_t{lt_workspace_bytes};
}

/// Up to `count`, the best first as the library guesses.
Suggestions suggestions(const LtCase& c, const LtRecipe& recipe, const LtOperation& operation, int count) {
  LtPreference preference;
  preference.set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, size_t{lt_workspace_bytes});
  // The library's operands are ours in the other order.
  preference.set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, uint32_t{c.align_b});
  preference.set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, uint32_t{c.align_a});
  preference.set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, uint32_t{c.align_c});
  preference.set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, uint32_t{c.align_c});
  if (is_half(c.dtype))  // parts of a sum are not rounded to 16 bits
    preference.set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                   uint32_t{CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE});
  std::array<cublasLtMatmulHeuristicResult_t, 8> found{};
  int number = 0;
  const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
      lt_handle(), operation.get(), recipe.b.get(), recipe.a.get(), recipe.c.get(), recipe.c.get(),
      preference.get(), std::min(count, static_cast<int>(found.size())), found.data(), &number);
  const bool none = status == CUBLAS_STATUS_NOT_SUPPORTED ||
                    (status == CUBLAS_STATUS_INVALID_VALUE && c.epilogue != LtEpilogue::none);
  if (none) return {};
  check(status, "cublasLtMatmulAlgoGetHeuristic");
  Suggestions result;
  std::copy_if(found.begin(), found.begin() + number, std::back_inserter(result), fits);
  return result;
}

/// A product like that of the case, of zeros.
class Trial {
 public:
  Trial(const LtCase& c, const LtRecipe& recipe)
      : recipe_(recipe),
        dtype_(c.dtype),
        a_(room(c, c.transpose_a ? c.k : c.m, c.lda, c.step_a)),
        b_(room(c, c.transpose_b ? c.n : c.k, c.ldb, c.step_b)),
        c_(room(c, c.m, c.ldc, c.step_c)),
        vector_(zeros_of(has_vector(c.epilogue) ? std::max(c.m, c.n) * bytes(c.dtype) : 0, c.device)),
        mask_(zeros_of(has_mask(c.epilogue) ? c.m * lt_mask_row(c.n) / 8 : 0, c.device)),
        one_(full({1}, 1, lt_scale_type(c.dtype)).to(gpu(c.device))),
        operation_(lt_operation(c, vector_.address(), mask_.address())),
        workspace_(lt_workspace()) {
    scalars_.beta32 = c.adds, scalars_.beta64 = c.adds;
    if (!c.device_scalars) return;
    scalars_.device_alpha = scalars_.device_beta = one_.address();  // kernels may leave out what 0 scales
  }

  /// Milliseconds of one, on average over `count`.
  float measure(const cublasLtMatmulAlgo_t& algorithm, int count) {
    Event begin(true), end(true);
    begin.record(current_stream());
    for (int i = 0; i < count; ++i) run(algorithm);
    end.record(current_stream());
    end.synchronize();
    return end.milliseconds_since(begin) / static_cast<float>(count);
  }

 private:
  static int64_t bytes(DType dtype) { return static_cast<int64_t>(size_of(dtype)); }
  static Tensor zeros_of(int64_t bytes, int device) {
    Tensor memory({bytes}, DType::boolean, gpu(device));
    zero_elements(memory);
    return memory;
  }
  static Tensor room(const LtCase& c, int64_t rows, int64_t leading, int64_t step) {
    return zeros_of((rows * leading + (c.batch - 1) * step) * bytes(c.dtype), c.device);
  }
  void run(const cublasLtMatmulAlgo_t& algorithm) {
    check(cublasLtMatmul(lt_handle(), operation_.get(), scalars_.alpha(dtype_), b_.address(), recipe_.b.get(),
                         a_.address(), recipe_.a.get(), scalars_.beta(dtype_), c_.address(), recipe_.c.get(),
                         c_.address(), recipe_.c.get(), &algorithm, workspace_.address(),
                         size_t{lt_workspace_bytes}, current_stream()),
          "cublasLtMatmul");
  }

  const LtRecipe& recipe_;
  DType dtype_;
  Tensor a_, b_, c_, vector_, mask_, one_;
  LtOperation operation_;
  Tensor workspace_;
  LtScalars scalars_;
};

size_t fastest(const LtCase& c, const LtRecipe& recipe, const Suggestions& candidates) {
  Trial trial(c, recipe);
  std::array<float, 8> best;
  best.fill(1e9f);
  // In turns, so that a disturbance hits all; the best of each, since noise only adds. The first round warms
  // up.
  constexpr float round_milliseconds = 0.2f;
  for (int round = 0; round < 5; ++round)
    for (size_t i = 0; i < candidates.size(); ++i) {
      const int count =
          round < 2 ? 1 : static_cast<int>(std::clamp(round_milliseconds / best[i], 1.0f, 20.0f));
      const float each = trial.measure(candidates[i].algo, count);
      if (round > 0) best[i] = std::min(best[i], each);
    }
  const size_t winner = static_cast<size_t>(std::min_element(best.begin(), best.end()) - best.begin());
  return best[winner] < 0.98f * best[0] ? winner : 0;
}

/// The choices of one kind of GPU, with these versions of driver and library.
ChoiceFile& file_for(int device) {
  static std::mutex mutex;
  static auto* files = new std::map<int, ChoiceFile>;
  const std::lock_guard lock(mutex);
  if (const auto known = files->find(device); known != files->end()) return known->second;
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, device), "cudaGetDeviceProperties");
  int driver = 0;
  check(cudaDriverGetVersion(&driver), "cudaDriverGetVersion");
  std::string gpu = properties.name;
  std::filesystem::path path = gemm_choices_file();
  if (!path.empty()) {
    std::string plain = gpu;
    for (char& letter : plain)
      if (!std::isalnum(static_cast<unsigned char>(letter))) letter = '_';
    path.replace_filename("cublaslt_" + plain + ".txt");
  }
  std::string header = fmt::format(
      "cuBLASLt algorithms; {}, {} multiprocessors, {}.{}; cuBLASLt {}; driver {}", gpu,
      properties.multiProcessorCount, properties.major, properties.minor, cublasLtGetVersion(), driver);
  std::replace(header.begin(), header.end(), '\n', ' ');
  return files->try_emplace(device, std::move(path), std::move(header)).first->second;
}

std::string text_of(const cublasLtMatmulAlgo_t& algorithm) {
  std::string text;
  for (const auto word : algorithm.data) text += fmt::format("{:016x}", uint64_t{word});
  return text;
}
/// Nothing if it is no algorithm that can do it.
std::optional<cublasLtMatmulAlgo_t> parse(const std::string& text, const LtRecipe& recipe,
                                          const LtOperation& operation) {
  cublasLtMatmulAlgo_t algorithm{};
  constexpr size_t digits = 16;
  if (text.size() != std::size(algorithm.data) * digits) return std::nullopt;
  for (size_t i = 0; i < std::size(algorithm.data); ++i) {
    const char *begin = text.data() + i * digits, *end = begin + digits;
    uint64_t word = 0;
    if (std::from_chars(begin, end, word, 16).ptr != end) return std::nullopt;
    algorithm.data[i] = word;
  }
  cublasLtMatmulHeuristicResult_t result{};
  const cublasStatus_t status =
      cublasLtMatmulAlgoCheck(lt_handle(), operation.get(), recipe.b.get(), recipe.a.get(), recipe.c.get(),
                              recipe.c.get(), &algorithm, &result);
  const bool can = status == CUBLAS_STATUS_SUCCESS && result.workspaceSize <= size_t{lt_workspace_bytes};
  return can ? std::optional(algorithm) : std::nullopt;
}

}  // namespace

bool has_measurement(const LtCase& c) { return file_for(c.device).find(c.str()).has_value(); }

std::optional<cublasLtMatmulAlgo_t> choose_algorithm(const LtCase& c, const LtRecipe& recipe,
                                                     const LtOperation& operation) {
  const auto first_suggestion = [&]() -> std::optional<cublasLtMatmulAlgo_t> {
    const Suggestions found = suggestions(c, recipe, operation, 1);
    return found.empty() ? std::nullopt : std::optional(found[0].algo);
  };
  if (!c.measured) return first_suggestion();
  ChoiceFile& file = file_for(c.device);
  const std::string key = c.str();
  const auto known = [&]() -> std::optional<cublasLtMatmulAlgo_t> {
    const auto text = file.find(key);
    return text ? parse(*text, recipe, operation) : std::nullopt;
  };
  if (const auto algorithm = known()) return algorithm;
  if (!may_tune()) return first_suggestion();  // what the file has cannot be used
  const Suggestions found = suggestions(c, recipe, operation, 8);
  if (found.empty()) return std::nullopt;
  // Nothing else shall run meanwhile. No lock is held: this device may wait for one whose thread wants it.
  if (found.size() > 1) synchronize(gpu(c.device));
  static std::mutex one_at_a_time;  // or they would disturb each other
  const std::lock_guard lock(one_at_a_time);
  if (const auto algorithm = known()) return algorithm;  // another thread has measured it
  cublasLtMatmulAlgo_t algorithm = found[0].algo;
  try {
    if (found.size() > 1) algorithm = found[fastest(c, recipe, found)].algo;
  } catch (const OutOfMemory&) {  // of the trial, whose operands are beside the plan's
    return algorithm;
  }
  file.put(key, text_of(algorithm));
  return algorithm;
}

}  // namespace espalier::cu
