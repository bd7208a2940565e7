// SIGINT during a run: the run ends after its step, and the host's handler is restored.
#include <boost/test/unit_test.hpp>

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "checkpoint_program.h"
#include "defaults_guard.h"
#include "espalier/core/files/file.h"
#include "espalier/executor/training/interrupt.h"
#include "places.h"
#include "temporary_folder.h"
#include "testing.h"

namespace esp = espalier;
using namespace espalier::testing;

namespace {

std::atomic<int> host_calls{0};
void host_handler(int) { ++host_calls; }
void host_action(int, siginfo_t* info, void*) { host_calls += info->si_signo == SIGINT; }
void other_handler(int) {}

/// Installs a handler of the host for a test, and restores the previous one.
class HostHandler {
 public:
  explicit HostHandler(void (*handler)(int) = host_handler) {
    struct sigaction action {};
    action.sa_handler = handler;
    sigaction(SIGINT, &action, &before_);
    host_calls = 0;
  }
  ~HostHandler() { sigaction(SIGINT, &before_, nullptr); }

 private:
  struct sigaction before_ {};
};

struct sigaction current() {
  struct sigaction action {};
  sigaction(SIGINT, nullptr, &action);
  return action;
}

void raise_at(const CheckpointProgram& program, int64_t epoch, int64_t step,
              esp::Event event = esp::Event::step_finish) {
  program.executor.on(event, [=](const esp::StepInfo& info) {
    if (info.epoch == epoch && info.step == step) raise(SIGINT);
  });
}

}  // namespace

BOOST_AUTO_TEST_SUITE(interrupt)

BOOST_AUTO_TEST_CASE(the_run_ends_after_its_step_and_goes_on_later) {
  const HostHandler host;
  const CheckpointProgram whole;
  const std::string history = bits(whole.executor.execute({.epochs = 3, .progress = false})),
                    end = whole.state();
  for (const bool folder_asked : {true, false})
    for (const int64_t step : {0, 2, 4}) {
      const TemporaryFolder folder;
      {
        const CheckpointProgram program;
        raise_at(program, 1, step);
        esp::ExecuteOptions options{.epochs = 3, .progress = false};
        if (folder_asked) options.checkpoint = folder.path();
        const esp::History part = program.executor.execute(options);
        BOOST_TEST(part.interrupted);
        BOOST_TEST(part.epochs.size() == 1u);
        BOOST_TEST((current().sa_handler == host_handler));
        if (!folder_asked) program.executor.checkpoint(folder.path());
      }
      const CheckpointProgram second;
      second.executor.resume(folder.path());
      const esp::History rest = second.executor.execute({.epochs = 3, .progress = false});
      BOOST_TEST(!rest.interrupted);
      BOOST_TEST(bits(rest) == history);
      BOOST_TEST(second.state() == end);
    }
  BOOST_TEST(host_calls == 0);
}

BOOST_AUTO_TEST_CASE(between_steps_it_ends_the_run_too) {
  const HostHandler host;
  const CheckpointProgram at_start, at_end;
  raise_at(at_start, 1, 0, esp::Event::epoch_start);
  const esp::History one = at_start.executor.execute({.epochs = 3, .progress = false});
  BOOST_TEST(one.interrupted);
  BOOST_TEST(one.epochs.size() == 1u);
  raise_at(at_end, 1, CheckpointProgram::steps, esp::Event::epoch_finish);
  const esp::History two = at_end.executor.execute({.epochs = 2, .progress = false});
  BOOST_TEST(two.interrupted);  // the signal was consumed
  BOOST_TEST(two.epochs.size() == 2u);
  BOOST_TEST(host_calls == 0);
}

BOOST_AUTO_TEST_CASE(validation_is_left_and_taken_up_again) {
  // A dataset that raises the signal while the validation feed is read.
  struct Raising : esp::data::Dataset {
    mutable std::atomic<int> reads{0};
    int64_t rows() const override { return 7; }
    std::vector<esp::Spec> specs() const override { return {{esp::float32, {7, 4}}, {esp::float32, {7, 2}}}; }
    void read(std::span<const int64_t> rows, std::span<esp::Tensor> outputs) const override {
      if (++reads == 2) raise(SIGINT);
      for (esp::Tensor& t : outputs)
        for (float& v : t.span<float>()) v = static_cast<float>(rows[0]);
    }
  };
  const HostHandler host;
  const TemporaryFolder folder;
  const auto dataset = std::make_shared<Raising>();
  const CheckpointProgram p;
  const auto executor =
      p.loss.get_executor({.mode = esp::Mode::training,
                           .optimizer = p.optimizer,
                           .validation = esp::data::Distributor(
                               std::shared_ptr<const esp::data::Dataset>(dataset), {.batch_size = 3})});
  esp::History history = executor.execute({.epochs = 1, .progress = false, .checkpoint = folder.path()});
  BOOST_TEST(history.interrupted);
  BOOST_TEST(history.epochs.empty());
  executor.resume(folder.path());
  history = executor.execute({.epochs = 1, .progress = false});
  BOOST_TEST(!history.interrupted);
  BOOST_REQUIRE(history.epochs.size() == 1u);
  BOOST_TEST(std::isfinite(history.epochs[0].validation_loss));
  BOOST_TEST(history.epochs[0].samples == CheckpointProgram::rows);
}

BOOST_AUTO_TEST_CASE(the_second_signal_is_the_hosts) {
  const HostHandler host;
  const CheckpointProgram program;
  program.executor.on(esp::Event::step_finish, [](const esp::StepInfo&) {
    raise(SIGINT);
    BOOST_TEST(host_calls == 0);
    raise(SIGINT);
    BOOST_TEST(host_calls == 1);
  });
  BOOST_TEST(program.executor.execute({.progress = false}).interrupted);
  raise(SIGINT);
  BOOST_TEST(host_calls == 2);
}

BOOST_AUTO_TEST_CASE(whatever_the_host_had_comes_back) {
  for (const auto handler : {SIG_DFL, SIG_IGN, host_handler}) {
    const HostHandler host(handler);
    const CheckpointProgram program;
    raise_at(program, 0, 1);
    BOOST_TEST(program.executor.execute({.progress = false}).interrupted);
    BOOST_TEST((current().sa_handler == handler));
  }
  const HostHandler outer;
  struct sigaction action {};
  action.sa_sigaction = host_action;
  action.sa_flags = SA_SIGINFO | SA_RESTART | SA_NODEFER;
  sigaddset(&action.sa_mask, SIGUSR2);
  sigaction(SIGINT, &action, nullptr);
  const CheckpointProgram program;
  program.executor.on(esp::Event::step_finish, [](const esp::StepInfo&) { raise(SIGINT), raise(SIGINT); });
  for (const bool signal : {true, false}) {
    BOOST_TEST(program.executor.execute({.epochs = signal, .progress = false}).interrupted == signal);
    const struct sigaction now = current();
    BOOST_TEST((now.sa_sigaction == host_action));
    const int asked = SA_SIGINFO | SA_RESTART | SA_NODEFER;  // the system adds flags of its own
    BOOST_TEST((now.sa_flags & asked) == asked);
    BOOST_TEST(sigismember(&now.sa_mask, SIGUSR2) == 1);
  }
  BOOST_TEST(host_calls == 1);
}

BOOST_AUTO_TEST_CASE(without_the_option_it_is_the_hosts_alone) {
  const HostHandler host;
  const CheckpointProgram program;
  raise_at(program, 0, 1);
  const esp::History history = program.executor.execute({.progress = false, .handle_interrupt = false});
  BOOST_TEST(!history.interrupted);
  BOOST_TEST(history.epochs.size() == 1u);
  BOOST_TEST(host_calls == 1);
}

BOOST_AUTO_TEST_CASE(a_product_sets_that_for_its_process) {
  const HostHandler host;
  const DefaultsGuard guard;
  esp::set_defaults({.handle_interrupt = false});
  const CheckpointProgram program;
  raise_at(program, 0, 1);
  BOOST_TEST(!program.executor.execute({.progress = false}).interrupted);
  BOOST_TEST(host_calls == 1);
}

BOOST_AUTO_TEST_CASE(an_exception_leaves_no_handler) {
  const HostHandler host;
  const CheckpointProgram program;
  program.executor.on(esp::Event::step_finish, [](const esp::StepInfo& info) {
    BOOST_TEST((current().sa_handler != host_handler));
    if (info.step == 1) throw std::runtime_error("enough");
  });
  BOOST_CHECK_THROW(program.executor.execute({.progress = false}), std::runtime_error);
  BOOST_TEST((current().sa_handler == host_handler));
  raise(SIGINT);
  BOOST_TEST(host_calls == 1);
}

BOOST_AUTO_TEST_CASE(a_handler_that_the_host_sets_meanwhile_stays) {
  const HostHandler host;
  const CheckpointProgram program;
  program.executor.on(esp::Event::step_finish, [](const esp::StepInfo&) { ::signal(SIGINT, other_handler); });
  BOOST_TEST(!program.executor.execute({.progress = false}).interrupted);
  BOOST_TEST((current().sa_handler == other_handler));
}

BOOST_AUTO_TEST_CASE(a_host_that_puts_our_handler_back_late_is_served) {
  const HostHandler host;
  struct sigaction ours {};
  {
    const esp::Interrupt one(true);
    ours = current();
  }
  BOOST_TEST((current().sa_handler == host_handler));
  sigaction(SIGINT, &ours, nullptr);
  raise(SIGINT);
  BOOST_TEST(host_calls == 1);
  BOOST_TEST((current().sa_handler == host_handler));
  sigaction(SIGINT, &ours, nullptr);
  {
    esp::Interrupt two(true);
    raise(SIGINT);
    BOOST_TEST(two.requested());
    raise(SIGINT);
    BOOST_TEST(host_calls == 2);
  }
  BOOST_TEST((current().sa_handler == host_handler));
}

BOOST_AUTO_TEST_CASE(nested_ones_both_know) {
  const HostHandler host;
  esp::Interrupt outer(true);
  {
    esp::Interrupt inner(true);
    raise(SIGINT);
    BOOST_TEST(inner.requested());
    BOOST_TEST(inner.close());
    BOOST_TEST(inner.close());
  }
  BOOST_TEST(outer.requested());
  {
    esp::Interrupt later(true);  // begins after the signal, so it does not count it
    BOOST_TEST(!later.requested());
    raise(SIGINT);
    BOOST_TEST(later.requested());
  }
  BOOST_TEST(host_calls == 0);
  BOOST_TEST(outer.close());
  BOOST_TEST((current().sa_handler == host_handler));
}

BOOST_AUTO_TEST_CASE(a_run_is_interrupted_after_one_within_it_has_ended) {
  const HostHandler host;
  const CheckpointProgram outer, inner;
  outer.executor.on(esp::Event::step_finish, [&](const esp::StepInfo& info) {
    if (info.epoch > 0 || info.step > 0) return;
    BOOST_TEST(!inner.executor.execute({.epochs = 1, .progress = false}).interrupted);
    raise(SIGINT);
  });
  BOOST_TEST(outer.executor.execute({.epochs = 2, .progress = false}).interrupted);
  BOOST_TEST(host_calls == 0);
  BOOST_TEST((current().sa_handler == host_handler));
}

BOOST_AUTO_TEST_CASE(runs_in_several_threads_end_together) {
  const HostHandler host;
  for (int turn = 0; turn < 5; ++turn) {
    std::atomic<int> running{0}, interrupted{0};
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i)
      threads.emplace_back([&] {
        const CheckpointProgram program;
        program.executor.on(esp::Event::step_finish, [&](const esp::StepInfo& info) {
          if (info.epoch == 0 && info.step == 0) ++running;
        });
        interrupted += program.executor.execute({.epochs = 1'000'000'000, .progress = false}).interrupted;
      });
    while (running < 4) std::this_thread::yield();
    kill(getpid(), SIGINT);
    for (std::thread& thread : threads) thread.join();
    BOOST_TEST(interrupted == 4);
    BOOST_TEST((current().sa_handler == host_handler));
  }
  BOOST_TEST(host_calls == 0);
}

BOOST_AUTO_TEST_CASE(handlers_come_and_go_under_fire) {
  // Each signal is handled by a run or by the host, and no handler of the library remains.
  const HostHandler host;
  std::atomic<bool> done{false};
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i)
    threads.emplace_back([&] {
      while (!done) {
        esp::Interrupt interrupt(true);
        std::this_thread::yield();
      }
    });
  for (int i = 0; i < 2000; ++i) {
    kill(getpid(), SIGINT);
    std::this_thread::yield();
  }
  done = true;
  for (std::thread& thread : threads) thread.join();
  BOOST_TEST((current().sa_handler == host_handler));
  const int before = host_calls;
  raise(SIGINT);
  BOOST_TEST(host_calls == before + 1);
}

BOOST_AUTO_TEST_CASE(a_process_of_its_own) {
  for (const bool stuck : {false, true}) {
    const TemporaryFolder folder;
    int ends[2];
    BOOST_REQUIRE(pipe(ends) == 0);
    const pid_t child = fork();
    if (child == 0) {
      signal(SIGINT, SIG_DFL);
      dup2(ends[1], STDOUT_FILENO);
      execl(places::checkpoint_process, places::checkpoint_process, stuck ? "stuck" : "train",
            folder.path().c_str(), nullptr);
      _exit(127);
    }
    close(ends[1]);
    char text[16] = {};
    BOOST_TEST(read(ends[0], text, sizeof text - 1) > 0);
    BOOST_TEST(std::string(text) == "ready\n");
    close(ends[0]);
    kill(child, SIGINT);
    int status = 0;
    if (stuck) {
      // The first signal was counted, and its step does not end. Pending signals are merged, so wait between
      // signals.
      while (waitpid(child, &status, WNOHANG) == 0) {
        kill(child, SIGINT);
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
      BOOST_TEST(WIFSIGNALED(status));
      BOOST_TEST(WTERMSIG(status) == SIGINT);
    } else {
      BOOST_REQUIRE(waitpid(child, &status, 0) == child);
      BOOST_TEST(status == 0);
      const CheckpointProgram program("Adam", 8, 5);
      program.executor.resume(folder.path());
      BOOST_TEST(program.state() == esp::read_file(folder / "state"));
    }
  }
}

BOOST_AUTO_TEST_SUITE_END()
