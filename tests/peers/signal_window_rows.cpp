// Windows of signals.
#include "bridge.h"

namespace peers {
namespace {

using namespace espalier;

int64_t count(const Case& c) { return c.integer("n"); }

SignalWindowOptions options(const Case& c) {
  return {.periodic = c.flag("periodic"), .dtype = c.dtype("dtype")};
}

}  // namespace

std::vector<Row> signal_window_rows() {
  return {
      {"hann_window", [](const Case& c) -> Outputs { return Variable(hann_window(count(c), options(c))); }},
      {"hamming_window",
       [](const Case& c) -> Outputs {
         return Variable(hamming_window(count(c), options(c), c.real("alpha")));
       }},
      {"blackman_window",
       [](const Case& c) -> Outputs { return Variable(blackman_window(count(c), options(c))); }},
  };
}

}  // namespace peers
