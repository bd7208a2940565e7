// Which anchors have an op of their own for epilogues.
#include <algorithm>
#include <array>
#include <string_view>

#include "espalier/executor/fused/matmul_ops.h"

namespace espalier {

namespace {

using Factory = OpPtr (*)(Epilogue);
template <class T>
OpPtr make(Epilogue epilogue) {
  return std::make_shared<T>(std::move(epilogue));
}

/// By the anchor's name; any other becomes an EpilogueOp.
constexpr std::array<std::pair<std::string_view, Factory>, 1> special{{{"matmul", make<MatmulEpilogue>}}};

}  // namespace

OpPtr with_epilogue(Epilogue epilogue) {
  const auto own = std::ranges::find(special, epilogue.anchor->name(), &decltype(special)::value_type::first);
  return own == special.end() ? make<EpilogueOp>(std::move(epilogue)) : own->second(std::move(epilogue));
}

}  // namespace espalier
