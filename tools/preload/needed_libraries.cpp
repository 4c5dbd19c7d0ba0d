// Which libraries the dynamic loader would load with another one: ld.so(8), read from the files, because the
// loader can be asked only by a program of its own. C++ without the C++ library.
#include "needed_libraries.hpp"

#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <limits.h>
#include <link.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace torchtap::tools::preload {
namespace {

char library_path[4 * PATH_MAX];

const char* name_of(const char* file) {
  const char* const slash = ::strrchr(file, '/');
  return slash == nullptr ? file : slash + 1;
}

/// Whether the names are the same as far as ".so".
bool is_version_of(const char* file, const char* other) {
  const char *const name = name_of(file), *const end = ::strstr(name, ".so");
  return end != nullptr && ::strncmp(name, name_of(other), static_cast<size_t>(end - name) + 3) == 0;
}

bool is_same_file(const char* file, const char* other) {
  struct stat one {
  }, two{};
  return ::stat(file, &one) == 0 && ::stat(other, &two) == 0 && one.st_ino == two.st_ino &&
         one.st_dev == two.st_dev;
}

/// A file's bytes, for reading. Empty if there is no such file.
class Mapped {
 public:
  explicit Mapped(const char* file) {
    const int descriptor = ::open(file, O_RDONLY | O_CLOEXEC);
    if (descriptor < 0) return;
    struct stat status {};
    if (::fstat(descriptor, &status) == 0 && S_ISREG(status.st_mode) && status.st_size > 0) {
      size_ = static_cast<size_t>(status.st_size);
      void* const begin = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, descriptor, 0);
      begin_ = begin == MAP_FAILED ? nullptr : static_cast<const char*>(begin);
    }
    ::close(descriptor);
  }
  ~Mapped() {
    if (begin_ != nullptr) ::munmap(const_cast<char*>(begin_), size_);
  }
  Mapped(const Mapped&) = delete;
  Mapped& operator=(const Mapped&) = delete;

  /// `count` objects at an offset; null if the file is shorter.
  template <class T>
  const T* at(uint64_t offset, uint64_t count = 1) const {
    const bool fits = begin_ != nullptr && offset <= size_ && count <= (size_ - offset) / sizeof(T);
    return fits && offset % alignof(T) == 0 ? reinterpret_cast<const T*>(begin_ + offset) : nullptr;
  }
  /// A text at an offset; empty if the file ends before it does.
  const char* text(uint64_t offset) const {
    const char* const begin = at<char>(offset);
    return begin != nullptr && ::memchr(begin, '\0', size_ - offset) != nullptr ? begin : "";
  }

 private:
  const char* begin_ = nullptr;
  size_t size_ = 0;
};

/// The dynamic section of a library or program.
class Elf {
 public:
  explicit Elf(const char* file) : bytes_(file) {
    constexpr unsigned char kClass = sizeof(void*) == 8 ? ELFCLASS64 : ELFCLASS32;
    header_ = bytes_.at<ElfW(Ehdr)>(0);
    if (header_ == nullptr || ::memcmp(header_->e_ident, ELFMAG, SELFMAG) != 0 ||
        header_->e_ident[EI_CLASS] != kClass)
      return;
    parts_ = bytes_.at<ElfW(Phdr)>(header_->e_phoff, header_->e_phnum);
    for (int i = 0; parts_ != nullptr && i < header_->e_phnum; ++i) {
      if (parts_[i].p_type != PT_DYNAMIC) continue;
      count_ = parts_[i].p_filesz / sizeof(ElfW(Dyn));
      entries_ = bytes_.at<ElfW(Dyn)>(parts_[i].p_offset, count_);
    }
    for (size_t i = 0; i < size(); ++i) {
      if (entries_[i].d_tag == DT_STRTAB) strings_ = offset_of(entries_[i].d_un.d_ptr);
    }
  }

  bool is_for(unsigned machine) const { return entries_ != nullptr && header_->e_machine == machine; }
  unsigned machine() const { return entries_ != nullptr ? header_->e_machine : EM_NONE; }
  size_t size() const { return entries_ == nullptr ? 0 : count_; }
  /// The text of entry `i` if it has this tag; else null.
  const char* text(size_t i, ElfW(Sxword) tag) const {
    return entries_[i].d_tag == tag ? bytes_.text(strings_ + entries_[i].d_un.d_val) : nullptr;
  }
  /// The text of the entry with this tag; null if there is none.
  const char* text(ElfW(Sxword) tag) const {
    for (size_t i = 0; i < size() && entries_[i].d_tag != DT_NULL; ++i) {
      if (const char* found = text(i, tag)) return found;
    }
    return nullptr;
  }

 private:
  uint64_t offset_of(ElfW(Addr) address) const {
    for (int i = 0; i < header_->e_phnum; ++i) {
      const auto& part = parts_[i];
      if (part.p_type == PT_LOAD && address >= part.p_vaddr && address - part.p_vaddr < part.p_filesz)
        return part.p_offset + (address - part.p_vaddr);
    }
    return UINT64_MAX / 2;
  }

  Mapped bytes_;
  const ElfW(Ehdr) * header_ = nullptr;
  const ElfW(Phdr) * parts_ = nullptr;
  const ElfW(Dyn) * entries_ = nullptr;
  size_t count_ = 0;
  uint64_t strings_ = UINT64_MAX / 2;
};

/// Writes into `found` the file of this name in the first of the folders, separated by colons, that has one.
bool is_in(const char* folders, const char* origin, const char* name, unsigned machine,
           char (&found)[PATH_MAX]) {
  while (folders != nullptr && *folders != '\0') {
    const size_t size = ::strcspn(folders, ":;");
    const char* from = folders;
    folders += size + (folders[size] != '\0');
    int written = 0;
    constexpr const char* kOrigins[] = {"$ORIGIN", "${ORIGIN}"};
    for (const char* word : kOrigins) {
      const size_t length = ::strlen(word);
      if (size < length || ::strncmp(from, word, length) != 0) continue;
      written = ::snprintf(found, sizeof found, "%.*s%.*s/%s", static_cast<int>(name_of(origin) - origin),
                           origin, static_cast<int>(size - length), from + length, name);
    }
    if (written == 0)
      written =
          ::snprintf(found, sizeof found, "%.*s/%s", static_cast<int>(size), size == 0 ? "." : from, name);
    if (written < static_cast<int>(sizeof found) && Elf(found).is_for(machine)) return true;
  }
  return false;
}

/// What `ldconfig` found.
bool is_in_cache(const char* name, unsigned machine, char (&found)[PATH_MAX]) {
  struct Header {
    char magic[20];
    uint32_t count, rest[6];
  };
  struct Entry {
    int32_t flags;
    uint32_t key, value, version;
    uint64_t capabilities;
  };
  const Mapped bytes("/etc/ld.so.cache");
  const auto* const header = bytes.at<Header>(0);
  if (header == nullptr || ::memcmp(header->magic, "glibc-ld.so.cache1.1", sizeof header->magic) != 0)
    return false;
  const auto* const entries = bytes.at<Entry>(sizeof(Header), header->count);
  for (uint32_t i = 0; entries != nullptr && i < header->count; ++i) {
    if (::strcmp(bytes.text(entries[i].key), name) != 0) continue;
    ::snprintf(found, sizeof found, "%s", bytes.text(entries[i].value));
    if (Elf(found).is_for(machine)) return true;
  }
  return false;
}

/// The libraries that come, in the loader's order, each with the one that needs it.
struct Queue {
  static constexpr size_t kMost = 2048;
  struct One {
    char* file;
    size_t needed_by;
  };
  One all[kMost];
  size_t size = 0;

  void add(const char* file, size_t needed_by) {
    if (size < kMost) all[size] = {::strdup(file), needed_by};
    if (size < kMost && all[size].file != nullptr) ++size;
  }
  bool has(const char* name, size_t from) const {
    for (size_t i = from; i < size; ++i) {
      if (::strcmp(name_of(all[i].file), name) == 0) return true;
    }
    return false;
  }
  void clear() {
    while (size > 0) ::free(all[--size].file);
  }
};
Queue queue{};

/// Where the loader finds a library that the one with number `by` needs.
bool find(const char* name, size_t by, unsigned machine, char (&found)[PATH_MAX]) {
  if (::strchr(name, '/') != nullptr) {
    ::snprintf(found, sizeof found, "%s", name);
    return true;
  }
  const Elf one(queue.all[by].file);
  const char* const runpath = one.text(DT_RUNPATH);
  for (size_t i = by; runpath == nullptr; i = queue.all[i].needed_by) {
    const char* const file = queue.all[i].file;
    const Elf above(file);
    if (above.text(DT_RUNPATH) == nullptr && is_in(above.text(DT_RPATH), file, name, machine, found))
      return true;
    if (i == 0) break;
  }
  return is_in(library_path, "", name, machine, found) ||
         is_in(runpath, queue.all[by].file, name, machine, found) || is_in_cache(name, machine, found) ||
         is_in("/lib64:/usr/lib64:/lib:/usr/lib", "", name, machine, found);
}

bool is_loaded(const char* name) {
  return ::dl_iterate_phdr(
             [](dl_phdr_info* object, size_t /*size*/, void* wanted) {
               const char* const file = object->dlpi_name != nullptr ? object->dlpi_name : "";
               return ::strcmp(name_of(file), static_cast<const char*>(wanted)) == 0 ? 1 : 0;
             },
             const_cast<char*>(name)) != 0;
}

const char* brought(const char* file, const void* caller, const char* library) {
  static char found[PATH_MAX], other[PATH_MAX];
  const ssize_t size = ::readlink("/proc/self/exe", found, sizeof found - 1);
  if (size <= 0) return nullptr;
  found[size] = '\0';
  queue.add(found, 0);
  const unsigned machine = Elf(found).machine();
  Dl_info info{};
  const bool known = ::dladdr(caller, &info) != 0 && ::strchr(info.dli_fname, '/') != nullptr;
  queue.add(known ? info.dli_fname : found, 0);
  const size_t first = queue.size;
  if (first != 2 || !find(file, 1, machine, found)) return nullptr;
  queue.add(found, 1);
  for (size_t i = first; i < queue.size; ++i) {
    if (is_version_of(queue.all[i].file, library)) {
      // One that is opened by its path is another one than a copy of it elsewhere.
      const bool by_path = i == first && ::strchr(file, '/') != nullptr;
      if (by_path ? is_same_file(file, library) : is_same_library(queue.all[i].file, library)) return library;
      ::snprintf(other, sizeof other, "%s", queue.all[i].file);
      return other;
    }
    const Elf elf(queue.all[i].file);
    for (size_t j = 0; j < elf.size(); ++j) {
      const char* const name = elf.text(j, DT_NEEDED);
      if (name == nullptr || queue.has(name_of(name), first) || is_loaded(name_of(name))) continue;
      if (find(name, i, machine, found)) queue.add(found, i);
    }
  }
  return nullptr;
}

}  // namespace

bool is_same_library(const char* file, const char* other) {
  struct stat one {
  }, two{};
  return is_same_file(file, other) || (is_version_of(file, other) && ::stat(file, &one) == 0 &&
                                       ::stat(other, &two) == 0 && one.st_size == two.st_size);
}

void remember_library_path(const char* folders) {
  if (folders != nullptr && ::strlen(folders) < sizeof library_path) ::strcpy(library_path, folders);
}

const char* brought_library(const char* file, const void* caller, const char* library) {
  const char* const found = brought(file, caller, library);
  queue.clear();
  return found;
}

}  // namespace torchtap::tools::preload
