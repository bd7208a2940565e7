#include "espalier/executor/collective.h"

#include <fmt/format.h>

#include <algorithm>

#include "espalier/core/crc64.h"

namespace espalier {
namespace {

std::string_view name(Collective::Kind kind) {
  switch (kind) {
    case Collective::Kind::all_reduce: return "all_reduce";
    case Collective::Kind::all_reduce_weighted: return "all_reduce_weighted";
    case Collective::Kind::reduce_scatter: return "reduce_scatter";
    case Collective::Kind::all_gather: return "all_gather";
    case Collective::Kind::reduce_parts: return "reduce_parts";
    case Collective::Kind::gather_parts: return "gather_parts";
    case Collective::Kind::broadcast: return "broadcast";
    case Collective::Kind::barrier: return "barrier";
  }
  return "";
}

// Those of large jobs would leave no room for the line of the call.
constexpr size_t most_numbers = 8;

template <class T>
std::string str_of(const std::vector<T>& numbers) {
  std::string text;
  for (size_t i = 0; i < std::min(numbers.size(), most_numbers); ++i)
    text += fmt::format("{}{}", i ? ", " : "", numbers[i]);
  if (numbers.size() > most_numbers) text += fmt::format(", ... {} in all", numbers.size());
  return text;
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
  return kind == other.kind && reduction == other.reduction && root == other.root && spec == other.spec &&
         weights == other.weights && bounds == other.bounds && whole == other.whole;
}

uint64_t Collective::hash() const {
  Crc64 crc;
  const auto add = [&](int64_t number) { crc.add(&number, sizeof(number)); };
  for (const int64_t number : {static_cast<int64_t>(kind), static_cast<int64_t>(reduction),
                               static_cast<int64_t>(root), static_cast<int64_t>(spec.dtype),
                               static_cast<int64_t>(spec.shape.rank()), static_cast<int64_t>(whole)})
    add(number);
  for (const int64_t size : spec.shape) add(size);
  for (const double weight : weights) {
    const double positive = weight + 0.0;  // -0 and 0 are equal
    crc.add(&positive, sizeof(positive));
  }
  for (const int64_t bound : bounds) add(bound);
  return crc.value();
}

std::string Collective::str() const {
  if (!whole_text.empty()) return whole_text;
  std::string text(name(kind));
  if (reduction != Reduction::sum) text += fmt::format(" ({})", espalier::name(reduction));
  if (!weights.empty()) text += fmt::format(" by {}", str_of(weights));
  if (kind != Kind::barrier) text += fmt::format(" of {} {}", espalier::name(spec.dtype), spec.shape.str());
  if (!bounds.empty()) text += fmt::format(" cut at {}", str_of(bounds));
  if (kind == Kind::broadcast) text += fmt::format(" from rank {}", root);
  return text + fmt::format(" ({}:{})", where.file_name(), where.line());
}

}  // namespace espalier
