// The state of L-BFGS in a file.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "espalier/core/error.h"
#include "espalier/core/files/safetensors.h"
#include "espalier/optim/lbfgs_state.h"

namespace espalier::optim {

namespace {

constexpr const char* lbfgs_note = "optimizer";

/// Takes the tensors of a file by their names.
class LbfgsReader {
 public:
  LbfgsReader(const std::filesystem::path& file, int64_t elements, DType dtype, Device device)
      : file_(file.string()), elements_(elements), dtype_(dtype), device_(device) {
    FileNotes notes;
    tensors_ = read_safetensors(file, &notes, {});
    if (!notes.contains(lbfgs_note) || notes[lbfgs_note] != "Lbfgs")
      throw FileError(fmt::format("{} has no state of Lbfgs", file_));
  }
  const Tensor* find(const std::string& name) const {
    const auto found = std::ranges::find(tensors_, name, [](const auto& named) { return named.first; });
    return found == tensors_.end() ? nullptr : &found->second;
  }
  const Tensor& need(const std::string& name, const Spec& spec) const {
    const Tensor* tensor = find(name);
    if (!tensor) throw FileError(fmt::format("{} has no '{}'", file_, name));
    if (!(tensor->spec() == spec))
      throw FileError(fmt::format("{} has '{}' as {} {}, and the parameters need {} {}", file_, name,
                                  espalier::name(tensor->dtype()), tensor->shape().str(),
                                  espalier::name(spec.dtype), spec.shape.str()));
    return *tensor;
  }
  double number(const std::string& name) const {
    const double value = need(name, {float64, {}}).item();
    if (!std::isfinite(value)) throw FileError(fmt::format("{} has {} as '{}'", file_, value, name));
    return value;
  }
  Variable vector(const std::string& name) const {
    return Variable(need(name, {dtype_, {elements_}}).to(device_));
  }

 private:
  std::string file_;
  int64_t elements_;
  DType dtype_;
  Device device_;
  NamedTensors tensors_;
};

}  // namespace

void Lbfgs::save(const std::filesystem::path& file, std::source_location where) const {
  located(where, [&] {
    const Memory& m = *memory_;
    NamedTensors tensors;
    const auto number = [&](const std::string& name, double value) {
      tensors.emplace_back(name, full({}, value, float64));
    };
    const auto vector = [&](const std::string& name, const Variable& value) {
      tensors.emplace_back(name, value.value().to(cpu()));
    };
    number("iterations", static_cast<double>(m.iterations));
    number("evaluations", static_cast<double>(m.evaluations));
    number("length", m.length);
    number("curvature_scale", m.curvature_scale);
    number("lr", options_.lr);
    if (m.direction.defined()) {
      vector("direction", m.direction);
      vector("gradient", m.gradient);
    }
    for (size_t i = 0; i < m.pairs.size(); ++i) {
      vector(fmt::format("gradient_change.{}", i), m.pairs[i].gradient_change);
      vector(fmt::format("change.{}", i), m.pairs[i].change);
      number(fmt::format("inverse.{}", i), m.pairs[i].inverse);
    }
    write_safetensors(file, tensors, {{lbfgs_note, "Lbfgs"}}, {});
  });
}

void Lbfgs::load(const std::filesystem::path& file, std::source_location where) {
  located(where, [&] {
    int64_t elements = 0;
    DType dtype = float32;
    for (const Variable& p : parameters_) {
      elements += p.shape().elements();
      if (p.dtype() == float64) dtype = float64;
    }
    const LbfgsReader reader(file, elements, dtype, parameters_[0].device());
    auto memory = std::make_shared<Memory>();
    memory->iterations = static_cast<int64_t>(reader.number("iterations"));
    memory->evaluations = static_cast<int64_t>(reader.number("evaluations"));
    memory->length = reader.number("length");
    memory->curvature_scale = reader.number("curvature_scale");
    const double lr = reader.number("lr");
    if (reader.find("direction")) {
      memory->direction = reader.vector("direction");
      memory->gradient = reader.vector("gradient");
    }
    for (size_t i = 0; reader.find(fmt::format("change.{}", i)); ++i)
      memory->pairs.push_back({reader.vector(fmt::format("gradient_change.{}", i)),
                               reader.vector(fmt::format("change.{}", i)),
                               reader.number(fmt::format("inverse.{}", i))});
    set_learning_rate(lr, where);
    memory_ = std::move(memory);
  });
}

}  // namespace espalier::optim
