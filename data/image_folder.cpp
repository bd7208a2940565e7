#include "espalier/data/image_folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "espalier/core/error.h"
#include "espalier/data/image.h"
#include "espalier/data/views/row_view.h"

namespace espalier::data {

namespace {

using Paths = std::vector<std::filesystem::path>;

/// What is in a folder, by name. Throws FileError.
Paths sorted_entries(const std::filesystem::path& folder) try {
  Paths entries;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) entries.push_back(entry.path());
  std::ranges::sort(entries, {}, [](const std::filesystem::path& path) { return path.native(); });
  return entries;
} catch (const std::filesystem::filesystem_error& error) {
  throw FileError(fmt::format("{} cannot be read: {}", folder.string(), error.code().message()));
}

bool is_folder(const std::filesystem::path& path) {
  std::error_code none;
  return std::filesystem::is_directory(path, none);
}

bool is_image(const std::filesystem::path& path) {
  std::string extension = path.extension().string();
  for (char& c : extension)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return extension == ".png" || extension == ".jpg" || extension == ".jpeg";
}

/// The folder and those within it. `above` are the folders on the way to it, by their real names.
void add_folders(const std::filesystem::path& folder, Paths& above, Paths& all) {
  std::error_code error;
  const std::filesystem::path real = std::filesystem::canonical(folder, error);
  if (error) throw FileError(fmt::format("{} cannot be read: {}", folder.string(), error.message()));
  if (std::ranges::find(above, real) != above.end())
    throw FileError(fmt::format("{} is a link to a folder that it lies in", folder.string()));
  above.push_back(real);
  all.push_back(folder);
  for (const std::filesystem::path& entry : sorted_entries(folder))
    if (is_folder(entry)) add_folders(entry, above, all);
  above.pop_back();
}

Paths images_below(const std::filesystem::path& folder) {
  Paths above, folders, images;
  add_folders(folder, above, folders);
  std::ranges::sort(folders, {}, [](const std::filesystem::path& path) { return path.native(); });
  for (const std::filesystem::path& each : folders)
    for (const std::filesystem::path& entry : sorted_entries(each))
      if (is_image(entry) && !is_folder(entry)) images.push_back(entry);
  return images;
}

}  // namespace

ImageFolder::ImageFolder(const std::filesystem::path& root, const ImageFolderOptions& options,
                         std::source_location where)
    : options_(options), where_(where) {
  located(where, [&] {
    if (options.channels < 1 || options.channels > 4)
      throw DataError(fmt::format("ImageFolder: {} channels, not 1 to 4", options.channels));
    if (!is_folder(root)) throw FileError(fmt::format("{} is no folder", root.string()));
    for (const std::filesystem::path& entry : sorted_entries(root)) {
      if (!is_folder(entry)) continue;
      const Paths images = images_below(entry);
      if (images.empty())
        throw FileError(fmt::format("{} has no images (.png, .jpg or .jpeg)", entry.string()));
      files_.insert(files_.end(), images.begin(), images.end());
      labels_.insert(labels_.end(), images.size(), static_cast<int64_t>(classes_.size()));
      classes_.push_back(entry.filename().string());
    }
    if (classes_.empty())
      throw FileError(fmt::format("{} has no folders, one for each class, with images", root.string()));
    first_ = image(0, {}).spec();
  });
}

std::vector<Spec> ImageFolder::specs() const {
  std::vector<int64_t> sizes{rows()};
  sizes.insert(sizes.end(), first_.shape.begin(), first_.shape.end());
  return {{first_.dtype, sizes}, {int64, {rows()}}};
}

Tensor ImageFolder::image(int64_t row, const ReadContext& context) const {
  const std::filesystem::path& file = files_[static_cast<size_t>(row)];
  Tensor pixels = read_image(
      file, {.channels = options_.channels, .dtype = DType::uint8, .max_pixels = options_.max_pixels},
      where_);
  if (options_.size) pixels = transforms::resize(pixels, *options_.size, {}, where_);
  if (options_.transform.empty()) return pixels;
  transforms::Draws draws(context.random(row));
  const Tensor made = options_.transform(pixels, draws);
  if (!made.defined())
    throw DataError(
        fmt::format("ImageFolder: the transform returned an undefined tensor for {}", file.string()));
  return made.to(cpu()).contiguous_copy();
}

void ImageFolder::read_in(const ReadContext& context, std::span<const int64_t> rows,
                          std::span<Tensor> outputs) const {
  check_rows(rows, this->rows());
  located(where_, [&] {
    char* to = static_cast<char*>(outputs[0].address());
    for (size_t i = 0; i < rows.size(); ++i) {
      const Tensor pixels = image(rows[i], context);
      if (pixels.spec() != first_)
        throw DataError(fmt::format(
            "ImageFolder: {} is {} {}, but {} is {} {}; give a size, or a transform that makes them alike",
            files_[static_cast<size_t>(rows[i])].string(), name(pixels.dtype()), pixels.shape().str(),
            files_[0].string(), name(first_.dtype), first_.shape.str()));
      std::memcpy(to + i * pixels.bytes(), pixels.address(), pixels.bytes());
      outputs[1].data<int64_t>()[i] = labels_[static_cast<size_t>(rows[i])];
    }
  });
}

}  // namespace espalier::data
