// A save waits for the disk before the recording appears; checked by watching system calls.
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <map>
#include <mutex>
#include <set>
#include <sstream>
#include <thread>

#include <torchtap/base/write_file.hpp>

#include "support.hpp"
#include "system_calls.hpp"

BOOST_AUTO_TEST_SUITE(on_disk)

using namespace torchtap_test;
using torchtap::base::write_file;
using torchtap::storage::Entry;
using torchtap::storage::load;
using torchtap::storage::save;
using torchtap::storage::SaveOptions;

namespace {

struct Watch {
  std::mutex mutex;
  std::set<std::string> synced;              // paths of files that fsync was called for
  std::map<std::string, std::size_t> sizes;  // and how large they were then
  std::string fails;                         // fsync fails for paths that end in this
};
Watch* watch = nullptr;

std::string path_of(int fd) {
  std::error_code ignored;
  return fs::read_symlink("/proc/self/fd/" + std::to_string(fd), ignored).string();
}

/// Called by fsync.
int note(int fd) {
  const std::string path = path_of(fd);
  const std::lock_guard lock(watch->mutex);
  const std::string& fails = watch->fails;
  if (!fails.empty() && path.size() >= fails.size() &&
      path.compare(path.size() - fails.size(), fails.size(), fails) == 0) {
    return EIO;
  }
  watch->synced.insert(path);
  struct stat status {};
  if (::fstat(fd, &status) == 0) watch->sizes[path] = static_cast<std::size_t>(status.st_size);
  return 0;
}

struct Watching {
  Watching() {
    watch = &now;
    before_fsync = note;
  }
  ~Watching() {
    before_fsync = nullptr;
    watch = nullptr;
  }
  Watch now;
};

std::vector<Entry> entries(int count) {
  std::vector<Entry> all;
  for (int i = 0; i < count; ++i) {
    Entry entry;
    entry.path = "m" + std::to_string(i);
    entry.samples = 1;
    entry.value = Value(at::full({10}, i));
    all.push_back(std::move(entry));
  }
  return all;
}

void check_entries(const std::string& directory, int count) {
  const auto recording = load(directory);
  BOOST_REQUIRE(recording.size() == static_cast<std::size_t>(count));
  for (int i = 0; i < count; ++i) BOOST_TEST(same(recording.at(i).tensor(), at::full({10}, i)));
}

}  // namespace

BOOST_AUTO_TEST_CASE(everything_is_on_the_disk_before_the_recording_appears) {
  const TemporaryDirectory directory;
  constexpr int kCount = 700;  // several times as many as wait together
  {
    Watching watching;
    save(directory / "rec", entries(kCount), SaveOptions().mkdir(true));
    // Complete files were synced in their temporary folder; then that folder, then its parent.
    std::size_t files = 0;
    bool folder = false, parent = false;
    for (const auto& path : watching.now.synced) {
      const bool staged = path.find("/.rec.torchtap-new-") != std::string::npos;
      if (path == fs::canonical(directory.path()).string()) parent = true;
      if (!staged) continue;
      const std::string name = path.substr(path.rfind('/') + 1);
      if (name.find(".rec.") == 0) {
        folder = true;
        continue;
      }
      BOOST_TEST(fs::file_size(directory / ("rec/" + name)) == watching.now.sizes[path]);
      ++files;
    }
    BOOST_TEST(files == kCount + 1u);  // the manifest, too
    BOOST_TEST(folder);
    BOOST_TEST(parent);
  }
  check_entries(directory / "rec", kCount);
  Watching watching;
  save(directory / "other", entries(3), SaveOptions().mkdir(true).sync(false));
  BOOST_TEST(watching.now.synced.empty());
}

BOOST_AUTO_TEST_CASE(a_file_that_does_not_reach_the_disk_leaves_the_old_recording) {
  const TemporaryDirectory directory;
  save(directory / "rec", entries(2), SaveOptions().mkdir(true).sync(false));
  for (const std::string file : {"/0.pt", "/3.pt", "/699.pt", "/manifest.json"}) {
    Watching watching;
    watching.now.fails = file;
    BOOST_CHECK_EXCEPTION(save(directory / "rec", entries(700), SaveOptions().overwrite(true)), c10::Error,
                          says({"save", "fsync", file, "errno 5"}));
  }
  BOOST_TEST(names_in(directory.path()) == (std::vector<std::string>{"rec"}),
             boost::test_tools::per_element());
  check_entries(directory / "rec", 2);
}

BOOST_AUTO_TEST_CASE(files_are_saved_when_few_may_be_open) {
  const TemporaryDirectory directory;
  rlimit before{};
  BOOST_REQUIRE(::getrlimit(RLIMIT_NOFILE, &before) == 0);
  rlimit few = before;
  // The limit applies to descriptor numbers, which begin at the lowest free one.
  const int next = ::dup(0);
  ::close(next);
  few.rlim_cur = static_cast<rlim_t>(next) + 6;
  BOOST_REQUIRE(::setrlimit(RLIMIT_NOFILE, &few) == 0);
  try {
    save(directory / "rec", entries(100), SaveOptions().mkdir(true));
  } catch (const c10::Error& error) {
    BOOST_ERROR(error.what());
  }
  ::setrlimit(RLIMIT_NOFILE, &before);
  check_entries(directory / "rec", 100);
}

BOOST_AUTO_TEST_CASE(a_file_of_any_content_is_replaced_as_a_whole) {
  const TemporaryDirectory directory;
  const std::string path = directory / "state";
  const auto put = [&](const std::string& text) {
    write_file("test", path, [&](std::ostream& stream) { stream << text << '!'; });
  };
  {
    Watching watching;
    put("first");
    BOOST_TEST(watching.now.synced.size() == 2u);  // the file and its folder
    BOOST_TEST(watching.now.synced.count(fs::canonical(directory.path()).string()) == 1u);
  }
  BOOST_TEST(read_bytes(path) == "first!");
  put(std::string(3000000, 'x'));
  BOOST_TEST(read_bytes(path) == std::string(3000000, 'x') + "!");
  {
    Watching watching;
    watching.now.fails = "";
    BOOST_CHECK_THROW(write_file("test", path,
                                 [](std::ostream& stream) {
                                   stream << "half";
                                   throw std::runtime_error("no more");
                                 }),
                      std::runtime_error);
  }
  BOOST_TEST(fs::file_size(path) == 3000001u);
  BOOST_CHECK_EXCEPTION(write_file("test", directory / "none/state", [](std::ostream&) {}), c10::ValueError,
                        says({"test", "none", "does not exist"}));
  BOOST_CHECK_EXCEPTION(write_file("test", directory.path(), [](std::ostream&) {}), c10::ValueError,
                        says({"is a directory"}));
  BOOST_TEST(names_in(directory.path()) == (std::vector<std::string>{"state"}),
             boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(a_symbolic_link_stays_and_its_target_is_replaced) {
  const TemporaryDirectory directory;
  fs::create_directories(directory / "far");
  write_bytes(directory / "far/state", "old");
  fs::create_symlink("far/state", directory / "near");
  fs::create_symlink("near", directory / "link");
  write_file("test", directory / "link", [](std::ostream& stream) { stream << "new"; });
  BOOST_TEST(fs::is_symlink(directory / "link"));
  BOOST_TEST(fs::is_symlink(directory / "near"));
  BOOST_TEST(read_bytes(directory / "far/state") == "new");
  BOOST_TEST(names_in(directory / "far") == (std::vector<std::string>{"state"}),
             boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(what_is_no_file_is_written_to_and_stays) {
  const TemporaryDirectory directory;
  const std::string text(300000, 'x');  // more than a pipe takes at once
  const auto put = [&](const std::string& path) {
    write_file("test", path, [&](std::ostream& stream) { stream << text << '!'; });
  };
  BOOST_REQUIRE(::mkfifo((directory / "pipe").c_str(), 0600) == 0);
  fs::create_symlink("pipe", directory / "link");
  for (const char* name : {"pipe", "link"}) {
    std::string got;
    std::thread reader([&] { got = read_bytes(directory / "pipe"); });
    put(directory / name);
    reader.join();
    BOOST_TEST(got == text + '!');
  }
  BOOST_TEST(fs::is_symlink(directory / "link"));
  BOOST_TEST(fs::is_fifo(directory / "pipe"));
  fs::create_symlink("/dev/full", directory / "full");
  BOOST_CHECK_EXCEPTION(put(directory / "full"), c10::Error,
                        says({"test", "full", "No space left on device"}));
  BOOST_TEST(fs::is_character_file("/dev/full"));
  BOOST_TEST(names_in(directory.path()) == (std::vector<std::string>{"full", "link", "pipe"}),
             boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(a_descriptor_goes_on_where_it_is) {
  const TemporaryDirectory directory;
  const int log = ::open((directory / "log").c_str(), O_WRONLY | O_CREAT, 0600);
  BOOST_REQUIRE(::write(log, "before ", 7) == 7);
  fs::create_symlink("/proc/self/fd/" + std::to_string(log), directory / "link");
  for (const std::string& path : {"/dev/fd/" + std::to_string(log), directory / "link"})
    write_file("test", path, [](std::ostream& stream) { stream << "now "; });
  BOOST_REQUIRE(::write(log, "after", 5) == 5);
  ::close(log);
  BOOST_TEST(read_bytes(directory / "log") == "before now now after");
}

BOOST_AUTO_TEST_CASE(a_reader_that_leaves_is_an_error_and_no_signal) {
  int ends[2];
  BOOST_REQUIRE(::pipe(ends) == 0);
  ::close(ends[0]);
  BOOST_CHECK_EXCEPTION(write_file("test", "/dev/fd/" + std::to_string(ends[1]),
                                   [](std::ostream& stream) { stream << "lost"; }),
                        c10::Error, says({"test", "Broken pipe"}));
  ::close(ends[1]);
  sigset_t pending;
  BOOST_TEST((::sigpending(&pending) == 0 && ::sigismember(&pending, SIGPIPE) == 0));
  BOOST_TEST((::pthread_sigmask(SIG_BLOCK, nullptr, &pending) == 0 && ::sigismember(&pending, SIGPIPE) == 0));
}

BOOST_AUTO_TEST_SUITE_END()
