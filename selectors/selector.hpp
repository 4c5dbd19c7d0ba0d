#pragma once

/// Selects modules of a model by name, type, index, depth or any predicate.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <iosfwd>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <torchtap/base/api.hpp>
#include <torchtap/model/module_ref.hpp>

namespace torch::nn {
class Module;
}

namespace torchtap::selectors {

class Selector;
namespace detail {
TORCHTAP_API Selector types(std::function<bool(const torch::nn::Module&)> predicate,
                            std::vector<std::string> names);
}  // namespace detail

/// Says which modules. A predicate on `model::ModuleRef` that composes with `&&`, `||` and `!`, and that
/// knows enough about itself for errors to say what was asked for.
///
///     types<torch::nn::Linear>() && !names("head*") && [](const auto& module) { return module.depth() < 3; }
///
/// Every part must hold (torchfunc's recorders took everything where two filters were given). Usable as a
/// predicate in range-v3 pipelines. A regular value.
class TORCHTAP_API Selector {
 public:
  /// Whether a module is selected.
  using Predicate = std::function<bool(const model::ModuleRef&)>;

  /// Every module that has a forward.
  Selector();
  /// Any predicate on a module.
  template <class Callable,
            class = std::enable_if_t<!std::is_same_v<std::decay_t<Callable>, Selector> &&
                                     std::is_invocable_r_v<bool, Callable&, const model::ModuleRef&>>>
  Selector(Callable&& predicate)  // NOLINT: a predicate is a selector
      : Selector(Predicate(std::forward<Callable>(predicate)), "predicate") {}
  /// A predicate with a description for messages.
  Selector(Predicate predicate, std::string description);
  /// A string is a selector: `names` of it, so that `recorder.attach(model, "layer1.*")` works.
  Selector(const std::string& name);  // NOLINT: as it says
  /// A literal is a selector, too.
  Selector(const char* name) : Selector(std::string(name)) {}  // NOLINT: as it says
  Selector(std::nullptr_t) = delete;                           // NOLINT: as above; and with it 0
  /// Several literals are one: `recorder.attach(model, {"conv1", "layer*"})`.
  Selector(std::initializer_list<const char*> names);  // NOLINT: as it says

  /// Whether the predicate holds for the module, which may have no forward.
  bool operator()(const model::ModuleRef& module) const { return predicate_(module); }

  /// The same modules, but matching none is no error, nor is a name, type or index that does not exist. Other
  /// parts of a composition are not excused: `a || b.allow_none()` still wants a module that matches `a` or
  /// `b`.
  Selector allow_none() const;

  /// The selector in code: `types(Linear) && !names("head*")`.
  const std::string& describe() const& noexcept { return description_; }
  /// For a temporary: returns by value.
  std::string describe() && { return std::move(description_); }
  /// Prints `describe()`.
  friend std::ostream& operator<<(std::ostream& out, const Selector& selector) { return selector.print(out); }

  /// Modules that both select.
  friend Selector operator&&(const Selector& a, const Selector& b);
  /// Modules that one of them selects.
  friend Selector operator||(const Selector& a, const Selector& b);
  /// Modules that it does not select.
  friend Selector operator!(const Selector& a);

 private:
  friend Selector names(std::vector<std::string> patterns);
  friend Selector indices(std::vector<std::int64_t> wanted);
  friend Selector types(std::vector<std::string> names);
  friend Selector detail::types(std::function<bool(const torch::nn::Module&)> predicate,
                                std::vector<std::string> names);
  friend std::vector<model::ModuleRef> select(const std::vector<model::ModuleRef>& modules,
                                              const Selector& selector, bool called);

  bool names_explicitly(const model::ModuleRef& module) const;
  void check_existence(const std::vector<model::ModuleRef>& modules) const;
  std::ostream& print(std::ostream& out) const;

  Predicate predicate_;
  std::string description_;
  // Named one by one: each has to have a forward, and has to exist unless allow_none() was said of it.
  std::vector<std::string> paths_, required_paths_;
  std::vector<std::int64_t> indices_, required_indices_;
  std::vector<std::string> required_types_;  // each has to exist unless allow_none() was said of it
  bool cpp_types_ = false;                   // asks for C++ types
  bool allow_none_ = false;
  bool everything_ = false;  // was made without a predicate
  bool atomic_ = true;       // needs no brackets when it is described as a part of another
};

/// Modules by path or alias: exact ("layer1.0.conv"), or a glob in which `*` also crosses dots ("layer*",
/// "*.conv?"). A name without wildcards that the model does not have is an error that lists the nearest ones.
TORCHTAP_API Selector names(std::vector<std::string> patterns);
/// Several patterns: `names("conv1", "layer*")`.
template <class... Names>
Selector names(const char* first, const Names&... more) {
  return names(std::vector<std::string>{first, more...});
}
/// The same in braces.
inline Selector names(std::initializer_list<const char*> patterns) {
  return names(std::vector<std::string>(patterns.begin(), patterns.end()));
}
/// 0 is no name.
Selector names(std::nullptr_t name) = delete;
/// One pattern.
inline Selector names(const std::string& name) {
  return names(std::vector<std::string>{name});
}
/// Modules by their index in the walk. An index that the walk does not have is an error.
TORCHTAP_API Selector indices(std::vector<std::int64_t> wanted);

/// Modules without submodules.
TORCHTAP_API Selector leaves();
/// Modules `least` to `most` steps below the root, both included.
TORCHTAP_API Selector depth(std::int64_t least, std::int64_t most);
/// Modules so many steps below the root.
inline Selector depth(std::int64_t exactly) {
  return depth(exactly, exactly);
}
/// Modules to which hooks can be attached in this program.
TORCHTAP_API Selector reachable();
/// Every module that has a forward, as when no selector is given.
TORCHTAP_API Selector everything();
/// Modules by pretty type name: "Linear", "Block"; of TorchScript also the whole one,
/// "__torch__.torch.nn.modules.linear.Linear". A type that no module of the model has is an error that lists
/// the nearest ones.
TORCHTAP_API Selector types(std::vector<std::string> names);
/// Several types: `types("Conv2d", "Linear")`.
template <class... Names>
Selector types(const char* first, const Names&... more) {
  return types(std::vector<std::string>{first, more...});
}

namespace detail {

/// "Linear" for the mangled name of `torch::nn::LinearImpl`.
TORCHTAP_API std::string type_name(const std::type_info& type);

template <class T, class = void>
struct Unwrapped {
  using Type = T;
};
template <class T>
struct Unwrapped<T, std::void_t<typename T::TorchtapImpl>> {
  using Type = typename T::TorchtapImpl;
};
template <class T, class = void>
struct Contained {
  using Type = typename Unwrapped<T>::Type;
};
template <class T>
struct Contained<T, std::void_t<typename T::ContainedType>> {
  using Type = typename Unwrapped<typename T::ContainedType>::Type;
};

template <class T>
bool is_a(const torch::nn::Module& module) {
  // A cast to the same type cannot fail, and compilers warn of a check.
  if constexpr (std::is_same_v<T, torch::nn::Module>) {
    return true;
  } else if constexpr (std::is_class_v<T>) {
    return dynamic_cast<const T*>(&module) != nullptr;
  } else {
    return false;  // `types` is an error
  }
}

}  // namespace detail

/// Modules of one of these types or of a type derived from one: holders (`torch::nn::Linear`) or Impl types.
/// A type and its drop-in from `torchtap::nn` select the same modules. No TorchScript module: these have no
/// C++ type, only the names of one.
template <class... Types>
Selector types() {
  static_assert(sizeof...(Types) > 0, "types<…>() needs at least one module type");
  static_assert((... && std::is_class_v<Types>),
                "types<…>() needs types of modules: holders such as torch::nn::Linear, or Impl types");
  return detail::types(
      [](const torch::nn::Module& module) {
        return (... || detail::is_a<typename detail::Contained<Types>::Type>(module));
      },
      {detail::type_name(typeid(typename detail::Contained<Types>::Type))...});
}

/// The modules of a walk that `selector` wants.
///
/// Modules without a forward (`ModuleList`, `ModuleDict`) are left out, unless they are named one by one:
/// then that is a `c10::ValueError`, as is a name, type or index that does not exist and a selection without
/// a module (see `Selector::allow_none`). The message lists what comes near. Unless `called`, nobody has to
/// call the modules, and those without a forward are modules as others.
TORCHTAP_API std::vector<model::ModuleRef> select(const std::vector<model::ModuleRef>& modules,
                                                  const Selector& selector, bool called = true);

}  // namespace torchtap::selectors
