#include "espalier/data/prefetch.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <system_error>
#include <thread>
#include <utility>

#include "espalier/core/cpu/cores.h"
#include "espalier/core/error.h"
#include "espalier/core/stopwatch.h"

namespace espalier::data {

namespace {

constexpr size_t slots = 3;  // one in use, one ready, one being filled
/// In nanoseconds. Waking the thread and moving the batch between caches costs about 5 µs; with kernels on
/// all cores, batches that took less than this to read gained nothing.
constexpr int64_t worth_a_thread_from = 20'000;
constexpr int64_t timed_reads = 2;   // the first has cold caches
constexpr int64_t fewest_steps = 4;  // with fewer, starting the thread takes longer than it saves

}  // namespace

struct Prefetcher::Slot {
  std::vector<Tensor> batch;
  std::exception_ptr error;
};

/// Fills slots in turn, from a step to the end of its epoch or to an error. Each of the two counters has one
/// writer. They wrap around; they have 32 bits because a futex has.
struct Prefetcher::Reader {
  explicit Reader(Prefetcher& owner) : first(owner.step_), thread([this, &owner] { run(owner); }) {}
  ~Reader() {
    stop = true;
    ++released;
    released.notify_one();
    thread.join();
  }

  void run(Prefetcher& owner) {
    uint32_t count = 0;
    for (int64_t step = first; step < owner.steps_; ++step) {
      // ~Reader sets `stop` before it increments `released`, which may then be ahead of `count`.
      for (uint32_t seen = released; !stop && count - seen >= slots; seen = released) released.wait(seen);
      if (stop) return;
      Slot& slot = owner.slots_[static_cast<size_t>(step - first) % slots];
      slot.error = nullptr;
      try {
        owner.fill(slot.batch, step);
      } catch (...) {
        slot.error = std::current_exception();
      }
      const bool failed = slot.error != nullptr;
      filled = ++count;
      filled.notify_one();
      if (failed) return;
    }
  }

  /// Releases the previous slot and waits for the next. Returns whether it had to wait.
  bool wait_for_next() {
    // Waking costs much more than storing, so the thread sleeps until the last batch is taken and then reads
    // several. Both sides store their counter before they load the other's, so no wake-up is lost.
    released = taken;
    if (filled - taken <= 1) released.notify_one();
    const bool waits = filled == taken;
    for (int spin = 0; spin < 200 && filled == taken; ++spin) spin_pause();
    filled.wait(taken++);
    return waits;
  }

  /// Whether this process is a forked child of the one that has the thread.
  bool is_elsewhere() const { return getpid() != process; }

  const int64_t first;
  const pid_t process = getpid();
  alignas(64) std::atomic<uint32_t> filled{0};    // batches that are or were ready
  alignas(64) std::atomic<uint32_t> released{0};  // the number of these whose slots may be overwritten
  uint32_t taken = 0;
  std::atomic<bool> stop{false};
  std::thread thread;
};

Prefetcher::Prefetcher(std::shared_ptr<const Feed> feed, Allocate allocate)
    : feed_(std::move(feed)),
      allocate_(std::move(allocate)),
      specs_(feed_->specs()),
      open_(feed_->open_axes()),
      slots_(slots) {}

Prefetcher::~Prefetcher() { end_reader(); }

void Prefetcher::end_reader() {
  // A thread that this process does not have cannot be joined: what it needs stays.
  if (reader_ && reader_->is_elsewhere())
    (void)reader_.release();
  else
    reader_.reset();
}

void Prefetcher::start(int64_t epoch, int64_t first_step) {
  end_reader();
  epoch_ = epoch;
  step_ = first_step;
  steps_ = feed_->steps();
  read_ahead();
}

std::span<const Tensor> Prefetcher::next() {
  if (at_end()) throw EndOfData();
  if (reader_ && reader_->is_elsewhere()) {
    end_reader();
    slots_ = std::vector<Slot>(slots);  // the thread may have been filling them
  }
  if (!reader_) read_ahead();
  if (!reader_) return read_in_place();
  if (reader_->wait_for_next()) ++waits_;
  Slot& slot = slots_[static_cast<size_t>(step_ - reader_->first) % slots];
  if (const auto error = std::exchange(slot.error, nullptr)) {
    reader_.reset();
    std::rethrow_exception(error);
  }
  ++step_;
  return slot.batch;
}

void Prefetcher::read_ahead() {
  if (timed_ < timed_reads || quickest_ < worth_a_thread_from || steps_ - step_ < fewest_steps) return;
  if (core_count() < 2) return;
  try {
    reader_ = std::make_unique<Reader>(*this);
  } catch (const std::system_error&) {
    timed_ = 0;  // no thread is available now
  }
}

std::span<const Tensor> Prefetcher::read_in_place() {
  std::vector<Tensor>& batch = slots_[0].batch;
  if (timed_ == timed_reads) {
    fill(batch, step_);
  } else {
    const Stopwatch watch;
    fill(batch, step_);
    const auto took = static_cast<int64_t>(1e9 * watch.seconds());
    quickest_ = timed_++ ? std::min(quickest_, took) : took;
  }
  ++step_;
  ++waits_;
  return batch;
}

void Prefetcher::fill(std::vector<Tensor>& batch, int64_t step) const {
  batch.resize(specs_.size());
  const int64_t rows = feed_->rows(step);
  std::vector<int64_t> sizes;
  feed_->add_open_sizes(epoch_, step, sizes);
  for (size_t i = 0; i < batch.size(); ++i) {
    Shape shape = specs_[i].shape;
    if (shape.rank()) shape.dims()[0] = rows;
    for (size_t k = 0; k < sizes.size(); ++k)
      if (open_[k].output == i) shape.dims()[open_[k].axis] = sizes[k];
    if (batch[i].storage().unique() && batch[i].shape() == shape) continue;
    // Short and whole batches reuse each other's buffers.
    const size_t bytes = static_cast<size_t>(shape.elements()) * size_of(specs_[i].dtype);
    if (batch[i].storage().unique() && bytes <= batch[i].storage()->bytes)
      batch[i] = Tensor(batch[i].storage(), Layout(shape), specs_[i].dtype);
    else
      batch[i] = allocate_ ? allocate_(shape, specs_[i].dtype) : Tensor(shape, specs_[i].dtype);
  }
  feed_->read(epoch_, step, batch);
}

}  // namespace espalier::data
