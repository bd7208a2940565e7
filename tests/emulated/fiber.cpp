#include "fiber.h"

#include <sys/mman.h>

#include <cstdint>
#include <new>

#include "espalier/core/sanitizers.h"

#if ESPALIER_ADDRESS_SANITIZER
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

namespace emulated {
namespace {

constexpr size_t page = 4096;
constexpr size_t stack_bytes = 256 * 1024;  // only touched pages use memory

#if defined(__x86_64__)
// Saves the callee-saved registers on the stack, and switches to the other stack.
extern "C" void espalier_emulated_switch(void** from, void* to);
asm(R"(
.text
.p2align 4
.globl espalier_emulated_switch
.hidden espalier_emulated_switch
.type espalier_emulated_switch, @function
espalier_emulated_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size espalier_emulated_switch, .-espalier_emulated_switch
)");
#endif

/// The context that was left last: the sanitizer reports the bounds of its stack after the switch.
[[maybe_unused]] thread_local Context* left = nullptr;

}  // namespace

void Context::switch_to(Context& to) {
#if ESPALIER_ADDRESS_SANITIZER
  __sanitizer_start_switch_fiber(&fake_stack_, to.stack_, to.stack_bytes_);
  left = this;
#endif
#if defined(__x86_64__)
  espalier_emulated_switch(&stack_pointer_, to.stack_pointer_);
#else
  swapcontext(&state_, &to.state_);
#endif
#if ESPALIER_ADDRESS_SANITIZER
  __sanitizer_finish_switch_fiber(fake_stack_, &left->stack_, &left->stack_bytes_);
#endif
}

void Context::arrive() {
#if ESPALIER_ADDRESS_SANITIZER
  __sanitizer_finish_switch_fiber(nullptr, &left->stack_, &left->stack_bytes_);
#endif
}

Fiber::Fiber(void (*run)()) : run_(run) {
  memory_ = mmap(nullptr, page + stack_bytes, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
  if (memory_ == MAP_FAILED) throw std::bad_alloc();
  mprotect(memory_, page, PROT_NONE);
  stack_ = static_cast<char*>(memory_) + page;
  stack_bytes_ = stack_bytes;
  restart();
}

Fiber::~Fiber() { munmap(memory_, page + stack_bytes); }

void Fiber::restart() {
#if ESPALIER_ADDRESS_SANITIZER
  __asan_unpoison_memory_region(stack_, stack_bytes_);
  fake_stack_ = nullptr;
#endif
#if defined(__x86_64__)
  // Six registers, then the return address; on entry to a function, the stack is 8 bytes off a multiple
  // of 16.
  auto* top =
      reinterpret_cast<uintptr_t*>(const_cast<char*>(static_cast<const char*>(stack_)) + stack_bytes_);
  *--top = 0;  // no caller
  *--top = reinterpret_cast<uintptr_t>(run_);
  for (int i = 0; i < 6; ++i) *--top = 0;
  stack_pointer_ = top;
#else
  getcontext(&state_);
  state_.uc_stack.ss_sp = const_cast<void*>(stack_);
  state_.uc_stack.ss_size = stack_bytes_;
  state_.uc_link = nullptr;
  makecontext(&state_, run_, 0);
#endif
}

}  // namespace emulated
