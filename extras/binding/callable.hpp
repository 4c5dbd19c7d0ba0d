#pragma once

// Makes functions of C++ of what Python's users write: conditions, transforms, reductions.

#include <c10/core/DispatchKeySet.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/utils/pybind.h>

#include <functional>
#include <memory>
#include <string>
#include <type_traits>

#include <torchtap/base/error.hpp>

#include "binding.hpp"

namespace torchtap::python {

/// Hides what hooks of this thread compute from torch.jit.trace and, unless `python_too` is false, from modes
/// that watch operations (`TorchDispatchMode`, say a counter of operations). What users wrote is not hidden.
class Hidden {
 public:
  explicit Hidden(bool python_too);
  ~Hidden();
  Hidden(const Hidden&) = delete;
  Hidden& operator=(const Hidden&) = delete;

 private:
  c10::DispatchKeySet former_;
  c10::impl::ExcludeDispatchKeyGuard excluded_;
};

/// Holds Python's lock, and shows modes and classes of tensors that Python defines what is computed.
class UsersCode {
 public:
  UsersCode();

 private:
  py::gil_scoped_acquire locked_;
  c10::impl::ForceDispatchKeyGuard shown_;
};

/// Holds an object of Python for functions of C++, which are copied and destroyed without Python's lock.
std::shared_ptr<const py::object> held(py::object object);

/// Throws `c10::TypeError` unless the object can be called. `what`: "the transform".
void check_callable(const py::object& object, const std::string& what);
[[noreturn]] void refuse_returned(const std::string& what, py::handle returned, const char* wanted);

/// A function that calls `callable`. Throws `c10::TypeError` if that returns something else.
template <class Result, class... Arguments>
std::function<Result(Arguments...)> to_function(const py::object& callable, const std::string& what) {
  check_callable(callable, what);
  return [callable = held(callable), what](Arguments... arguments) -> Result {
    const UsersCode users;
    const py::object returned = (*callable)(arguments...);
    if constexpr (!std::is_void_v<Result>) {
      try {
        return py::cast<Result>(returned);
      } catch (const py::cast_error&) {
        refuse_returned(what, returned, std::is_same_v<Result, bool> ? "a bool" : "a torch.Tensor");
      }
    }
  };
}

}  // namespace torchtap::python
