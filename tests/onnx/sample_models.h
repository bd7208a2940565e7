// The networks of samples/, for write_models.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "espalier/espalier.h"

namespace espalier::testing {

struct SampleModel {
  std::string name;
  Variable x, y;  ///< what is written, of a batch of 2
  Tensor value;   ///< for x, a batch of 3
  std::vector<std::pair<std::string, Variable>> parameters = {};
};

std::vector<SampleModel> sample_models();

}  // namespace espalier::testing
