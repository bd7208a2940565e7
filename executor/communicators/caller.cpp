#include "espalier/executor/communicators/caller.h"

namespace espalier {

namespace {
thread_local const CallSite* caller = nullptr;
}  // namespace

CallerScope::CallerScope(const std::source_location& where, const char* function)
    : site_(where, function), scope_(caller, caller ? caller : &site_) {}

WithoutCaller::WithoutCaller() : scope_(caller, nullptr) {}

CallSite caller_or(const std::source_location& own) { return caller ? *caller : CallSite(own); }

}  // namespace espalier
