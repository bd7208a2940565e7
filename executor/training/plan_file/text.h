// The text of a plan file, of which nothing is believed before it is checked.
#pragma once
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "espalier/core/files/file.h"
#include "espalier/core/op.h"
#include "espalier/core/shape.h"

namespace espalier {

/// Takes values out of the text. Each function throws FileError, naming the file and `what`, unless the value
/// is of that kind and within its range.
class PlanText {
 public:
  using Json = nlohmann::json;
  explicit PlanText(const InputFile& file) : file_(file) {}

  /// The text as an object. It must not be nested deeply.
  Json parse(std::string_view text) const;

  const Json& member(const Json& object, const char* name) const;
  bool flag(const Json& json, std::string_view what) const;
  int64_t integer(const Json& json, std::string_view what, int64_t least, int64_t most) const;
  const std::string& text(const Json& json, std::string_view what) const;
  const Json& list(const Json& json, std::string_view what) const;
  const Json& array(const Json& json, std::string_view what, size_t size) const;
  /// Sizes of at least `least`, whose product fits 64 bits.
  Shape shape(const Json& json, std::string_view what, int64_t least) const;
  /// The spec of [dtype, sizes].
  Spec spec(const Json& json, std::string_view what, int64_t least) const;
  /// A double, of which the text has the bits.
  double real(const Json& json, std::string_view what) const;
  /// The attributes of an op, whose names lie in `json`.
  Attributes attributes(const Json& json) const;

  [[noreturn]] void fail(const std::string& reason) const { file_.fail(reason); }

 private:
  [[noreturn]] void wrong(const Json& json, std::string_view what) const;
  const InputFile& file_;
};

/// As the functions above read them.
nlohmann::json plan_text_of(const Spec& spec);
nlohmann::json plan_text_of(double real);
nlohmann::json plan_text_of(const Attributes& attributes);

}  // namespace espalier
