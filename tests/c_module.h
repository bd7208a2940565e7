// Exported C code, compiled with all warnings as errors and loaded.
#pragma once
#include <dlfcn.h>

#include <boost/test/unit_test.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <sstream>
#include <string>

namespace espalier::testing {

inline constexpr const char* c_warnings = "-std=c99 -Wall -Wextra -Wconversion -Werror";

/// Runs a command of the shell; its output is in the test's log if it fails.
inline bool runs(const std::string& command) {
  const bool done = std::system((command + " 2>&1").c_str()) == 0;
  if (!done) BOOST_TEST_MESSAGE(command);
  return done;
}

inline std::string text_of(const std::filesystem::path& file) {
  std::ostringstream text;
  text << std::ifstream(file).rdbuf();
  return text.str();
}

/// The clang that is installed; "" without one, which is said once.
inline const std::string& installed_clang() {
  static const std::string found = [] {
    for (const std::string name : {"clang", "clang-16"})
      if (std::system(("command -v " + name + " > /dev/null 2>&1").c_str()) == 0) return name;
    std::cerr << "Neither clang nor clang-16 is installed: exported C code is compiled by cc alone.\n";
    return std::string();
  }();
  return found;
}

class CModule {
 public:
  /// `more`: further files to compile with it.
  explicit CModule(const std::filesystem::path& file, const std::string& more = "") {
    const std::string library = file.string() + ".so";
    BOOST_REQUIRE(runs("${CC:-cc} " + std::string(c_warnings) + " -O2 -shared -fPIC -o " + library + " " +
                       file.string() + " " + more + " -lm"));
    if (!installed_clang().empty())
      BOOST_TEST(runs(installed_clang() + " " + std::string(c_warnings) + " -fsyntax-only " + file.string()));
    handle_ = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
    BOOST_REQUIRE_MESSAGE(handle_, dlerror());
  }
  ~CModule() {
    if (handle_) dlclose(handle_);
  }
  CModule(const CModule&) = delete;
  CModule& operator=(const CModule&) = delete;

  /// A function of that type.
  template <class F>
  F* function(const std::string& name) const {
    void* const found = dlsym(handle_, name.c_str());
    BOOST_REQUIRE_MESSAGE(found, "there is no function " + name);
    return reinterpret_cast<F*>(found);
  }
  bool has(const std::string& name) const { return dlsym(handle_, name.c_str()) != nullptr; }

 private:
  void* handle_ = nullptr;
};

}  // namespace espalier::testing
