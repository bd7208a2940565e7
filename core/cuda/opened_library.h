// A library of functions that is opened at run time, so programs are not linked to it.
#pragma once
#include <initializer_list>
#include <string>
#include <string_view>

namespace espalier::cu {

class OpenedLibrary {
 public:
  /// Opens the library at the path that the environment's `variable` has, else at the first of `paths` that
  /// the loader can open. `name` is what errors call it. Throws UnsupportedError.
  OpenedLibrary(std::string_view name, const char* variable, std::initializer_list<const char*> paths);

  /// Sets `function` to the one of that name. Throws UnsupportedError if there is none.
  template <class F>
  void find(F*& function, const char* symbol) const {
    function = reinterpret_cast<F*>(address_of(symbol));
  }
  const std::string& path() const { return path_; }

 private:
  void* address_of(const char* symbol) const;

  std::string name_, path_;
  void* library_ = nullptr;  // is never closed
};

}  // namespace espalier::cu
