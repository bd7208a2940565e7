// Runs programs of ranks that are threads of this process.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "espalier/core/error.h"
#include "espalier/executor/communicators/groups.h"

namespace espalier::testing {

using Group = CommunicatorGroup;
using RankProgram = std::function<void(Communicator&)>;

/// The error of each rank's program, or "". A communicator lives until all programs have ended.
inline std::vector<std::string> run_ranks(const Group& group, const RankProgram& program) {
  std::vector<std::string> errors(group.size());
  std::vector<std::thread> threads;
  for (size_t rank = 0; rank < group.size(); ++rank)
    threads.emplace_back([&, rank] {
      try {
        program(*group[rank]);
      } catch (const CommunicatorError& error) {
        errors[rank] = error.what();
      } catch (const std::exception& error) {
        group[rank]->abort(std::current_exception());
        errors[rank] = std::string("own: ") + error.what();
      }
    });
  for (std::thread& thread : threads) thread.join();
  return errors;
}

inline std::vector<std::string> run_ranks(int size, const RankProgram& program) {
  return run_ranks(make_thread_group(size), program);
}

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != text.npos;
}

}  // namespace espalier::testing
