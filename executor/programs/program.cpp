#include "espalier/executor/programs/program.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <new>

#include "espalier/core/defaults.h"
#include "espalier/core/error.h"
#include "espalier/core/files/file.h"
#include "espalier/core/version.h"

namespace espalier::programs {

namespace {

int fail(const std::string& program, Exit code, std::string message) {
  for (char& c : message)
    if (c == '\n') c = ' ';
  std::fprintf(stderr, "%s: %s\n", program.c_str(), message.c_str());
  return code;
}

constexpr uint64_t most_threads = 4096;  // that of set_num_threads

Device device_of(const std::string& text) {
  Device device;
  std::string type = text;
  if (const size_t colon = text.find(':'); colon != text.npos) {
    type = text.substr(0, colon);
    const char* end = text.data() + text.size();
    const auto [stop, failed] = std::from_chars(text.data() + colon + 1, end, device.index);
    if (failed != std::errc() || stop != end || device.index < 0) type.clear();
  }
  if (type == "cpu" || type == "cuda") {
    device.type = type == "cpu" ? DeviceType::cpu : DeviceType::cuda;
    return device;
  }
  throw Failure{usage, "--device " + text + ": a device is cpu, cuda or cuda:1"};
}

}  // namespace

void CommonOptions::add_to(CLI::App& app) {
  app.add_option("--device", devices,
                 "Where to run: cpu, cuda, cuda:1; more than one divide the rows of each batch")
      ->allow_extra_args(false);
  app.add_option("--threads", threads, "Threads of the CPU (default: its cores)")
      ->check(whole_number(1, most_threads));
  app.set_version_flag("--version", std::string(version));
}

std::vector<Device> CommonOptions::apply() const {
  if (threads > 0) set_num_threads(threads);
  std::vector<Device> all;
  for (const std::string& text : devices) all.push_back(device_of(text));
  return all;
}

int run_program(CLI::App& app, int argc, char** argv, const std::function<void()>& body) {
  const std::string name = app.get_name();
  try {
    app.parse(argc, argv);
    body();
    return ok;
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help and --version
    return fail(name, usage, std::string(error.what()) + "; see " + name + " --help");
  } catch (const Failure& failure) {
    return fail(name, failure.code, failure.message);
  } catch (const OutOfMemory& error) {
    return fail(name, internal, error.what());
  } catch (const DeviceError& error) {
    return fail(name, unavailable, error.what());
  } catch (const UnsupportedError& error) {
    return fail(name, unavailable, error.what());
  } catch (const Error& error) {
    return fail(name, bad_data, error.what());
  } catch (const std::bad_alloc&) {
    return fail(name, internal, "the system has no memory left");
  } catch (const std::exception& error) {
    return fail(name, internal, error.what());
  }
}

std::function<std::string(const std::string&)> whole_number(uint64_t least, uint64_t most) {
  return [=](const std::string& text) -> std::string {
    uint64_t number = 0;
    const char* const end = text.data() + text.size();
    const auto [stop, failed] = std::from_chars(text.data(), end, number);
    if (failed == std::errc() && stop == end && number >= least && number <= most) return "";
    return fmt::format("{} is no whole number from {} to {}", text, least, most);
  };
}

void check_input(const std::filesystem::path& file) {
  if (file.empty()) throw Failure{no_input, "an empty path cannot be opened"};
  std::error_code failed;  // reported by the next call
  if (std::filesystem::exists(file, failed) && !std::filesystem::is_regular_file(file, failed))
    throw Failure{no_input, file.string() + " cannot be opened: it is no regular file"};  // a pipe would wait
  if (std::FILE* opened = std::fopen(file.c_str(), "rb"))
    std::fclose(opened);
  else
    throw Failure{no_input, file.string() + " cannot be opened: " + std::strerror(errno)};
}

void check_output(const std::filesystem::path& file) {
  write_output([&] { AtomicFile trial(file); });
}

bool same_file(const std::filesystem::path& a, const std::filesystem::path& b) {
  std::error_code failed;
  const auto of_a = std::filesystem::weakly_canonical(std::filesystem::absolute(a), failed);
  if (failed) return a == b;
  const auto of_b = std::filesystem::weakly_canonical(std::filesystem::absolute(b), failed);
  return failed ? a == b : of_a == of_b;
}

void write_output(const std::function<void()>& write) {
  try {
    write();
  } catch (const FileError& error) {
    throw Failure{cannot_create, error.what()};
  }
}

std::pair<std::string, std::filesystem::path> named_file(const std::string& argument) {
  const size_t equals = argument.find('=');
  if (equals == argument.npos) return {"", argument};
  return {argument.substr(0, equals), argument.substr(equals + 1)};
}

Tensor converted(const Tensor& tensor, DType dtype, const std::string& name) {
  if (tensor.dtype() == dtype) return tensor;
  const bool boolean = tensor.dtype() == DType::boolean || dtype == DType::boolean;
  if (boolean || is_real(tensor.dtype()) != is_real(dtype))
    throw Failure{bad_data, "'" + name + "' takes " + std::string(espalier::name(dtype)) + ", not " +
                                std::string(espalier::name(tensor.dtype()))};
  return tensor.to(dtype);
}

std::string text_of(DType dtype, const Shape& shape) {
  std::string text(name(dtype));
  return text + " " + shape.str();
}

}  // namespace espalier::programs
