// A folder of images, sorted into folders by their classes.
#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <source_location>
#include <span>
#include <string>
#include <vector>

#include "espalier/core/tensor.h"
#include "espalier/data/dataset.h"
#include "espalier/data/transforms/resize.h"
#include "espalier/data/transforms/transform.h"

namespace espalier::data {

struct ImageFolderOptions {
  /// As in ImageOptions, but not 0.
  int64_t channels = 3;
  /// Images are resized to these sides, whatever the ratio of their own.
  std::optional<transforms::ImageSize> size = {};
  /// Of each image, after that; it may draw.
  transforms::Compose transform = {};
  /// Larger images are refused before memory is made for them.
  int64_t max_pixels = int64_t{1} << 26;
};

/// The images `root/class/….png` (or .jpg, .jpeg, in any case; links are followed), with the classes and
/// files of a class, folders within it included, in the order of their names. Columns: images, uint8 [rows,
/// channels, height, width] unless the transform makes others of them, and labels, int64 [rows], positions in
/// `classes()`. Files are decoded each time they are read, in the thread that reads: several by `parallel` or
/// `loader`.
///
/// Reading throws FileError, naming the file, where an image is damaged or too large, and DataError where it
/// has another shape than the first one.
class ImageFolder : public Dataset {
 public:
  /// Throws FileError: there is no such folder, it has no folders, or one of them no images; and what reading
  /// the first image throws, from which the specs are learned.
  explicit ImageFolder(const std::filesystem::path& root, const ImageFolderOptions& options = {},
                       std::source_location where = std::source_location::current());

  /// The names of the folders.
  const std::vector<std::string>& classes() const { return classes_; }
  /// One for each row.
  const std::vector<std::filesystem::path>& files() const { return files_; }
  const std::vector<int64_t>& labels() const { return labels_; }

  int64_t rows() const override { return static_cast<int64_t>(files_.size()); }
  std::vector<Spec> specs() const override;
  void read(std::span<const int64_t> rows, std::span<Tensor> outputs) const override {
    read_in({}, rows, outputs);
  }
  void read_in(const ReadContext& context, std::span<const int64_t> rows,
               std::span<Tensor> outputs) const override;

 private:
  Tensor image(int64_t row, const ReadContext& context) const;

  ImageFolderOptions options_;
  std::source_location where_;
  std::vector<std::string> classes_;
  std::vector<std::filesystem::path> files_;
  std::vector<int64_t> labels_;
  Spec first_;  // of an image
};

}  // namespace espalier::data
