#pragma once

/// Looks into zip files such as saved models: which records there are, and their bytes.

#include <torchtap/storage/detail/zip.hpp>

namespace torchtap::storage::extend {

using detail::ZipReader;

}  // namespace torchtap::storage::extend
