#include "espalier/executor/kit/tensorboard/summary_writer.h"

#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <mutex>

#include "espalier/core/error.h"
#include "espalier/executor/kit/tensorboard/event_messages.h"
#include "espalier/executor/kit/tensorboard/png.h"
#include "espalier/executor/kit/tensorboard/record_file.h"

namespace espalier {

namespace {

/// A name that TensorBoard knows as an event file, and that no other file has.
std::filesystem::path event_file_in(const std::filesystem::path& folder) {
  static std::atomic<int> number = 0;
  if (folder.empty()) throw FileError("SummaryWriter: the event file needs a folder");
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) throw FileError(fmt::format("{} cannot be made: {}", folder.string(), error.message()));
  char host[256] = "host";
  (void)gethostname(host, sizeof host - 1);
  for (char& c : host)
    if (c == '/') c = '_';
  return folder / fmt::format("events.out.tfevents.{:010}.{}.{}.{}", static_cast<int64_t>(wall_time()), host,
                              getpid(), number++);
}

}  // namespace

struct SummaryWriter::State {
  explicit State(const std::filesystem::path& folder) : file(event_file_in(folder)) {
    file.append(version_event().bytes());
    file.flush();
  }
  void append(const ProtobufMessage& event) {
    const std::scoped_lock lock(mutex);
    file.append(event.bytes());
  }
  std::mutex mutex;
  RecordFile file;
};

SummaryWriter::SummaryWriter(const std::filesystem::path& folder, Where where)
    : state_(located(where, [&] { return std::make_shared<State>(folder); })) {}

const std::filesystem::path& SummaryWriter::file() const { return state_->file.path(); }

void SummaryWriter::add_scalar(const std::string& tag, double value, int64_t step, Where where) {
  located(where, [&] {
    state_->append(summary_event(summary_value(tag).add_float(2, static_cast<float>(value)), step));
  });
}

void SummaryWriter::add_histogram(const std::string& tag, const Tensor& values, int64_t step, Where where) {
  located(where, [&] {
    state_->append(summary_event(summary_value(tag).add_message(5, histogram_message(values)), step));
  });
}

void SummaryWriter::add_image(const std::string& tag, const Tensor& image, int64_t step, Where where) {
  located(where, [&] {
    const PngImage png = png_of(image);
    ProtobufMessage message;
    message.add_integer(1, png.height).add_integer(2, png.width).add_integer(3, png.channels);
    message.add_text(4, png.bytes);
    state_->append(summary_event(summary_value(tag).add_message(4, message), step));
  });
}

void SummaryWriter::add_graph(const Variable& root, Where where) {
  located(where, [&] {
    if (!root.defined()) throw Error("add_graph: the Variable is undefined");
    ProtobufMessage event;
    event.add_double(1, wall_time()).add_message(4, graph_message(root));
    state_->append(event);
  });
}

void SummaryWriter::add_hyperparameters(const std::vector<std::pair<std::string, HyperParameter>>& values,
                                        const std::vector<std::string>& metrics, Where where) {
  located(where, [&] {
    state_->append(summary_event(experiment_value(values, metrics), 0));
    state_->append(summary_event(session_start_value(values), 0));
    state_->append(summary_event(session_end_value(), 0));
    flush(where);
  });
}

void SummaryWriter::flush(Where where) {
  located(where, [&] {
    const std::scoped_lock lock(state_->mutex);
    state_->file.flush();
  });
}

}  // namespace espalier
