#include "espalier/core/cpu/cast_row.h"

#include "espalier/core/cast_types.h"
#include "espalier/core/cpu/float16_rows.h"
#include "espalier/core/cpu/unary_row.h"
#include "espalier/core/scalar.h"

namespace espalier {

UnaryRow cast_row(DType from, DType to) {
  if (from == DType::float16 && to == DType::float32) return widen_float16_row;
  if (from == DType::float32 && to == DType::float16) return round_float16_row;
  return visit_stored(from, [&]<class From>(TypeTag<From>) {
    return visit_stored(to, []<class To>(TypeTag<To>) -> UnaryRow {
      using Types = CastTypes<To, From>;
      return detail::unary_row<scalar::Cast<typename Types::to>, typename Types::to, typename Types::from>;
    });
  });
}

bool has_number(DType dtype, double number) {
  uint64_t element = 0;
  double back = 0;
  cast_row(DType::float64, dtype)(1, &element, &number, 1);
  cast_row(dtype, DType::float64)(1, &back, &element, 1);
  return back == number;
}

}  // namespace espalier
