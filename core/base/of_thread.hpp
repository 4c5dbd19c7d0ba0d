#pragma once

// Provides objects of each thread that can be used until the process ends.

#include <utility>

namespace torchtap::base {

/// The `T` of this thread for `Use`. Destructors of static objects and functions of `atexit` may use it, too:
/// they run in the main thread after its thread_local objects were destroyed, and get another `T`, which
/// stays until the process ends. `Use` is any type that is named in one place only. Costs a pointer's check,
/// as a thread_local without constructor does.
template <class T, class Use = T>
T& of_thread() {
  struct End {
    T*& object;
    ~End() { delete std::exchange(object, nullptr); }
    [[gnu::noinline]] static void make(T*& object) {  // apart, so that the rest is compiled into callers
      object = new T();
      static thread_local const End end{object};  // made once: a later object stays
      static_cast<void>(end);
    }
  };
  static thread_local T* object = nullptr;
  T* mine = object;  // read once: each time it is looked up
  if (mine == nullptr) {
    End::make(object);
    mine = object;
  }
  return *mine;
}

}  // namespace torchtap::base
