#pragma once

/// The files of runs, for a program that writes what `ExplorerOptions::write` gets.

#include <torchtap/views/explorer/detail/run_file_thin.hpp>

namespace torchtap::views::explorer::extend {

using detail::thin;

}  // namespace torchtap::views::explorer::extend
