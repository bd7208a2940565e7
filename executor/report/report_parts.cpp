#include "espalier/executor/report/report_parts.h"

#include <array>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace espalier::report {

namespace {

/// The bytes of the UTF-8 character that begins here; 0 if it is invalid or forbidden in HTML.
size_t character(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  if (first < 0x80) return first >= 0x20 && first != 0x7f ? 1 : first == '\n' || first == '\t';
  const size_t length = first < 0xc2 ? 0 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : first < 0xf5 ? 4 : 0;
  if (length == 0 || text.size() < length) return 0;
  uint32_t code = first & (0x7fu >> length);
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
    code = code << 6 | (byte(i) & 0x3f);
  }
  constexpr std::array<uint32_t, 5> least{0, 0, 0x80, 0x800, 0x10000};
  const bool control = code < 0xa0, surrogate = code >= 0xd800 && code < 0xe000;
  return code < least[length] || code > 0x10ffff || control || surrogate ? 0 : length;
}

/// Lines of source files, each file read once. Very large files and other objects are not read.
class SourceFiles {
 public:
  std::string line(const std::source_location& where) {
    const std::vector<std::string>& lines = file(where.file_name());
    if (where.line() == 0 || where.line() > lines.size()) return {};
    std::string text = lines[where.line() - 1];
    text.erase(0, std::min(text.size(), text.find_first_not_of(" \t")));
    text.erase(text.find_last_not_of(" \t\r") + 1);
    constexpr size_t longest = 240;
    if (text.size() > longest) {
      size_t end = longest;
      while ((static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) --end;
      text = text.substr(0, end) + "…";
    }
    return text;
  }

 private:
  const std::vector<std::string>& file(const std::string& name) {
    const auto [known, is_new] = files_.try_emplace(name);
    if (!is_new) return known->second;
    const std::filesystem::path path = find(name);
    if (!is_readable(path)) return known->second;
    std::ifstream in(path, std::ios::binary);
    for (std::string text; std::getline(in, text);) known->second.push_back(text);
    return known->second;
  }

  /// A name may be relative to the compiler's working directory: often a folder above the program.
  static std::filesystem::path find(const std::filesystem::path& name) {
    std::error_code problem;
    if (name.is_absolute() || is_readable(name)) return name;
    std::filesystem::path folder = std::filesystem::read_symlink("/proc/self/exe", problem).parent_path();
    for (; folder.has_relative_path(); folder = folder.parent_path())
      if (const std::filesystem::path file = folder / name; is_readable(file)) return file;
    return name;
  }

  static bool is_readable(const std::filesystem::path& file) {
    std::error_code problem;
    constexpr uintmax_t largest = 16'000'000;
    return std::filesystem::is_regular_file(file, problem) &&
           std::filesystem::file_size(file, problem) <= largest;
  }
  std::map<std::string, std::vector<std::string>> files_;
};

}  // namespace

std::string escape(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size();) {
    const size_t length = character(text.substr(i));
    if (length == 0) {
      out += "\xef\xbf\xbd";
      ++i;
      continue;
    }
    switch (text[i]) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '"': out += "&quot;"; break;
      case '\'': out += "&#39;"; break;
      default: out += text.substr(i, length);
    }
    i += length;
  }
  return out;
}

std::string grouped(int64_t number) {
  const std::string digits = fmt::format("{}", number);
  std::string out;
  for (size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % 3 == 0) out += ',';
    out += digits[i];
  }
  return out;
}

namespace {

/// Three significant digits, and a matching unit.
template <size_t n>
std::string with_unit(double value, const std::array<const char*, n>& units) {
  size_t unit = 0;
  while (unit + 1 < n && value >= 999.5) {
    value /= 1000;
    ++unit;
  }
  const int decimals = value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
  return fmt::format("{:.{}f} {}", value, decimals, units[unit]);
}

}  // namespace

std::string bytes_text(int64_t bytes) {
  if (bytes < 1000) return fmt::format("{} B", bytes);
  return with_unit(static_cast<double>(bytes) / 1e3, std::array{"kB", "MB", "GB", "TB"});
}

std::string time_text(double seconds) { return with_unit(seconds * 1e6, std::array{"µs", "ms", "s"}); }

std::vector<std::string> source_texts(const std::vector<std::source_location>& places) {
  SourceFiles files;
  std::vector<std::string> texts;
  for (const std::source_location& where : places) texts.push_back(files.line(where));
  return texts;
}

std::string card(const std::string& value, std::string_view what, const std::string& exact) {
  return fmt::format("<div class=\"card\"{}><b>{}</b><span>{}</span></div>\n",
                     exact.empty() ? "" : fmt::format(" title=\"{}\"", exact), value, what);
}
std::string card_of_bytes(int64_t bytes, std::string_view what) {
  return card(bytes_text(bytes), what, grouped(bytes) + " bytes");
}

std::string page_html(const std::string& title, const std::vector<std::string_view>& sections,
                      const std::string& body) {
  std::string html = "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n";
  // The policy blocks external content, whatever names and source lines contain.
  html +=
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; "
      "script-src 'unsafe-inline'\">\n<meta name=\"viewport\" content=\"width=device-width\">\n";
  html += fmt::format("<title>{}</title>\n<style>\n{}</style></head>\n<body>\n<header><h1>{}</h1><nav>",
                      title, style, title);
  for (const std::string_view section : sections) html += fmt::format("<a href=\"#{0}\">{0}</a> ", section);
  html += "</nav></header>\n<main>\n" + body;
  return html + fmt::format("</main>\n<div id=\"tip\" hidden></div>\n<script>\n{}</script>\n</body></html>\n",
                            script);
}

Page::Page(const PlanData& p, const PlanTimes* t) : plan(p), times(t) {
  SourceFiles files;
  for (uint32_t i = 0; i < size(); ++i) {
    const GraphNode& n = node(i);
    std::string label(n.op->name());
    if (const std::string attributes = to_string(n.op->attributes()); !attributes.empty())
      label += fmt::format("({})", attributes);
    labels.push_back(label);
    sources.push_back(line_of(n.where));
    texts.push_back(files.line(n.where));
    std::string tip = fmt::format("%{} {}\n{}", i, label, shapes(i));
    if (const std::string from = inputs(i); !from.empty()) tip += "\nreads " + from;
    tip += fmt::format("\n{}", part(i));
    if (!how(i).empty() && how(i) != part(i)) tip += fmt::format(", {}", how(i));
    if (const std::string where = places(i); !where.empty()) tip += fmt::format(", at {}", where);
    if (const auto& workspace = plan.memory.workspaces[i])
      tip += fmt::format(", workspace @{}+{}", plan.memory.buffers[*workspace].offset,
                         plan.memory.buffers[*workspace].bytes);
    if (times && plan.memory.runs[i]) tip += fmt::format("\n{}", time_text(time(i)));
    tip += fmt::format("\n{}", sources[i]);
    if (!texts[i].empty()) tip += fmt::format("\n{}", texts[i]);
    tooltips.push_back(std::move(tip));
  }
}

std::string_view Page::part(uint32_t i) const {
  const GraphNode& n = node(i);
  if (n.is_constant()) return "constant";
  if (n.leaf.defined()) return "leaf";
  if (n.op->feed()) return "batch";
  return category(n.tag);
}

std::string_view Page::how(uint32_t i) const {
  if (plan.memory.runs[i]) return plan.memory.in_place[i] ? "in place" : "";
  if (node(i).op->is_view()) return "view";
  if (node(i).op->has_side_effects()) return "written already";
  return part(i);
}

std::string Page::shapes(uint32_t i) const {
  std::string text;
  for (const Spec& spec : node(i).outputs)
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", name(spec.dtype), spec.shape.str());
  return text;
}

std::string Page::inputs(uint32_t i) const {
  std::string text;
  for (const ValueRef& input : node(i).inputs) {
    if (!text.empty()) text += " ";
    text += input.output ? fmt::format("%{}.{}", input.node, input.output) : fmt::format("%{}", input.node);
  }
  return text;
}

std::string Page::places(uint32_t i) const {
  std::string text;
  for (const Place& place : plan.memory.places[i]) {
    if (!text.empty()) text += ", ";
    switch (place.in) {
      case Place::In::nowhere: text += "nowhere"; break;
      case Place::In::leaf: text += fmt::format("%{}", place.index); break;
      case Place::In::constant: text += "constant"; break;
      case Place::In::arena: {
        const ArenaBuffer& buffer = plan.memory.buffers[place.index];
        text += fmt::format("@{}+{}", buffer.offset, buffer.bytes);
      }
    }
  }
  return text;
}

}  // namespace espalier::report
