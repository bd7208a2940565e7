// SummaryWriter: what TensorBoard shows, written to a file that it reads.
#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <source_location>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "espalier/core/variable.h"

namespace espalier {

/// The value of a hyper-parameter.
using HyperParameter = std::variant<double, std::string, bool>;

/// Writes an event file in a folder, of which TensorBoard shows each sub-folder as a run: `tensorboard
/// --logdir folder`. A handle: copies write to one file. Readers see what was written after `flush`, or when
/// the last handle goes. All functions throw FileError if the file cannot be written.
class SummaryWriter {
 public:
  using Where = std::source_location;

  /// Makes the folder if it does not exist, and in it a file of a name of its own.
  explicit SummaryWriter(const std::filesystem::path& folder, Where where = Where::current());

  const std::filesystem::path& file() const;

  /// A point of the curve `tag`; TensorBoard groups tags by what precedes a slash.
  void add_scalar(const std::string& tag, double value, int64_t step, Where where = Where::current());
  /// How the elements of a tensor are distributed, in 64 intervals of one width between the smallest and the
  /// largest. Elements that are not finite are left out. Throws DataError if there are no others.
  void add_histogram(const std::string& tag, const Tensor& values, int64_t step,
                     Where where = Where::current());
  /// An image [height, width] or [height, width, channels] with 1, 3 or 4 channels: reals from 0 to 1, or
  /// integers from 0 to 255. Throws ShapeError.
  void add_image(const std::string& tag, const Tensor& image, int64_t step, Where where = Where::current());
  /// The forward pass that a Variable is made of. Throws Error if it is undefined.
  void add_graph(const Variable& root, Where where = Where::current());
  /// The settings of this run, and the tags of scalars by which runs are compared. Once for each file.
  void add_hyperparameters(const std::vector<std::pair<std::string, HyperParameter>>& values,
                           const std::vector<std::string>& metrics, Where where = Where::current());
  void flush(Where where = Where::current());

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace espalier
