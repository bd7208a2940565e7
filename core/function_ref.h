// FunctionRef: a non-owning reference to a callable. It allocates nothing.
#pragma once
#include <memory>
#include <type_traits>
#include <utility>

namespace espalier {

template <class Signature>
class FunctionRef;

template <class R, class... A>
class FunctionRef<R(A...)> {
 public:
  template <class F>
  requires(!std::is_same_v<std::remove_cvref_t<F>, FunctionRef> && std::is_invocable_r_v<R, F&, A...>)
      FunctionRef(F&& f)
      : function_(const_cast<void*>(static_cast<const void*>(std::addressof(f)))),
        call_([](void* function, A... arguments) -> R {
          return (*static_cast<std::remove_reference_t<F>*>(function))(std::forward<A>(arguments)...);
        }) {}

  R operator()(A... arguments) const { return call_(function_, std::forward<A>(arguments)...); }

 private:
  void* function_;
  R (*call_)(void*, A...);
};

}  // namespace espalier
