#include <filesystem>

#include "espalier/core/error.h"
#include "espalier/executor/load.h"
#include "espalier/executor/training/plan_file/container.h"
#include "espalier/executor/training/plan_file/plan_file.h"
#include "espalier/executor/training/plan_file/text.h"

namespace espalier {

namespace {

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
  const auto last = static_cast<int64_t>(container.tensors.size()) - 1;
  for (const auto& node : in.list(in.member(container.text, "nodes"), "the list of nodes")) {
    if (!node.is_object()) in.fail("has a node that is no object");
    if (node.contains("op")) {
      ++info.operations[in.text(node["op"], "the name of an op")];
    } else if (node.contains("leaf")) {
      const Tensor& value =
          container.tensors[static_cast<size_t>(in.integer(in.member(node, "tensor"), "a tensor", 0, last))];
      const std::string name = node.contains("name") ? in.text(node["name"], "the name of a leaf") : "";
      info.leaves.push_back(
          {in.text(node["leaf"], "the kind of a leaf"), {name, value.dtype(), value.shape()}});
    }
  }
  return info;
}

}  // namespace

PlanFileInfo plan_file_info(const std::filesystem::path& path, std::source_location where) {
  return located(where, [&] { return info_of(path); });
}

}  // namespace espalier
