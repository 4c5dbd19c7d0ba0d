// Saves that are killed, fail or run at the same time: a reader finds the old recording or the new one.
#include <ATen/Parallel.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include <torchtap/base/staging.hpp>
#include <torchtap/storage/detail/recording_files.hpp>

#include "support.hpp"
#include "system_calls.hpp"

BOOST_AUTO_TEST_SUITE(crash)

using namespace torchtap_test;
using torchtap::storage::Entry;
using torchtap::storage::load;
using torchtap::storage::load_value;
using torchtap::storage::Recording;
using torchtap::storage::save;
using torchtap::storage::save_value;
using torchtap::storage::SaveOptions;

namespace {

constexpr int kEntries = 6;

/// A recording with `number` in all of its parts.
std::vector<Entry> generation(std::int64_t number) {
  std::vector<Entry> entries(kEntries);
  for (int i = 0; i < kEntries; ++i) {
    auto& entry = entries[static_cast<std::size_t>(i)];
    entry.path = c10::str("m", i, ".g", number);
    entry.samples = number + 1;
    entry.value = Value(at::full({30000}, number, at::kLong));
  }
  return entries;
}

/// The number of a recording, if it is the same in all parts; -1 if not.
std::int64_t generation_of(const Recording& recording) {
  if (recording.size() != kEntries) return -1;
  const std::int64_t number = recording.at(0).samples() - 1;
  for (int i = 0; i < kEntries; ++i) {
    const auto& part = recording.at(i);
    if (part.path() != c10::str("m", i, ".g", number) || part.samples() != number + 1) return -1;
    if (!part.tensor().equal(at::full({30000}, number, at::kLong))) return -1;
  }
  return number;
}

}  // namespace

// The save is killed at its first system call, then at its second, and so on, until one succeeds.
BOOST_AUTO_TEST_CASE(a_killed_save_leaves_the_old_recording_or_the_new_one) {
  const TemporaryDirectory directory;
  at::set_num_threads(1);
  const std::string rec = directory / "rec";
  for (const bool sync : {false, true}) {
    save(rec, generation(0), SaveOptions().mkdir(true).overwrite(true));
    std::int64_t last = 0, replaced = 0;
    std::size_t leftovers = 0;
    for (std::int64_t call = 1;; ++call) {
      const bool killed =
          kill_at(call, [&] { save(rec, generation(last + 1), SaveOptions().overwrite(true).sync(sync)); });
      const std::int64_t now = generation_of(load(rec));
      BOOST_TEST((now == last || now == last + 1), "generation " << now << " after " << last);
      if (!killed) {
        BOOST_TEST(now == last + 1);
        BOOST_TEST_MESSAGE(call - 1 << " calls, " << leftovers << " leftovers, " << replaced << " replaced");
        BOOST_TEST(call > 2 * kEntries);  // otherwise system calls are not counted
        break;
      }
      replaced += now - last;
      last = now;
      leftovers += names_in(directory.path()).size() - 1;
    }
    BOOST_TEST(leftovers > 0u);
    BOOST_TEST(replaced > 0);  // killed after the exchange, while the old recording is removed
    BOOST_TEST(names_in(directory.path()) == (std::vector<std::string>{"rec"}),
               boost::test_tools::per_element());
  }
}

BOOST_AUTO_TEST_CASE(a_killed_save_of_one_file_leaves_the_old_one_or_the_new_one) {
  const TemporaryDirectory directory;
  at::set_num_threads(1);
  const std::string path = directory / "x.pt";
  const auto value = [](std::int64_t number) { return Value(at::full({300000}, number, at::kLong)); };
  save_value(path, value(0));
  std::int64_t last = 0;
  for (std::int64_t call = 1;; ++call) {
    const bool killed = kill_at(
        call, [&] { save_value(path, value(last + 1), SaveOptions().overwrite(true).sync(call % 2 == 0)); });
    const at::Tensor now = load_value(path).tensor();
    BOOST_TEST(now.eq(now[0]).all().item<bool>());
    const auto number = now[0].item<std::int64_t>();
    if (!killed) {
      BOOST_TEST(number == last + 1);
      BOOST_TEST(call > 2);  // it writes and renames at least
      break;
    }
    BOOST_TEST((number == last || number == last + 1), "generation " << number << " after " << last);
    last = number;
  }
  BOOST_TEST(names_in(directory.path()) == (std::vector<std::string>{"x.pt"}),
             boost::test_tools::per_element());
}

// Where the system cannot exchange two directories, there is a moment between two renames.
BOOST_AUTO_TEST_CASE(without_an_atomic_exchange_the_old_recording_is_found_and_put_back) {
  namespace detail = torchtap::storage::detail;
  const TemporaryDirectory directory;
  const std::string rec = directory / "rec";
  save(rec, generation(1), SaveOptions().mkdir(true));
  const torchtap::base::Target target = torchtap::base::resolve("test", rec, false);
  fs::rename(rec, target.backup_path());  // killed here
  BOOST_TEST(generation_of(load(rec)) == 1);
  BOOST_CHECK_THROW(save(rec, generation(2)), c10::ValueError);  // the recording still exists
  BOOST_TEST(generation_of(load(rec)) == 1);
  fs::rename(rec, target.backup_path());
  save(rec, generation(2), SaveOptions().overwrite(true));
  BOOST_TEST(generation_of(load(rec)) == 2);
  fs::copy(rec, target.backup_path());  // killed after the second rename
  save(rec, generation(3), SaveOptions().overwrite(true));
  BOOST_TEST(generation_of(load(rec)) == 3);
  {
    save(directory / "next", generation(4), SaveOptions().mkdir(true));
    torchtap::base::Staging staging("test", target, detail::is_recording_file);
    for (const auto& name : names_in(directory / "next")) {
      fs::copy_file(directory / ("next/" + name), staging.path() + "/" + name);
    }
    without_exchange = true;
    staging.put(/*overwrite=*/true, /*sync=*/true);
    without_exchange = false;
  }
  BOOST_TEST(generation_of(load(rec)) == 4);
  BOOST_TEST(names_in(directory.path()) == (std::vector<std::string>{"next", "rec"}),
             boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(a_save_in_progress_is_not_taken_for_a_leftover) {
  namespace detail = torchtap::storage::detail;
  const TemporaryDirectory directory;
  const torchtap::base::Target target = torchtap::base::resolve("test", directory / "rec", false);
  torchtap::base::Staging living("test", target, detail::is_recording_file);
  fs::create_directory(directory / ".rec.torchtap-new-dead");
  write_bytes(directory / ".rec.torchtap-new-dead/0.pt", "half");
  save(directory / "rec", generation(1), SaveOptions().mkdir(true));
  BOOST_TEST(fs::exists(living.path()));
  BOOST_TEST(!fs::exists(directory / ".rec.torchtap-new-dead"));
}

// A limit on file sizes stands for a full disk, and works on every machine.
BOOST_AUTO_TEST_CASE(a_write_that_fails_loses_nothing) {
  const TemporaryDirectory directory;
  const std::string rec = directory / "rec";
  save(rec, generation(1), SaveOptions().mkdir(true));
  save_value(directory / "x.pt", Value(at::ones({3})));
  const auto before = names_in(directory.path());
  struct rlimit old {};
  BOOST_REQUIRE(::getrlimit(RLIMIT_FSIZE, &old) == 0);
  const auto old_handler = ::signal(SIGXFSZ, SIG_IGN);
  const auto limit = [&](rlim_t bytes) {
    const struct rlimit now { bytes, old.rlim_max };
    BOOST_REQUIRE(::setrlimit(RLIMIT_FSIZE, &now) == 0);
  };
  const auto entries = generation(2);
  // Every limit up to the full size, so that writing the data, the directory of records or the manifest
  // fails.
  for (const rlim_t bytes :
       {rlim_t{0}, rlim_t{10}, rlim_t{1000}, rlim_t{100000}, rlim_t{240100}, rlim_t{240500}}) {
    limit(bytes);
    BOOST_CHECK_EXCEPTION(save(rec, entries, SaveOptions().overwrite(true)), c10::Error,
                          says({"save: cannot write", ".pt", "File too large", "errno 27"}));
    BOOST_CHECK_EXCEPTION(save_value(directory / "x.pt", entries[0].value, SaveOptions().overwrite(true)),
                          c10::Error, says({"save_value: cannot write", "File too large"}));
    BOOST_CHECK_THROW(save(directory / "a/b", entries, SaveOptions().mkdir(true)), c10::Error);
    limit(old.rlim_cur);
    BOOST_TEST(generation_of(load(rec)) == 1);
    BOOST_TEST(load_value(directory / "x.pt").tensor().equal(at::ones({3})));
    BOOST_TEST(names_in(directory.path()) == before, boost::test_tools::per_element());
  }
  ::signal(SIGXFSZ, old_handler);
  save(rec, entries, SaveOptions().overwrite(true));  // nothing in memory was lost
  BOOST_TEST(generation_of(load(rec)) == 2);
}

BOOST_AUTO_TEST_CASE(a_full_disk_loses_nothing,
                     *boost::unit_test::label("full_disk") * boost::unit_test::precondition(may_mount{})) {
  const TemporaryDirectory directory;
  const std::string disk = directory / "disk";
  fs::create_directory(disk);
  BOOST_REQUIRE(::mount("torchtap-test", disk.c_str(), "tmpfs", 0, "size=2500k") == 0);
  save(disk + "/rec", generation(1), SaveOptions().mkdir(true));
  const auto entries = generation(2);  // 1.4 MB; there is room for one and a half of them
  BOOST_CHECK_EXCEPTION(save(disk + "/rec", entries, SaveOptions().overwrite(true)), c10::Error,
                        says({"save: cannot write", "No space left on device"}));
  BOOST_TEST(names_in(disk) == (std::vector<std::string>{"rec"}), boost::test_tools::per_element());
  BOOST_TEST(generation_of(load(disk + "/rec")) == 1);
  BOOST_CHECK_THROW(save_value(disk + "/x.pt", Value(at::zeros({1000000}))), c10::Error);
  BOOST_TEST(names_in(disk) == (std::vector<std::string>{"rec"}), boost::test_tools::per_element());
  // A read-only disk.
  BOOST_TEST(::mount("torchtap-test", disk.c_str(), "tmpfs", MS_REMOUNT | MS_RDONLY, "size=2500k") == 0);
  BOOST_CHECK_EXCEPTION(save(disk + "/rec", entries, SaveOptions().overwrite(true)), c10::Error,
                        says({"Read-only file system"}));
  BOOST_TEST(generation_of(load(disk + "/rec")) == 1);
  BOOST_TEST(::umount2(disk.c_str(), MNT_DETACH) == 0);
}

BOOST_AUTO_TEST_CASE(saves_at_the_same_time) {
  const TemporaryDirectory directory;
  std::vector<std::string> errors(4);
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < errors.size(); ++t) {
    threads.emplace_back([&, t] {
      try {
        for (int round = 0; round < 20; ++round) {
          // Two directories per thread, and one that all share.
          save(directory / c10::str("own", t), generation(round),
               SaveOptions().mkdir(true).overwrite(true).sync(false));
          save(directory / "shared", generation(static_cast<std::int64_t>(100 * t) + round),
               SaveOptions().mkdir(true).overwrite(true).sync(false));
          const std::int64_t number = generation_of(load(directory / c10::str("own", t)));
          if (number != round) errors[t] = c10::str("round ", round, " reads ", number);
        }
      } catch (const std::exception& error) {
        errors[t] = error.what();
      }
    });
  }
  for (auto& thread : threads) thread.join();
  for (const auto& error : errors) BOOST_TEST(error == "");
  BOOST_TEST(generation_of(load(directory / "shared")) >= 0);
  BOOST_TEST(
      names_in(directory.path()) == (std::vector<std::string>{"own0", "own1", "own2", "own3", "shared"}),
      boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(a_reader_sees_one_recording_or_the_other) {
  const TemporaryDirectory directory;
  const std::string rec = directory / "rec";
  save(rec, generation(0), SaveOptions().mkdir(true));
  std::atomic<bool> done{false};
  std::thread writer([&] {
    for (std::int64_t next = 1; next <= 150; ++next) {
      save(rec, generation(next), SaveOptions().overwrite(true).sync(false));
    }
    done = true;
  });
  std::size_t whole = 0, gone = 0, mixed = 0;
  while (!done) {
    const Recording recording = load(rec);  // never throws, because there is a recording at any moment
    try {
      ++(generation_of(recording) >= 0 ? whole : mixed);
    } catch (const c10::ValueError&) {
      ++gone;  // the error for a recording that was replaced while it was read
    }
  }
  writer.join();
  BOOST_TEST_MESSAGE(whole << " whole, " << gone << " replaced");
  BOOST_TEST(mixed == 0u);
  BOOST_TEST(generation_of(load(rec)) == 150);
}

BOOST_AUTO_TEST_SUITE_END()
