// Defaults: what the library does in the whole process unless a call says otherwise.
#pragma once
#include <filesystem>
#include <optional>
#include <source_location>

namespace espalier {

/// A program that embeds a library made with Espalier sets these once, before anything else of Espalier.
struct Defaults {
  /// Executor::execute takes over SIGINT while it runs, so that it ends after a whole step.
  bool handle_interrupt = true;
  /// Executor::execute shows a bar on standard error, where that is a terminal.
  bool progress = true;
  /// The folder for measurements of this machine. An empty path: nothing is kept on disk. Without: the folder
  /// that the environment names ($ESPALIER_CACHE_DIR, else $XDG_CACHE_HOME/espalier, else ~/.cache/espalier;
  /// nothing if ESPALIER_CACHE is "off"). A folder that is open already stays in use.
  std::optional<std::filesystem::path> cache = {};
};

/// May be called from any thread. Throws Error for a cache folder that is not an absolute path.
void set_defaults(const Defaults& defaults, std::source_location where = std::source_location::current());
Defaults defaults();

}  // namespace espalier
