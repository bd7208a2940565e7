#include "plan_ops.h"
#include "places.h"

#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <fstream>
#include <list>
#include <nlohmann/json.hpp>

#include "espalier/executor/training/plan_file/text.h"

namespace espalier::testing {

const std::vector<ListedOp>& listed_ops() {
  static std::list<nlohmann::json> texts;  // where the names of attributes lie
  static const std::vector<ListedOp> all = [] {
    const std::string path = std::string(places::figures) + "/plan_ops.txt";
    const InputFile file(path);
    const PlanText text(file);
    std::vector<ListedOp> list;
    std::ifstream in(path);
    for (std::string line; std::getline(in, line);) {
      if (line.starts_with('#')) continue;
      const size_t space = line.find(' ');
      texts.push_back(nlohmann::json::parse(line.substr(space)));
      list.push_back({line.substr(0, space), text.attributes(texts.back())});
    }
    return list;
  }();
  return all;
}

std::string line_of(std::string_view name, const Attributes& attributes) {
  return std::string(name) + " " + plan_text_of(attributes).dump();
}

void check_listed(const Op& op) {
  const Attributes attributes = op.attributes();
  const auto same_form = [&](const ListedOp& listed) {
    return listed.name == op.name() &&
           std::ranges::equal(listed.attributes, attributes, [](const auto& a, const auto& b) {
             return a.first == b.first && a.second.index() == b.second.index();
           });
  };
  BOOST_TEST(std::ranges::any_of(listed_ops(), same_form),
             "tests/figures/plan_ops.txt has no line as this one of today:\n"
                 << line_of(op.name(), attributes)
                 << "\nA new op gets one. If names or attributes have changed, plan files of users have the "
                    "old ones: "
                    "keep these readable and their line in the list, and add the new line.");
}

}  // namespace espalier::testing
