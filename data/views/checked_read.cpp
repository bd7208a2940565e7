#include "espalier/data/views/checked_read.h"

#include <cxxabi.h>
#include <fmt/format.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <typeinfo>

#include "espalier/core/error.h"
#include "espalier/core/small_vector.h"
#include "espalier/data/end_of_data.h"

namespace espalier::data {

namespace {

std::string class_of(const Dataset& dataset) {
  const char* mangled = typeid(dataset).name();
  const std::unique_ptr<char, void (*)(void*)> plain(abi::__cxa_demangle(mangled, nullptr, nullptr, nullptr),
                                                     &std::free);
  return plain ? plain.get() : mangled;
}

/// Moves what a dataset left in place of an output, if it is another tensor, to the output.
void take_assigned(const Dataset& dataset, size_t column, const Tensor& left, const Tensor& output) {
  const bool shared = left.defined() && left.storage().get() == output.storage().get();
  const bool written = shared && left.address() == output.address() && left.contiguous() &&
                       left.dtype() == output.dtype() && left.elements() == output.elements();
  if (written) return;
  if (!left.defined() || left.spec() != output.spec())
    throw DataError(fmt::format(
        "read of the dataset {} assigned outputs[{}] {}, but {} {} was asked for: write the rows into it",
        class_of(dataset), column,
        left.defined() ? fmt::format("a tensor {} {}", name(left.dtype()), left.shape().str())
                       : "an undefined tensor",
        name(output.dtype()), output.shape().str()));
  Tensor to = output;
  copy_elements(shared ? left.clone() : left.to(cpu()), to);
}

template <class Read>
void read_guarded(const Dataset& dataset, std::span<const int64_t> rows, std::span<Tensor> outputs,
                  const Read& read) {
  SmallVector<Tensor, 4> room(outputs.begin(), outputs.end());
  read_all(rows, [&] { read(std::span<Tensor>(room.data(), room.size())); });
  for (size_t i = 0; i < outputs.size(); ++i) take_assigned(dataset, i, room[i], outputs[i]);
}

}  // namespace

void checked_read(const Dataset& dataset, const ReadContext& context, std::span<const int64_t> rows,
                  std::span<Tensor> outputs) {
  read_guarded(dataset, rows, outputs, [&](std::span<Tensor> to) { dataset.read_in(context, rows, to); });
}

void checked_read(const Dataset& dataset, std::span<const int64_t> rows, std::span<Tensor> outputs) {
  read_guarded(dataset, rows, outputs, [&](std::span<Tensor> to) { dataset.read(rows, to); });
}

}  // namespace espalier::data
