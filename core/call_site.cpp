#include "espalier/core/call_site.h"

#include <fmt/format.h>

namespace espalier {

namespace {

/// A name with its scopes: "a::b" of "std::vector<X> a::b(const X&) [with X = int]".
std::string_view name_in(std::string_view signature) {
  size_t begin = 0, end = 0;
  int depth = 0;  // of template arguments
  for (; end < signature.size(); ++end) {
    const char c = signature[end];
    depth += (c == '<') - (c == '>');
    if (depth > 0) continue;
    if (c == ' ') begin = end + 1;
    if (c != '(') continue;
    if (!signature.substr(0, end).ends_with("operator")) break;
    end += 1;  // operator()
  }
  return signature.substr(begin, end - begin);
}

bool take_prefix(std::string_view& text, std::string_view prefix) {
  const bool has = text.starts_with(prefix);
  if (has) text.remove_prefix(prefix.size());
  return has;
}

}  // namespace

std::string_view CallSite::called() const {
  if (!function) return {};
  const std::string_view text = function;
  if (text.find("anonymous") != std::string_view::npos) return {};
  std::string_view name = name_in(text);
  take_prefix(name, "espalier::");
  if (name.starts_with("internal::")) return {};
  take_prefix(name, "nn::");
  const size_t last = name.rfind("::");
  if (last == std::string_view::npos) return name;
  std::string_view scope = name.substr(0, last);
  const std::string_view member = name.substr(last + 2);
  if (scope.find('<') != std::string_view::npos) return {};  // of a template: its name is not the user's
  return member.starts_with("operator") || member == scope ? scope : name;
}

std::string CallSite::place(std::string_view message, std::string_view line) const {
  const std::string_view name = called();
  if (message.find(name) != std::string_view::npos) return fmt::format(" ({})", line);  // also of no name
  return fmt::format(" (in {}, {})", name, line);
}

}  // namespace espalier
