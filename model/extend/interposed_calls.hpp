#pragma once

/// Says which modules' calls torchtap::transparent observes, and why it does not observe others.

#include <optional>
#include <string>
#include <typeinfo>

#include <torchtap/base/api.hpp>

namespace torch::nn {
class Module;
}

namespace torchtap::model::extend {

/// Whether and how all calls of a module's forward are observed.
enum class Interposed {
  no,
  /// The dynamic linker redirects calls of the type's `forward` to torchtap's definition.
  symbol,
  /// A holder in a program linked with torchtap::transparent made the module and calls it through a view.
  holder,
};

/// Deleter of modules made by such a holder. `std::get_deleter` finds it, which distinguishes them from
/// modules made by `std::make_shared`.
struct TORCHTAP_API MadeByHolder {
  bool by_make_shared = false;     ///< LibTorch would have called it, and it ignores the type's operator new
  mutable bool given_out = false;  ///< see `note_given_out`; atomic

  template <class Impl>
  void operator()(Impl* module) const {
    if (by_make_shared) {
      ::delete module;
    } else {
      delete module;
    }
  }
};

/// Whether calls through the holder of a type are followed, and if not, why.
enum class Following {
  yes,
  incomplete,         ///< the type was not yet defined where its holder was used
  final_class,        ///< no class can derive from it
  no_forward,         ///< no member has that name
  no_single_forward,  ///< overloaded, a template, static, private or not a function
  unusual_forward,    ///< volatile, `&&` or with C variadic arguments
  returns_reference,  ///< the reference may refer to an argument that hooks have replaced
  immovable_values,   ///< arguments or a result that cannot be moved, nor copied for certain
  sequential,         ///< derives from Sequential and has no forward of its own: followed by its entries
};

/// Records whether a type can be followed. Thread-safe; the last record of a type counts.
TORCHTAP_API void note_type(const std::type_info& type, Following following);
/// The record of a type; if there is none, the record of another type of this name (plug-ins may each have
/// their own); empty if there is none either.
TORCHTAP_API std::optional<Following> noted_type(const std::type_info& type);

/// Notes that the program got a pointer to the module by the module's own type. Calls through it are not
/// seen.
TORCHTAP_API void note_given_out(const torch::nn::Module& module) noexcept;
/// Whether it got one.
TORCHTAP_API bool given_out(const torch::nn::Module& module) noexcept;

/// Why hooks of a module would not run.
struct Obstacle {
  const char* brief;  ///< a few words, for lists
  std::string text;   ///< the reason and the remedy: the end of an error message
};

/// The interposed calls of a program linked with torchtap::transparent.
class TORCHTAP_API InterposedCalls {
 public:
  /// Whether every call of this module's forward runs its hooks.
  virtual bool cover(const torch::nn::Module& module) const = 0;
  virtual Obstacle why_not(const torch::nn::Module& module) const = 0;

 protected:
  ~InterposedCalls() = default;
};

/// Null in a program without torchtap::transparent.
TORCHTAP_API const InterposedCalls* interposed_calls() noexcept;
/// `calls` must live as long as the process.
TORCHTAP_API void set_interposed_calls(const InterposedCalls* calls) noexcept;

}  // namespace torchtap::model::extend
