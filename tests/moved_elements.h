// Tests of ops that move the elements of one input: where each element of the result comes from.
#pragma once
#include <optional>

#include "testing.h"

namespace espalier::testing {

/// A result of one input: its shape, and which element of the input is where; nothing for zero.
struct MovedElements {
  std::string name;
  std::function<Variable(const Variable&)> op;
  Shape from, to;
  std::function<std::optional<Index>(const Index&)> source;
};

inline void check_moved(const std::vector<MovedElements>& rows) {
  for (const MovedElements& row : rows)
    check_op({.name = row.name,
              .op = [&](const Variables& x) { return row.op(x[0]); },
              .inputs = {numbers(row.from)},
              .reference =
                  [&](const std::vector<Array>& in) {
                    return Array(row.to, [&](const Index& i) {
                      const auto from = row.source(i);
                      return from ? in[0](*from) : 0.0;
                    });
                  }});
}

}  // namespace espalier::testing
