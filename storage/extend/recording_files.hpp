#pragma once

/// Which files of a folder are a recording's.

#include <torchtap/storage/detail/recording_files.hpp>

namespace torchtap::storage::extend {

using detail::is_recording_file;

}  // namespace torchtap::storage::extend
