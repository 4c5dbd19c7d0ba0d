// Recorders in Python.

#include <pybind11/functional.h>
#include <pybind11/stl.h>
#include <torch/library.h>

#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <torchtap/base/error.hpp>
#include <torchtap/recorders/recorders.hpp>
#include <torchtap/reductions/any.hpp>
#ifdef TORCHTAP_PYTHON_DISTRIBUTED
#include <torchtap/distributed/distributed.hpp>
#endif

#include "binding.hpp"
#include "callable.hpp"
#include "leaf.hpp"
#include "stand_in.hpp"
#include "until_recorded.hpp"

namespace torchtap::python {
namespace {

using recorders::Companion;
using recorders::Recorder;
using recorders::RecorderOptions;
using recorders::Subrecorder;

/// A sample that a condition decides about. `recorders::Sample` lives only during the call.
struct Sample {
  std::string path, type;
  std::int64_t call_index, sample_index, slot;
  at::Tensor tensor;
  bool recomputed;
};

void set_condition(RecorderOptions& options, const py::object& condition, bool takes_sample) {
  if (!takes_sample) {
    options.condition(to_function<bool>(condition, "the condition"));
    return;
  }
  auto asked = to_function<bool, const Sample&>(condition, "the condition");
  options.condition([asked = std::move(asked)](const recorders::Sample& sample) {
    return asked({sample.path(), sample.type(), sample.call_index(), sample.sample_index(), sample.slot(),
                  sample.tensor(), is_recomputed()});
  });
}

void set_handler(RecorderOptions& options, const py::object& handler) {
  auto tell = to_function<void, const std::string&, const py::object&>(handler, "on_error");
  options.on_error([tell = std::move(tell)](const std::string& path, const std::exception_ptr& error) {
    const py::gil_scoped_acquire locked;
    tell(path, to_exception(error));
  });
}

#ifdef TORCHTAP_PYTHON_ROWS
void set_rows(RecorderOptions& options, const py::dict& given) {
  if (!given["rows"].is_none()) options.rows(option<std::vector<std::int64_t>>(given, "rows"));
  if (!given["where"].is_none()) options.where(option<std::string>(given, "where"));
  if (!given["beside"].is_none()) options.beside(option<std::vector<std::string>>(given, "beside"));
}
#else
void set_rows(RecorderOptions&, const py::dict& given) {
  for (const char* const name : {"rows", "where", "beside"}) {
    TORCH_CHECK_NOT_IMPLEMENTED(
        given[name].is_none(), "torchtap: ", name,
        "= needs the component rows, which this torchtap was built without. Install it in the source with "
        "`pip install . --config-settings cmake.define.TORCHTAP_COMPONENTS=\"python;rows\"`.");
  }
}
#endif

RecorderOptions options_of(const py::dict& given) {
  RecorderOptions options;
  const auto is_given = [&](const char* name) { return given.contains(name) && !given[name].is_none(); };
  if (is_given("condition"))
    set_condition(options, given["condition"], py::cast<bool>(given["takes_sample"]));
  if (is_given("reduction")) options.reduction(reductions::Any(to_sink(given["reduction"])));
  if (is_given("transform"))
    options.transform(to_function<at::Tensor, const at::Tensor&>(given["transform"], "the transform"));
  if (is_given("on_error")) set_handler(options, given["on_error"]);
  if (is_given("device")) options.device(option<at::Device>(given, "device"));
  if (is_given("dtype")) options.dtype(option<at::ScalarType>(given, "dtype"));
  if (is_given("companions")) {
    for (auto& [name, companion] : option<std::map<std::string, Companion>>(given, "companions")) {
      options.with(name, companion);
    }
  }
  options.slot(option<std::int64_t>(given, "slot")).all_tensors(option<bool>(given, "all_tensors"));
  if (py::cast<bool>(given["alias"])) options.capture(recorders::Capture::alias);
  const auto spool_options = storage::SpoolOptions().mkdir(true);
  const auto spool = is_given("spool") ? py::cast<std::string>(given["spool"]) : std::string();
  if (is_given("memory_budget")) {
    const auto bytes = option<std::int64_t>(given, "memory_budget");
    if (spool.empty()) {
      options.memory_budget(bytes);
    } else {
      options.memory_budget(bytes, spool, spool_options);
    }
  } else if (!spool.empty()) {
    options.spool(spool, spool_options);
  }
  options.defer(option<std::int64_t>(given, "defer"));
  set_rows(options, given);
  return options;
}

/// Attaches to the parameters of modules, and returns those that Python has to put a hook on: (parameter,
/// leaf).
py::list attach_to_parameters(Recorder& recorder, const std::vector<model::ModuleRef>& selected) {
  std::map<PyObject*, Leaf> leaves;  // a parameter of several modules is one
  py::list found;
  for (const auto& module : selected) {
    StandIn& stand_in = stand_in_of(module);
    for (const auto& [name, parameter] : py::dict(stand_in.module().attr("_parameters"))) {
      if (parameter.is_none()) continue;
      const auto tensor = py::cast<at::Tensor>(parameter);
      if (!tensor.is_floating_point() && !tensor.is_complex()) continue;
      const auto [leaf, is_new] = leaves.try_emplace(parameter.ptr(), tensor);
      stand_in.hold(py::cast<std::string>(name), leaf->second.tensor());
      if (is_new) found.append(py::make_tuple(parameter, leaf->second));
    }
  }
  recorder.attach(selected);
  return found;
}

/// Attaches, and returns the hooks that Python has to register: (module, hook, before, after, with inputs,
/// paired).
py::list attach(Recorder& recorder, const py::object& model, const selectors::Selector& selector,
                bool children, bool recomputed) {
  const auto root = stand_in_for(model);
  const auto& kind = recorders::traits(recorders::kind_of(recorder.kind()));
  const auto selected = selectors::select(modules_of(*root, children), selector, /*called=*/!kind.parameters);
  for (const auto& module : selected) {
    TORCH_CHECK_TYPE(
        !stand_in_of(module).scripted(), "torchtap.", recorder.kind(), ": \"", module.path(), "\" (",
        module.type(),
        ") is a TorchScript module, whose compiled code calls no hooks of Python; leave it out with "
        "~torchtap.types(torch.jit.ScriptModule), or record its file in C++ or with the command.");
  }
  if (kind.parameters) return attach_to_parameters(recorder, selected);
  recorder.attach(selected);

  const bool is_pre = kind.hook == hooks::Kind::forward_pre, sees_inputs = kind.hook == hooks::Kind::forward;
  py::list hooks;
  std::set<const StandIn*> added;
  const auto add = [&](StandIn& stand_in, bool before, bool after, bool paired) {
    if (!added.insert(&stand_in).second) return;
    // Gradients come of the forward that has a graph, which may be the second.
    Hook hook(std::static_pointer_cast<StandIn>(stand_in.shared_from_this()), root, paired,
              /*first_only=*/!recomputed && !kind.gradients);
    hooks.append(
        py::make_tuple(stand_in.module(), std::move(hook), before, after, sees_inputs && !paired, paired));
  };
  const bool companions = !recorder.options().with().empty(), paired = kind.gradients || companions;
  for (const auto& module : selected) {
    StandIn& stand_in = stand_in_of(module);
    // Calls are counted in each forward of the model, which begins before it; where there are no others, its
    // own are all the first.
    const bool begins = &stand_in == root.get() && selected.size() > 1;
    add(stand_in, is_pre || paired || begins, !is_pre || paired, paired);
  }
  // The model itself, and modules that companions name.
  for (const auto& module : modules_of(*root, /*children=*/false)) {
    StandIn& stand_in = stand_in_of(module);
    if (!hooks::extend::is_idle(stand_in.torchtap_gate())) add(stand_in, true, companions, companions);
  }
  return hooks;
}

std::int64_t place(const Recorder& recorder, std::int64_t index) {
  const auto indices = recorder.indices();
  const auto size = static_cast<std::int64_t>(indices.size());
  TORCH_CHECK_INDEX(index >= -size && index < size, "torchtap.", recorder.kind(), ": no subrecorder ", index,
                    "; there are ", size, ".");
  return indices[static_cast<std::size_t>(index < 0 ? index + size : index)];
}

void save(const Recorder& recorder, const std::string& directory, bool mkdir, bool overwrite, bool sync) {
  recorder.save(directory, storage::SaveOptions().mkdir(mkdir).overwrite(overwrite).sync(sync));
}

#ifdef TORCHTAP_PYTHON_DISTRIBUTED
void merge_ranks(Recorder& recorder, c10d::ProcessGroup& group, bool everywhere, std::int64_t samples) {
  distributed::MergeRanksOptions options;
  distributed::merge_ranks(recorder, distributed::Group(group),
                           options.everywhere(everywhere).samples(samples));
}
#endif

/// Of a recorder or a part of it.
template <class Recorded>
void apply(Recorded& recorded, const py::object& function) {
  auto applied = to_function<at::Tensor, const at::Tensor&>(function, "the function of apply");
  unlocked([&] { recorded.apply(std::move(applied)); });
}
template <class Recorded>
void apply_sample(Recorded& recorded, const py::object& function) {
  auto applied =
      to_function<at::Tensor, const at::Tensor&, std::int64_t>(function, "the function of apply_sample");
  unlocked([&] { recorded.apply_sample(std::move(applied)); });
}

/// The subrecorder at a place or of a path.
Subrecorder subrecorder(Recorder& all, const py::object& which) {
  if (py::isinstance<py::str>(which)) return Subrecorder(all.at(py::cast<std::string>(which)));
  return Subrecorder(all[place(all, argument<std::int64_t>(which, all.kind(), "a place or a path"))]);
}

void define_subrecorder(py::module_& module) {
  const auto release = py::call_guard<py::gil_scoped_release>();
  py::class_<Subrecorder>(module, "Subrecorder", "The part of a recorder that belongs to one module.")
      .def("__repr__",
           [](const Subrecorder& one) {
             const auto samples = unlocked([&] { return one.samples(); });
             return c10::str("torchtap.Subrecorder(\"", one.path(), "\", ", samples, " samples)");
           })
      .def_property_readonly(
          "path", [](const Subrecorder& one) { return one.path(); },
          "The module's path; of `BackwardParameter` the parameter's name.")
      .def_property_readonly(
          "aliases", [](const Subrecorder& one) { return one.aliases(); }, "Its other paths.")
      .def_property_readonly(
          "type", [](const Subrecorder& one) { return one.type(); }, "The name of the module's class.")
      .def_property_readonly("samples", py::cpp_function(&Subrecorder::samples, release),
                             "Recorded calls, not rows.")
      .def_property_readonly("events", py::cpp_function(&Subrecorder::events, release),
                             "Calls seen, recorded or not.")
      .def_property_readonly("without_tensors", py::cpp_function(&Subrecorder::without_tensors, release),
                             "Calls that handed over no tensor.")
      .def_property_readonly("dropped", py::cpp_function(&Subrecorder::dropped, release),
                             "Samples dropped for lack of room.")
      .def_property_readonly("left_out", py::cpp_function(&Subrecorder::left_out, release),
                             "Samples that did not fit the reduction.")
      .def_property_readonly("unmatched", py::cpp_function(&Subrecorder::unmatched, release),
                             "Samples without a companion, and the other way round.")
      .def_property_readonly(
          "note", [](const Subrecorder& one) { return in_python(unlocked([&] { return one.note(); })); },
          "Why there are no samples, or how many were left out and why.")
      .def_property_readonly(
          "value", [](const Subrecorder& one) { return to_python(unlocked([&] { return one.value(); })); },
          "A tensor or a dict of results if reduced, otherwise the list of samples; None without samples.")
      .def(
          "results",
          [](const Subrecorder& one) { return to_python(unlocked([&] { return one.results(); })); },
          "The results of the reduction by name, a dict of tensors.")
      .def(
          "take", [](Subrecorder& one) { return to_python(unlocked([&] { return one.take(); })); },
          "Returns the value and resets, as one moment.")
      .def(
          "set",
          [](Subrecorder& one, const py::object& object) {
            core::Value value = to_value(object);
            unlocked([&] { one.set(std::move(value)); });
          },
          "Puts a tensor, or a list or dict of tensors, in place of the data.")
      .def(
          "apply", [](Subrecorder& one, const py::object& given) { apply(one, given); },
          "Replaces the data by what a callable makes of it.")
      .def(
          "apply_sample", [](Subrecorder& one, const py::object& given) { apply_sample(one, given); },
          "Replaces each kept sample by what a callable makes of it.")
      .def("reset", &Subrecorder::reset, release, "Begins anew, without data.");
}

}  // namespace

// Called by code that torch.compile made (compiled.py).
TORCH_LIBRARY_FRAGMENT(torchtap, library) {
  library.def("run_hooks(Tensor?[] inputs, Tensor?[] outputs, bool before, int number) -> ()",
              {at::Tag::pt2_compliant_tag, at::Tag::flexible_layout});
}
TORCH_LIBRARY_IMPL(torchtap, CompositeExplicitAutograd, library) {
  library.impl("run_hooks", &run_numbered);
}

void define_recorders(py::module_& module) {
  const auto release = py::call_guard<py::gil_scoped_release>();
  py::class_<Sample>(module, "Sample", "A sample that a condition decides about.")
      .def_readonly("path", &Sample::path, "The module's path.")
      .def_readonly("type", &Sample::type, "The name of its class.")
      .def_readonly("call_index", &Sample::call_index,
                    "The number of this call of the module in the forward, from 0.")
      .def_readonly("sample_index", &Sample::sample_index, "How many samples were recorded before.")
      .def_readonly("slot", &Sample::slot, "Which tensor of the call it is, from 0.")
      .def_readonly("tensor", &Sample::tensor, "The tensor, as the model has it.")
      .def_readonly("recomputed", &Sample::recomputed,
                    "Whether a checkpoint runs the forward again in a backward.");
  py::class_<Companion>(module, "Companion", "A tensor of another module, made by `output` and `input`.")
      .def(
          "map",
          [](const Companion& one, const py::object& function) {
            return one.map(
                to_function<at::Tensor, const at::Tensor&>(function, "the function of a companion"));
          },
          "This tensor, mapped by a function: an argmax, a pooling.")
      .def("__repr__", &Companion::describe);
  module.def(
      "output", [](const std::string& path, std::int64_t slot) { return recorders::output(path, slot); },
      py::arg("path") = ".", py::arg("slot") = 0,
      "The output of a module, by its path relative to the recorded one.");
  module.def(
      "input", [](const std::string& path, std::int64_t slot) { return recorders::input(path, slot); },
      py::arg("path") = ".", py::arg("slot") = 0, "The input of a module, as it was before its forward.");
  py::class_<Hook>(module, "Hook")
      .def("before", &Hook::before)
      .def("after", [](const Hook& hook, py::handle module, const py::tuple& /*arguments*/,
                       const py::object& output) { return hook.after(module, output); })
      .def("after", py::overload_cast<py::handle, const py::tuple&, const py::dict&, const py::object&>(
                        &Hook::after, py::const_))
      .def("number_among", &Hook::number_among)
      .def_property_readonly("idle", &Hook::idle);
  module.def("forget_idle_calls", &forget_idle_calls);
  module.def("leave_out", &leave_out);
  py::class_<Leaf>(module, "Leaf")
      .def("hand_over", &Leaf::hand_over)
      .def("follow", &Leaf::follow)
      .def_property_readonly("idle", &Leaf::idle);
  define_subrecorder(module);
  py::class_<Recorder>(module, "Recorder")
      .def(py::init([](const std::string& kind, const py::kwargs& options) {
        return recorders::make(kind, options_of(options));
      }))
      .def("attach_to", &attach, "See `attach`.")
      .def_property_readonly("kind", &Recorder::kind, "The name of the class: \"ForwardOutput\".")
      .def("__len__", &Recorder::size)
      .def("subrecorder", &subrecorder, "The `Subrecorder` at a place, or of the module at a path.")
      .def(
          "drop",
          [](Recorder& all, const py::object& which) {
            const auto index = argument<std::int64_t>(which, all.kind() + ".remove", "a place");
            return to_python(unlocked([&] { return all.remove(place(all, index)); }));
          },
          "See `remove`.")
      .def("detach_all", &Recorder::detach, release, "See `detach`.")
      .def(
          "end", [](Recorder& all) { const Recorder ended(std::move(all)); }, release,
          "Writes what was spooled, and ends the recorder.")
      .def("reset", &Recorder::reset, release, "Discards all samples; the hooks stay.")
      .def(
          "apply", [](Recorder& all, const py::object& function) { apply(all, function); },
          py::arg("function"),
          "Replaces what is recorded by `function` of it: of each tensor, result or kept sample.")
      .def(
          "apply_sample", [](Recorder& all, const py::object& function) { apply_sample(all, function); },
          py::arg("function"), "As apply, with the number of samples as second argument.")
      .def(
          "merge",
          [](Recorder& all, const py::object& given) {
            const auto& other = argument<const Recorder&>(given, all.kind() + ".merge", "a recorder");
            unlocked([&] { all.merge(other); });
          },
          py::arg("other"),
          "Adds the data of a recorder of the same modules, as if its samples had come after these.")
      .def(
          "run_until_recorded",
          [](Recorder& all, const py::object& forward) {
            check_callable(forward, "the forward of until_recorded");
            return unlocked([&] { return until_recorded(all, forward); });
          },
          "See `until_recorded`.")
      .def("flush", &Recorder::flush, release, "Writes spooled samples to the disk.")
      .def_property_readonly("dropped", &Recorder::dropped, "Samples dropped for lack of room.")
      .def("save_to", &save, release, "See `save`.")
      .def("snapshot_to", py::overload_cast<const std::string&>(&Recorder::snapshot, py::const_), release,
           "See `snapshot`.")
      .def("restore_from", py::overload_cast<const std::string&>(&Recorder::restore), release,
           "See `restore`.");
#ifdef TORCHTAP_PYTHON_DISTRIBUTED
  module.def("merge_ranks", &merge_ranks, release);
#endif
}

}  // namespace torchtap::python
