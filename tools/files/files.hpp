#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <fstream>
#include <string>

#include <torchtap/base/disk.hpp>

/// Opens and maps files.
namespace torchtap::tools {

/// Throws `c10::ValueError` with the system's reason if the file cannot be opened.
std::ifstream open_to_read(const std::string& path);

/// `size` bytes of a file from `offset` on, of elements of `item` bytes. They are mapped, or copied where
/// elements would not be aligned.
at::Tensor mapped(const base::InputFile& file, std::uint64_t offset, std::int64_t size, std::int64_t item);

}  // namespace torchtap::tools
