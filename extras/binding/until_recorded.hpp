#pragma once

// Ends a forward of Python's from a hook, as `Recorder::until_recorded` does in C++.

#include <torch/csrc/utils/pybind.h>

#include <torchtap/recorders/extend/takes.hpp>
#include <torchtap/recorders/recorder.hpp>

namespace torchtap::python {

namespace py = pybind11;

/// Throws a BaseException of Python that stands for this.
[[noreturn]] void throw_in_python(const recorders::extend::StopForward& stop);

/// Runs hooks that Python called, which cannot pass on what ends a forward.
template <class Run>
void stop_in_python(const Run& hooks) {
  try {
    hooks();
  } catch (const recorders::extend::StopForward& stop) {
    throw_in_python(stop);
  }
}

/// Calls `forward`, and whether a hook ended it. Without Python's lock.
bool until_recorded(recorders::Recorder& recorder, const py::object& forward);

}  // namespace torchtap::python
