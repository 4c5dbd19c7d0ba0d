#pragma once

#include <ATen/core/Tensor.h>
#include <nlohmann/json.hpp>

namespace torchtap::tools {

/// Keys keep the order in which they were set.
using Json = nlohmann::ordered_json;

/// NaN and infinities, which JSON lacks, become "NaN", "Infinity" and "-Infinity", which Python's `float`
/// reads.
Json to_json(double value);
/// Nested lists of numbers or bools, complex ones as [real, imaginary]; null if undefined.
Json to_json(const at::Tensor& tensor);
/// Prints a document to stdout.
void print(const Json& document);

}  // namespace torchtap::tools
