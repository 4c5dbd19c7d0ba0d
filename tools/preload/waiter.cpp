// The waiter: see waiter.hpp. Its first constructor runs before any other of the process, also before the C
// library's, so it has no `getenv` and no `malloc` there; and it is C++ without the C++ library.
#include "waiter.hpp"

#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <link.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

#include <atomic>

#include "area.hpp"
#include "needed_libraries.hpp"

namespace torchtap::tools::preload {
namespace {

enum class State { off, waits, settled, has_agent };
std::atomic<State> state{State::off};
/// Held while a library is looked at, also by `dlopen` inside of `dlopen`.
pthread_mutex_t looking = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;

Area area;

/// The C library's function, looked up at the start: a forked child may find the loader's lock held for ever.
void* (*next_dlopen)(const char*, int) = nullptr;

const char* value_of(char** environment, const char* name) {
  const size_t size = ::strlen(name);
  for (; *environment != nullptr; ++environment) {
    if (::strncmp(*environment, name, size) == 0 && (*environment)[size] == '=')
      return *environment + size + 1;
  }
  return nullptr;
}

bool is_called(const char* file, const char* name) {
  const char* const slash = ::strrchr(file, '/');
  return ::strncmp(slash == nullptr ? file : slash + 1, name, ::strlen(name)) == 0;
}

/// What the process has by now.
struct Present {
  bool agent = false, torch = false;
  const char* other = nullptr;  // the file of another LibTorch
};

Present look_around() {
  Present present;
  ::dl_iterate_phdr(
      [](dl_phdr_info* object, size_t /*size*/, void* data) {
        auto& found = *static_cast<Present*>(data);
        const char* const file = object->dlpi_name != nullptr ? object->dlpi_name : "";
        if (is_called(file, "libtorchtap_agent.so")) found.agent = true;
        if (!is_called(file, "libtorch_cpu.so")) return 0;
        if (is_same_library(file, area.header->torch)) {
          found.torch = true;
        } else {
          found.other = file;
        }
        return 0;
      },
      &present);
  return present;
}

void settle(const char* other, const char* why) {
  state = State::settled;
  ::snprintf(area.page->other_torch, sizeof area.page->other_torch, "%s", other);
  ::snprintf(area.page->obstacle, sizeof area.page->obstacle, "%s", why);
  area.page->stage = Stage::settled;
}

/// Whether the process is still to be waited in. LibTorch may have come without `dlopen`.
bool still_waits() {
  if (state != State::waits) return false;
  const Present present = look_around();
  if (present.other != nullptr) {
    settle(present.other, "");
  } else if (present.torch) {
    static char why[PATH_MAX + 128];
    ::snprintf(
        why, sizeof why,
        "it loaded LibTorch in a way that could not be foreseen. Put LD_PRELOAD=%s in front of torchtap",
        area.header->torch);
    settle("", why);
  }
  return state == State::waits;
}

/// The process opens a library: loads the agent before it if it brings the LibTorch that torchtap was built
/// for, so that the agent's definitions come before LibTorch's; notes another one.
void before_loading(const char* file, const void* caller) {
  ::pthread_mutex_lock(&looking);
  const bool is_entered = area.page->process == ::getpid() || area.enter();  // a child that was forked
  const char* const torch = area.header->torch;
  const char* const comes = is_entered && still_waits() ? brought_library(file, caller, torch) : nullptr;
  if (comes == torch) {
    state = State::has_agent;
    if (next_dlopen(area.header->agent, RTLD_LAZY | RTLD_GLOBAL) == nullptr) {
      const char* const why = ::dlerror();
      settle("", why == nullptr ? "the dynamic loader says no reason" : why);
    }
  } else if (comes != nullptr) {
    settle(comes, "");
  }
  ::pthread_mutex_unlock(&looking);
}

/// At the end of a process by `exit`; not of a child that it forked.
void end_without_agent() {
  if ((state != State::waits && state != State::settled) || area.page->process != ::getpid()) return;
  still_waits();
  area.page->stage = Stage::ended;
}

/// The arguments that the process was started with, where the loader has taken some for itself (ld.so
/// PROGRAM); null if there are too many.
char** first_arguments() {
  static char text[1 << 17];
  static char* arguments[1 << 12];
  const int file = ::open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
  const ssize_t size = file < 0 ? 0 : ::read(file, text, sizeof text);
  if (file >= 0) ::close(file);
  size_t count = 0;
  for (char* next = text; next < text + size; next += ::strlen(next) + 1) {
    if (count + 1 == sizeof arguments / sizeof *arguments) return nullptr;
    arguments[count++] = next;
  }
  return size <= 0 || size == static_cast<ssize_t>(sizeof text) ? nullptr : arguments;
}

/// The program links LibTorch, and the launcher did not know, as of a child: the agent must be there before
/// it.
void start_again(char** arguments, char** environment) {
  static char preload[8 * PATH_MAX], again[64], file[PATH_MAX];
  static char* changed[1 << 14];
  const char* const before = value_of(environment, "LD_PRELOAD");
  const int size = ::snprintf(preload, sizeof preload, "LD_PRELOAD=%s:%s:%s", before == nullptr ? "" : before,
                              area.header->agent, area.header->interposer);
  ::snprintf(again, sizeof again, "%s=%d", kStartedAgain, static_cast<int>(::getpid()));
  size_t count = 0;
  for (char** variable = environment; *variable != nullptr; ++variable) {
    if (count + 3 >= sizeof changed / sizeof *changed) return;
    if (::strncmp(*variable, "LD_PRELOAD=", 11) != 0 &&
        ::strncmp(*variable, kStartedAgain, sizeof kStartedAgain - 1) != 0)
      changed[count++] = *variable;
  }
  changed[count++] = preload;
  changed[count++] = again;
  changed[count] = nullptr;
  const ssize_t length = ::readlink("/proc/self/exe", file, sizeof file - 1);
  if (length <= 0 || size >= static_cast<int>(sizeof preload)) return;
  ::execve(file, arguments, changed);
}

[[gnu::constructor]] void begin(int /*count*/, char** arguments, char** environment) {
  next_dlopen = reinterpret_cast<decltype(next_dlopen)>(::dlsym(RTLD_NEXT, "dlopen"));
  const char* const told = value_of(environment, kVariable);
  if (told == nullptr || !area.open(told)) return;
  const Present present = look_around();
  const char* const again = value_of(environment, kStartedAgain);
  const bool was_started_again = again != nullptr && ::atoi(again) == ::getpid();
  const bool starts_again = present.torch && !present.agent && present.other == nullptr && !was_started_again;
  if (::getauxval(AT_BASE) == 0) arguments = first_arguments();
  if (starts_again && arguments != nullptr) start_again(arguments, environment);
  if (!area.enter()) return;
  ::at_quick_exit(end_without_agent);
  remember_library_path(value_of(environment, "LD_LIBRARY_PATH"));
  state = State::has_agent;
  if (present.agent) return;
  if (present.other != nullptr) return settle(present.other, "");
  if (present.torch) return settle("", "it cannot be started again with torchtap in it");
  state = State::waits;
  area.page->stage = Stage::waits;
}

[[gnu::destructor]] void end() {
  end_without_agent();
}

}  // namespace
}  // namespace torchtap::tools::preload

using namespace torchtap::tools::preload;

extern "C" {

[[gnu::visibility("default")]] Area& torchtap_preload_area() {
  return area;
}

/// Interposes the C library's. The loader looks for a library from its caller on, so this jumps there, and
/// leaves the caller's address where it is.
[[gnu::visibility("default")]] void* dlopen(const char* file, int flags) noexcept {
  if (state == State::waits && file != nullptr && (flags & RTLD_NOLOAD) == 0)
    before_loading(file, __builtin_return_address(0));
#ifdef __clang__  // GCC jumps by itself
  [[clang::musttail]]
#endif
  return next_dlopen(file, flags);
}
}
