#include "espalier/executor/collective.h"

#include <fmt/format.h>

#include "espalier/core/crc64.h"

namespace espalier {
namespace {

std::string_view name(Collective::Kind kind) {
  switch (kind) {
    case Collective::Kind::all_reduce: return "all_reduce";
    case Collective::Kind::reduce_scatter: return "reduce_scatter";
    case Collective::Kind::all_gather: return "all_gather";
    case Collective::Kind::broadcast: return "broadcast";
    case Collective::Kind::barrier: return "barrier";
  }
  return "";
}

}  // namespace

std::string_view name(Reduction reduction) {
  switch (reduction) {
    case Reduction::sum: return "sum";
    case Reduction::mean: return "mean";
    case Reduction::max: return "max";
    case Reduction::min: return "min";
  }
  return "";
}

bool Collective::matches(const Collective& other) const {
  return kind == other.kind && reduction == other.reduction && root == other.root && spec == other.spec;
}

uint64_t Collective::hash() const {
  Crc64 crc;
  const auto add = [&](int64_t number) { crc.add(&number, sizeof(number)); };
  for (const int64_t number :
       {static_cast<int64_t>(kind), static_cast<int64_t>(reduction), static_cast<int64_t>(root),
        static_cast<int64_t>(spec.dtype), static_cast<int64_t>(spec.shape.rank())})
    add(number);
  for (const int64_t size : spec.shape) add(size);
  return crc.value();
}

std::string Collective::str() const {
  std::string text(name(kind));
  if (reduction != Reduction::sum) text += fmt::format(" ({})", espalier::name(reduction));
  if (kind != Kind::barrier) text += fmt::format(" of {} {}", espalier::name(spec.dtype), spec.shape.str());
  if (kind == Kind::broadcast) text += fmt::format(" from rank {}", root);
  return text + fmt::format(" ({}:{})", where.file_name(), where.line());
}

}  // namespace espalier
