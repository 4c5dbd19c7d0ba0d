#include "ranks.hpp"

#include <charconv>
#include <cstdlib>
#include <cstring>
#include <filesystem>

namespace torchtap::tools::preload {
namespace {

namespace fs = std::filesystem;

std::optional<std::int64_t> number_in(const char* variable) {
  const char* const text = std::getenv(variable);
  if (text == nullptr) return std::nullopt;
  const char* const end = text + std::strlen(text);
  std::int64_t number = 0;
  const auto read = std::from_chars(text, end, number);
  if (read.ptr != end || read.ec != std::errc() || number < 0) return std::nullopt;
  return number;
}

}  // namespace

std::optional<std::int64_t> launched_rank() {
  struct Launcher {
    const char *rank, *size;
  };
  // A rank of one process, as of the script of a SLURM job, is none.
  for (const Launcher& launcher :
       {Launcher{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"}, Launcher{"PMI_RANK", "PMI_SIZE"},
        Launcher{"RANK", "WORLD_SIZE"}, Launcher{"SLURM_PROCID", "SLURM_STEP_NUM_TASKS"}}) {
    const auto rank = number_in(launcher.rank), size = number_in(launcher.size);
    if (rank.has_value() && size.value_or(0) > 1) return rank;
  }
  return std::nullopt;
}

std::string folder_of_rank(const std::string& folder, std::int64_t rank) {
  return (fs::path(folder) / ("rank" + std::to_string(rank))).string();
}

std::string file_of_rank(const std::string& file, std::int64_t rank) {
  const fs::path path = file;
  const std::string name = path.stem().string() + "-rank" + std::to_string(rank) + path.extension().string();
  return (path.parent_path() / name).string();
}

}  // namespace torchtap::tools::preload
