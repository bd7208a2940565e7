// Which library computes which product: measured once on a machine, and kept in a file.
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

/// The library of one product.
struct GemmChoice {
  Gemm gemm;  ///< without its leading dimensions, which do not matter
  int threads;
  GemmLibrary library;
};

class GemmChoices {
 public:
  /// Keeps what it measures in such a ChoiceFile.
  GemmChoices(std::filesystem::path file, std::string header);

  /// The library that was measured to be faster for this product.
  std::optional<GemmLibrary> find(const Gemm& gemm) { return find(gemm, num_threads()); }
  /// The same for a thread that may use so many.
  std::optional<GemmLibrary> find(const Gemm& gemm, int threads);
  /// Whether `measure` on such a thread gives, or may give, a primitive.
  bool may_be_primitive(const Gemm& gemm, int threads);
  /// That, or a fair guess if it was not measured.
  GemmLibrary find_or_guess(const Gemm& gemm);
  /// Measures all libraries, if that was not done before (some milliseconds).
  GemmLibrary measure(const Gemm& gemm);
  /// All of this process. The libraries round differently, so that a run comes out bit by bit as another did
  /// only if the choices are the same.
  std::vector<GemmChoice> all();
  /// Makes these choices, whatever was measured for the same products. The file stays as it is. Returns
  /// whether anything changed.
  bool set(const std::vector<GemmChoice>& choices);
  /// How often it really measured.
  int64_t measurements() const { return measurements_.load(); }

 private:
  // Type, transposes, m, n, k, threads, and what follows.
  using Key = std::tuple<DType, bool, bool, int64_t, int64_t, int64_t, int, GemmEpilogue>;
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

/// Those of this process, in the file and with the header below.
GemmChoices& gemm_choices();
/// In cache_folder(); empty if there is none.
std::filesystem::path gemm_choices_file();
/// Espalier, processor, vector level and libraries.
std::string gemm_choices_header();

}  // namespace espalier
