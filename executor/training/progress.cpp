#include "espalier/executor/training/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>

namespace espalier {

namespace {

std::string clock_of(double seconds) {
  const auto s = static_cast<int64_t>(std::lround(seconds));
  if (s >= 3600) return fmt::format("{}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60);
  return fmt::format("{}:{:02}", s / 60, s % 60);
}

}  // namespace

Progress::Progress(bool wanted, double done_before)
    : on_(wanted && isatty(STDERR_FILENO)), done_before_(done_before) {}

Progress::~Progress() {
  if (open_line_) std::fputc('\n', stderr);
}

bool Progress::due() const { return on_ && shown_.seconds() >= 0.1; }

void Progress::step(int64_t epoch, int64_t epochs, int64_t step, int64_t steps, double loss,
                    double samples_per_second) {
  if (!due()) return;
  shown_.restart();
  const double done = (static_cast<double>(epoch) + static_cast<double>(step) / static_cast<double>(steps)) /
                      static_cast<double>(epochs);
  const double left = begin_.seconds() * (1 - done) / (done - done_before_);
  constexpr int width = 24;
  const int filled = static_cast<int>(width * step / steps);
  const std::string line = fmt::format(
      "\r\033[Kepoch {}/{} [{}{}] {}/{}  loss {:.5g}  {:.0f} samples/s  {} left", epoch + 1, epochs,
      std::string(static_cast<size_t>(filled), '='), std::string(static_cast<size_t>(width - filled), ' '),
      step, steps, loss, samples_per_second, clock_of(left));
  std::fputs(line.c_str(), stderr);
  std::fflush(stderr);
  open_line_ = true;
}

void Progress::finish_epoch(int64_t epoch, int64_t epochs, double loss, double validation_loss,
                            double samples_per_second) {
  if (!on_) return;
  std::string line = fmt::format("\r\033[Kepoch {}/{}  loss {:.5g}", epoch + 1, epochs, loss);
  if (!std::isnan(validation_loss)) line += fmt::format("  validation {:.5g}", validation_loss);
  line += fmt::format("  {:.0f} samples/s\n", samples_per_second);
  std::fputs(line.c_str(), stderr);
  open_line_ = false;
}

}  // namespace espalier
