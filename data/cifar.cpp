#include "espalier/data/cifar.h"

#include <fmt/format.h>

#include <array>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "espalier/core/error.h"
#include "espalier/core/files/file.h"

namespace espalier::data {

namespace {

constexpr int64_t cifar_pixels = 3 * 32 * 32;

/// A byte before the pixels of a record.
struct CifarLabel {
  const char* name;
  int64_t classes;
};
constexpr std::array<CifarLabel, 1> cifar10_labels{{{"label", 10}}};
constexpr std::array<CifarLabel, 2> cifar100_labels{{{"coarse label", 20}, {"fine label", 100}}};

struct CifarRecords {
  Tensor images;
  std::vector<Tensor> labels;
};

CifarRecords read_records(const std::vector<std::filesystem::path>& paths,
                          std::span<const CifarLabel> labels) {
  const auto before = static_cast<int64_t>(labels.size()), record = before + cifar_pixels;
  std::vector<std::unique_ptr<InputFile>> files;
  int64_t rows = 0;
  for (const std::filesystem::path& path : paths) {
    files.push_back(std::make_unique<InputFile>(path));
    const auto size = static_cast<int64_t>(files.back()->size());
    if (size == 0 || size % record != 0) {
      const int64_t other = cifar_pixels + 3 - before;
      files.back()->fail(
          fmt::format("has {} bytes, which are no whole number of records of {} bytes{}", size, record,
                      size > 0 && size % other == 0
                          ? fmt::format("; it may be a file of CIFAR-{}", before == 1 ? 100 : 10)
                          : ""));
    }
    rows += size / record;
  }
  CifarRecords result{Tensor({rows, 3, 32, 32}, DType::uint8), {}};
  for (size_t i = 0; i < labels.size(); ++i) result.labels.emplace_back(Shape{rows}, int64);
  uint8_t* pixels = result.images.data<uint8_t>();
  int64_t row = 0;
  std::array<uint8_t, 2> start{};
  for (const std::unique_ptr<InputFile>& file : files)
    for (int64_t number = 0; file->remaining() > 0; ++number, ++row, pixels += cifar_pixels) {
      file->read(start.data(), labels.size());
      for (size_t i = 0; i < labels.size(); ++i) {
        if (start[i] >= labels[i].classes)
          file->fail(fmt::format("has the {} {} in record {}, which is not below {}", labels[i].name,
                                 start[i], number, labels[i].classes));
        result.labels[i].data<int64_t>()[row] = start[i];
      }
      file->read(pixels, cifar_pixels);
    }
  return result;
}

/// The file itself, or those of a folder.
std::vector<std::filesystem::path> cifar_files(const std::filesystem::path& path,
                                               const std::vector<std::string>& train, const char* test,
                                               const CifarOptions& options) {
  std::error_code none;
  if (!std::filesystem::is_directory(path, none)) return {path};
  if (options.test) return {path / test};
  std::vector<std::filesystem::path> files;
  for (const std::string& file : train) files.push_back(path / file);
  return files;
}

}  // namespace

Cifar10 read_cifar10(const std::filesystem::path& path, const CifarOptions& options,
                     std::source_location where) {
  return located(where, [&] {
    const std::vector<std::string> train{"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin",
                                         "data_batch_4.bin", "data_batch_5.bin"};
    const CifarRecords records =
        read_records(cifar_files(path, train, "test_batch.bin", options), cifar10_labels);
    return Cifar10{records.images, records.labels[0]};
  });
}

Cifar100 read_cifar100(const std::filesystem::path& path, const CifarOptions& options,
                       std::source_location where) {
  return located(where, [&] {
    const CifarRecords records =
        read_records(cifar_files(path, {"train.bin"}, "test.bin", options), cifar100_labels);
    return Cifar100{records.images, records.labels[1], records.labels[0]};
  });
}

}  // namespace espalier::data
