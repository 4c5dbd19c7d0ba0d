#include "callable.hpp"

#include <torch/csrc/jit/frontend/tracer.h>

#include <utility>

namespace torchtap::python {
namespace {

constexpr c10::DispatchKeySet kOfPython({c10::DispatchKey::Python, c10::DispatchKey::PythonTLSSnapshot});

/// What this thread hides of Python at the moment.
c10::DispatchKeySet& hidden() noexcept {
  static thread_local c10::DispatchKeySet keys;
  return keys;
}

c10::impl::LocalDispatchKeySet shown() {
  auto keys = c10::impl::tls_local_dispatch_key_set();
  keys.excluded_ = keys.excluded_ - hidden();
  return keys;
}

/// What is hidden while hooks run, and what the user's code in them may see again: all of it, but a trace
/// that was going on.
c10::DispatchKeySet to_show(bool python_too) {
  auto keys = python_too ? kOfPython : c10::DispatchKeySet();
  if (!torch::jit::tracer::isTracing()) keys = keys.add(c10::DispatchKey::Tracer);
  return keys - c10::impl::tls_local_dispatch_key_set().excluded_;
}

}  // namespace

Hidden::Hidden(bool python_too)
    : former_(std::exchange(hidden(), to_show(python_too))),
      excluded_((python_too ? kOfPython : c10::DispatchKeySet()).add(c10::DispatchKey::Tracer)) {}

Hidden::~Hidden() {
  hidden() = former_;
}

UsersCode::UsersCode() : shown_(shown()) {}

std::shared_ptr<const py::object> held(py::object object) {
  return {new py::object(std::move(object)), [](const py::object* one) {
            if (Py_IsInitialized() == 0) return;  // Python ended first, and its objects with it
            const py::gil_scoped_acquire locked;
            delete one;
          }};
}

void check_callable(const py::object& object, const std::string& what) {
  TORCH_CHECK_TYPE(PyCallable_Check(object.ptr()) != 0, "torchtap: ", what, " has to be a callable, got ",
                   Py_TYPE(object.ptr())->tp_name, ".");
}

void refuse_returned(const std::string& what, py::handle returned, const char* wanted) {
  TORCH_CHECK_TYPE(false, "torchtap: ", what, " returned ", Py_TYPE(returned.ptr())->tp_name,
                   "; it has to return ", wanted, ".");
}

}  // namespace torchtap::python
