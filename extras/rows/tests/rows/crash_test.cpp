// Dumps that are killed, cut off, damaged or out of room: no row is misaligned, and none that was flushed is
// lost.
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <random>
#include <thread>

#include <torchtap/reductions/restore.hpp>
#include <torchtap/storage/merge.hpp>

#include "support.hpp"

BOOST_AUTO_TEST_SUITE(crashes)

using namespace rows_test;
using tap::storage::recover;

namespace {

/// Dumps without end, and says how many rows were flushed. Called in a child.
[[noreturn]] void dump_for_ever(const std::string& directory, int to_parent, bool append) {
  at::set_num_threads(1);
  Run run;
  ForwardOutput dump(keeping(directory, spooling().shard_bytes(20000).append(append)));
  dump.attach(*run.net, "*");
  for (std::int64_t i = 0;; ++i) {
    run.next = i * 64;
    const at::Tensor mask = at::arange(run.next, run.next + 12).reshape({3, 4}).remainder(5).ne(0);
    const at::Tensor x = numbered(run.next, 3, 4),
                     id = at::arange(run.next, run.next + 12, at::kLong).reshape({3, 4});
    const Context named({{"mask", mask}, {"label", id.select(1, 0)}, {"id", id}});
    run.net->forward(x, i % 3 == 0);
    if (i % 50 != 49) continue;
    dump.flush();
    const std::int64_t rows = dump.at("first").samples();
    if (::write(to_parent, &rows, sizeof rows) != sizeof rows) ::_exit(1);
  }
}

/// Kills a child that dumps after so many microseconds. Returns how many rows it had flushed.
std::int64_t killed_after(std::int64_t microseconds, const std::string& directory, bool append) {
  std::array<int, 2> ends{};
  BOOST_TEST_REQUIRE(::pipe(ends.data()) == 0);
  const pid_t child = ::fork();
  if (child == 0) dump_for_ever(directory, ends[1], append);
  ::close(ends[1]);
  std::int64_t flushed = 0, rows = 0;
  while (flushed == 0 && ::read(ends[0], &rows, sizeof rows) == sizeof rows) flushed = rows;
  ::usleep(static_cast<::useconds_t>(microseconds));
  ::kill(child, SIGKILL);
  while (::read(ends[0], &rows, sizeof rows) == sizeof rows) flushed = rows;
  ::close(ends[0]);
  ::waitpid(child, nullptr, 0);
  return flushed;
}

/// Whether each row's number is the one beside it, and its place that of its number.
void check_aligned(const std::string& directory, std::int64_t at_least) {
  const auto recording = load(directory);
  for (const char* path : {"first", "twice", "rare", "last"}) {
    const Rows rows(recording.at(path));
    if (std::string(path) == "first") BOOST_TEST(rows.size() >= at_least);
    const at::Tensor having = rows.having("id");
    BOOST_TEST(rows.beside("id", having).equal(numbers_of(rows.gather(having))));
    const at::Tensor labelled = rows.having("label"), numbers = numbers_of(rows.gather(labelled));
    BOOST_TEST(rows.beside("label", labelled).equal(numbers.floor_divide(4) * 4));
    if (std::string(path) == "first") BOOST_TEST(having.size(0) >= at_least);
    bool places = true;
    for (std::int64_t i = 0; i < rows.size(); i += 7) {
      const std::int64_t number = numbers_of(rows.slice(i, i + 1)).item<std::int64_t>();
      const auto where = rows.where(i);
      places = places && (where.place == number % 64 || (where.place == -1 && i >= at_least)) &&
               where.forward == number / 64;
    }
    BOOST_TEST(places);
  }
}

}  // namespace

// ROWS_KILLS=100 kills more often.
BOOST_AUTO_TEST_CASE(a_kill_loses_no_flushed_row_and_misaligns_none) {
  const char* const wanted = ::getenv("ROWS_KILLS");
  const int kills = wanted == nullptr ? 20 : std::atoi(wanted);
  std::mt19937 random(7);
  for (int i = 0; i < kills; ++i) {
    const Folder folder;
    BOOST_TEST_CONTEXT("kill " << i) {
      const std::int64_t flushed = killed_after(random() % 60000, folder / "dump", false);
      check_aligned(folder / "dump", flushed);  // as a reader finds it, before it is repaired
      if (i % 2 == 0) {
        recover(folder / "dump");
        BOOST_TEST(load(folder / "dump").complete());
        check_aligned(folder / "dump", flushed);
        const auto recording = load(folder / "dump");
        for (const auto& entry : recording) {
          if (!tap::storage::is_calls(entry.kind())) continue;
          std::int64_t sum = 0;
          for (const auto& line : entry.each_tensor()) sum += line[4].item<std::int64_t>();
          for (const auto& rows : recording) {
            if (rows.path() == entry.path() && rows.kind() + ".calls" == entry.kind())
              BOOST_TEST(rows.samples() == sum);
          }
        }
      }
      // Continued after the kill, and killed again.
      const std::int64_t more = killed_after(random() % 20000, folder / "dump", true);
      check_aligned(folder / "dump", flushed + more);
      recover(folder / "dump");
      check_aligned(folder / "dump", flushed + more);
    }
  }
}

BOOST_AUTO_TEST_CASE(rows_behind_a_damaged_shard_are_left_out) {
  const Folder folder;
  const auto shard = [&](const char* name) { return folder / ("dump/" + std::string(name)); };
  // As long as the child takes to complete these shards.
  for (std::int64_t time = 30000;
       !std::filesystem::exists(shard("1-1.pt")) || !std::filesystem::exists(shard("9-2.pt")); time *= 2) {
    std::filesystem::remove_all(folder / "dump");
    killed_after(time, folder / "dump", false);
  }
  for (const char* name : {"1-1.pt", "9-2.pt"}) {
    std::fstream file(shard(name), std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(200);
    file.write("damaged", 7);
  }
  const auto result = recover(folder / "dump");
  BOOST_TEST(!result.missing.empty());
  check_aligned(folder / "dump", 0);
}

BOOST_AUTO_TEST_CASE(a_reader_sees_complete_shards_while_the_writer_runs) {
  const Folder folder;
  Run run;
  ForwardOutput dump(keeping(folder / "dump", spooling().shard_bytes(70000)));
  dump.attach(*run.net, "*");
  std::int64_t seen = 0;
  int compared = 0;
  for (std::int64_t i = 0; i < 4000; ++i) {
    run.next = i * 64;
    const at::Tensor id = at::arange(run.next, run.next + 12, at::kLong).reshape({3, 4});
    const Context named({{"mask", at::ones({3, 4})}, {"label", id.select(1, 0)}, {"id", id}});
    run.net->forward(numbered(run.next, 3, 4), false);
    if (i % 500 != 499) continue;
    const Rows rows(load(folder / "dump").at("first"));
    BOOST_TEST(rows.size() >= seen);
    const auto names = rows.names();
    if (std::count(names.begin(), names.end(), "id") == 0) continue;  // no shard of it is complete yet
    const at::Tensor having = rows.having("id");
    BOOST_TEST(rows.beside("id", having).equal(numbers_of(rows.gather(having))));
    seen = rows.size();
    ++compared;
  }
  BOOST_TEST(compared > 0);
  BOOST_TEST(seen > 20000);
}

BOOST_AUTO_TEST_CASE(merged_dumps_have_all_rows) {
  const Folder folder;
  Run run;
  for (const char* part : {"a", "b", "c"}) {
    run.forward_number = 0;
    ForwardOutput dump(keeping(folder / part));
    dump.attach(*run.net, "*");
    run.all_kinds();
  }
  tap::storage::merge({folder / "a", folder / "b", folder / "c"}, folder / "all", tap::reductions::restore,
                      tap::storage::MergeOptions().save(tap::storage::SaveOptions().mkdir(true)));
  check_alike(folder / "all", run);
  tap::storage::merge({folder / "a", folder / "b", folder / "c"}, folder / "rounds", tap::reductions::restore,
                      tap::storage::MergeOptions().at_once(2).save(tap::storage::SaveOptions().mkdir(true)));
  check_alike(folder / "rounds", run);
  killed_after(20000, folder / "cut", false);
  const std::string error = error_of([&] {
    tap::storage::merge({folder / "cut", folder / "a"}, folder / "none", tap::reductions::restore,
                        tap::storage::MergeOptions().save(tap::storage::SaveOptions().mkdir(true)));
  });
  BOOST_TEST(contains(error, "torchtap recover"));
  recover(folder / "cut");
  tap::storage::merge({folder / "cut", folder / "cut"}, folder / "two", tap::reductions::restore,
                      tap::storage::MergeOptions().save(tap::storage::SaveOptions().mkdir(true)));
  BOOST_TEST(Rows(load(folder / "two").at("last")).size() ==
             2 * Rows(load(folder / "cut").at("last")).size());
}

// No file may grow beyond a limit, as on a full disk; then there is room again.
BOOST_AUTO_TEST_CASE(a_full_disk_is_said_and_no_row_is_lost_or_misaligned) {
  const Folder folder;
  if (const pid_t child = ::fork(); child == 0) {
    ::signal(SIGXFSZ, SIG_IGN);
    Run run;
    std::int64_t failed = 0;
    {
      ForwardOutput dump(keeping(folder / "dump", spooling().queue_bytes(100000)));
      dump.attach(*run.net, "*");
      rlimit before{};
      ::getrlimit(RLIMIT_FSIZE, &before);
      rlimit small = before;
      small.rlim_cur = 40000;
      ::setrlimit(RLIMIT_FSIZE, &small);
      for (std::int64_t i = 0; i < 2000; ++i) {
        if (i == 1500) ::setrlimit(RLIMIT_FSIZE, &before);
        if (i == 1500) dump.flush();
        const at::Tensor id = at::arange(i * 64, i * 64 + 12, at::kLong).reshape({3, 4});
        const Context named({{"mask", at::ones({3, 4})}, {"label", id.select(1, 0)}, {"id", id}});
        try {
          run.net->forward(numbered(i * 64, 3, 4), false);
        } catch (const c10::Error& error) {
          failed += contains(error.what_without_backtrace(), "Make room");
        }
      }
    }
    ::_exit(failed > 0 ? 0 : 1);
  } else {
    int status = 1;
    ::waitpid(child, &status, 0);
    BOOST_TEST(status == 0);
  }
  const Rows rows(load(folder / "dump").at("first"));
  BOOST_TEST(rows.size() > 6000);
  BOOST_TEST(rows.beside("id").equal(numbers_of(rows.slice(0, rows.size()))));
}

BOOST_AUTO_TEST_SUITE_END()
