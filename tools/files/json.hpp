#pragma once

// Tensors as JSON, and printing of JSON.

#include <ATen/core/Tensor.h>

#include <torchtap/json/json.hpp>

namespace torchtap::tools {

using json::Json;

/// Nested lists of numbers or bools, complex ones as [real, imaginary]; null if undefined.
Json to_json(const at::Tensor& tensor);
/// Prints a document to stdout.
void print(const Json& document);

}  // namespace torchtap::tools
