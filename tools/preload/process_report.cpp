#include "process_report.hpp"

#include <c10/util/Exception.h>

#include <filesystem>

#include <torchtap/base/write_file.hpp>

namespace torchtap::tools::preload {

std::string place_of(const std::string& save, std::uint32_t number, bool first) {
  return first ? save : save + "-process" + std::to_string(number);
}

void check_still_free(const std::string& place, bool overwrite) {
  std::error_code error;
  TORCH_CHECK_VALUE(
      overwrite || !std::filesystem::exists(place, error) || base::written_in_place(place) ||
          (std::filesystem::is_directory(place, error) && std::filesystem::is_empty(place, error)),
      "\"", place, "\" already exists; --overwrite replaces it.");
}

}  // namespace torchtap::tools::preload
