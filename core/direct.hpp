#pragma once

#include <string>

namespace torch::nn {
class Module;
}

namespace torchtap::core {

/// Whether and how calls of a module's forward are seen wherever they are made.
enum class Direct {
  no,
  /// The program calls torchtap's definition of the type's `forward` in place of LibTorch's.
  symbol,
  /// The program calls through a holder that `TORCH_MODULE` defined under torchtap::transparent.
  holder,
};

/// Base of the modules that such a holder makes.
class DirectPoint {
 public:
  virtual ~DirectPoint() = default;
};

/// What a program linked with torchtap::transparent knows of LibTorch's module types.
class DirectCalls {
 public:
  /// Whether every call of this module's forward runs its hooks.
  virtual bool cover(const torch::nn::Module& module) const = 0;
  /// Why not, and what to do: the end of an error message.
  virtual std::string why_not(const torch::nn::Module& module) const = 0;

 protected:
  ~DirectCalls() = default;
};

/// Null in a program without torchtap::transparent.
const DirectCalls* direct_calls() noexcept;
/// `calls` has to live as long as the process.
void set_direct_calls(const DirectCalls* calls) noexcept;

}  // namespace torchtap::core
