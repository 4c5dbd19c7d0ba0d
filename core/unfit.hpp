#pragma once

/// The errors for unfit samples, which a reduction cannot fold.

#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>

#include <cstdint>
#include <string>

#include <torchtap/base/api.hpp>

namespace torchtap::core {

/// The second base of errors that the sample causes and not the program: its shape or device is another than
/// before, or its elements cannot be read (sparse, nested). Recorders leave such a sample out and count it,
/// where any other error leaves the model's forward. A reduction of your own throws `UnfitSample`.
class TORCHTAP_API Unfit {
 public:
  /// Defined in one library, so that all libraries agree on the class.
  virtual ~Unfit();
};

/// Such an error, which is also one of LibTorch's: `c10::ValueError` or `c10::TypeError`.
template <class Error>
class TORCHTAP_API UnfitSample final : public Error, public Unfit {
 public:
  using Error::Error;
};

/// Throws `UnfitSample<Error>` with this message.
template <class Error>
[[noreturn]] void unfit(const std::string& message) {
  throw UnfitSample<Error>({__func__, __FILE__, static_cast<std::uint32_t>(__LINE__)}, message);
}

/// Throws it for a wrapper that vmap or grad made, which ends before it is read, as a sample of `reduction`.
TORCHTAP_API void check_no_wrapper(const at::Tensor& sample, const char* reduction);

}  // namespace torchtap::core
