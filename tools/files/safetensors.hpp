#pragma once

#include <string>

#include <torchtap/core/value.hpp>

/// Reads .safetensors files. The format: https://github.com/huggingface/safetensors#format
namespace torchtap::tools {

/// Whether a file is a .safetensors file, by its suffix or its first bytes.
bool is_safetensors(const std::string& path);

/// The tensors of a file as a dict, in the order of their bytes. They are mapped: only the parts that are
/// read take memory. Unsigned integers are `widened`. Throws `c10::ValueError` that names the file and the
/// problem unless the header is sound and its tensors cover the bytes exactly.
core::Value read_safetensors(const std::string& path);

}  // namespace torchtap::tools
