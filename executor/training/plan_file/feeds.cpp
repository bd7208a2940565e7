#include <fmt/format.h>

#include "espalier/executor/training/plan_file/plan_file.h"
#include "espalier/executor/training/plan_file/text.h"

namespace espalier {

Mode saved_mode(const PlanText& in, const nlohmann::json& text) {
  const std::string& mode = in.text(in.member(text, "mode"), "the mode");
  if (mode != "training" && mode != "inference") in.fail(fmt::format("has the mode '{}'", mode));
  return mode == "training" ? Mode::training : Mode::inference;
}

std::vector<SavedFeed> saved_feeds(const PlanText& in, const nlohmann::json& text) {
  std::vector<SavedFeed> feeds;
  for (const nlohmann::json& json : in.list(text, "the list of feeds")) {
    SavedFeed feed{in.text(in.member(json, "name"), "the name of a feed"),
                   in.flag(in.member(json, "placeholder"), "a placeholder"),
                   {},
                   {}};
    for (const nlohmann::json& output : in.list(in.member(json, "outputs"), "the outputs of a feed")) {
      feed.specs.push_back(in.spec(in.member(output, "spec"), "the spec of a feed", -1));
      feed.columns.push_back(in.text(in.member(output, "name"), "the name of an output"));
      if (!feed.placeholder && feed.specs.back().shape.rank() == 0) in.fail("has a feed without rows");
    }
    if (feed.specs.empty() || (feed.placeholder && feed.specs.size() != 1))
      in.fail("has a feed without outputs, or a placeholder with several");
    feeds.push_back(std::move(feed));
  }
  return feeds;
}

}  // namespace espalier
