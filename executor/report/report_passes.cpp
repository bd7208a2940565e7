// The passes of a report: what each changed, and with a dump, where.
#include <algorithm>
#include <map>
#include <set>

#include "espalier/executor/report/report_parts.h"

namespace espalier::report {

namespace {

constexpr size_t most_cells = 16'000'000;  // of the table that aligns two texts
constexpr size_t nowhere = SIZE_MAX;

/// A line of Graph::str: "%7 = matmul %3 %6 : float32 [2, 3]". The numbers change whenever an earlier node is
/// removed, so lines are compared by the rest.
struct Line {
  std::string text, key;
  std::vector<int64_t> numbers;  ///< of the node, then of its inputs
};

std::vector<Line> lines_of(const std::string& text) {
  std::vector<Line> lines;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    Line line{text.substr(begin, end - begin), {}, {}};
    for (size_t i = 0; i < line.text.size(); ++i) {
      const bool token = line.text[i] == '%' && (i == 0 || line.text[i - 1] == ' ');
      line.key += line.text[i];
      if (!token) continue;
      int64_t number = 0;
      for (; i + 1 < line.text.size() && line.text[i + 1] >= '0' && line.text[i + 1] <= '9'; ++i)
        number = 10 * number + (line.text[i + 1] - '0');
      line.numbers.push_back(number);
    }
    lines.push_back(std::move(line));
    begin = end + 1;
  }
  return lines;
}

/// Maps each old line to its new one: a longest common subsequence by key.
std::vector<size_t> align(const std::vector<Line>& before, const std::vector<Line>& after) {
  std::vector<size_t> to(before.size(), nowhere);
  size_t head = 0, n = before.size(), m = after.size();
  while (head < n && head < m && before[head].key == after[head].key) {
    to[head] = head;
    ++head;
  }
  while (n > head && m > head && before[n - 1].key == after[m - 1].key) to[--n] = --m;
  const size_t rows = n - head, columns = m - head;
  if (rows == 0 || columns == 0 || rows > most_cells / columns) return to;
  std::vector<uint32_t> length((rows + 1) * (columns + 1), 0);
  const auto at = [&](size_t i, size_t j) -> uint32_t& { return length[i * (columns + 1) + j]; };
  for (size_t i = rows; i-- > 0;)
    for (size_t j = columns; j-- > 0;)
      at(i, j) = before[head + i].key == after[head + j].key ? at(i + 1, j + 1) + 1
                                                             : std::max(at(i + 1, j), at(i, j + 1));
  for (size_t i = 0, j = 0; i < rows && j < columns;)
    if (before[head + i].key == after[head + j].key)
      to[head + i++] = head + j++;
    else if (at(i + 1, j) >= at(i, j + 1))
      ++i;
    else
      ++j;
  return to;
}

std::string marked(const std::vector<Line>& lines, const std::vector<const char*>& kinds) {
  std::string html;
  for (size_t i = 0; i < lines.size(); ++i)
    html += *kinds[i] ? fmt::format("<span class=\"{}\">{}</span>\n", kinds[i], escape(lines[i].text))
                      : escape(lines[i].text) + "\n";
  return html;
}

std::string difference(const PassReport& pass) {
  const std::vector<Line> before = lines_of(pass.before), after = lines_of(pass.after);
  const std::vector<size_t> to = align(before, after);
  std::map<int64_t, int64_t> renumbered;
  for (size_t i = 0; i < before.size(); ++i)
    if (to[i] != nowhere && !before[i].numbers.empty() && before[i].text[0] == '%')
      renumbered[before[i].numbers[0]] = after[to[i]].numbers[0];
  std::vector<const char*> left(before.size(), "gone"), right(after.size(), "new");
  for (size_t i = 0; i < before.size(); ++i) {
    if (to[i] == nowhere) continue;
    bool same = before[i].numbers.size() == after[to[i]].numbers.size();
    for (size_t k = 0; same && k < before[i].numbers.size(); ++k) {
      const auto known = renumbered.find(before[i].numbers[k]);
      same = known != renumbered.end() && known->second == after[to[i]].numbers[k];
    }
    left[i] = right[to[i]] = same ? "" : "other";
  }
  const auto count = [](const std::vector<const char*>& kinds, std::string_view kind) {
    return std::count_if(kinds.begin(), kinds.end(), [&](const char* k) { return kind == k; });
  };
  return fmt::format(
      "<details><summary>{}: {} lines gone, {} new, {} that read something else</summary><div class=\"diff\">"
      "<div><h4>before</h4><pre>{}</pre></div><div><h4>after</h4><pre>{}</pre></div></div></details>\n",
      escape(pass.name), count(left, "gone"), count(right, "new"), count(left, "other"), marked(before, left),
      marked(after, right));
}

}  // namespace

std::string passes_table(const Page& page) {
  std::string html = "<section id=\"passes\"><h2>The passes</h2>\n";
  const std::vector<PassReport>& passes = page.plan.passes;
  if (passes.empty()) return html + "<p>No pass ran.</p></section>\n";
  int64_t most = 1;
  for (const PassReport& pass : passes) most = std::max({most, pass.nodes_before, pass.nodes_after});
  html +=
      "<div class=\"frame\"><table id=\"pass-table\"><thead><tr><th>pass</th><th class=\"number\">nodes "
      "before</th><th class=\"number\">after</th><th></th>"
      "<th class=\"number\">time</th><th></th></tr></thead><tbody>\n";
  for (const PassReport& pass : passes)
    html += fmt::format(
        "<tr{}><td>{}</td><td class=\"number\">{}</td><td class=\"number\">{}</td><td class=\"bar\">"
        "<span class=\"forward\" style=\"width:{:.1f}%\"></span></td><td "
        "class=\"number\">{}</td><td>{}</td></tr>\n",
        pass.changed ? "" : " class=\"unchanged\"", escape(pass.name), pass.nodes_before, pass.nodes_after,
        100.0 * static_cast<double>(pass.nodes_after) / static_cast<double>(most), time_text(pass.seconds),
        pass.changed ? "changed" : "unchanged");
  html += "</tbody></table></div>\n";
  bool dumped = false;
  for (const PassReport& pass : passes) {
    if (pass.before.empty()) continue;
    dumped = true;
    if (pass.changed) html += difference(pass);
  }
  if (!dumped)
    html +=
        "<p>With <code>get_executor({.dump = true})</code> the graph before and after each pass is shown "
        "here.</p>\n";
  return html + "</section>\n";
}

}  // namespace espalier::report
