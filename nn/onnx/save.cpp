#include "espalier/nn/onnx/save.h"

#include <fmt/format.h>

#include "espalier/core/files/file.h"
#include "espalier/core/open_sizes.h"
#include "espalier/core/tree.h"
#include "espalier/core/version.h"
#include "espalier/nn/onnx/errors.h"
#include "espalier/nn/onnx/graph_writer.h"

namespace espalier::onnx {

void save(const std::filesystem::path& file, const NamedVariables& inputs, const NamedVariables& outputs,
          const SaveOptions& options, std::source_location where) {
  const CallScope scope(where);
  located(where, [&] {
    with_prefix(fmt::format("'{}'", file.string()), [&] {
      if (outputs.empty()) throw Error("there are no outputs to write");
      std::vector<Variable> roots;
      for (const auto& [name, output] : outputs)
        if (output.defined()) roots.push_back(output);
      check_open_sizes(nodes_below(TreeWalk(roots)), "onnx::save");
      pb::ModelProto model;
      model.set_ir_version(9);
      model.set_producer_name("Espalier");
      auto& opset = *model.add_opset_import();
      opset.set_domain("");
      opset.set_version(20);
      model.mutable_graph()->set_name(file.stem().string());
      GraphWriter writer(*model.mutable_graph(), options);
      writer.add_inputs(inputs);
      writer.add_outputs(outputs);
      std::string bytes;
      if (model.ByteSizeLong() > size_t{INT32_MAX} || !model.SerializeToString(&bytes))
        throw UnsupportedError("the model has more than 2 GiB");
      AtomicFile out(file);
      out.write(bytes);
      out.commit();
    });
  });
}

}  // namespace espalier::onnx
