#include "until_recorded.hpp"

#include <cstdint>

namespace torchtap::python {
namespace {

using recorders::extend::StopForward;

py::object stop_type() {
  return py::module_::import("torchtap.recorders").attr("_Stop");
}

}  // namespace

void throw_in_python(const StopForward& stop) {
  const py::gil_scoped_acquire locked;
  const py::object type = stop_type();
  PyErr_SetObject(type.ptr(), type(reinterpret_cast<std::uintptr_t>(stop.until)).ptr());
  throw py::error_already_set();
}

bool until_recorded(recorders::Recorder& recorder, const py::object& forward) {
  return recorder.until_recorded([&] {
    const py::gil_scoped_acquire locked;
    try {
      forward();
    } catch (const py::error_already_set& error) {
      if (!error.matches(stop_type())) throw;
      const auto until = py::cast<std::uintptr_t>(error.value().attr("until"));
      throw StopForward{reinterpret_cast<decltype(StopForward::until)>(until)};
    }
  });
}

}  // namespace torchtap::python
