// Errors that name the file and the node.
#pragma once
#include <new>
#include <source_location>
#include <string>
#include <string_view>

#include "espalier/nn/onnx/model.h"

namespace espalier::onnx {

namespace detail {
template <class E>
[[noreturn]] void rethrow(const std::string& prefix, const E& error) {
  const std::string_view text = error.what();
  throw E(text.find(prefix) == text.npos ? prefix + ": " + std::string(text) : std::string(text));
}
}  // namespace detail

/// f(). Errors keep their types and get `prefix` in front of their texts, unless it is there.
template <class F>
decltype(auto) with_prefix(const std::string& prefix, F&& f) {
  try {
    return f();
  } catch (const ConstantNeeded& error) {
    throw ConstantNeeded(prefix + ": " + error.what(), error.inputs());
  } catch (const UnsupportedError& error) {
    detail::rethrow(prefix, error);
  } catch (const ShapeError& error) {
    detail::rethrow(prefix, error);
  } catch (const TypeError& error) {
    detail::rethrow(prefix, error);
  } catch (const IndexError& error) {
    detail::rethrow(prefix, error);
  } catch (const FileError& error) {
    detail::rethrow(prefix, error);
  } catch (const DataError& error) {
    detail::rethrow(prefix, error);
  } catch (const DeviceError& error) {
    detail::rethrow(prefix, error);
  } catch (const OutOfMemory& error) {
    detail::rethrow(prefix, error);
  } catch (const Error& error) {
    detail::rethrow(prefix, error);
  } catch (const std::bad_alloc&) {
    throw OutOfMemory(prefix + ": the system has no memory left");
  }
}

/// f(). Errors get the user's line, unless they name it.
template <class F>
decltype(auto) with_line(const std::source_location& where, F&& f) {
  try {
    return f();
  } catch (Error& error) {
    const std::string_view text = error.what();
    if (text.find(std::string(where.file_name()) + ":" + std::to_string(where.line())) == text.npos)
      error.locate(where);
    throw;
  }
}

}  // namespace espalier::onnx
