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
      .def_property_readonly(
          "path", [](const RecordedEntry& entry) { return entry.path(); }, "The module's path.")
      .def_property_readonly(
          "aliases", [](const RecordedEntry& entry) { return entry.aliases(); }, "Its other paths.")
      .def_property_readonly(
          "type", [](const RecordedEntry& entry) { return entry.type(); }, "The name of its class.")
      .def_property_readonly(
          "kind", [](const RecordedEntry& entry) { return entry.kind(); },
          "The kind of the recorder: \"ForwardOutput\".")
      .def_property_readonly(
          "directory", [](const RecordedEntry& entry) { return entry.directory(); },
          "The folder of its files.")
      .def_property_readonly("samples", &RecordedEntry::samples, "Recorded calls, not rows.")
      .def_property_readonly("dropped", &RecordedEntry::dropped, "Samples dropped for lack of room.")
      .def_property_readonly(
          "reduction", [](const RecordedEntry& entry) { return entry.reduction(); },
          "The reduction, \"Moments\"; empty if samples were kept.")
      .def_property_readonly(
          "note", [](const RecordedEntry& entry) { return in_python(entry.note()); },
          "Why there are no samples, or how many were left out and why.")
      .def("__repr__",
           [](const RecordedEntry& entry) {
             return c10::str("torchtap.Entry(\"", entry.path(), "\", ", entry.samples(), " samples)");
           })
      .def_property_readonly("value", &value_of,
                             "A tensor or a dict of results if reduced, otherwise the list of samples.")
      .def_property_readonly("reductions", &reductions_of,
                             "The reductions as they were saved, which go on with further samples.");
  py::class_<Recording>(module, "Recording")
      .def("__len__", &Recording::size)
      .def("__getitem__", &entry_at)
      .def("__repr__",
           [](const Recording& all) { return c10::str("torchtap.Recording(", all.size(), " entries)"); })
      .def(
          "__iter__", [](const Recording& all) { return py::make_iterator(all.begin(), all.end()); },
          py::keep_alive<0, 1>())
      .def_property_readonly("paths", &Recording::paths, "The paths of the entries, in order.")
      .def_property_readonly(
          "directory",
          [](const Recording& all) {
            return all.empty() ? std::string() : all.at(std::int64_t{0}).directory();
          },
          "The folder that was read.")
      .def_property_readonly(
          "created", [](const Recording& all) { return all.created(); }, "When it was saved, as text.")
      .def_property_readonly("complete", &Recording::complete,
                             "Whether its program ended it; False of one that was cut off.");
  module.def(
      "load_recording", [](const std::string& path) { return storage::load(path); }, release);
  module.def("load_value", [](const std::string& path) {
    return to_python(unlocked([&] { return storage::load_value(path); }));
  });
  module.def("merge", &merge, release);
}

}  // namespace torchtap::python
