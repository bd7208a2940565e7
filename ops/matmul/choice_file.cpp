#include "espalier/ops/matmul/choice_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "espalier/core/files/crc64.h"
#include "espalier/core/files/file.h"

namespace espalier {

namespace {

/// A line with its checksum at the end.
std::string line(const std::string& key, const std::string& choice) {
  const std::string text = key + ' ' + choice;
  Crc64 sum;
  sum.add(text.data(), text.size());
  return fmt::format("{} {:016x}\n", text, sum.value());
}

}  // namespace

ChoiceFile::ChoiceFile(std::filesystem::path file, std::string header)
    : file_(std::move(file)), header_(std::move(header)) {}

std::optional<std::string> ChoiceFile::find(const std::string& key) {
  const std::lock_guard lock(mutex_);
  load();
  const auto known = choices_.find(key);
  return known == choices_.end() ? std::nullopt : std::optional(known->second);
}

ChoiceFile::Choices ChoiceFile::all() {
  const std::lock_guard lock(mutex_);
  load();
  return choices_;
}

void ChoiceFile::load() {
  if (!std::exchange(loaded_, true)) choices_ = read();
}

ChoiceFile::Choices ChoiceFile::read() const {
  constexpr uint64_t largest = 1 << 24;  // bytes; no machine meets so many
  if (file_.empty()) return {};
  try {
    InputFile file(file_);
    if (file.size() > largest) return {};
    std::string text(file.size(), '\0');
    file.read(text.data(), text.size());
    const std::string first = header_ + '\n';
    if (!text.starts_with(first)) return {};
    Choices result;
    for (size_t at = first.size(); at < text.size();) {
      const size_t end = std::min(text.find('\n', at), text.size() - 1) + 1;
      const std::string_view all = std::string_view(text).substr(at, end - at);
      at = end;
      const size_t sum = all.rfind(' '), choice = sum ? all.rfind(' ', sum - 1) : std::string_view::npos;
      if (sum == std::string_view::npos || choice == std::string_view::npos) continue;
      const std::string key(all.substr(0, choice)), chosen(all.substr(choice + 1, sum - choice - 1));
      if (line(key, chosen) == all) result.emplace(key, chosen);
    }
    return result;
  } catch (const std::exception&) {
    return {};  // it is measured anew
  }
}

void ChoiceFile::put(const std::string& key, const std::string& choice) {
  const std::lock_guard lock(mutex_);
  loaded_ = true;  // what the file has is added below
  choices_[key] = choice;
  if (file_.empty() || !writable_) return;
  try {
    Choices theirs = read();
    choices_.merge(theirs);
    std::string text = header_ + '\n';
    for (const auto& [each, chosen] : choices_) text += line(each, chosen);
    std::filesystem::create_directories(file_.parent_path());
    AtomicFile file(file_);
    file.write(text);
    file.commit();
  } catch (const std::exception&) {
    writable_ = false;  // and will hardly become so
  }
}

}  // namespace espalier
