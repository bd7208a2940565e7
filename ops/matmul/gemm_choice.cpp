#include "espalier/ops/matmul/gemm_choice.h"

#include <cblas.h>
#include <fmt/format.h>
#ifdef __x86_64__
#include <cpuid.h>
#endif

#include <algorithm>
#include <array>
#include <cstring>
#include <sstream>

#include "espalier/core/cpu/vectorize.h"
#include "espalier/core/error.h"
#include "espalier/core/files/file.h"
#include "espalier/core/stopwatch.h"
#include "espalier/core/tensor.h"
#include "espalier/ops/matmul/gemm_primitive.h"
#include "espalier/ops/matmul/onednn_gemm.h"
#include "espalier/ops/matmul/tuning.h"
#include "espalier/ops/pointwise.h"

namespace espalier {

namespace {

constexpr std::array libraries = {GemmLibrary::openblas, GemmLibrary::onednn, GemmLibrary::onednn_matmul,
                                  GemmLibrary::onednn_packed, GemmLibrary::onednn_inner};
/// A packed operand needs its memory twice. It is chosen only if other libraries take `worth_packing` times
/// as long, where packing is counted in each tenth call (`share_of_packing`), since leaves may change.
constexpr double worth_packing = 1.05, share_of_packing = 0.1;
constexpr std::array<std::string_view, 4> epilogues = {"", "bias", "bias_relu", "accumulate"};

template <class Work>
double seconds(const Work& work) {
  const Stopwatch watch;
  work();
  return watch.seconds();
}

/// What stands in for a kernel that follows the product.
void run_epilogue(const Gemm& gemm, float* c, const float* bias) {
  parallel_for(gemm.m, std::max<int64_t>(1, detail::grain / gemm.n), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      float* row = c + r * gemm.n;
      detail::binary_row<scalar::Add, float, float>(gemm.n, row, row, 1, bias, 1);
      if (gemm.epilogue == GemmEpilogue::bias_relu)
        detail::unary_row<scalar::Relu, float, float>(gemm.n, row, row, 1);
    }
  });
}

/// Each call of a primitive makes some small objects inside oneDNN: not worth it for a few operations.
bool worth_a_primitive(const Gemm& gemm) {
  const double operations = 2.0 * static_cast<double>(gemm.m * gemm.n) * static_cast<double>(gemm.k);
  return !gemm.one_thread && operations > 1e6;
}

/// Products of a batch are many, which is why they are not small.
bool takes_ready_code(const Gemm& gemm) { return runs_once() && !gemm.one_thread && on_one_thread(gemm); }

GemmLibrary faster_library(const Gemm& gemm) {
  const Tensor a = zeros({gemm.transpose_a ? gemm.k : gemm.m, gemm.lda});
  const Tensor b = zeros({gemm.transpose_b ? gemm.n : gemm.k, gemm.ldb});
  const Tensor c = zeros({gemm.m, gemm.ldc}), bias = zeros({gemm.n});
  std::array<std::optional<GemmPrimitive>, libraries.size()> primitives;
  int64_t scratch_bytes = 0, packed_bytes = 0;
  for (const GemmLibrary library : libraries)
    if (packs(library) ? gemm.keeps_b : library == GemmLibrary::onednn_matmul && worth_a_primitive(gemm))
      try {
        auto& made = primitives[static_cast<size_t>(library)].emplace(gemm, library);
        scratch_bytes = std::max(scratch_bytes, made.scratch_bytes());
        if (packs(library)) packed_bytes = std::max(packed_bytes, made.packed_bytes());
      } catch (const UnsupportedError&) {  // then it is one of the others
      }
  const Tensor scratch({scratch_bytes}, DType::boolean), packed = zeros({packed_bytes}, DType::boolean);
  const bool adds = gemm.epilogue == GemmEpilogue::accumulate;
  const Tensor sum = adds ? zeros({gemm.m, gemm.n}) : Tensor();
  const auto run = [&](GemmLibrary library) {
    if (auto& primitive = primitives[static_cast<size_t>(library)]) {
      const GemmThreads threads(gemm);
      primitive->run(a.address(), packs(library) ? packed.address() : b.address(), bias.address(),
                     c.address(), scratch.address());
      if (adds) add_scaled(c, -0.01, sum);
      return;
    }
    Gemm plain = gemm;
    if (adds) plain.alpha = -0.01, plain.beta = 1;
    run_gemm(plain, a.address(), b.address(), c.address(), library);
    if (!adds && gemm.epilogue != GemmEpilogue::none)
      run_epilogue(gemm, static_cast<float*>(c.address()), static_cast<const float*>(bias.address()));
  };
  // In turns, so that a disturbance hits all; the best of each, since noise only adds.
  std::array<double, libraries.size()> best;
  best.fill(1e9);
  double spent = 0;
  for (int round = 0; round < 14 && (round < 8 || spent < 20e-3); ++round)
    for (const GemmLibrary library : libraries) {
      if (library >= GemmLibrary::onednn_matmul && !primitives[static_cast<size_t>(library)]) continue;
      const double t = seconds([&] { run(library); });
      spent += t;
      if (round > 0) best[static_cast<size_t>(library)] = std::min(best[static_cast<size_t>(library)], t);
    }
  for (const GemmLibrary library : libraries)
    if (auto& primitive = primitives[static_cast<size_t>(library)]; primitive && packs(library)) {
      const GemmThreads threads(gemm);
      double packing = 1e9;
      for (int i = 0; i < 3; ++i)
        packing = std::min(packing, seconds([&] { primitive->pack(b.address(), packed.address()); }));
      double& all = best[static_cast<size_t>(library)];
      all = (all + share_of_packing * packing) * worth_packing;
    }
  return libraries[static_cast<size_t>(std::min_element(best.begin(), best.end()) - best.begin())];
}

/// As the processor calls itself.
std::string processor() {
  std::string text;
#ifdef __x86_64__
  for (unsigned leaf = 0x80000002; leaf <= 0x80000004; ++leaf) {
    unsigned words[4];
    if (!__get_cpuid(leaf, &words[0], &words[1], &words[2], &words[3])) return "unknown";
    text.append(reinterpret_cast<const char*>(words), sizeof words);
  }
  text.resize(std::strlen(text.c_str()));
#endif
  return text.empty() ? "unknown" : text;
}

}  // namespace

bool may_pack(const Gemm& gemm) {
  return has_onednn() && gemm.dtype == DType::float32 && worth_a_primitive(gemm) && !runs_once();
}

void add_scaled(const Tensor& x, double scale, const Tensor& out) {
  const auto* from = static_cast<const float*>(x.address());
  auto* to = static_cast<float*>(const_cast<void*>(out.address()));
  const auto factor = static_cast<float>(scale);
  parallel_for(x.elements(), detail::grain, [=](int64_t begin, int64_t end) {
    vectorized([=]() __attribute__((always_inline)) {
#pragma GCC ivdep
      for (int64_t i = begin; i < end; ++i) to[i] += factor * from[i];
    });
  });
}

GemmChoices::GemmChoices(std::filesystem::path file, std::string header)
    : file_(std::move(file), std::move(header)) {}

GemmChoices::Key GemmChoices::key_of(const Gemm& g, int threads) {
  return {g.dtype,    g.transpose_a, g.transpose_b, g.m, g.n, g.k, on_one_thread(g) ? 1 : threads,
          g.epilogue, g.keeps_b};
}

std::optional<GemmLibrary> GemmChoices::find(const Gemm& gemm, int threads) {
  if (gemm.dtype == DType::float64 || !has_onednn()) return GemmLibrary::openblas;  // oneDNN has no float64
  const std::lock_guard lock(mutex_);
  if (!std::exchange(loaded_, true)) add_what_is_kept();
  const auto known = choices_.find(key_of(gemm, threads));
  return known == choices_.end() ? std::nullopt : std::optional(known->second);
}

bool GemmChoices::may_be_primitive(const Gemm& gemm, int threads) {
  if (takes_ready_code(gemm)) return false;
  const std::optional<GemmLibrary> known = find(gemm, threads);
  return known ? *known == GemmLibrary::onednn_matmul : worth_a_primitive(gemm);
}

GemmLibrary GemmChoices::find_or_guess(const Gemm& gemm) {
  if (takes_ready_code(gemm)) return ready_library();
  if (const auto known = find(gemm)) return *known;
  if (!gemm.keeps_b) return GemmLibrary::onednn;
  Gemm plain = gemm;
  plain.keeps_b = false;
  return find_or_guess(plain);
}

GemmLibrary GemmChoices::measure(const Gemm& gemm) {
  if (!may_tune()) return find_or_guess(gemm);
  if (const auto known = find(gemm)) return *known;
  ++measurements_;
  GemmLibrary choice = faster_library(gemm);
  const Key key = key_of(gemm, num_threads());
  {
    const std::lock_guard lock(mutex_);
    choice = choices_.try_emplace(key, choice).first->second;
  }
  file_.put(text_of(key), std::string(espalier::name(choice)));
  const std::lock_guard lock(mutex_);
  add_what_is_kept();  // other processes may have added to it
  return choice;
}

std::vector<GemmChoice> GemmChoices::all() {
  const std::lock_guard lock(mutex_);
  std::vector<GemmChoice> list;
  for (const auto& [key, library] : choices_) {
    const auto& [dtype, ta, tb, m, n, k, threads, epilogue, keeps_b] = key;
    GemmChoice choice{{dtype, ta, tb, m, n, k, 0, 0, 0}, threads, library};
    choice.gemm.epilogue = epilogue;
    choice.gemm.keeps_b = keeps_b;
    list.push_back(choice);
  }
  return list;
}

bool GemmChoices::set(const std::vector<GemmChoice>& choices) {
  const std::lock_guard lock(mutex_);
  bool changed = false;
  for (const auto& [g, threads, library] : choices) {
    const Key key{g.dtype, g.transpose_a, g.transpose_b, g.m, g.n, g.k, threads, g.epilogue, g.keeps_b};
    const auto [known, fresh] = choices_.try_emplace(key, library);
    changed |= fresh || known->second != library;
    known->second = library;
  }
  return changed;
}

/// "float32 n t 256 1000 100 4", and with what is done to the product and to b
/// "float32 n t 256 1000 100 4 bias_relu kept".
std::string GemmChoices::text_of(const Key& key) {
  const auto& [dtype, ta, tb, m, n, k, threads, epilogue, keeps_b] = key;
  const std::string_view then = epilogues[static_cast<size_t>(epilogue)];
  return fmt::format("{} {} {} {} {} {} {}{}{}{}", espalier::name(dtype), ta ? 't' : 'n', tb ? 't' : 'n', m,
                     n, k, threads, then.empty() ? "" : " ", then, keeps_b ? " kept" : "");
}

std::optional<GemmChoices::Key> GemmChoices::parse(const std::string& text) {
  std::istringstream in{text};
  std::string dtype, ta, tb;
  int64_t m, n, k;
  int threads;
  if (!(in >> dtype >> ta >> tb >> m >> n >> k >> threads)) return std::nullopt;
  for (size_t e = 0; e < epilogues.size(); ++e)
    for (const bool keeps_b : {false, true}) {
      const Key key{DType::float32, ta == "t", tb == "t", m, n, k, threads, static_cast<GemmEpilogue>(e),
                    keeps_b};
      if (text_of(key) == text) return key;  // nothing else, and nothing missing
    }
  return std::nullopt;
}

/// What is chosen already stays as it is.
void GemmChoices::add_what_is_kept() {
  for (const auto& [text, choice] : file_.all())
    for (const GemmLibrary library : libraries)
      if (const auto key = parse(text);
          key && choice == espalier::name(library) && (!packs(library) || std::get<8>(*key)))
        choices_.emplace(*key, library);
}

GemmChoices& gemm_choices() {
  static auto* choices = new GemmChoices(gemm_choices_file(), gemm_choices_header());
  return *choices;
}

std::filesystem::path gemm_choices_file() {
  const std::filesystem::path folder = cache_folder();
  return folder.empty() ? folder : folder / "gemm_choices.txt";
}

std::string gemm_choices_header() {
  constexpr const char* levels[] = {"baseline", "avx2", "avx512"};
  std::string header =
      fmt::format("Espalier {}, five libraries, sums, checked; {}; {}; {}; {}", ESPALIER_VERSION, processor(),
                  levels[static_cast<int>(vector_level())], openblas_get_config(), onednn_version());
  std::replace(header.begin(), header.end(), '\n', ' ');
  return header;
}

}  // namespace espalier
