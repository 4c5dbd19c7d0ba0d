// The waiter: see waiter.hpp. Its first constructor runs before any other of the process, also before the C
// library's, so it has no `getenv` and no `malloc` there; and it is C++ without the C++ library.
#include "waiter.hpp"

#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <link.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>

#include "needed_libraries.hpp"

namespace torchtap::tools::preload {
namespace {

enum class State { off, waits, settled, has_agent };
std::atomic<State> state{State::off};
/// Held while a library is looked at, also by `dlopen` inside of `dlopen`.
pthread_mutex_t looking = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;

char paths[4 * PATH_MAX];
const char *reports = paths, *agent = nullptr, *interposer = nullptr, *torch = nullptr;
char other_torch[PATH_MAX];
char obstacle[2 * PATH_MAX];
pid_t reporting = 0;  // the process that left a report; not a child that it forked
Ends ends{};

/// The C library's functions, looked up at the start: a forked child may find the loader's lock held for
/// ever.
using Main = int (*)(int, char**, char**);
void* (*next_dlopen)(const char*, int) = nullptr;
void (*next_normal_exit)(int) = nullptr;
void (*next_exit)(int) = nullptr;
void (*next_Exit)(int) = nullptr;
void (*next_abort)() = nullptr;
void (*next_assert_fail)(const char*, const char*, unsigned, const char*) = nullptr;
Main main_of_program = nullptr;

template <class Function>
void look_up(Function& function, const char* symbol) {
  function = reinterpret_cast<Function>(::dlsym(RTLD_NEXT, symbol));
}

const char* value_of(char** environment, const char* name) {
  const size_t size = ::strlen(name);
  for (; *environment != nullptr; ++environment) {
    if (::strncmp(*environment, name, size) == 0 && (*environment)[size] == '=')
      return *environment + size + 1;
  }
  return nullptr;
}

/// Writes a text as the inside of a string of JSON, as far as there is room.
void escape(const char* text, char* to, size_t size) {
  const char* const end = to + size - 7;
  for (; *text != '\0' && to < end; ++text) {
    const auto c = static_cast<unsigned char>(*text);
    to += ::snprintf(to, 7, c < 0x20 ? "\\u%04x" : c == '"' || c == '\\' ? "\\%c" : "%c", c);
  }
  *to = '\0';
}

/// Leaves the report of a process without an agent (process_report.hpp). A signal handler, whose stack may be
/// small, may call it.
void tell(bool last) {
  static char file[PATH_MAX + 32], fresh[PATH_MAX + 40];
  ::snprintf(file, sizeof file, "%.*s/%d.json", PATH_MAX, reports, static_cast<int>(::getpid()));
  ::snprintf(fresh, sizeof fresh, "%s.new", file);
  const int before = ::open(file, O_RDONLY | O_CLOEXEC);
  if (before >= 0) {  // of this process; if it recorded, of the program that it was before an exec
    char text[512];
    const ssize_t size = ::read(before, text, sizeof text - 1);
    ::close(before);
    text[size > 0 ? size : 0] = '\0';
    if (::strstr(text, "\"attached\": true") != nullptr) {
      ::snprintf(fresh, sizeof fresh, "%.*s/%d.exec", PATH_MAX, reports, static_cast<int>(::getpid()));
      const int mark = ::open(fresh, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
      if (mark >= 0) ::close(mark);
      return;
    }
  }
  reporting = ::getpid();
  char name[64] = "", program[160];
  static char other[sizeof other_torch + 64], why[sizeof obstacle + 64];
  const int comm = ::open("/proc/self/comm", O_RDONLY | O_CLOEXEC);
  const ssize_t size = comm < 0 ? 0 : ::read(comm, name, sizeof name - 1);
  if (comm >= 0) ::close(comm);
  name[size > 0 ? size - 1 : 0] = '\0';  // its end is a new line
  escape(name, program, sizeof program);
  escape(other_torch, other, sizeof other);
  escape(obstacle, why, sizeof why);
  const int to = ::open(fresh, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (to < 0) return;
  const bool written =
      ::dprintf(to,
                R"({"process": %d, "program": "%s", "attached": false, "ended": %s, "directory": "", )"
                R"("stream": "", "saved_at": 0, "samples": 0, "modules": 0, "alarms": 0, "lost": false, )"
                R"("other_torch": "%s", "obstacle": "%s", "uses_torch": false, "uses_python": false, )"
                R"("ran_types": [], "ran_paths": [], "on_stack": [], "compiled_in": [], "notes": []})",
                static_cast<int>(::getpid()), program, last ? "true" : "false", other, why) > 0;
  ::close(to);
  if (written) ::rename(fresh, file);
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
        if (is_same_library(file, torch)) {
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
  ::snprintf(other_torch, sizeof other_torch, "%s", other);
  ::snprintf(obstacle, sizeof obstacle, "%s", why);
  tell(false);
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
        torch);
    settle("", why);
  }
  return state == State::waits;
}

/// The process opens a library: loads the agent before it if it brings the LibTorch that torchtap was built
/// for, so that the agent's definitions come before LibTorch's.
void before_loading(const char* file, const void* caller) {
  ::pthread_mutex_lock(&looking);
  if (still_waits() && brings_library(file, caller, torch)) {
    state = State::has_agent;
    if (next_dlopen(agent, RTLD_LAZY | RTLD_GLOBAL) == nullptr) {
      const char* const why = ::dlerror();
      settle("", why == nullptr ? "the dynamic loader says no reason" : why);
    }
  }
  ::pthread_mutex_unlock(&looking);
}

/// At the end of a process; at `_exit` also in a signal handler.
void end_without_agent() {
  if ((state != State::waits && state != State::settled) || reporting != ::getpid()) return;
  still_waits();
  tell(true);
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
                              agent, interposer);
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
  look_up(next_dlopen, "dlopen");
  look_up(next_normal_exit, "exit");
  look_up(next_exit, "_exit");
  look_up(next_Exit, "_Exit");
  look_up(next_abort, "abort");
  look_up(next_assert_fail, "__assert_fail");
  const char* const told = value_of(environment, kWaiterVariable);
  if (told == nullptr || ::strlen(told) >= sizeof paths) return;
  ::strcpy(paths, told);
  const char** const parts[] = {&agent, &interposer, &torch};
  char* rest = paths;
  for (const char** part : parts) {
    rest = ::strchr(rest, '\n');
    if (rest == nullptr) return;
    *rest++ = '\0';
    *part = rest;
  }
  if (::strlen(reports) >= PATH_MAX) return;
  ::at_quick_exit(end_without_agent);
  remember_library_path(value_of(environment, "LD_LIBRARY_PATH"));
  const Present present = look_around();
  state = State::has_agent;
  if (present.agent) return;
  if (present.other != nullptr) return settle(present.other, "");
  if (present.torch) {
    const char* const again = value_of(environment, kStartedAgain);
    if (::getauxval(AT_BASE) == 0) arguments = first_arguments();
    if ((again == nullptr || ::atoi(again) != ::getpid()) && arguments != nullptr)
      start_again(arguments, environment);
    return settle("", "it cannot be started again with torchtap in it");
  }
  state = State::waits;
  tell(false);
}

[[gnu::destructor]] void end() {
  end_without_agent();
}

int main_until_its_end(int count, char** arguments, char** environment) {
  const int status = main_of_program(count, arguments, environment);
  if (ends.normally != nullptr) ends.normally();
  return status;
}

}  // namespace
}  // namespace torchtap::tools::preload

using namespace torchtap::tools::preload;

// These definitions interpose the C library's. The library itself calls its own `exit`, `_exit` and `abort`,
// so exits of its functions and the detection of a damaged heap do not come by here.
extern "C" {

[[gnu::visibility("default")]] void torchtap_preload_at_ends(const Ends& given) {
  ends = given;
}

/// The loader looks for a library from its caller on, so this jumps there, and leaves the caller's address
/// where it is.
[[gnu::visibility("default")]] void* dlopen(const char* file, int flags) noexcept {
  if (state == State::waits && file != nullptr && (flags & RTLD_NOLOAD) == 0)
    before_loading(file, __builtin_return_address(0));
#ifdef __clang__
  [[clang::musttail]]
#endif
  return next_dlopen(file, flags);
}

[[gnu::visibility("default")]] void exit(int status) noexcept {
  if (ends.normally != nullptr) ends.normally();
  if (next_normal_exit != nullptr) next_normal_exit(status);
  for (;;) ::syscall(SYS_exit_group, status);
}

#ifdef __GLIBC__
/// Calls the program's `main`, whose return it gives to its own `exit`.
[[gnu::visibility("default")]] int __libc_start_main(Main main, int count, char** arguments, void (*init)(),
                                                     void (*end)(), void (*end_of_loader)(), void* stack) {
  using Start = decltype(&__libc_start_main);
  const auto next = reinterpret_cast<Start>(::dlsym(RTLD_NEXT, "__libc_start_main"));
  main_of_program = main;
  return next(main_until_its_end, count, arguments, init, end, end_of_loader, stack);
}
#endif

[[gnu::visibility("default")]] void _exit(int status) {
  ends.at_once != nullptr ? ends.at_once() : end_without_agent();
  if (next_exit != nullptr) next_exit(status);
  for (;;) ::syscall(SYS_exit_group, status);
}

[[gnu::visibility("default")]] void _Exit(int status) noexcept {
  ends.at_once != nullptr ? ends.at_once() : end_without_agent();
  if (next_Exit != nullptr) next_Exit(status);
  for (;;) ::syscall(SYS_exit_group, status);
}

[[gnu::visibility("default")]] void abort() noexcept {
  if (ends.badly != nullptr) ends.badly();
  if (next_abort != nullptr) next_abort();
  for (;;) ::kill(::getpid(), SIGKILL);
}

#ifdef __GLIBC__
[[gnu::visibility("default")]] void __assert_fail(const char* assertion, const char* file, unsigned line,
                                                  const char* function) noexcept {
  if (ends.badly != nullptr) ends.badly();
  if (next_assert_fail != nullptr) next_assert_fail(assertion, file, line, function);
  abort();
}
#endif
}
