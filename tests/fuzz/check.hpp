#pragma once

// What must hold, whatever the files are.

#include <ATen/core/Tensor.h>

#include <functional>
#include <string>
#include <torchtap/core/value.hpp>

#include "input.hpp"

namespace fuzz {

/// Dtype, shape and bytes.
std::string fingerprint(const at::Tensor& tensor);
void each_tensor(const torchtap::core::Value& value, const std::function<void(const at::Tensor&)>& visit);

/// A promise that was not kept.
struct Broken {
  std::string what;
};

/// Hands the input in `folder` to the library in a way that `random` chooses. True if a value came out, false
/// if an exception of the library or of std did. Throws `Broken` if with `honest` damage a tensor comes out
/// that is none of `written`, or if what was recovered cannot be loaded.
bool check(const Input& input, const std::string& folder, Random& random, bool honest,
           const std::set<std::string>& written);

}  // namespace fuzz
