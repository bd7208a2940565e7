// History::write_csv.
#include <fmt/format.h>

#include <cmath>
#include <set>
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

std::string csv_of(const History& history) {
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

}  // namespace

void History::write_csv(const std::filesystem::path& file, std::source_location where) const {
  located(where, [&] {
    AtomicFile out(file);
    out.write(csv_of(*this));
    out.commit();
  });
}

}  // namespace espalier
