#pragma once

// The files of the page, which are part of the library.

#include <string>

namespace torchtap::views::explorer::detail {

struct Asset {
  const char* path;  // "/app.js"
  const char* type;  // "text/javascript; charset=utf-8"
  const unsigned char* data;
  std::size_t size;
  const char* tag;              // a hash, for ETag
  const unsigned char* packed;  // its bytes by gzip; null if the library was built without it
  std::size_t packed_size;
};

/// The file at a path; null if there is none. Defined by a source that CMake makes.
const Asset* find_asset(const std::string& path);

}  // namespace torchtap::views::explorer::detail
