// The choice of a library for each product: measured once on a machine, and kept in a file.
#pragma once
#include <atomic>
#include <filesystem>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "espalier/core/tensor.h"
#include "espalier/ops/matmul/choice_file.h"
#include "espalier/ops/matmul/gemm.h"

namespace espalier {

/// out += scale · x, for contiguous float32 tensors of one size.
void add_scaled(const Tensor& x, double scale, const Tensor& out);

/// Returns true if it may be worthwhile to pack b, where that is kept.
bool may_pack(const Gemm& gemm);

/// The library of one product.
struct GemmChoice {
  Gemm gemm;  ///< leading dimensions are not set
  int threads;
  GemmLibrary library;
};

class GemmChoices {
 public:
  /// Keeps its measurements in a ChoiceFile.
  GemmChoices(std::filesystem::path file, std::string header);

  /// The library that was measured to be fastest for this product, if it was measured.
  std::optional<GemmLibrary> find(const Gemm& gemm) { return find(gemm, num_threads()); }
  /// The same on a thread whose kernels use that many threads.
  std::optional<GemmLibrary> find(const Gemm& gemm, int threads);
  /// Returns true unless it is known that `measure` on such a thread does not choose a primitive.
  bool may_be_primitive(const Gemm& gemm, int threads);
  /// The measured library, or a heuristic choice: oneDNN, or where `runs_once` OpenBLAS for small products.
  GemmLibrary find_or_guess(const Gemm& gemm);
  /// Measures all libraries (some milliseconds) unless a measurement exists; guesses where `may_tune` is
  /// false.
  GemmLibrary measure(const Gemm& gemm);
  /// All choices of this process. Libraries round differently, so two runs have the same bits only if their
  /// choices are equal.
  std::vector<GemmChoice> all();
  /// Sets these choices, which override measurements. Does not write the file. Returns true if any choice
  /// changed.
  bool set(const std::vector<GemmChoice>& choices);
  /// The number of measurements so far.
  int64_t measurements() const { return measurements_.load(); }

 private:
  // Type, transposes, m, n, k, threads, epilogue, and whether b is kept.
  using Key = std::tuple<DType, bool, bool, int64_t, int64_t, int64_t, int, GemmEpilogue, bool>;
  static Key key_of(const Gemm& gemm, int threads);
  static std::string text_of(const Key& key);
  static std::optional<Key> parse(const std::string& text);
  void add_what_is_kept();

  ChoiceFile file_;
  std::mutex mutex_;
  std::map<Key, GemmLibrary> choices_;
  bool loaded_ = false;
  std::atomic<int64_t> measurements_{0};
};

/// The choices of this process, with the file and the header below.
GemmChoices& gemm_choices();
/// The file in cache_folder(); empty if there is no such folder.
std::filesystem::path gemm_choices_file();
/// The versions of Espalier and the libraries, the processor and its vector level.
std::string gemm_choices_header();

}  // namespace espalier
