#include "espalier/executor/communicators/mpi/exchange.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <random>
#include <thread>

#include "espalier/core/error.h"

namespace espalier {
namespace {

using namespace std::chrono_literals;

// A transfer looks again and again for this long; a rank that is later is worth sleeping for.
constexpr auto spin_time = 5ms;
constexpr auto sleep_time = 50us, longest_sleep = 200us;
constexpr auto leave_poll = 1ms;
constexpr auto leave_timeout = 3s;   // for ranks that have not left after a failure
constexpr auto answer_timeout = 6s;  // for the failure monitor, behind the timeout of a collective
constexpr int64_t address_bytes = 1024;

}  // namespace

MpiExchange::MpiExchange(const EspalierMpi& mpi, double timeout) : mpi_(mpi), timeout_(timeout) { connect(); }

MpiExchange::~MpiExchange() {
  detector_->leave();
  // Other ranks may still need what this one has sent, and the monitor in rank 0. MPI_Finalize waits for all
  // ranks, so it is called only if all have left without a failure: after one they may be dead.
  auto until = Clock::time_point::max();
  while (!detector_->finished() && Clock::now() < until) {
    if (detector_->failed() && until == Clock::time_point::max()) until = Clock::now() + leave_timeout;
    mpi_.progress();
    std::this_thread::sleep_for(leave_poll);
  }
  const bool healthy = detector_->finished() && !detector_->failed();
  detector_.reset();
  monitor_.reset();
  if (healthy) mpi_.finish();
}

// Rank 0 sends the others the monitor's token and addresses through MPI.
void MpiExchange::connect() {
  uint64_t token = 0;
  const Tensor addresses = zeros({address_bytes / 8}, int64);
  memory_ = {addresses, Tensor({1}, int64)};
  auto* const text = static_cast<char*>(addresses.address());
  auto* const number = static_cast<uint64_t*>(memory_[1].address());
  if (mpi_.rank == 0) {
    std::random_device random;
    token = uint64_t{random()} << 32 | random();
    monitor_ = std::make_unique<FailureMonitor>(mpi_.size, token, mpi_.one_host);
    *number = token;
    monitor_->addresses().copy(text, address_bytes - 1);
  }
  for (int other = 1; other < mpi_.size; ++other) {
    if (mpi_.rank == 0) send(other, number, sizeof(token)), send(other, text, address_bytes);
    if (mpi_.rank == other) receive(0, number, sizeof(token)), receive(0, text, address_bytes);
  }
  transfer();
  detector_ = std::make_unique<FailureDetector>(mpi_.rank, text, *number);
}

void MpiExchange::begin(const Collective& call, std::vector<Tensor> memory, double timeout, bool blocking) {
  call_ = &call;
  memory_ = std::move(memory);
  timeout_ = timeout;
  blocking_ = blocking;
  ++number_;
  if (detector_->lost(number_)) give_up(detector_->reason(number_));
  detector_->begin(number_, call);
}

void MpiExchange::send(int peer, const void* data, int64_t bytes) {
  if (bytes) messages_.push_back({peer, 0, const_cast<void*>(data), static_cast<size_t>(bytes)});
}
void MpiExchange::receive(int peer, void* data, int64_t bytes) {
  if (bytes) messages_.push_back({peer, 1, data, static_cast<size_t>(bytes)});
}

void MpiExchange::check(int mpi_error) {
  if (mpi_error == 0) return;
  std::array<char, 512> text{};
  mpi_.describe(mpi_error, text.data(), text.size());
  give_up(fmt::format("MPI failed on rank {}: {}", mpi_.rank, text.data()));
}

void MpiExchange::transfer() {
  if (messages_.empty()) return;
  check(mpi_.start(messages_.data(), messages_.size()));
  const auto start = Clock::now();
  const std::chrono::duration<double> limit(timeout_);
  int done = 0;
  bool timed_out = false;
  while (true) {
    if (!timed_out) check(mpi_.test(&done));
    if (done) break;
    if (detector_ && detector_->lost(number_)) give_up(detector_->reason(number_));
    const auto waited = Clock::now() - start;
    // A blocking wait sleeps for longer the longer it takes.
    if (blocking_)
      std::this_thread::sleep_for(std::clamp<Clock::duration>(waited / 4, sleep_time, longest_sleep));
    else if (waited > spin_time)
      std::this_thread::sleep_for(sleep_time);
    else
      std::this_thread::yield();  // other ranks may wait for the core
    if (waited < limit) continue;
    if (!detector_) give_up(fmt::format("the ranks did not meet within {:g} s", timeout_));
    if (!timed_out) detector_->report_timeout(number_, timeout_);
    timed_out = true;
    if (waited > limit + answer_timeout)
      give_up(fmt::format("not all ranks came within {:g} s, and rank 0 does not answer", timeout_));
  }
  messages_.clear();
}

void MpiExchange::give_up(const std::string& reason) {
  if (detector_) detector_->fail(reason, number_ - 1);
  if (!messages_.empty()) {
    mpi_.abandon();
    // MPI may go on writing there, so the memory stays allocated until the process ends.
    new std::vector<Tensor>(memory_);
    messages_.clear();
  }
  const std::string what = call_ ? call_->str() : "the first meeting of the ranks";
  throw CommunicatorError(fmt::format("{}: {}", what, reason));
}

}  // namespace espalier
