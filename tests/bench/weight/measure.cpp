// measure RUNS COMMAND...: runs the command RUNS times and prints the median of its wall times in
// milliseconds and its peak memory in megabytes. Discards its output, and stops if the command fails.
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

#include "../timing.h"

int main(int argc, char** argv) {
  if (argc < 3) return std::fputs("usage: measure RUNS COMMAND...\n", stderr), 2;
  std::vector<double> times;
  long kilobytes = 0;
  for (int run = std::max(1, std::atoi(argv[1])); run > 0; --run) {
    int status = 0;
    rusage usage{};
    times.push_back(bench::seconds([&] {
      const pid_t child = fork();
      if (child == 0) {
        dup2(open("/dev/null", O_WRONLY), STDOUT_FILENO);
        execvp(argv[2], argv + 2);
        _exit(127);
      }
      // In a shell's command the work is done by its children: ru_maxrss is the largest of them, waited for
      // or not.
      if (child < 0 || wait4(child, &status, 0, &usage) != child) status = -1;
    }));
    if (status != 0) return std::fprintf(stderr, "measure: %s failed\n", argv[2]), 1;
    kilobytes = std::max(kilobytes, usage.ru_maxrss);
  }
  std::printf("%.1f %.1f\n", bench::median(times) * 1e3, static_cast<double>(kilobytes) / 1024);
}
