// Composes selectors, applies them, and reports names, types and indices that do not exist.

#include <c10/util/ArrayRef.h>

#include <algorithm>
#include <ostream>

#include <torchtap/base/error.hpp>
#include <torchtap/base/glob.hpp>
#include <torchtap/selectors/selector.hpp>

namespace torchtap::selectors {
namespace {

bool has_path(const model::ModuleRef& module, const std::string& path) {
  return module.path() == path ||
         std::find(module.aliases().begin(), module.aliases().end(), path) != module.aliases().end();
}

template <class Test>
bool any_path(const model::ModuleRef& module, Test&& test) {
  return test(module.path()) || std::any_of(module.aliases().begin(), module.aliases().end(), test);
}

bool matches(const model::ModuleRef& module, const std::string& pattern) {
  if (has_path(module, pattern)) return true;  // also where the name itself has a bracket in it
  return base::is_glob(pattern) &&
         any_path(module, [&](const std::string& path) { return base::matches_glob(pattern, path); });
}

bool has_type(const model::ModuleRef& module, const std::string& type) {
  return module.type() == type || module.qualified_type() == type;
}

/// The types of `modules`, each once; their whole names if `like` is a whole name.
std::vector<std::string> types_of(const std::vector<model::ModuleRef>& modules, const std::string& like) {
  const bool qualified = like.find('.') != std::string::npos;
  std::vector<std::string> types;
  for (const auto& module : modules) {
    const std::string& type = qualified ? module.qualified_type() : module.type();
    if (std::find(types.begin(), types.end(), type) == types.end()) types.push_back(type);
  }
  return types;
}

template <class T>
std::vector<T> joined(std::vector<T> a, const std::vector<T>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

std::string list(const std::vector<std::string>& parts) {
  std::string text;
  for (const auto& part : parts) text += (text.empty() ? "" : ", ") + part;
  return text;
}

std::string listing(const std::vector<model::ModuleRef>& modules) {
  constexpr std::size_t kMost = 12;
  std::string text;
  for (std::size_t i = 0; i < std::min(modules.size(), kMost); ++i) {
    text += c10::str(i == 0 ? "" : ", ", modules[i].index(), " \"", modules[i].path(), "\" (",
                     modules[i].type(), ")");
  }
  return modules.size() > kMost ? c10::str(text, " and ", modules.size() - kMost, " more") : text;
}

}  // namespace

Selector::Selector()
    : Selector([](const model::ModuleRef& module) { return module.has_forward(); }, "everything") {
  everything_ = true;
}

Selector::Selector(Predicate predicate, std::string description)
    : predicate_(std::move(predicate)), description_(std::move(description)) {
  TORCH_CHECK_VALUE(predicate_ != nullptr, "selectors: the predicate is empty.");
}

Selector Selector::allow_none() const {
  Selector selector = *this;
  selector.allow_none_ = true;
  selector.required_paths_.clear();
  selector.required_indices_.clear();
  selector.required_types_.clear();
  return selector;
}

// Declared as friends, where no attribute may stand.
TORCHTAP_API Selector operator&&(const Selector& a, const Selector& b) {
  const auto part = [](const Selector& s) { return s.atomic_ ? s.description_ : "(" + s.description_ + ")"; };
  Selector both([a, b](const model::ModuleRef& module) { return a(module) && b(module); },
                a.everything_ ? b.description_ : part(a) + " && " + part(b));
  both.paths_ = joined(a.paths_, b.paths_);
  both.indices_ = joined(a.indices_, b.indices_);
  both.required_paths_ = joined(a.required_paths_, b.required_paths_);
  both.required_indices_ = joined(a.required_indices_, b.required_indices_);
  both.required_types_ = joined(a.required_types_, b.required_types_);
  both.cpp_types_ = a.cpp_types_ || b.cpp_types_;
  both.allow_none_ = a.allow_none_ || b.allow_none_;
  both.atomic_ = a.everything_ && b.atomic_;
  return both;
}

TORCHTAP_API Selector operator||(const Selector& a, const Selector& b) {
  const auto part = [](const Selector& s) { return s.atomic_ ? s.description_ : "(" + s.description_ + ")"; };
  Selector either([a, b](const model::ModuleRef& module) { return a(module) || b(module); },
                  part(a) + " || " + part(b));
  either.paths_ = joined(a.paths_, b.paths_);
  either.indices_ = joined(a.indices_, b.indices_);
  either.required_paths_ = joined(a.required_paths_, b.required_paths_);
  either.required_indices_ = joined(a.required_indices_, b.required_indices_);
  either.required_types_ = joined(a.required_types_, b.required_types_);
  either.cpp_types_ = a.cpp_types_ && b.cpp_types_;
  either.allow_none_ = a.allow_none_ && b.allow_none_;
  either.atomic_ = false;
  return either;
}

TORCHTAP_API Selector operator!(const Selector& a) {
  // A module that is to be left out need not exist.
  Selector inverse([a](const model::ModuleRef& module) { return !a(module); },
                   a.atomic_ ? "!" + a.description_ : "!(" + a.description_ + ")");
  inverse.allow_none_ = a.allow_none_;
  return inverse;
}

bool Selector::names_explicitly(const model::ModuleRef& module) const {
  return std::find(indices_.begin(), indices_.end(), module.index()) != indices_.end() ||
         std::any_of(paths_.begin(), paths_.end(),
                     [&](const std::string& path) { return has_path(module, path); });
}

/// Throws unless `modules` have every name, index and type that was asked for.
void Selector::check_existence(const std::vector<model::ModuleRef>& modules) const {
  std::vector<std::string> paths;
  for (const auto& module : modules) {
    paths.push_back(module.path());
    paths.insert(paths.end(), module.aliases().begin(), module.aliases().end());
  }
  for (const auto& path : required_paths_) {
    TORCH_CHECK_VALUE(std::find(paths.begin(), paths.end(), path) != paths.end(),
                      "selectors: there is no module \"", path, "\" among the ", modules.size(),
                      " that were looked at; the nearest are ", base::quoted(base::nearest(path, paths)),
                      ".");
  }
  for (const auto index : required_indices_) {
    TORCH_CHECK_VALUE(index >= 0 && index < static_cast<std::int64_t>(modules.size()),
                      "selectors: there is no index ", index, "; the walk has the indices 0 to ",
                      static_cast<std::int64_t>(modules.size()) - 1, ": ", listing(modules), ".");
  }
  for (const auto& type : required_types_) {
    TORCH_CHECK_VALUE(std::any_of(modules.begin(), modules.end(),
                                  [&](const model::ModuleRef& module) { return has_type(module, type); }),
                      "selectors: there is no module of type \"", type, "\" among the ", modules.size(),
                      " that were looked at; the nearest types are ",
                      base::quoted(base::nearest(type, types_of(modules, type))),
                      ". Use allow_none() if that is fine.");
  }
}

std::ostream& Selector::print(std::ostream& out) const {
  return out << description_;
}

Selector names(std::vector<std::string> patterns) {
  TORCH_CHECK_VALUE(!patterns.empty(), "selectors::names: no name was given.");
  std::string description;
  for (const auto& pattern : patterns) description += (description.empty() ? "names(\"" : "\", \"") + pattern;
  description += "\")";
  Selector selector(
      [patterns](const model::ModuleRef& module) {
        return std::any_of(patterns.begin(), patterns.end(),
                           [&](const std::string& pattern) { return matches(module, pattern); });
      },
      std::move(description));
  std::copy_if(patterns.begin(), patterns.end(), std::back_inserter(selector.paths_),
               [](const std::string& pattern) { return !base::is_glob(pattern); });
  selector.required_paths_ = selector.paths_;
  return selector;
}

Selector::Selector(const std::string& name) : Selector(selectors::names(name)) {}

Selector::Selector(std::initializer_list<const char*> names) : Selector(selectors::names(names)) {}

Selector indices(std::vector<std::int64_t> wanted) {
  TORCH_CHECK_VALUE(!wanted.empty(), "selectors::indices: no index was given.");
  Selector selector(
      [wanted](const model::ModuleRef& module) {
        return std::find(wanted.begin(), wanted.end(), module.index()) != wanted.end();
      },
      c10::str("indices(", c10::IntArrayRef(wanted), ")"));
  selector.required_indices_ = selector.indices_ = std::move(wanted);
  return selector;
}

Selector leaves() {
  return Selector([](const model::ModuleRef& module) { return module.leaf(); }, "leaves()");
}

Selector depth(std::int64_t least, std::int64_t most) {
  TORCH_CHECK_VALUE(least >= 0 && least <= most, "selectors::depth: expected 0 <= least <= most, got ", least,
                    " and ", most, ".");
  return Selector(
      [=](const model::ModuleRef& module) { return module.depth() >= least && module.depth() <= most; },
      c10::str("depth(", least, ", ", most, ")"));
}

Selector reachable() {
  return Selector([](const model::ModuleRef& module) { return module.reachable(); }, "reachable()");
}

Selector everything() {
  return Selector();
}

Selector types(std::vector<std::string> names) {
  TORCH_CHECK_VALUE(!names.empty(), "selectors::types: no type was given.");
  Selector selector(
      [names](const model::ModuleRef& module) {
        return std::any_of(names.begin(), names.end(),
                           [&](const std::string& name) { return has_type(module, name); });
      },
      "types(" + list(names) + ")");
  selector.required_types_ = std::move(names);
  return selector;
}

Selector detail::types(std::function<bool(const torch::nn::Module&)> predicate,
                       std::vector<std::string> names) {
  Selector selector(
      [predicate = std::move(predicate)](const model::ModuleRef& module) {
        return !module.scripted() && !module.exported() && predicate(module.module());
      },
      "types(" + list(names) + ")");
  selector.cpp_types_ = true;
  return selector;
}

std::string detail::type_name(const std::type_info& type) {
  return model::pretty_type_name(type);
}

std::vector<model::ModuleRef> select(const std::vector<model::ModuleRef>& modules, const Selector& selector,
                                     bool called) {
  // A frozen model has only itself; whoever wants just that says so.
  TORCH_CHECK_VALUE(
      modules.empty() || !modules.front().frozen() || selector.names_explicitly(modules.front()),
      "selectors: the TorchScript model (", modules.front().type(),
      ") was frozen (torch.jit.freeze or optimize_for_inference): its submodules were inlined into its "
      "forward and are gone. Load the file as it was before, saved from torch.jit.script or torch.jit.trace; "
      "names(\"\") selects the model as a whole.");
  selector.check_existence(modules);
  std::vector<model::ModuleRef> selected;
  bool lacks_method = false;
  for (const auto& module : modules) {
    // Everything is everything with a forward, unless nobody calls it.
    const bool wanted = selector(module) || (!called && selector.everything_);
    if (!wanted) continue;
    if (called && !module.has_forward()) {
      TORCH_CHECK_VALUE(!selector.names_explicitly(module), "selectors: \"", module.path(), "\" (",
                        module.type(), ") was named, but it has no ", module.method(),
                        ", so there is nothing to hook; name the modules inside of it.");
      lacks_method = true;
      continue;
    }
    selected.push_back(module);
  }
  if (!selected.empty() || selector.allow_none_) return selected;
  // Of everything, those that lack the method are not wanted.
  lacks_method = lacks_method || (called && !modules.empty() && selector.everything_);
  TORCH_CHECK_VALUE(!lacks_method, "selectors: none of the modules that ", selector.describe(),
                    " matches has a method ", modules.front().method(), "; there are ", listing(modules),
                    ".");
  const bool no_cpp = !modules.empty() && (modules.front().scripted() || modules.front().exported());
  TORCH_CHECK_VALUE(!selector.cpp_types_ || !no_cpp, "selectors: ", selector.describe(),
                    " asks for C++ types, and the ", modules.size(),
                    " modules of this model have none, only the names of theirs; ask for names, as in "
                    "types(\"",
                    types_of(modules, "").back(), "\").");
  TORCH_CHECK_VALUE(false, "selectors: ", selector.describe(), " matches none of the ", modules.size(),
                    " modules: ", listing(modules), ". Use allow_none() if that is fine.");
}

}  // namespace torchtap::selectors
