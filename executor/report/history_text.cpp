// History as text: a table to read, and one for other programs (CSV).
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <ostream>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "espalier/core/error.h"
#include "espalier/core/files/file.h"
#include "espalier/executor/history.h"

namespace espalier {

namespace {

/// A field of CSV (RFC 4180): quoted if it has to be.
std::string csv_field(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? "\"\"" : std::string(1, c);
  return quoted + '"';
}

/// The shortest text that reads back as the same number.
std::string csv_number(const std::optional<double>& x) { return x ? fmt::format("{}", *x) : ""; }

/// The figures that any epoch has, by the names that EpochRecord::figure knows.
std::vector<std::string> figures_of(const History& history) {
  std::set<std::string> outputs, validation;
  bool validated = false;
  for (const EpochRecord& epoch : history.epochs) {
    validated |= !std::isnan(epoch.validation_loss);
    for (const auto& [name, value] : epoch.outputs) outputs.insert(name);
    for (const auto& [name, value] : epoch.validation_outputs) validation.insert(name);
  }
  std::vector<std::string> figures{"loss"};
  if (validated) figures.emplace_back("validation_loss");
  figures.insert(figures.end(), outputs.begin(), outputs.end());
  for (const std::string& name : validation) figures.push_back("validation_" + name);
  return figures;
}

std::string csv_of(const History& history) {
  const std::vector<std::string> figures = figures_of(history);
  std::string text = "epoch";
  for (const std::string& name : figures) text += ',' + csv_field(name);
  text += ",samples,seconds\n";
  for (size_t e = 0; e < history.epochs.size(); ++e) {
    const EpochRecord& epoch = history.epochs[e];
    text += fmt::format("{}", e + 1);
    for (const std::string& name : figures) text += ',' + csv_number(epoch.figure(name));
    text += fmt::format(",{},{}\n", epoch.samples, epoch.seconds);
  }
  return text;
}

/// Right-aligned columns, each as wide as its widest field.
std::string aligned(const std::vector<std::vector<std::string>>& rows) {
  std::vector<size_t> widths(rows.front().size(), 0);
  for (const auto& row : rows)
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  std::string text;
  for (const auto& row : rows)
    for (size_t i = 0; i < row.size(); ++i)
      text += fmt::format("{:>{}}{}", row[i], widths[i], i + 1 < row.size() ? "  " : "\n");
  return text;
}

}  // namespace

std::ostream& operator<<(std::ostream& out, const History& history) {
  const auto number = [&](double x) {
    std::ostringstream text;
    text.copyfmt(out);
    text.width(0);
    text << x;
    return text.str();
  };
  const std::vector<std::string> figures = figures_of(history);
  std::vector<std::vector<std::string>> rows{{"epoch"}};
  rows[0].insert(rows[0].end(), figures.begin(), figures.end());
  rows[0].insert(rows[0].end(), {"samples", "seconds"});
  for (const EpochRecord& epoch : history.epochs) {
    std::vector<std::string>& row = rows.emplace_back(1, fmt::format("{}", rows.size()));
    for (const std::string& name : figures) {
      const std::optional<double> figure = epoch.figure(name);
      row.push_back(figure ? number(*figure) : "");
    }
    row.push_back(fmt::format("{}", epoch.samples));
    row.push_back(number(epoch.seconds));
  }
  return out << aligned(rows) << (history.interrupted ? "interrupted\n" : "");
}

void History::write_csv(const std::filesystem::path& file, std::source_location where) const {
  located(where, [&] {
    AtomicFile out(file);
    out.write(csv_of(*this));
    out.commit();
  });
}

}  // namespace espalier
