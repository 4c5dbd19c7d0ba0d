#pragma once

/// The open directory that the entries of a loaded recording are read from.

#include <string>

#include <torchtap/base/disk.hpp>
#include <torchtap/storage/file.hpp>

namespace torchtap::storage::detail {

/// The open descriptor refers to the loaded directory even if another one takes its name.
struct Folder {
  std::string path;
  base::Descriptor fd;  // none for a single file
  LoadOptions options;
};

}  // namespace torchtap::storage::detail
