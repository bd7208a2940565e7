// The threads of a block run in turn on one host thread. A thread runs until it ends, waits for others or
// sleeps; then the next one runs, on another stack. A block whose threads never wait needs one stack.
#include "block.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

namespace emulated {
namespace {

constexpr unsigned char uninitialized = 0xCB;
constexpr size_t guard_bytes = 256;
constexpr size_t max_shared_bytes = 232448;

int meet_at_barrier(BarrierOperation operation, int predicate);
unsigned long long meet_in_warp(WarpOperation operation, unsigned mask, unsigned long long value,
                                unsigned source);
void stop();
void let_others_run();

}  // namespace

Device the_device = {{},      {},     {}, {}, 0, nullptr, meet_at_barrier, meet_in_warp, stop, let_others_run,
                     nullptr, nullptr};

namespace {

Block* running = nullptr;
Block& the_block() { return *running; }

int meet_at_barrier(BarrierOperation operation, int predicate) {
  return the_block().barrier(operation, predicate);
}
unsigned long long meet_in_warp(WarpOperation operation, unsigned mask, unsigned long long value,
                                unsigned source) {
  return the_block().warp(operation, mask, value, source);
}
void stop() { the_block().fail("a thread trapped"); }
void let_others_run() { the_block().sleep(); }

const char* name_of(WarpOperation operation) {
  switch (operation) {
    case WarpSync: return "__syncwarp";
    case WarpShuffle: return "a shuffle";
    case WarpBallot: return "a vote";
    default: return "a reduction of a warp";
  }
}

}  // namespace

void Block::start(const dim3& size, const uint3& index, size_t shared_bytes, bool reverse,
                  const std::function<void()>& body) {
  const unsigned count = size.x * size.y * size.z;
  if (size.x != size_.x || size.y != size_.y || size.z != size_.z || reverse != reverse_) {
    threads_.resize(count);
    for (unsigned i = 0; i < count; ++i)
      threads_[i].index = {i % size.x, i / size.x % size.y, i / (size.x * size.y)};
    size_ = size;
    reverse_ = reverse;
  }
  index_ = index;
  body_ = &body;
  shared_bytes_ = shared_bytes;
  if (shared_.empty()) shared_.resize(max_shared_bytes + guard_bytes + 256);

  for (Thread& thread : threads_) thread.state = State::Unstarted;
  live_.assign((count + 31) / 32, ~0u);
  if (count % 32 != 0) live_.back() = (1u << count % 32) - 1;
  ready_.clear();
  ready_begin_ = 0;
  asleep_.clear();
  begun_ = false;
  started_ = 0, running_threads_ = count, at_barrier_ = 0;
  std::memset(shared(), uninitialized, shared_bytes_ + guard_bytes);
}

unsigned char* Block::shared() {
  const auto address = reinterpret_cast<uintptr_t>(shared_.data());
  return shared_.data() + (256 - address % 256) % 256;
}

bool Block::run() {
  running = this;
  the_device.shared = shared();
  the_device.lane_operands = lane_operands_.data();
  the_device.pending_copies = pending_copies_.data();
  the_device.block = index_;
  the_device.block_size = size_;
  if (begun_) ready_ = std::exchange(asleep_, {}), ready_begin_ = 0;
  active_ = begun_ ? enter(next_ready()) : free_fiber();
  begun_ = true;
  host_.switch_to(*active_);
  return !complaint_.empty() || running_threads_ == 0;
}

void Block::abandon() {
  for (PendingCopies& pending : pending_copies_) pending.clear();
  free_.clear();
  for (auto& fiber : fibers_) {
    fiber->restart();
    free_.push_back(fiber.get());
  }
}

std::string Block::complaint() {
  if (!complaint_.empty()) {
    abandon();
    return std::exchange(complaint_, {});
  }
  if (std::ranges::any_of(pending_copies_, [](const PendingCopies& pending) { return !pending.empty(); })) {
    for (PendingCopies& pending : pending_copies_) pending.clear();
    return "a thread ended before copies to shared memory that it had begun";
  }
  const auto* guard = shared() + shared_bytes_;
  if (std::any_of(guard, guard + guard_bytes, [](unsigned char byte) { return byte != uninitialized; }))
    return "a write beyond the " + std::to_string(shared_bytes_) + " bytes of dynamic shared memory";
  return {};
}

Fiber* Block::free_fiber() {
  if (free_.empty()) {
    fibers_.push_back(std::make_unique<Fiber>([] { the_block().fiber_loop(); }));
    return fibers_.back().get();
  }
  Fiber* fiber = free_.back();
  free_.pop_back();
  return fiber;
}

bool Block::next_unstarted() {
  if (started_ == threads_.size()) return false;
  current_ = reverse_ ? static_cast<unsigned>(threads_.size()) - 1 - started_ : started_;
  ++started_;
  Thread& thread = current();
  thread.state = State::Running;
  thread.fiber = active_;
  the_device.thread = thread.index;
  the_device.linear = current_;
  return true;
}

void Block::fiber_loop() {
  Context::arrive();
  for (;;) {
    // Ready threads run before unstarted ones, so that few stacks are in use.
    if (any_ready()) {
      free_.push_back(active_);
      resume(next_ready());
    } else if (next_unstarted()) {
      (*body_)();
      thread_ended();
    } else {
      if (running_threads_ > 0 && asleep_.empty()) complaint_ = deadlock();
      free_.push_back(active_);
      Fiber* self = active_;
      self->switch_to(host_);
    }
  }
}

Fiber* Block::enter(unsigned thread) {
  current_ = thread;
  Thread& target = threads_[thread];
  target.state = State::Running;
  the_device.thread = target.index;
  the_device.linear = thread;
  return target.fiber;
}

void Block::resume(unsigned thread) {
  Fiber* self = active_;
  active_ = enter(thread);
  if (active_ != self) self->switch_to(*active_);
}

void Block::wait() {
  Fiber* self = active_;
  if (any_ready()) {
    resume(next_ready());
  } else if (started_ < threads_.size()) {
    active_ = free_fiber();
    self->switch_to(*active_);
  } else if (!asleep_.empty()) {
    self->switch_to(host_);
  } else {
    complaint_ = deadlock();
    leave();
  }
}

void Block::leave() {
  Fiber* self = active_;
  for (;;) self->switch_to(host_);
}

void Block::fail(std::string complaint) {
  complaint_ = std::move(complaint) + " (" + name(current_) + ")";
  leave();
}

void Block::sleep() {
  current().state = State::Asleep;
  asleep_.push_back(current_);
  wait();
}

void Block::thread_ended() {
  ++events_;
  current().state = State::Ended;
  live_[current_ / 32] &= ~(1u << current_ % 32);
  --running_threads_;
  if (at_barrier_ > 0 && at_barrier_ == running_threads_) finish_barrier();
  if (live_[current_ / 32] != 0) finish_warp(current_ / 32);
}

int Block::barrier(BarrierOperation operation, int predicate) {
  ++events_;
  Thread& thread = current();
  thread.state = State::AtBarrier;
  thread.operation = operation;
  thread.value = predicate != 0;
  if (++at_barrier_ == running_threads_) finish_barrier();
  if (thread.state == State::AtBarrier) wait();
  return static_cast<int>(thread.result);
}

void Block::make_ready(unsigned thread) {
  threads_[thread].state = State::Running;
  if (thread == current_) return;  // it continues immediately
  if (ready_begin_ == ready_.size()) ready_.clear(), ready_begin_ = 0;
  ready_.push_back(thread);
}

void Block::finish_barrier() {
  unsigned count = 0;
  int operation = -1;
  for (const Thread& thread : threads_) {
    if (thread.state != State::AtBarrier) continue;
    count += static_cast<unsigned>(thread.value);
    if (operation >= 0 && thread.operation != operation) fail("threads meet at barriers of different kinds");
    operation = thread.operation;
  }
  const unsigned all = at_barrier_;
  const unsigned long long result = operation == BarrierCount ? count
                                    : operation == BarrierAnd ? count == all
                                                              : count > 0;
  for (unsigned i = 0; i < threads_.size(); ++i) {
    const unsigned which = reverse_ ? static_cast<unsigned>(threads_.size()) - 1 - i : i;
    Thread& thread = threads_[which];
    if (thread.state != State::AtBarrier) continue;
    thread.result = result;
    make_ready(which);
  }
  at_barrier_ = 0;
}

unsigned long long Block::warp(WarpOperation operation, unsigned mask, unsigned long long value,
                               unsigned source) {
  ++events_;
  Thread& thread = current();
  const unsigned lane = current_ % 32;
  if ((mask >> lane & 1) == 0)
    fail(std::string("a thread takes part in ") + name_of(operation) + " whose mask leaves it out");
  thread.operation = operation;
  thread.mask = mask;
  thread.value = value;
  thread.source = source;
  thread.state = State::InWarp;
  finish_warp(current_ / 32);
  if (thread.state == State::InWarp) wait();
  return thread.result;
}

void Block::finish_warp(unsigned warp) {
  const unsigned first = warp * 32;
  // Lanes wait with different masks only while branches diverge.
  unsigned looked_at = 0;
  for (unsigned lanes = live_[warp]; lanes != 0; lanes &= lanes - 1) {
    const auto lane = static_cast<unsigned>(std::countr_zero(lanes));
    const Thread& leader = threads_[first + lane];
    if (leader.state != State::InWarp || (looked_at >> lane & 1) != 0) continue;
    const unsigned members = leader.mask & live_[warp];
    looked_at |= members;
    bool all = true;
    for (unsigned i = 0; i < 32 && all; ++i) {
      const unsigned bit = reverse_ ? i : 31 - i;  // the last lanes first
      if ((members >> bit & 1) == 0) continue;
      const Thread& other = threads_[first + bit];
      all = other.state == State::InWarp && other.mask == leader.mask;
    }
    if (!all) continue;

    const auto operation = static_cast<WarpOperation>(leader.operation);
    unsigned long long ballot = 0, sum = 0, least = ~0ull, greatest = 0, conjunction = ~0ull, disjunction = 0,
                       parity = 0;
    for (unsigned rest = members; rest != 0; rest &= rest - 1) {
      const auto bit = static_cast<unsigned>(std::countr_zero(rest));
      const Thread& other = threads_[first + bit];
      if (other.operation != operation)
        fail(std::string("lanes of a warp do different things: ") + name_of(operation) + " and " +
             name_of(static_cast<WarpOperation>(other.operation)));
      if (other.value != 0) ballot |= 1ull << bit;
      sum += other.value;
      least = std::min(least, other.value);
      greatest = std::max(greatest, other.value);
      conjunction &= other.value;
      disjunction |= other.value;
      parity ^= other.value;
    }
    for (unsigned rest = members; rest != 0; rest &= rest - 1) {
      const auto bit = static_cast<unsigned>(std::countr_zero(rest));
      Thread& other = threads_[first + bit];
      switch (operation) {
        case WarpShuffle:
          // The value of a lane that does not take part is undefined: return one that tests notice.
          other.result = (members >> (other.source & 31) & 1) != 0
                             ? threads_[first + (other.source & 31)].value
                             : 0xCBCBCBCBCBCBCBCBull;
          break;
        case WarpBallot: other.result = ballot; break;
        case WarpAdd: other.result = sum; break;
        case WarpMin: other.result = least; break;
        case WarpMax: other.result = greatest; break;
        case WarpAnd: other.result = conjunction; break;
        case WarpOr: other.result = disjunction; break;
        case WarpXor: other.result = parity; break;
        case WarpSync: break;
      }
    }
    for (unsigned i = 0; i < 32; ++i) {
      const unsigned bit = reverse_ ? 31 - i : i;
      if ((members >> bit & 1) != 0) make_ready(first + bit);
    }
  }
}

std::string Block::name(unsigned thread) const {
  const uint3& t = threads_[thread].index;
  const uint3& b = the_device.block;
  const auto point = [](const uint3& p) {
    return "(" + std::to_string(p.x) + ", " + std::to_string(p.y) + ", " + std::to_string(p.z) + ")";
  };
  return "thread " + point(t) + " of block " + point(b);
}

std::string Block::deadlock() const {
  std::string text = "a deadlock:";
  unsigned at_barrier = 0, in_warp = 0, some_barrier = 0, some_warp = 0;
  for (unsigned i = 0; i < threads_.size(); ++i) {
    if (threads_[i].state == State::AtBarrier) ++at_barrier, some_barrier = i;
    if (threads_[i].state == State::InWarp) ++in_warp, some_warp = i;
  }
  if (at_barrier > 0)
    text +=
        " " + std::to_string(at_barrier) + " threads wait at __syncthreads, as " + name(some_barrier) + ";";
  if (in_warp > 0)
    text += " " + std::to_string(in_warp) + " threads wait in " +
            name_of(static_cast<WarpOperation>(threads_[some_warp].operation)) + " for other lanes, as " +
            name(some_warp) + ";";
  text += " " + std::to_string(threads_.size() - running_threads_) + " threads have ended";
  return text;
}

}  // namespace emulated
