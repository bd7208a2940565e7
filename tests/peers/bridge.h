// What the tables of operations read of a case, and what they return.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "espalier/espalier.h"

namespace peers {

namespace esp = espalier;
using Variables = std::vector<esp::Variable>;

/// The inputs and attributes of a case. Attributes are numbers, several of them, or words.
class Case {
 public:
  Case(Variables inputs, const char* attributes);

  const Variables& inputs() const { return inputs_; }
  const esp::Variable& operator[](size_t i) const { return inputs_.at(i); }
  /// An input that may be missing: undefined then.
  esp::Variable optional(size_t i) const { return i < inputs_.size() ? inputs_[i] : esp::Variable(); }
  bool has(const std::string& name) const { return attributes_.count(name) > 0; }
  const std::string& text(const std::string& name) const;
  bool flag(const std::string& name) const { return integer(name) != 0; }
  int64_t integer(const std::string& name) const { return std::stoll(text(name)); }
  double real(const std::string& name) const { return std::stod(text(name)); }
  std::vector<int64_t> integers(const std::string& name) const;
  std::vector<double> reals(const std::string& name) const;
  esp::Axes axes(const std::string& name = "axes") const { return esp::Axes(integers(name)); }
  esp::DType dtype(const std::string& name) const;
  esp::LossReduction reduction() const;

 private:
  Variables inputs_;
  std::map<std::string, std::string> attributes_;
};

/// The outputs of an operation.
struct Outputs : Variables {
  Outputs(const esp::Variable& one) : Variables{one} {}
  Outputs(Variables all) : Variables(std::move(all)) {}
  Outputs(std::initializer_list<esp::Variable> all) : Variables(all) {}
  Outputs(const esp::ValuesAndIndices& both) : Variables{both.values, both.indices} {}
};

using Function = Outputs (*)(const Case&);
using Unary = esp::Variable (*)(const esp::Operand&);
using Binary = esp::Variable (*)(const esp::Operand&, const esp::Operand&);

/// An operation under the name that the Python table has for it.
struct Row {
  std::string name;
  Function function = nullptr;
  Unary unary = nullptr;
  Binary binary = nullptr;

  Row(const char* n, Function f) : name(n), function(f) {}
  Row(const char* n, Unary f) : name(n), unary(f) {}
  Row(const char* n, Binary f) : name(n), binary(f) {}

  Outputs operator()(const Case& c) const {
    if (unary) return unary(c[0]);
    if (binary) return binary(c[0], c[1]);
    return function(c);
  }
};

std::vector<Row> attention_rows();
std::vector<Row> elementwise_rows();
std::vector<Row> axis_rows();
std::vector<Row> layout_rows();
std::vector<Row> matrix_rows();
std::vector<Row> loss_rows();
std::vector<Row> convolution_rows();
std::vector<Row> pooling_rows();
std::vector<Row> image_rows();
std::vector<Row> norm_rows();
std::vector<Row> place_rows();
std::vector<Row> recurrent_rows();
std::vector<Row> region_rows();
std::vector<Row> signal_window_rows();

}  // namespace peers
