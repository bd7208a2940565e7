// BindContext: what a runtime offers to the kernels that it binds.
#pragma once
#include <memory>
#include <typeindex>
#include <utility>
#include <vector>

namespace espalier {

class BoundKernel;
class Op;
struct KernelCall;

/// A runtime offers services by their type, and a kernel asks for one by its type: so core knows no type of
/// an executor. Eager evaluation offers none.
class BindContext {
 public:
  /// The service must outlive the kernels, if they hold on to it. It takes the place of one of the same type.
  template <class T>
  void offer(T& service) {
    std::erase_if(services_, [](const auto& known) { return known.first == typeid(T); });
    services_.emplace_back(typeid(T), &service);
  }
  template <class T>
  T* find() const {
    for (const auto& [type, service] : services_)
      if (type == typeid(T)) return static_cast<T*>(service);
    return nullptr;
  }

 private:
  std::vector<std::pair<std::type_index, void*>> services_;
};

/// The kernel of a call on the device where its outputs are. Throws UnsupportedError naming op, dtype and
/// device where there is none.
std::unique_ptr<BoundKernel> bind_kernel(const Op& op, const KernelCall& call,
                                         const BindContext& context = {});

}  // namespace espalier
