#pragma once

// Invariants for all files, damaged or not.

#include <ATen/core/Tensor.h>

#include <functional>
#include <string>

#include <torchtap/core/value.hpp>

#include "input.hpp"

namespace fuzz {

/// The dtype, shape and bytes of a tensor.
std::string fingerprint(const at::Tensor& tensor);
void each_tensor(const torchtap::core::Value& value, const std::function<void(const at::Tensor&)>& visit);

/// A violated invariant.
struct Broken {
  std::string what;
};

/// Passes the input in `folder` to the library in a way that `random` chooses. Returns true if a value came
/// out, false if the library or std threw. Throws `Broken` if `honest` damage yields a tensor that is not in
/// `written`, or if a recovered recording cannot be loaded.
bool check(const Input& input, const std::string& folder, Random& random, bool honest,
           const std::set<std::string>& written);

}  // namespace fuzz
