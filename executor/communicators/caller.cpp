#include "espalier/executor/communicators/caller.h"

#include <utility>

namespace espalier {

namespace {
thread_local const CallSite* caller = nullptr;
}  // namespace

CallerScope::CallerScope(const std::source_location& where, const char* function)
    : site_(where, function), before_(caller) {
  if (!caller) caller = &site_;
}
CallerScope::~CallerScope() { caller = before_; }

WithoutCaller::WithoutCaller() : before_(std::exchange(caller, nullptr)) {}
WithoutCaller::~WithoutCaller() { caller = before_; }

CallSite caller_or(const std::source_location& own) { return caller ? *caller : CallSite(own); }

}  // namespace espalier
