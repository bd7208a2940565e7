#include "espalier/nn/dropout.h"

#include "espalier/nn/dropout_state.h"
#include "espalier/ops/ops.h"

namespace espalier::nn {

namespace {

struct DropoutState : DropoutStateOf<DropoutState> {
  static constexpr std::string_view kind = "Dropout";
  using DropoutStateOf::DropoutStateOf;
  static void check(const Variable&) {}
  static Variable drop(const Variable& x, double rate) { return dropout(x, rate); }
};

}  // namespace

Dropout::Dropout(double rate, Where where)
    : LayerOf(located(where, [&] { return std::make_shared<DropoutState>(rate); })) {}

}  // namespace espalier::nn
