#pragma once

#include <optional>
#include <string>
#include <torchtap/core/api.hpp>
#include <typeinfo>

namespace torch::nn {
class Module;
}

namespace torchtap::model::detail {

/// Whether and how calls of a module's forward are seen wherever they are made.
enum class Interposed {
  no,
  /// The program calls torchtap's definition of the type's `forward` in place of LibTorch's.
  symbol,
  /// A holder of a program linked with torchtap::transparent made the module, and calls it through a view.
  holder,
};

/// Deletes the modules that such a holder made. `std::get_deleter` finds it, which tells them from modules
/// made by `std::make_shared`.
struct TORCHTAP_API MadeByHolder {
  bool by_make_shared = false;  ///< LibTorch would have called it, which ignores an operator new of the type

  template <class Impl>
  void operator()(Impl* module) const {
    if (by_make_shared) {
      ::delete module;
    } else {
      delete module;
    }
  }
};

/// Whether calls through the holder of a type are followed, and if not, why not.
enum class Following {
  yes,
  incomplete,         ///< the type was not defined yet where its holder was used
  final_class,        ///< nothing can be derived from it
  no_forward,         ///< no member has that name
  no_single_forward,  ///< overloaded, a template, static, private, or no function
  unusual_forward,    ///< volatile, `&&` or with C's variable arguments
  returns_reference,  ///< to what may be an argument that hooks have replaced
  immovable_values,   ///< arguments or a result that can be neither copied nor moved
};

/// Notes what the compiler knows of a type. Thread-safe; the first note of a type counts.
TORCHTAP_API void note_type(const std::type_info& type, Following following);
/// What was noted of a type, nothing if no note was made.
TORCHTAP_API std::optional<Following> noted_type(const std::type_info& type);

/// What a program linked with torchtap::transparent knows of LibTorch's module types.
class TORCHTAP_API InterposedCalls {
 public:
  /// Whether every call of this module's forward runs its hooks.
  virtual bool cover(const torch::nn::Module& module) const = 0;
  /// Why not, and what to do: the end of an error message.
  virtual std::string why_not(const torch::nn::Module& module) const = 0;

 protected:
  ~InterposedCalls() = default;
};

/// Null in a program without torchtap::transparent.
TORCHTAP_API const InterposedCalls* interposed_calls() noexcept;
/// `calls` has to live as long as the process.
TORCHTAP_API void set_interposed_calls(const InterposedCalls* calls) noexcept;

}  // namespace torchtap::model::detail
