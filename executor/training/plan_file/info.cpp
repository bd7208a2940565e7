#include <filesystem>
#include <set>

#include "espalier/core/error.h"
#include "espalier/executor/load.h"
#include "espalier/executor/training/plan_file/container.h"
#include "espalier/executor/training/plan_file/plan_file.h"
#include "espalier/executor/training/plan_file/text.h"

namespace espalier {

namespace {

/// Counts the operations of a list of nodes, and lists its leaves, a constant of several lists once.
class NodesInfo {
 public:
  NodesInfo(const PlanText& in, const std::vector<Tensor>& tensors, PlanFileInfo& info)
      : in_(in), tensors_(tensors), info_(info) {}

  void add(const nlohmann::json& nodes) {
    for (const auto& node : in_.list(nodes, "the list of nodes")) {
      if (!node.is_object()) in_.fail("has a node that is no object");
      if (node.contains("op"))
        ++info_.operations[in_.text(node["op"], "the name of an op")];
      else if (node.contains("leaf"))
        add_leaf(node);
    }
  }

 private:
  void add_leaf(const nlohmann::json& node) {
    const auto last = static_cast<int64_t>(tensors_.size()) - 1;
    const auto tensor = static_cast<size_t>(in_.integer(in_.member(node, "tensor"), "a tensor", 0, last));
    if (!listed_.insert(tensor).second) return;
    const Tensor& value = tensors_[tensor];
    const std::string name = node.contains("name") ? in_.text(node["name"], "the name of a leaf") : "";
    info_.leaves.push_back(
        {in_.text(node["leaf"], "the kind of a leaf"), {name, value.dtype(), value.shape()}});
  }

  const PlanText& in_;
  const std::vector<Tensor>& tensors_;
  PlanFileInfo& info_;
  std::set<size_t> listed_;
};

PlanFileInfo info_of(const std::filesystem::path& path) {
  const PlanContainer container = read_plan_container(path);
  const InputFile file(path);
  const PlanText in(file);
  PlanFileInfo info;
  info.version = in.text(in.member(container.text, "espalier"), "a version");
  info.mode = saved_mode(in, container.text);
  info.bytes = static_cast<int64_t>(file.size());
  for (const SavedFeed& feed : saved_feeds(in, in.member(container.text, "feeds"))) {
    info.feeds.push_back({feed.name, feed.placeholder, {}});
    for (size_t i = 0; i < feed.specs.size(); ++i)
      info.feeds.back().columns.push_back({feed.columns[i], feed.specs[i].dtype, feed.specs[i].shape});
  }
  for (const auto& output : in.list(in.member(container.text, "outputs"), "the list of outputs"))
    info.outputs.push_back(in.text(in.member(output, "name"), "the name of an output"));
  NodesInfo nodes(in, container.tensors, info);
  nodes.add(in.member(container.text, "nodes"));
  if (container.text.contains("loops"))
    for (const auto& loop : in.list(container.text["loops"], "the list of loops"))
      nodes.add(in.member(loop, "nodes"));
  return info;
}

}  // namespace

PlanFileInfo plan_file_info(const std::filesystem::path& path, std::source_location where) {
  return located(where, [&] { return info_of(path); });
}

}  // namespace espalier
