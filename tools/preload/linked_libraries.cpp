#include "linked_libraries.hpp"

#include <ATen/Version.h>
#include <dlfcn.h>
#include <errno.h>
#include <link.h>

#include <cstring>
#include <fstream>
#include <string_view>

namespace torchtap::tools::preload {
namespace {

bool begins_with(std::string_view text, std::string_view beginning) {
  return text.substr(0, beginning.size()) == beginning;
}

/// Whether it belongs to LibTorch or torchtap: "libtorch_cpu.so", "libtorchtap.so", "libc10.so".
bool is_torch(std::string_view name) {
  return begins_with(name, "libtorch") || begins_with(name, "libc10") || begins_with(name, "libcaffe2");
}

// Reads the dynamic section as the loader left it: on most systems it has added the base to the addresses, on
// some it has not.
int needs_torch(dl_phdr_info* object, std::size_t /*size*/, void* found) {
  std::string_view file = object->dlpi_name != nullptr ? object->dlpi_name : "";
  if (is_torch(file.substr(file.rfind('/') + 1))) return 0;
  for (int i = 0; i < object->dlpi_phnum; ++i) {
    if (object->dlpi_phdr[i].p_type != PT_DYNAMIC) continue;
    const auto* const section =
        reinterpret_cast<const ElfW(Dyn)*>(object->dlpi_addr + object->dlpi_phdr[i].p_vaddr);
    ElfW(Addr) strings = 0;
    for (const auto* entry = section; entry->d_tag != DT_NULL; ++entry) {
      if (entry->d_tag == DT_STRTAB) strings = entry->d_un.d_ptr;
    }
    if (strings == 0) return 0;
    if (strings < object->dlpi_addr) strings += object->dlpi_addr;
    for (const auto* entry = section; entry->d_tag != DT_NULL; ++entry) {
      if (entry->d_tag == DT_NEEDED && is_torch(reinterpret_cast<const char*>(strings) + entry->d_un.d_val)) {
        *static_cast<bool*>(found) = true;
        return 1;
      }
    }
  }
  return 0;
}

}  // namespace

bool program_uses_torch() noexcept {
  bool found = false;
  dl_iterate_phdr(needs_torch, &found);
  return found;
}

std::string other_torch() {
  struct Search {
    std::string ours, found;
  } search;
  Dl_info info{};
  if (::dladdr(reinterpret_cast<const void*>(&at::show_config), &info) == 0) return {};
  search.ours = info.dli_fname;
  dl_iterate_phdr(
      [](dl_phdr_info* object, std::size_t /*size*/, void* data) {
        auto& search = *static_cast<Search*>(data);
        const std::string_view file = object->dlpi_name != nullptr ? object->dlpi_name : "";
        const bool other =
            begins_with(file.substr(file.rfind('/') + 1), "libtorch_cpu.so") && file != search.ours;
        if (other) search.found = file;
        return other ? 1 : 0;
      },
      &search);
  return search.found;
}

bool program_uses_python() noexcept {
  return dlsym(RTLD_DEFAULT, "Py_IsInitialized") != nullptr;
}

std::string program_name() {
  std::string name;
  std::ifstream stream("/proc/self/comm");
  std::getline(stream, name);
  constexpr std::size_t most = 15;  // that the kernel keeps
  const std::string called = ::program_invocation_short_name;
  return name.size() == most && called.compare(0, most, name) == 0 ? called : name;
}

}  // namespace torchtap::tools::preload
