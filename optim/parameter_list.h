// ParameterList: some parameters of a network.
#pragma once
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "espalier/core/variable.h"

namespace espalier::optim {

/// Made from parameters, or from what `Module::parameters()` gives.
class ParameterList {
 public:
  ParameterList(const std::vector<std::pair<std::string, Variable>>& named) {
    for (const auto& [name, parameter] : named) parameters_.push_back(parameter);
  }
  ParameterList(std::vector<Variable> parameters) : parameters_(std::move(parameters)) {}
  ParameterList(std::initializer_list<Variable> parameters) : parameters_(parameters) {}

  const std::vector<Variable>& parameters() const { return parameters_; }
  bool empty() const { return parameters_.empty(); }
  bool contains(const Variable& parameter) const;
  /// Throws Error, naming `user`, unless all are parameters, and at least one.
  void check(std::string_view user) const;

 private:
  std::vector<Variable> parameters_;
};

}  // namespace espalier::optim
