#pragma once

#include <string>
#include <vector>

#include <torchtap/storage/entry.hpp>

namespace torchtap::tools::preload {

/// The entries of a recording as bytes, on their way from a process to the launcher.
std::string pack(const std::vector<storage::Entry>& entries);
/// One of them, as a recording that consists of it.
std::string pack(const storage::Entry& entry);
/// Reads what `pack` made. Of an entry that has the states of its reductions and no value, computes the
/// value. Throws `c10::Error` if it is something else.
std::vector<storage::Entry> unpack(const std::string& bytes);

}  // namespace torchtap::tools::preload
