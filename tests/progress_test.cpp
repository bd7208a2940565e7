// The progress bar, drawn on a pseudo terminal in place of standard error.
#include <boost/test/unit_test.hpp>

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <stdlib.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <string>
#include <thread>

#include "espalier/espalier.h"
#include "espalier/executor/training/progress.h"
#include "temporary_folder.h"

namespace esp = espalier;
using espalier::testing::TemporaryFolder;

namespace {

/// A terminal that takes what is written to standard error while it is there.
class Terminal {
 public:
  Terminal() : own_(::posix_openpt(O_RDWR | O_NOCTTY)), before_(::dup(STDERR_FILENO)) {
    BOOST_REQUIRE(::grantpt(own_) == 0);
    BOOST_REQUIRE(::unlockpt(own_) == 0);
    const int there = ::open(::ptsname(own_), O_RDWR | O_NOCTTY);
    ::dup2(there, STDERR_FILENO);
    ::close(there);
  }
  ~Terminal() {
    std::fflush(stderr);
    ::dup2(before_, STDERR_FILENO);
    ::close(before_);
    ::close(own_);
  }
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;
  /// What was written since the last call.
  std::string text() {
    std::fflush(stderr);
    std::string all;
    pollfd ready{own_, POLLIN, 0};
    while (::poll(&ready, 1, 0) == 1) {
      char part[512];
      const ssize_t n = ::read(own_, part, sizeof part);
      if (n <= 0) break;
      all.append(part, static_cast<size_t>(n));
    }
    return all;
  }

 private:
  int own_, before_;
};

void wait_until_due(const esp::Progress& progress) {
  while (!progress.due()) std::this_thread::sleep_for(std::chrono::milliseconds(10));
}

}  // namespace

BOOST_AUTO_TEST_SUITE(progress)

BOOST_AUTO_TEST_CASE(a_line_of_the_epoch_and_one_when_it_is_done) {
  Terminal terminal;
  {
    esp::Progress progress(true);
    progress.step(0, 2, 1, 4, 0.5, 1000);
    BOOST_TEST(terminal.text() == "");  // drawn ten times a second at most
    wait_until_due(progress);
    progress.step(1, 3, 2, 8, 0.25, 1234.4);
    BOOST_TEST(terminal.text().starts_with(
        "\r\033[Kepoch 2/3 [======                  ] 2/8  loss 0.25  1234 samples/s  0:"));
    BOOST_TEST(!progress.due());
    progress.finish_epoch(1, 3, 0.125, NAN, 99.6);
    BOOST_TEST(terminal.text() == "\r\033[Kepoch 2/3  loss 0.125  100 samples/s\r\n");
    progress.finish_epoch(2, 3, 0.125, 0.5, 10);
    BOOST_TEST(terminal.text() == "\r\033[Kepoch 3/3  loss 0.125  validation 0.5  10 samples/s\r\n");
  }
  BOOST_TEST(terminal.text() == "");
}

BOOST_AUTO_TEST_CASE(a_line_that_was_left_open_is_ended) {
  Terminal terminal;
  {
    esp::Progress progress(true);
    wait_until_due(progress);
    progress.step(0, 1, 1, 2, 1, 1);
    BOOST_TEST(!terminal.text().ends_with("\n"));
  }
  BOOST_TEST(terminal.text() == "\r\n");
}

BOOST_AUTO_TEST_CASE(the_time_left_follows_from_this_run_alone) {
  Terminal terminal;
  // A hundred-thousandth of the epochs in at least a tenth of a second: three hours and more.
  esp::Progress progress(true, 0.5);
  wait_until_due(progress);
  progress.step(50'000, 100'000, 1, 1, 1, 1);
  const std::string text = terminal.text();
  const size_t at = text.find("samples/s  ");
  BOOST_REQUIRE(at != std::string::npos);
  int hours = 0, minutes = 0, seconds = 0;
  BOOST_TEST(std::sscanf(text.c_str() + at + 11, "%d:%2d:%2d left", &hours, &minutes, &seconds) == 3);
  BOOST_TEST(hours >= 1);
  BOOST_TEST(minutes < 60);
  BOOST_TEST(seconds < 60);
}

BOOST_AUTO_TEST_CASE(a_resumed_run_counts_its_own_steps) {
  esp::data::Distributor feed({esp::zeros({1000, 1})}, {.batch_size = 1});
  const esp::Variable w = esp::parameter(esp::ones({1}));
  const esp::Executor executor =
      esp::sum(feed.get_output_graphs()[0] * w)
          .get_executor({.mode = esp::Mode::training, .optimizer = esp::optim::Sgd(0.0)});
  const TemporaryFolder folder;
  executor.execute({.epochs = 1, .progress = false, .checkpoint = folder.path()});
  executor.resume(folder.path());
  executor.on(esp::Event::step_finish, [&](const esp::StepInfo&) {
    std::this_thread::sleep_for(std::chrono::milliseconds(110));
    executor.stop();
  });
  Terminal terminal;
  executor.execute({.epochs = 2, .progress = true});
  // One of a thousand steps in a tenth of a second.
  const std::string text = terminal.text();
  BOOST_TEST(text.find("epoch 2/2 [                        ] 1/1000  loss 0  ") != std::string::npos);
  BOOST_TEST(text.find("samples/s  0:") == std::string::npos);
}

BOOST_AUTO_TEST_CASE(a_finished_epoch_shows_its_record) {
  esp::data::Distributor feed({esp::ones({6, 1})}, {.batch_size = 4});
  const esp::Variable x = feed.get_output_graphs()[0], w = esp::parameter(esp::ones({1}));
  const esp::Executor executor = esp::mean(esp::square(x * w - 3.0))
                                     .get_executor({.optimizer = esp::optim::Sgd(0.01), .validation = feed});
  Terminal terminal;
  const esp::EpochRecord record = executor.execute({.epochs = 1, .progress = true}).epochs.at(0);
  BOOST_TEST(terminal.text().ends_with(
      fmt::format("\r\033[Kepoch 1/1  loss {:.5g}  validation {:.5g}  {:.0f} samples/s\r\n", record.loss_mean,
                  record.validation_loss, 6 / record.seconds)));
}

BOOST_AUTO_TEST_CASE(nothing_where_it_is_not_wanted_or_no_terminal_is) {
  {
    Terminal terminal;
    esp::Progress progress(false);
    std::this_thread::sleep_for(std::chrono::milliseconds(110));
    BOOST_TEST(!progress.due());
    progress.finish_epoch(0, 1, 1, NAN, 1);
    BOOST_TEST(terminal.text() == "");
  }
  int ends[2];
  BOOST_REQUIRE(::pipe(ends) == 0);
  const int before = ::dup(STDERR_FILENO);
  ::dup2(ends[1], STDERR_FILENO);
  {
    esp::Progress progress(true);
    progress.finish_epoch(0, 1, 1, NAN, 1);
    std::fflush(stderr);
  }
  ::dup2(before, STDERR_FILENO);
  pollfd ready{ends[0], POLLIN, 0};
  BOOST_TEST(::poll(&ready, 1, 0) == 0);
  for (const int end : {ends[0], ends[1], before}) ::close(end);
}

BOOST_AUTO_TEST_SUITE_END()
