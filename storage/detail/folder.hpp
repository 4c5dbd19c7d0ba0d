#pragma once

/// Defines the source of the entries of a loaded recording: an open directory, one file, or memory.

#include <string>
#include <vector>

#include <torchtap/base/disk.hpp>
#include <torchtap/storage/file.hpp>

namespace torchtap::storage::detail {

/// The open descriptor refers to the loaded directory even if another one takes its name.
struct Folder {
  std::string path;
  base::Descriptor fd;  // none for a single file
  LoadOptions options;
  std::vector<core::Value> values;  // by index, instead of files
};

}  // namespace torchtap::storage::detail
