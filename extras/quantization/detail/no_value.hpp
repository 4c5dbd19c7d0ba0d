#pragma once

#include <c10/util/Exception.h>

#include <cstdint>
#include <string>

namespace torchtap::quantization::detail {

/// The error for a tensor without a finite value, of which no range follows.
class NoValue : public c10::ValueError {
 public:
  using ValueError::ValueError;
};

[[noreturn]] inline void no_value(const std::string& message) {
  throw NoValue({__func__, __FILE__, static_cast<std::uint32_t>(__LINE__)}, message);
}

}  // namespace torchtap::quantization::detail
