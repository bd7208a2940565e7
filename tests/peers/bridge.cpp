// A C interface for Python: runs one operation on arrays that the caller keeps, eagerly or frozen, with
// derivatives.
#include "bridge.h"

#include <dlpack/dlpack.h>

#include <algorithm>
#include <cstring>
#include <sstream>

namespace peers {
namespace {

constexpr int32_t most_axes = 12;

/// An array of the caller, or of the results; of rank -1 if there is none. Strides count elements.
struct Array {
  void* data;
  int32_t dtype, rank;
  int64_t sizes[most_axes], strides[most_axes];
};

struct Request {
  const char *op, *attributes;
  Array *inputs, *cotangents, *directions;
  int32_t input_count, cotangent_count, direction_count, frozen;
};

std::map<std::string, Row> all_rows() {
  std::map<std::string, Row> all;
  for (const auto& rows : {elementwise_rows(), axis_rows(), layout_rows(), matrix_rows(), loss_rows(),
                           convolution_rows(), pooling_rows(), image_rows(), place_rows(), region_rows(),
                           signal_window_rows(), recurrent_rows(), attention_rows(), norm_rows()})
    for (const Row& row : rows) all.emplace(row.name, row);
  return all;
}

const std::map<std::string, Row>& table() {
  static const std::map<std::string, Row> rows = all_rows();
  return rows;
}

DLDataType dl_type(esp::DType dtype) {
  const auto bits = static_cast<uint8_t>(8 * esp::size_of(dtype));
  switch (dtype) {
    case esp::float32:
    case esp::float64:
    case esp::float16: return {kDLFloat, bits, 1};
    case esp::int8:
    case esp::int16:
    case esp::int32:
    case esp::int64: return {kDLInt, bits, 1};
    case esp::uint8: return {kDLUInt, bits, 1};
    case esp::boolean: return {6, bits, 1};  // kDLBool, which older versions of the header lack
    case esp::bfloat16: return {kDLBfloat, bits, 1};
  }
  return {};
}

/// The caller's elements, without a copy.
esp::Tensor as_tensor(Array& array) {
  auto* managed = new DLManagedTensor{};
  managed->dl_tensor = {array.data,  {kDLCPU, 0},   array.rank, dl_type(static_cast<esp::DType>(array.dtype)),
                        array.sizes, array.strides, 0};
  managed->deleter = [](DLManagedTensor* self) { delete self; };
  try {
    return esp::from_dlpack(managed);
  } catch (...) {
    delete managed;
    throw;
  }
}

/// The results of the last case, which the caller reads before the next one.
struct Results {
  std::vector<esp::Tensor> tensors;
  std::vector<Array> arrays;

  void add(const esp::Tensor& result) {
    const esp::Tensor& t = tensors.emplace_back(result.contiguous_copy());
    Array array{t.elements() ? t.address() : nullptr,
                static_cast<int32_t>(t.dtype()),
                static_cast<int32_t>(t.rank()),
                {},
                {}};
    std::copy(t.shape().begin(), t.shape().end(), array.sizes);
    arrays.push_back(array);
  }
  void add_none() { arrays.push_back({nullptr, 0, -1, {}, {}}); }
};

/// One step of a tree, of placeholders for the inputs or of leaves.
struct Tree {
  Variables inputs;
  esp::Feeds feeds;

  Tree(const Request& request) {
    for (int32_t i = 0; i < request.input_count; ++i) {
      const esp::Tensor value = as_tensor(request.inputs[i]);
      if (request.frozen) {
        const std::string name = "x" + std::to_string(i);
        inputs.push_back(esp::placeholder(name, value.shape(), value.dtype()));
        feeds.emplace_back(name, value);
      } else {
        inputs.push_back(esp::is_real(value.dtype()) ? esp::variable(value) : esp::Variable(value));
      }
    }
  }
  esp::Tensor value(const esp::Variable& v) const {
    if (feeds.empty()) return v.value();
    const esp::Executor executor = v.get_executor({.mode = esp::Mode::inference});
    // An executor takes the placeholders that its tree reads, and no other.
    for (esp::Feeds read = feeds;;) {
      try {
        return executor.run(read);
      } catch (const esp::DataError& e) {
        const auto unread = std::find_if(read.begin(), read.end(), [&](const auto& feed) {
          return std::strstr(e.what(), ("has no placeholder '" + feed.first + "'").c_str());
        });
        if (unread == read.end()) throw;
        read.erase(unread);
      }
    }
  }
};

bool unconnected(const esp::Error& e) { return std::strstr(e.what(), "is not made of the one asked for"); }

/// Adds the gradients of `of` with respect to the real inputs, and returns the sum of their products with
/// `directions`, if there are any.
esp::Variable add_gradients(const esp::Variable& of, const Tree& tree, Array* directions,
                            int32_t direction_count, Results& results) {
  esp::Variable sum;
  int32_t real = 0;
  for (const esp::Variable& x : tree.inputs) {
    if (!esp::is_real(x.dtype())) continue;
    const int32_t i = real++;
    esp::Variable gradient;
    try {
      if (of.defined()) gradient = of.gradient(x);
    } catch (const esp::Error& e) {
      if (!unconnected(e)) throw;
    }
    if (!gradient.defined()) {
      results.add_none();
      continue;
    }
    results.add(tree.value(gradient));
    if (i >= direction_count) continue;
    const esp::Variable product = esp::sum(gradient * as_tensor(directions[i]));
    sum = sum.defined() ? sum + product : product;
  }
  return sum;
}

void run(const Request& request, Results& results) {
  const auto row = table().find(request.op);
  if (row == table().end()) throw esp::Error(std::string("there is no operation ") + request.op);
  const Tree tree(request);
  const Outputs outputs = row->second(Case(tree.inputs, request.attributes));
  esp::Variable sum;
  int32_t real = 0;
  for (const esp::Variable& y : outputs) {
    results.add(tree.value(y));
    if (!esp::is_real(y.dtype()) || real >= request.cotangent_count) continue;
    const esp::Tensor cotangent = as_tensor(request.cotangents[real++]);
    if (cotangent.shape() != y.shape() || cotangent.dtype() != y.dtype()) return;  // the values differ, too
    const esp::Variable product = esp::sum(y * cotangent);
    sum = sum.defined() ? sum + product : product;
  }
  if (request.cotangent_count == 0) return;
  const esp::Variable second = add_gradients(sum, tree, request.directions, request.direction_count, results);
  if (request.direction_count > 0) add_gradients(second, tree, nullptr, 0, results);
}

std::string kind_of(const esp::Error& e) {
  if (dynamic_cast<const esp::ShapeError*>(&e)) return "ShapeError";
  if (dynamic_cast<const esp::TypeError*>(&e)) return "TypeError";
  if (dynamic_cast<const esp::IndexError*>(&e)) return "IndexError";
  if (dynamic_cast<const esp::LinAlgError*>(&e)) return "LinAlgError";
  if (dynamic_cast<const esp::UnsupportedError*>(&e)) return "UnsupportedError";
  return "Error";
}

std::string last_error;

}  // namespace

Case::Case(Variables inputs, const char* attributes) : inputs_(std::move(inputs)) {
  std::istringstream all(attributes);
  for (std::string each; std::getline(all, each, ';');) {
    const size_t end = each.find('=');
    attributes_.emplace(each.substr(0, end), each.substr(end + 1));
  }
}

const std::string& Case::text(const std::string& name) const {
  const auto found = attributes_.find(name);
  if (found == attributes_.end()) throw esp::Error("the case has no attribute " + name);
  return found->second;
}

std::vector<int64_t> Case::integers(const std::string& name) const {
  std::vector<int64_t> list;
  std::istringstream all(text(name));
  for (std::string each; std::getline(all, each, ',');) list.push_back(std::stoll(each));
  return list;
}

std::vector<double> Case::reals(const std::string& name) const {
  std::vector<double> list;
  std::istringstream all(text(name));
  for (std::string each; std::getline(all, each, ',');) list.push_back(std::stod(each));
  return list;
}

esp::DType Case::dtype(const std::string& attribute) const {
  for (const esp::DType d :
       {esp::float32, esp::float64, esp::int32, esp::int64, esp::boolean, esp::float16, esp::bfloat16})
    if (text(attribute) == esp::name(d)) return d;
  throw esp::Error("there is no dtype " + text(attribute));
}

esp::LossReduction Case::reduction() const {
  const std::string& name = text("reduction");
  if (name == "none") return esp::LossReduction::none;
  return name == "sum" ? esp::LossReduction::sum : esp::LossReduction::mean;
}

}  // namespace peers

extern "C" {

/// Runs a case; its results live until the next call. Returns their number, or -1 where an error was thrown.
__attribute__((visibility("default"))) int espalier_run(const peers::Request* request,
                                                        peers::Array** arrays) {
  static peers::Results results;
  results = {};
  try {
    peers::run(*request, results);
  } catch (const espalier::Error& e) {
    peers::last_error = peers::kind_of(e) + ": " + e.what();
    return -1;
  } catch (const std::exception& e) {
    peers::last_error = std::string("exception: ") + e.what();
    return -1;
  }
  *arrays = results.arrays.data();
  return static_cast<int>(results.arrays.size());
}

__attribute__((visibility("default"))) const char* espalier_error() { return peers::last_error.c_str(); }

/// The names of all operations of the tables, with spaces between them.
__attribute__((visibility("default"))) const char* espalier_names() {
  static const std::string names = [] {
    std::string all;
    for (const auto& [name, row] : peers::table()) all += name + " ";
    return all;
  }();
  return names.c_str();
}
}
