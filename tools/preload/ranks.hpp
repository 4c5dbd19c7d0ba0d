#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace torchtap::tools::preload {

/// The rank of this process among those that Open MPI, MPICH (PMI), SLURM or torchrun started together, from
/// the variables that these set; nothing if it was started alone.
std::optional<std::int64_t> launched_rank();

/// Where a rank writes, as none may write to the place of another: the folder "out" becomes "out/rank3", the
/// file "out.json" becomes "out-rank3.json".
std::string folder_of_rank(const std::string& folder, std::int64_t rank);
std::string file_of_rank(const std::string& file, std::int64_t rank);

}  // namespace torchtap::tools::preload
