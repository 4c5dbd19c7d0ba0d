// Runs a program's tests, and sees that torchtap leaves no static object to be destroyed when the program
// ends.
#define BOOST_TEST_MODULE torchtap
#include <boost/test/unit_test.hpp>
#include <dlfcn.h>
#include <stdio.h>

#include <array>
#include <clocale>
#include <cstdlib>
#include <cstring>
#include <locale>
#include <map>
#include <set>
#include <string>

namespace {

using Destroy = void (*)(void*);

/// An object of a library of torchtap that is destroyed at the end.
struct Static {
  const char* library;  // never unloaded
  std::size_t offset;
};
std::array<Static, 512> statics;  // without constructor and destructor, as it is filled before and after main
std::size_t found = 0;

void note(const void* object, const void* library) {
  Dl_info owner;
  if (found == statics.size() || ::dladdr(library, &owner) == 0) return;
  if (std::strstr(owner.dli_fname, "libtorchtap") == nullptr) return;
  const auto* const begin = static_cast<const char*>(owner.dli_fbase);
  statics[found++] = {owner.dli_fname, static_cast<std::size_t>(static_cast<const char*>(object) - begin)};
}

/// The names of those that are torchtap's own, and not of a header of LibTorch's, cereal's or the compiler's.
std::string own_statics() {
  std::map<std::string, std::set<std::size_t>> by_library;
  for (std::size_t i = 0; i < found; ++i) by_library[statics[i].library].insert(statics[i].offset);
  std::string own;
  for (const auto& [library, offsets] : by_library) {
    FILE* const symbols = ::popen(("nm -C '" + library + "'").c_str(), "r");
    std::array<char, 4096> line;
    while (symbols != nullptr && std::fgets(line.data(), static_cast<int>(line.size()), symbols) != nullptr) {
      const std::string symbol(line.data());  // ADDRESS TYPE NAME
      const auto name = symbol.find(" torchtap::");
      if (name != 18 || symbol[0] == ' ' || offsets.count(std::stoull(symbol, nullptr, 16)) == 0) continue;
      own += symbol.substr(name + 1);
    }
    if (symbols != nullptr) ::pclose(symbols);
  }
  return own;
}

}  // namespace

// In place of the C library's: called for each static object that has a destructor, when it is made.
extern "C" __attribute__((visibility("default"))) int __cxa_atexit(Destroy destroy, void* object,
                                                                   void* library) noexcept {
  static const auto next =
      reinterpret_cast<int (*)(Destroy, void*, void*)>(::dlsym(RTLD_NEXT, "__cxa_atexit"));
  note(object, library);
  return next(destroy, object, library);
}

namespace {

/// Models, recorders and threads may outlive static objects: a forward in the destructor of one that is older
/// has to find all that it needs. So what torchtap makes once it never destroys: `static auto* one = new …`.
struct NothingEnds {
  void setup() {}
  void teardown() {
    const std::string own = own_statics();
    BOOST_TEST(own.empty(), own);
  }
};
BOOST_TEST_GLOBAL_FIXTURE(NothingEnds);

}  // namespace

namespace {

/// Numbers as in German: "1.234,5".
struct Comma : std::numpunct<char> {
  char do_decimal_point() const override { return ','; }
  char do_thousands_sep() const override { return '.'; }
  std::string do_grouping() const override { return "\3"; }
};

/// The user's locale, which a program sets with `std::locale::global` and `setlocale`: TORCHTAP_TEST_COMMA is
/// its name. Where C has no such locale, streams have it.
struct UsersLocale {
  UsersLocale() {
    const char* const name = std::getenv("TORCHTAP_TEST_COMMA");
    if (name == nullptr) return;
    std::locale::global(std::locale(std::locale::classic(), new Comma));
    if (std::setlocale(LC_NUMERIC, name) == nullptr)
      BOOST_TEST_MESSAGE("C has no locale " << name << ": only streams have a decimal comma");
  }
};

}  // namespace

BOOST_TEST_GLOBAL_FIXTURE(UsersLocale);
