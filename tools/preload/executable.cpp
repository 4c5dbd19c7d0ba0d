// The facts in a program's file.
#include "executable.hpp"

#include <elf.h>
#include <link.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>

namespace torchtap::tools::preload {
namespace {

namespace fs = std::filesystem;

/// The dynamic loader of a program of this machine's kind, "" if it is static; nothing for other files.
std::optional<std::string> interpreter_of(const std::string& file) {
  std::ifstream stream(file, std::ios::binary);
  ElfW(Ehdr) header{};
  if (!stream.read(reinterpret_cast<char*>(&header), sizeof(header))) return std::nullopt;
  constexpr int kClass = sizeof(void*) == 8 ? ELFCLASS64 : ELFCLASS32;
  if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_ident[EI_CLASS] != kClass)
    return std::nullopt;
  for (int i = 0; i < header.e_phnum; ++i) {
    ElfW(Phdr) part{};
    stream.seekg(static_cast<std::streamoff>(header.e_phoff) + std::streamoff{i} * header.e_phentsize);
    if (!stream.read(reinterpret_cast<char*>(&part), sizeof(part))) return std::nullopt;
    if (part.p_type != PT_INTERP) continue;
    stream.seekg(static_cast<std::streamoff>(part.p_offset));
    std::string name;
    std::getline(stream, name, '\0');
    return name;
  }
  return "";
}

}  // namespace

Executable find_executable(const std::string& program) {
  const auto look_at = [](const std::string& file) -> Executable {
    std::error_code error;
    if (!fs::exists(file, error)) return {file, 127};
    return {file, ::access(file.c_str(), X_OK) == 0 && !fs::is_directory(file, error) ? 0 : 126};
  };
  if (program.find('/') != std::string::npos) return look_at(program);
  Executable best;
  const char* variable = std::getenv("PATH");
  std::istringstream folders(variable != nullptr ? variable : "/bin:/usr/bin");
  for (std::string folder; best.status != 0 && std::getline(folders, folder, ':');) {
    const Executable found = look_at((folder.empty() ? "." : folder) + "/" + program);
    if (found.status < best.status) best = found;
  }
  return best;
}

std::string loader_of(const std::string& file) {
  return interpreter_of(file).value_or("");
}

std::string obstacle_of(const std::string& file) {
  if (interpreter_of(file) == "") return "it is statically linked";
  struct stat status {};
  const bool elevated = ::stat(file.c_str(), &status) == 0 && (status.st_mode & (S_ISUID | S_ISGID)) != 0;
  if (elevated || ::getxattr(file.c_str(), "security.capability", nullptr, 0) > 0) {
    return "it runs with the privileges of another user";
  }
  return {};
}

}  // namespace torchtap::tools::preload
