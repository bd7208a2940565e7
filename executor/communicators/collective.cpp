#include "espalier/executor/communicators/collective.h"

#include <fmt/format.h>

#include <algorithm>

#include "espalier/core/files/crc64.h"

namespace espalier {
namespace {

// More would leave no room for the line of the call in a large job.
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

Collective::Range Collective::range(int rank) const {
  if (bounds.empty()) return {0, elements};
  const auto r = static_cast<size_t>(rank);
  return {bounds[r], bounds[r + 1] - bounds[r]};
}

bool Collective::equal_ranges() const {
  for (size_t r = 1; r < bounds.size(); ++r)
    if (bounds[r] != bounds[1] * static_cast<int64_t>(r)) return false;
  return !bounds.empty();
}

bool Collective::matches(const Collective& other) const {
  return name == other.name && reduction == other.reduction && root == other.root && spec == other.spec &&
         weights == other.weights && bounds == other.bounds && parent == other.parent;
}

uint64_t Collective::hash() const {
  Crc64 crc;
  const auto add = [&](int64_t number) { crc.add(&number, sizeof(number)); };
  crc.add(name.data(), name.size());
  for (const int64_t number :
       {static_cast<int64_t>(reduction), static_cast<int64_t>(root), static_cast<int64_t>(spec.dtype),
        static_cast<int64_t>(spec.shape.rank()), static_cast<int64_t>(parent)})
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
  if (!parent_text.empty()) return parent_text;
  std::string text(name);
  if (reduction != Reduction::sum) text += fmt::format(" ({})", espalier::name(reduction));
  if (!weights.empty()) text += fmt::format(" by {}", str_of(weights));
  if (kind != Kind::barrier) text += fmt::format(" of {} {}", espalier::name(spec.dtype), spec.shape.str());
  if (custom_bounds) text += fmt::format(" cut at {}", str_of(bounds));
  if (root >= 0) text += fmt::format(" from rank {}", root);
  const std::string line = fmt::format("{}:{}", where.file_name(), where.line());
  if (const std::string_view caller = where.called(); !caller.empty())
    return fmt::format("{} ({}; {})", caller, line, text);
  return fmt::format("{} ({})", text, line);
}

}  // namespace espalier
