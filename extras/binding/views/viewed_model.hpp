#pragma once

// What the views of Python's models share.

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <torchtap/model/module_ref.hpp>

#include "binding.hpp"
#include "stand_in.hpp"

namespace torchtap::python {

/// A model of Python that views of C++ attach to: by stand-ins, or, if it is a TorchScript module, itself.
class ViewedModel {
 public:
  explicit ViewedModel(py::handle model);

  /// The modules, the root first.
  const std::vector<model::ModuleRef>& modules() const noexcept { return modules_; }
  /// The hooks that Python registers, so that hooks that C++ attaches run: pairs (module, hook). Those of
  /// modules that have hooks now, or of all.
  py::list hooks(bool now = false) const;
  /// What cannot be seen of it, and why.
  const std::vector<std::string>& notes() const noexcept { return notes_; }
  /// The name of the class that the module at this path has now: modules of lazy classes change theirs when
  /// they are called. Empty if it is gone.
  std::string type_now(const std::string& path) const;

 private:
  std::shared_ptr<StandIn> root_;  // null for a TorchScript model
  std::vector<model::ModuleRef> modules_;
  std::vector<std::string> notes_;
};

/// Defines a part of torchtap._C when the module is made. Each view has one.
struct DefinedView {
  DefinedView(const char* component, void (*define)(py::module_&));
};
/// What lives in C++ and may wait for other threads when it is destroyed: that happens without Python's lock.
template <class T>
struct DestroyedUnlocked {
  void operator()(T* object) const {
    const py::gil_scoped_release released;
    delete object;
  }
};

}  // namespace torchtap::python
