// Parameters: a scope in which functions find their parameters by name, or create them.
#pragma once
#include <any>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "espalier/nn/batch_norm.h"
#include "espalier/nn/cloned_parts.h"
#include "espalier/nn/convolution.h"
#include "espalier/nn/dense.h"
#include "espalier/nn/embedding.h"
#include "espalier/nn/layer_norm.h"

namespace espalier::nn {

/// A tree of names, shared by all that is written with it:
///
///     esp::nn::Parameters scope;
///     auto net = [&](const esp::Variable& x) {
///       return esp::nn::dense(scope["out"], esp::relu(esp::nn::dense(scope["hidden"], x, 200)), 10);
///     };
///
/// Each call of `net` uses the parameters "hidden.dense.weight", "out.dense.bias" …, which the first one
/// creates. A scope is a Module: it is saved, loaded, moved and frozen as a whole or by parts, and copies
/// share it.
class Parameters : public ModuleOf<Parameters> {
 public:
  Parameters();

  /// The scope of that name, new if there is none; dots separate names: scope["a.b"] is scope["a"]["b"].
  /// Throws Error for an empty name, or one that a layer has.
  Parameters operator[](std::string_view path) const;
  /// The parameter of that name, new with `initializer` if there is none. Throws ShapeError or TypeError if
  /// it has another shape or dtype, Error if the name is that of something else.
  Variable parameter(const std::string& name, const Shape& shape,
                     const Initializer& initializer = init::Zeros(), DType dtype = float32,
                     Where where = Where::current()) const;
  using Module::parameter;

  /// The layer of that name, by `make` if there is none, in the mode of this scope. `settings` tells layers
  /// of one type apart. Throws Error if the name is that of another layer, or one of other settings.
  template <class L, class Make>
  L layer(const std::string& name, const std::string& settings, Make&& make,
          Where where = Where::current()) const {
    if (const std::any* known = find(name, settings, typeid(L), where)) return std::any_cast<L>(*known);
    L made = make();
    keep(name, settings, made, made, cloned_layer<L>, where);
    return made;
  }

  /// For ClonedParts.
  Parameters with_parts(const ClonedParts& parts) const;

 private:
  struct Contents;
  using CloneLayer = std::any (*)(const std::any& layer, const ClonedParts& parts);
  template <class L>
  static std::any cloned_layer(const std::any& layer, const ClonedParts& parts) {
    return parts.of(std::any_cast<const L&>(layer));
  }
  const std::any* find(const std::string& name, const std::string& settings, const std::type_info& type,
                       const Where& where) const;
  void keep(const std::string& name, const std::string& settings, std::any layer, const Module& module,
            CloneLayer clone, const Where& where) const;

  std::shared_ptr<Contents> contents_;
};

// Layers as functions: their parameters are in the scope, by the name of the function. Shapes and errors are
// those of the layers; other sizes than in the first call throw Error.
Variable dense(const Parameters& scope, const Variable& x, int64_t out, const DenseOptions& options = {},
               Module::Where where = Module::Where::current());
/// Along all axes of `x` behind batch and channels: as Conv1d, Conv2d or Conv3d.
Variable convolution(const Parameters& scope, const Variable& x, int64_t out, const ConvOptions& options,
                     Module::Where where = Module::Where::current());
Variable embedding(const Parameters& scope, const Variable& indices, int64_t count, int64_t width,
                   const EmbeddingOptions& options = {}, Module::Where where = Module::Where::current());
Variable layer_norm(const Parameters& scope, const Variable& x, double epsilon = 1e-5,
                    Module::Where where = Module::Where::current());
/// In the mode of the scope: `scope.train(false)`.
Variable batch_norm(const Parameters& scope, const Variable& x, const BatchNormOptions& options = {},
                    Module::Where where = Module::Where::current());

}  // namespace espalier::nn
