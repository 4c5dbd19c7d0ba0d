// Passes damaged files to everything that reads files, and checks that each ends in a value or an exception.
//
//   fuzz [--seconds N] [--seed S] [--runs N] [--keep FOLDER]
//
// Each run has its own seed: `--seed S --runs 1` repeats the run with seed S. Failing files are kept in
// FOLDER ("fuzz-failure" by default). Runs are grouped into child processes, so that a crash, a hang or
// exhausted memory ends only that child and can be distinguished.
#include <ATen/Parallel.h>
#include <CLI/CLI.hpp>
#include <signal.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>

#include <torchtap/base/remove_folder.hpp>

#include "check.hpp"
#include "corpus.hpp"
#include "mutate.hpp"

// Files are smaller than a megabyte: an allocation a thousand times as large comes from a damaged number.
extern "C" const char* __asan_default_options() {
  return "max_allocation_size_mb=1024:hard_rss_limit_mb=4096:allocator_may_return_null=1:detect_leaks=0:"
         "abort_on_error=1";
}
extern "C" const char* __ubsan_default_options() {
  return "print_stacktrace=1:halt_on_error=1:abort_on_error=1";
}

namespace {

namespace fs = std::filesystem;
using namespace fuzz;

constexpr int kCpuSeconds = 20;    // for one run
constexpr int kRealSeconds = 300;  // for one run, wall clock: it may wait without computing
constexpr int kBatch = 2000;       // runs per child

// The shadow memory of AddressSanitizer reserves terabytes of addresses, and the sanitizer has its own
// limits.
#if defined(__SANITIZE_ADDRESS__)
constexpr bool kLimited = false;
#elif defined(__has_feature)  // Clang
constexpr bool kLimited = !__has_feature(address_sanitizer);
#else
constexpr bool kLimited = true;
#endif
constexpr ::rlim_t kMemory = ::rlim_t{4} << 30;

struct Options {
  double seconds = 60;
  std::uint64_t seed = 1;
  std::uint64_t runs = 0;  // 0: as many as the time allows
  std::string keep = "fuzz-failure";
};

struct Tally {
  std::uint64_t runs = 0, values = 0, errors = 0;
};

class Fuzzer {
 public:
  Fuzzer(const Options& options, std::string folder)
      : options_(options), folder_(std::move(folder)), corpus_(make_corpus(folder_)) {}

  int run() {
    const auto start = std::chrono::steady_clock::now();
    const auto seconds = [&] {
      return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    };
    std::uint64_t seed = options_.seed;
    while (options_.runs == 0 ? seconds() < options_.seconds : total_.runs < options_.runs) {
      const std::uint64_t most = options_.runs == 0 ? kBatch : options_.runs - total_.runs;
      if (!batch(seed, std::min<std::uint64_t>(most, kBatch), options_.seconds - seconds())) return 1;
      seed = options_.seed + total_.runs;
    }
    std::printf("%llu runs from seed %llu on: %llu values, %llu errors, no promise broken\n",
                static_cast<unsigned long long>(total_.runs), static_cast<unsigned long long>(options_.seed),
                static_cast<unsigned long long>(total_.values),
                static_cast<unsigned long long>(total_.errors));
    // The test is void if damage is never noticed or files are never read.
    return total_.runs < 100 || (total_.values > 0 && total_.errors > 0) ? 0 : 1;
  }

 private:
  /// Executes runs one after another in a child.
  bool batch(std::uint64_t seed, std::uint64_t runs, double seconds) {
    int ends[2];
    if (::pipe(ends) != 0) return false;
    std::fflush(nullptr);
    const pid_t child = ::fork();
    if (child == 0) {
      ::close(ends[0]);
      const rlimit memory{kMemory, kMemory}, no_core{0, 0};
      if (kLimited) ::setrlimit(RLIMIT_AS, &memory);
      ::setrlimit(RLIMIT_CORE, &no_core);
      Tally tally;
      const auto start = std::chrono::steady_clock::now();
      for (std::uint64_t i = 0; i < runs; ++i) {
        one(seed + i, tally);
        (void)!::write(ends[1], &tally, sizeof tally);
        const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
        if (options_.runs == 0 && taken.count() > seconds) break;
      }
      ::_exit(0);
    }
    ::close(ends[1]);
    Tally tally, next;
    while (::read(ends[0], &next, sizeof next) == static_cast<::ssize_t>(sizeof next)) tally = next;
    ::close(ends[0]);
    int status = 0;
    ::waitpid(child, &status, 0);
    total_.runs += tally.runs;
    total_.values += tally.values;
    total_.errors += tally.errors;
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return true;
    torchtap::base::remove_folder(options_.keep);
    fs::copy(folder_ + "/input", options_.keep, fs::copy_options::recursive);
    std::printf("seed %llu failed (%s %d); the files are in %s, again: fuzz --seed %llu --runs 1\n",
                static_cast<unsigned long long>(seed + tally.runs),
                WIFSIGNALED(status) && (WTERMSIG(status) == SIGPROF || WTERMSIG(status) == SIGALRM)
                    ? "it took too long, signal"
                : WIFSIGNALED(status) ? "signal"
                                      : "status",
                WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status), options_.keep.c_str(),
                static_cast<unsigned long long>(seed + tally.runs));
    return false;
  }

  void one(std::uint64_t seed, Tally& tally) {
    Random random(seed);
    random.next();
    Input input = corpus_.inputs[random.below(corpus_.inputs.size())];
    const bool honest = random.once_in(2);
    mutate(input, random, honest, folder_);
    const std::string path = folder_ + "/input";
    write_folder(path, input.files);
    if (input.files.empty()) {
      ++tally.runs;
      return;
    }
    const itimerval limit{{0, 0}, {kCpuSeconds, 0}}, none{{0, 0}, {0, 0}};
    ::setitimer(ITIMER_PROF, &limit, nullptr);
    ::alarm(kRealSeconds);
    try {
      const bool value = check(input, path, random, honest, corpus_.written);
      ++(value ? tally.values : tally.errors);
    } catch (const Broken& broken) {
      std::printf("seed %llu (%s, %s damage): %s\n", static_cast<unsigned long long>(seed),
                  input.name.c_str(), honest ? "honest" : "repaired", broken.what.c_str());
      std::fflush(stdout);
      write_folder(path, input.files);  // the input of the run
      ::_exit(1);
    }
    ::setitimer(ITIMER_PROF, &none, nullptr);
    ++tally.runs;
  }

  const Options options_;
  const std::string folder_;
  const Corpus corpus_;
  Tally total_;
};

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("Hands damaged files to everything that reads files");
  app.add_option("--seconds", options.seconds, "Time to run");
  app.add_option("--seed", options.seed, "Seed of the first run; each further run adds one");
  app.add_option("--runs", options.runs, "Number of runs, instead of a time");
  app.add_option("--keep", options.keep, "Folder for the files of a failing run");
  CLI11_PARSE(app, argc, argv);
  at::set_num_threads(1);  // forked children have no thread pool
  std::string folder = (fs::temp_directory_path() / "torchtap-fuzz-XXXXXX").string();
  if (::mkdtemp(folder.data()) == nullptr) return 2;
  int status = 2;
  try {
    status = Fuzzer(options, folder).run();
  } catch (const std::exception& error) {
    std::cerr << "fuzz: " << error.what() << '\n';
  }
  torchtap::base::remove_folder(folder);
  return status;
}
