// Recordings and files in Python.

#include <pybind11/stl.h>

#include <string>
#include <vector>

#include <torchtap/reductions/restore.hpp>
#include <torchtap/storage/file.hpp>
#include <torchtap/storage/merge.hpp>
#include <torchtap/storage/recording.hpp>

#include "binding.hpp"

namespace torchtap::python {
namespace {

using storage::RecordedEntry;
using storage::Recording;

py::object value_of(const RecordedEntry& entry) {
  return to_python(unlocked([&] { return entry.value(); }));
}

std::vector<reductions::Any> reductions_of(const RecordedEntry& entry) {
  std::vector<reductions::Any> all;
  for (const auto& state : entry.state()) all.push_back(reductions::restore(state));
  return all;
}

/// By place, of which Python counts some from the end, or by path.
RecordedEntry entry_at(const Recording& recording, const py::object& which) {
  if (py::isinstance<py::str>(which)) return recording.at(py::cast<std::string>(which));
  const auto index = argument<std::int64_t>(which, "Recording", "a place or a path");
  return recording.at(index < 0 ? index + static_cast<std::int64_t>(recording.size()) : index);
}

void merge(const std::vector<std::string>& parts, const std::string& directory, bool mkdir, bool overwrite,
           bool all_modules) {
  storage::MergeOptions options;
  options.save(storage::SaveOptions().mkdir(mkdir).overwrite(overwrite)).all_modules(all_modules);
  storage::merge(parts, directory, reductions::restore, options);
}

}  // namespace

void define_storage(py::module_& module) {
  const auto release = py::call_guard<py::gil_scoped_release>();
  py::class_<RecordedEntry>(module, "Entry")
      .def_property_readonly("path", [](const RecordedEntry& entry) { return entry.path(); })
      .def_property_readonly("aliases", [](const RecordedEntry& entry) { return entry.aliases(); })
      .def_property_readonly("type", [](const RecordedEntry& entry) { return entry.type(); })
      .def_property_readonly("kind", [](const RecordedEntry& entry) { return entry.kind(); })
      .def_property_readonly("directory", [](const RecordedEntry& entry) { return entry.directory(); })
      .def_property_readonly("samples", &RecordedEntry::samples)
      .def_property_readonly("dropped", &RecordedEntry::dropped)
      .def_property_readonly("reduction", [](const RecordedEntry& entry) { return entry.reduction(); })
      .def_property_readonly("note", [](const RecordedEntry& entry) { return in_python(entry.note()); })
      .def("__repr__",
           [](const RecordedEntry& entry) {
             return c10::str("torchtap.Entry(\"", entry.path(), "\", ", entry.samples(), " samples)");
           })
      .def_property_readonly("value", &value_of)
      .def_property_readonly("reductions", &reductions_of);
  py::class_<Recording>(module, "Recording")
      .def("__len__", &Recording::size)
      .def("__getitem__", &entry_at)
      .def("__repr__",
           [](const Recording& all) { return c10::str("torchtap.Recording(", all.size(), " entries)"); })
      .def(
          "__iter__", [](const Recording& all) { return py::make_iterator(all.begin(), all.end()); },
          py::keep_alive<0, 1>())
      .def_property_readonly("paths", &Recording::paths)
      .def_property_readonly("directory",
                             [](const Recording& all) {
                               return all.empty() ? std::string() : all.at(std::int64_t{0}).directory();
                             })
      .def_property_readonly("created", [](const Recording& all) { return all.created(); })
      .def_property_readonly("complete", &Recording::complete);
  module.def(
      "load_recording", [](const std::string& path) { return storage::load(path); }, release);
  module.def("load_value", [](const std::string& path) {
    return to_python(unlocked([&] { return storage::load_value(path); }));
  });
  module.def("merge", &merge, release);
}

}  // namespace torchtap::python
