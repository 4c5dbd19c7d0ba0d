#pragma once

// One run of a model with hooks.

#include <deque>
#include <exception>
#include <memory>
#include <string_view>
#include <vector>

#include <torchtap/exported/detail/package.hpp>
#include <torchtap/exported/detail/receiver.hpp>
#include <torchtap/hooks/extend/hook_point.hpp>

namespace torchtap::exported::detail {

/// Sets the receiver of this thread for its own lifetime.
class Receiving {
 public:
  explicit Receiving(Receiver* receiver) noexcept : before_(exchange_receiver(receiver)) {}
  ~Receiving() { exchange_receiver(before_); }
  Receiving(const Receiving&) = delete;
  Receiving& operator=(const Receiving&) = delete;

 private:
  Receiver* before_;
};

/// Runs the hooks of a package at its taps. An exception of a hook cannot pass the compiled code, so it is
/// kept, and the remaining taps of the run do nothing.
class Run final : public Receiver {
 public:
  explicit Run(Package& package) noexcept : package_(package) {}
  ~Run();
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  /// Throws the exception of a hook, if there was one.
  void rethrow() const {
    if (error_ != nullptr) std::rethrow_exception(error_);
  }

  void* wanted(std::string_view path) noexcept override;
  void receive(void* place, const AtenTensorHandle* handles, std::size_t count, std::string_view kind,
               bool replaceable) noexcept override;

 private:
  /// A call after the tap of its inputs and before the tap of its outputs.
  struct Open {
    Place& place;
    hooks::extend::Call call;
    Open(Place& of) : place(of), call(of.torchtap_gate()) {}  // NOLINT: made in place
  };

  void enter(Place& place, std::vector<at::Tensor>& tensors, std::string_view slots, bool replaceable);
  void leave(Place& place, std::vector<at::Tensor>& tensors, std::string_view slots, bool replaceable);
  std::unique_ptr<Open> take_open(const Place& place);
  void fire(Place& place, std::vector<at::Tensor>& tensors, std::string_view kind, bool replaceable);

  Package& package_;
  std::vector<std::unique_ptr<Open>> open_;  // innermost last
  std::exception_ptr error_;
};

}  // namespace torchtap::exported::detail
