// Leaves: where parameters, states and constants lie in a file of C.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "espalier/executor/c_export/program.h"

namespace espalier::c_export {

/// "const float name[3] = {1, 2, 3};"
std::string table_text(std::string_view linkage, std::string_view name, const Tensor& values);

/// Each leaf once, for all plans: those that a step writes lie side by side in an array for each type, the
/// others are tables.
class Leaves {
 public:
  Leaves(const std::vector<EntryPoint>& entries, const CodeOptions& options);

  /// The expression in C for a leaf's first element.
  const std::string& address(const Variable& leaf) const {
    return leaves_.at(places_.at(leaf.node())).address;
  }

  bool has_states() const { return state_bytes_ > 0; }
  int64_t state_bytes() const { return state_bytes_; }
  int64_t constant_bytes() const { return constant_bytes_; }
  /// The arrays of states, in the order in which they are saved: name, type and elements.
  struct StateArray {
    std::string name;
    DType dtype;
    int64_t elements = 0;
  };
  const std::vector<StateArray>& state_arrays() const { return arrays_; }
  /// A number that changes with the names, types and shapes of the states.
  uint32_t signature() const { return signature_; }
  /// Tables and arrays.
  std::string definitions() const;
  /// The lines that give states their values at the time of export.
  std::string initialization() const;
  /// The states' values, array by array.
  std::string state_values() const;
  /// The tables as a file of their own.
  const std::string& linked_tables() const { return linked_; }
  /// One line of a comment for each leaf.
  std::string listing() const;
  /// The addresses of the learning rates, which a program may set.
  std::vector<std::string> learning_rates() const;

 private:
  struct Leaf {
    Variable variable;
    std::string name = {}, address = {};
    std::source_location where;
    bool written = false, rate = false;
    size_t array = 0;
    int64_t offset = 0;
    Tensor value = {};
  };
  void add(const GraphNode& node, const std::vector<Variable>& rates);
  void place(const CodeOptions& options);

  std::vector<Leaf> leaves_;
  std::map<const Node*, size_t> places_;
  std::vector<StateArray> arrays_;
  std::string tables_, linked_, initialization_;
  int64_t state_bytes_ = 0, constant_bytes_ = 0;
  uint32_t signature_ = 2166136261u;
};

}  // namespace espalier::c_export
