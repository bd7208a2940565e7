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
#include "espalier/ops/gemm.h"

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
  /// Keeps choices in that file, or in memory alone if the path is empty. A file with another header, which
  /// says what the choices depend on, and a damaged one are ignored, and replaced by the next measurement. A
  /// file that cannot be read or written is no error.
  GemmChoices(std::filesystem::path file, std::string header);

  /// The library that was measured to be faster for this product.
  std::optional<GemmLibrary> find(const Gemm& gemm);
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
  using Choices = std::map<Key, GemmLibrary>;
  static Key key_of(const Gemm& gemm);
  static std::string line(const Key& key, GemmLibrary library);
  static std::optional<std::pair<Key, GemmLibrary>> parse(std::string_view line);
  Choices read() const;
  void save();

  const std::filesystem::path file_;
  const std::string header_;
  std::mutex mutex_, file_mutex_;
  Choices choices_;
  bool loaded_ = false;
  bool writable_ = true;
  std::atomic<int64_t> measurements_{0};
};

/// Those of this process, in the file and with the header below.
GemmChoices& gemm_choices();
/// In cache_folder(); empty if there is none.
std::filesystem::path gemm_choices_file();
/// Espalier, processor, vector level and libraries.
std::string gemm_choices_header();

}  // namespace espalier
