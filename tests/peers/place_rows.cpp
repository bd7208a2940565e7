// Elements at places along several axes, at strides, and in reverse order.
#include "bridge.h"

namespace peers {

using namespace espalier;

std::vector<Row> place_rows() {
  return {
      {"gather_nd", [](const Case& c) -> Outputs { return gather_nd(c[0], c[1]); }},
      {"scatter_nd", [](const Case& c) -> Outputs { return scatter_nd(c[0], c[1], c[2]); }},
      {"scatter_nd_add", [](const Case& c) -> Outputs { return scatter_nd_add(c[0], c[1], c[2]); }},
      {"as_strided",
       [](const Case& c) -> Outputs {
         return as_strided(c[0], c.integers("shape"), c.integers("strides"), c.integer("offset"));
       }},
      {"reverse_sequence",
       [](const Case& c) -> Outputs {
         return reverse_sequence(c[0], c[1], c.integer("time_axis"), c.integer("batch_axis"));
       }},
  };
}

}  // namespace peers
