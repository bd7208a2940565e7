// The C interface: plan files for programs in other languages.
#include <dlpack/dlpack.h>

#include <bit>
#include <memory>
#include <mutex>
#include <new>
#include <shared_mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "espalier/core/dlpack.h"
#include "espalier/core/error.h"
#include "espalier/core/version.h"
#include "espalier/executor/espalier_c.h"
#include "espalier/executor/load.h"

namespace espalier {

namespace {

constexpr std::source_location nowhere{};  // errors have no line: the caller is no C++

std::string& last_error() {
  static thread_local std::string message;
  return message;
}

esp_status status_of_exception() noexcept {
  const auto note = [](esp_status status, const char* message) noexcept {
    try {
      last_error() = message;
    } catch (...) {
      last_error().clear();
    }
    return status;
  };
  try {
    throw;
  } catch (const OutOfMemory& error) {
    return note(ESP_MEMORY, error.what());
  } catch (const std::bad_alloc&) {
    return note(ESP_MEMORY, "the system has no memory left");
  } catch (const FileError& error) {
    return note(ESP_FILE, error.what());
  } catch (const UnsupportedError& error) {
    return note(ESP_UNSUPPORTED, error.what());
  } catch (const DeviceError& error) {
    return note(ESP_UNSUPPORTED, error.what());
  } catch (const ShapeError& error) {
    return note(ESP_INVALID, error.what());
  } catch (const TypeError& error) {
    return note(ESP_INVALID, error.what());
  } catch (const DataError& error) {
    return note(ESP_INVALID, error.what());
  } catch (const std::exception& error) {
    return note(ESP_ERROR, error.what());
  } catch (...) {
    return note(ESP_ERROR, "an unknown exception");
  }
}

template <class F>
esp_status guarded(const F& f) noexcept {
  try {
    f();
    return ESP_OK;
  } catch (...) {
    return status_of_exception();
  }
}

template <class T>
T& need(T* pointer, const char* what) {
  if (!pointer) throw DataError(std::string(what) + " is a null pointer");
  return *pointer;
}

Device device_of(std::string_view text) {
  if (text == "cpu") return cpu();
  if (text == "cuda") return Device{DeviceType::cuda};
  for (int index = 0; index < 64; ++index)
    if (text == "cuda:" + std::to_string(index)) return Device{DeviceType::cuda, index};
  throw DeviceError("there is no device '" + std::string(text) + "'; it is cpu, cuda or cuda:1");
}

/// A tensor over memory that stays the caller's, without its deleter.
Tensor borrowed(DLManagedTensor& from) {
  auto view = std::make_unique<DLManagedTensor>(
      DLManagedTensor{from.dl_tensor, nullptr, [](DLManagedTensor* self) { delete self; }});
  Tensor tensor = from_dlpack(view.get(), nowhere);
  view.release();  // the tensor's now
  return tensor;
}

esp_value value_of(const ValueInfo& info) {
  // All names of types end where their text does.
  return {info.name.c_str(), name(info.dtype).data(), info.shape.begin(),
          static_cast<int32_t>(info.shape.rank())};
}

void describe(const std::vector<ValueInfo>& values, size_t index, esp_value* value, const char* what) {
  if (index >= values.size())
    throw DataError("there is no " + std::string(what) + " " + std::to_string(index) + " of " +
                    std::to_string(values.size()));
  need(value, "value") = value_of(values[index]);
}

}  // namespace

}  // namespace espalier

struct esp_executor {
  espalier::Executor executor;
  std::vector<espalier::ValueInfo> inputs, outputs;
  bool alone;  ///< only one thread may be inside
  mutable std::shared_mutex mutex;
};

namespace espalier {

namespace {

void run(esp_executor& executor, DLManagedTensor* const* inputs, size_t input_count,
         DLManagedTensor** outputs, size_t output_count) {
  if (input_count != executor.inputs.size())
    throw DataError("the plan has " + std::to_string(executor.inputs.size()) + " inputs, and " +
                    std::to_string(input_count) + " were given");
  if (output_count > executor.outputs.size())
    throw DataError("the plan has " + std::to_string(executor.outputs.size()) + " outputs, and " +
                    std::to_string(output_count) + " were asked for");
  if (input_count) (void)need(inputs, "inputs");
  if (output_count) (void)need(outputs, "outputs");
  Feeds feeds;
  for (size_t i = 0; i < input_count; ++i)
    feeds.emplace_back(executor.inputs[i].name, borrowed(need(inputs[i], "an input")));
  const auto take_turns = executor.alone || output_count > 1;
  std::unique_lock<std::shared_mutex> one(executor.mutex, std::defer_lock);
  std::shared_lock<std::shared_mutex> several(executor.mutex, std::defer_lock);
  take_turns ? one.lock() : several.lock();
  std::vector<Tensor> results{executor.executor.run(feeds, nowhere)};
  for (size_t i = 1; i < output_count; ++i)
    results.push_back(executor.executor.output(executor.outputs[i].name, nowhere));
  std::vector<std::unique_ptr<DLManagedTensor, void (*)(DLManagedTensor*)>> made;
  for (size_t i = 0; i < output_count; ++i)
    made.emplace_back(to_dlpack(results[i].to(cpu()), nowhere), [](DLManagedTensor* t) { t->deleter(t); });
  for (size_t i = 0; i < output_count; ++i) outputs[i] = made[i].release();
}

/// Null on failure.
esp_executor* load(const char* path, LoadOptions options, const char* device) {
  esp_executor* made = nullptr;
  (void)guarded([&] {
    if (device) options.devices = {device_of(device)};
    const Executor executor = load_executor(&need(path, "path"), options, nowhere);
    made = new esp_executor{
        executor, executor.inputs(), executor.outputs(), executor.mode() == Mode::training, {}};
  });
  return made;
}

}  // namespace

}  // namespace espalier

using namespace espalier;

extern "C" {

const char* esp_version(void) { return espalier::version; }
const char* esp_last_error(void) { return last_error().c_str(); }

esp_executor* esp_load(const char* path, esp_mode mode, const char* device) {
  LoadOptions options;
  const esp_status known = guarded([&] {
    // C passes any number, which C++ must not read as an enumeration.
    const auto number = std::bit_cast<int>(mode);
    if (number != ESP_AS_SAVED && number != ESP_INFERENCE && number != ESP_TRAINING)
      throw DataError(std::to_string(number) + " is no esp_mode");
  });
  if (known != ESP_OK) return nullptr;
  if (mode != ESP_AS_SAVED) options.mode = mode == ESP_TRAINING ? Mode::training : Mode::inference;
  return load(path, options, device);
}

esp_executor* esp_load_outputs(const char* path, const char* const* names, size_t count, const char* device) {
  LoadOptions options{.mode = Mode::inference};
  const esp_status named = guarded([&] {
    if (count == 0) throw DataError("0 outputs were named");
    (void)need(names, "names");
    for (size_t i = 0; i < count; ++i) options.outputs.emplace_back(&need(names[i], "a name"));
  });
  return named == ESP_OK ? load(path, options, device) : nullptr;
}

void esp_release(esp_executor* executor) { delete executor; }

size_t esp_input_count(const esp_executor* executor) { return executor ? executor->inputs.size() : 0; }
size_t esp_output_count(const esp_executor* executor) { return executor ? executor->outputs.size() : 0; }

esp_status esp_input(const esp_executor* executor, size_t index, esp_value* value) {
  return guarded([&] { describe(need(executor, "executor").inputs, index, value, "input"); });
}
esp_status esp_output(const esp_executor* executor, size_t index, esp_value* value) {
  return guarded([&] { describe(need(executor, "executor").outputs, index, value, "output"); });
}

esp_status esp_run(esp_executor* executor, DLManagedTensor* const* inputs, size_t input_count,
                   DLManagedTensor** outputs, size_t output_count) {
  return guarded([&] { run(need(executor, "executor"), inputs, input_count, outputs, output_count); });
}

esp_status esp_save(const esp_executor* executor, const char* path) {
  return guarded([&] {
    const std::unique_lock lock(need(executor, "executor").mutex);
    executor->executor.save(&need(path, "path"), {}, nowhere);
  });
}

}  // extern "C"
