// Spooling: samples in order, killed processes, failing disks, full queues, journals.
#include <ATen/Parallel.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <functional>
#include <random>
#include <thread>

#include <torchtap/base/crc32.hpp>
#include <torchtap/storage/detail/journal.hpp>
#include <torchtap/storage/recover.hpp>
#include <torchtap/storage/spool.hpp>

#include "support.hpp"
#include "system_calls.hpp"

BOOST_AUTO_TEST_SUITE(spool)

using namespace torchtap_test;
using torchtap::storage::Entry;
using torchtap::storage::load;
using torchtap::storage::Recording;
using torchtap::storage::recover;
using torchtap::storage::RecoverOptions;
using torchtap::storage::save;
using torchtap::storage::SaveOptions;
using torchtap::storage::Spool;
using torchtap::storage::SpoolOptions;
using torchtap::storage::WhenFull;

namespace {

SpoolOptions options() {
  return SpoolOptions().mkdir(true).sync(false);
}

Entry entry(const std::string& path) {
  Entry entry;
  entry.path = path;
  entry.type = "torch::nn::LinearImpl";
  entry.kind = "ForwardOutput";
  return entry;
}

bool same(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (!torchtap_test::same(a[i], b[i])) return false;
  }
  return true;
}

/// Appends a sample as a recorder does.
void append(Spool& spool, Spool::Stream& stream, const at::Tensor& sample,
            std::optional<std::int64_t> slot = std::nullopt) {
  if (spool.admit(stream, sample.defined() ? static_cast<std::int64_t>(sample.nbytes()) : 0)) {
    stream.append(sample, slot);
  }
}

/// Difficult streams of samples: one shape; many shapes and dtypes; large among small ones; undefined ones;
/// views.
std::vector<std::vector<at::Tensor>> streams() {
  at::manual_seed(3);
  std::vector<std::vector<at::Tensor>> all(6);
  for (int i = 0; i < 700; ++i) all[0].push_back(at::rand({3, 5}));
  for (int i = 0; i < 300; ++i) {
    all[1].push_back(at::rand({i % 7, 2}).to(i % 11 == 3 ? at::kHalf : at::kFloat));
  }
  for (int i = 0; i < 40; ++i) all[2].push_back(at::rand({i % 4 == 0 ? 100000 : 10}));
  for (int i = 0; i < 50; ++i) all[3].push_back(i % 5 == 1 ? at::Tensor() : at::arange(i, at::kLong));
  for (int i = 0; i < 50; ++i) all[4].push_back(at::rand({40, 30}).t().slice(0, i % 3, 20, 2));
  all[4].push_back(at::complex(at::rand({3}), at::rand({3})).conj());
  all[4].push_back(at::rand({3}, at::kDouble)[1]);
  all[4].push_back(at::empty({0, 4}));
  all[4].push_back(at::ones({2}, at::kBool));
  return all;  // the last one stays empty
}

/// Compares the values that Python's torch.load reads with the samples, one after the other.
const char* const kReadShards = R"(
import json, torch
manifest = json.load(open("rec/manifest.json"))
for entry in manifest["entries"]:
    samples = []
    for shard in entry.get("shards", []):
        value = torch.load("rec/" + shard["file"], weights_only=True)
        assert len(value) == shard["samples"], shard
        assert isinstance(value, torch.Tensor) == (shard["holds"] == "tensor"), shard
        samples += list(value)
    assert len(samples) == entry["samples"], entry
    want = torch.load(entry["path"] + ".pt", weights_only=True) or []
    assert len(want) == len(samples), (len(want), len(samples))
    for a, b in zip(samples, want):
        assert (a is None and b is None) or (a.dtype == b.dtype and a.shape == b.shape and torch.equal(a, b)), (a, b)
)";

}  // namespace

BOOST_AUTO_TEST_CASE(samples_come_back_in_order_here_and_in_python) {
  const TemporaryDirectory directory;
  const auto all = streams();
  for (const std::int64_t shard_bytes : {std::int64_t{1}, std::int64_t{5000}, std::int64_t{1} << 30}) {
    BOOST_TEST_CONTEXT("shards of " << shard_bytes) {
      {
        Spool spool(directory / "rec", options().shard_bytes(shard_bytes).overwrite(true));
        std::vector<Spool::Stream*> streams;
        for (std::size_t i = 0; i < all.size(); ++i) streams.push_back(&spool.add(entry(c10::str("m", i))));
        for (std::size_t sample = 0; sample < 700; ++sample) {
          for (std::size_t i = 0; i < all.size(); ++i) {
            if (sample < all[i].size()) append(spool, *streams[i], all[i][sample]);
          }
        }
        spool.close();
      }
      const Recording recording = load(directory / "rec");
      BOOST_TEST(recording.complete());
      BOOST_TEST(recording.size() == all.size());
      for (std::size_t i = 0; i < all.size(); ++i) {
        const auto& part = recording.at(static_cast<std::int64_t>(i));
        BOOST_TEST(part.samples() == static_cast<std::int64_t>(all[i].size()));
        BOOST_TEST(same(part.tensors(), all[i]));
        std::vector<at::Tensor> read;
        for (const at::Tensor& sample : part.each_tensor()) read.push_back(sample);
        BOOST_TEST(same(read, all[i]));
        for (const auto& shard : part.shards()) {
          BOOST_TEST((shard.samples == 1 || shard.bytes < 2 * shard_bytes + 100000));
        }
        torchtap::storage::save_value(directory / (part.path() + ".pt"), Value(all[i]),
                                      SaveOptions().overwrite(true));
      }
      if (shard_bytes == std::int64_t{1} << 30) {
        BOOST_TEST(recording.at("m0").shards().size() == 1u);
        BOOST_TEST(load(directory / ("rec/" + recording.at("m0").shards()[0].file)).at(0).tensor().sizes() ==
                   (at::IntArrayRef{700, 3, 5}));
        BOOST_TEST(recording.at("m0").shape() == (std::vector<std::int64_t>{3, 5}),
                   boost::test_tools::per_element());
      }
      python(directory, kReadShards);
    }
  }
}

namespace {

/// Sample `i` of stream `stream`, with both numbers in it. Those of stream 1 have several shapes.
at::Tensor numbered(std::int64_t stream, std::int64_t i) {
  return at::full({stream == 1 ? 1 + i % 3 : stream == 2 ? 30000 : 50}, static_cast<double>(i), at::kFloat);
}

/// How many samples a stream has, after checking that they are the first ones, in order; -1 if not.
std::int64_t prefix(const Recording& recording, std::int64_t stream) {
  if (stream >= static_cast<std::int64_t>(recording.size())) return 0;
  std::int64_t i = 0;
  for (const at::Tensor& sample : recording.at(stream).each_tensor()) {
    if (!torchtap_test::same(sample, numbered(stream, i))) return -1;
    ++i;
  }
  return i == recording.at(stream).samples() ? i : -1;
}

constexpr std::int64_t kStreams = 3;

/// Shared with the children that are killed.
struct Progress {
  std::atomic<std::int64_t> flushed[kStreams];
};

Progress& shared_progress() {
  void* memory = ::mmap(nullptr, sizeof(Progress), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  BOOST_REQUIRE(memory != MAP_FAILED);
  return *new (memory) Progress{};
}

void limit_files(rlim_t bytes, rlim_t most) {
  const struct rlimit now { bytes, most };
  BOOST_REQUIRE(::setrlimit(RLIMIT_FSIZE, &now) == 0);
}

/// Closes the library's descriptors of shards, as a faulty program might.
int close_shards() {
  std::vector<int> found;
  for (const auto& link : fs::directory_iterator("/proc/self/fd")) {
    std::error_code ignored;
    if (fs::read_symlink(link.path(), ignored).extension() == ".part")
      found.push_back(std::stoi(link.path().filename()));
  }
  for (const int fd : found) ::close(fd);
  return static_cast<int>(found.size());
}

}  // namespace

// 200 child processes are killed at early and late system calls. Each continues the recording that the one
// before left.
BOOST_AUTO_TEST_CASE(a_killed_spool_keeps_what_was_sealed) {
  const TemporaryDirectory directory;
  at::set_num_threads(1);
  const std::string rec = directory / "rec";
  Progress& progress = shared_progress();
  std::mt19937 random(5);
  std::int64_t unfinished = 0, salvaged = 0, resumed = 0;
  for (int round = 0; round < 200; ++round) {
    if (round % 25 == 0) {
      torchtap::base::remove_folder(rec);
      for (auto& flushed : progress.flushed) flushed = 0;
    }
    const bool killed = kill_at(1 + static_cast<std::int64_t>(random() % 250), [&] {
      Spool spool(rec, options().append(true).sync(round % 8 == 0).shard_bytes(20000));
      std::vector<Spool::Stream*> streams;
      for (std::int64_t i = 0; i < kStreams; ++i) streams.push_back(&spool.add(entry(c10::str("m", i))));
      std::vector<std::int64_t> next;  // behind the samples of the one before
      for (std::int64_t i = 0; i < kStreams; ++i) next.push_back(prefix(load(rec), i));
      for (std::int64_t step = 1;; ++step) {
        for (std::size_t i = 0; i < kStreams; ++i) {
          append(spool, *streams[i], numbered(static_cast<std::int64_t>(i), next[i]));
          ++next[i];
        }
        if (step % 37 != 0) continue;
        if (step % 2 == 0) {
          spool.flush();
        } else {
          spool.finish();
        }
        for (std::size_t i = 0; i < kStreams; ++i) progress.flushed[i] = next[i];
      }
    });
    BOOST_TEST(killed);
    if (!fs::exists(rec + "/journal.jsonl") && !fs::exists(rec + "/manifest.json")) continue;  // too early
    const Recording before = load(rec);
    unfinished += before.complete() ? 0 : 1;
    for (std::int64_t i = 0; i < kStreams; ++i) {
      BOOST_TEST(prefix(before, i) >= progress.flushed[i].load());
    }
    if (round % 40 == 7) {
      python(directory, R"(
import glob, torch
for path in glob.glob("rec/*.pt"):
    assert len(torch.load(path, weights_only=True)) > 0
)");
    }
    // Without repair, nothing changes. A repair finishes the recording, and adds the shards that were being
    // filled.
    const auto looked = recover(rec, RecoverOptions().repair(false));
    BOOST_TEST(load(rec).complete() == before.complete());
    if (round % 3 == 0) continue;  // the next one repairs it
    const auto repaired = recover(rec);
    BOOST_TEST(repaired.samples == looked.samples);
    BOOST_TEST(repaired.salvaged == looked.salvaged);
    const Recording after = load(rec);
    BOOST_TEST(after.complete());
    std::int64_t samples = 0;
    for (std::int64_t i = 0; i < kStreams; ++i) {
      const std::int64_t number = prefix(after, i);
      BOOST_TEST(number >= prefix(before, i));
      samples += number;
    }
    BOOST_TEST(samples == repaired.samples);
    salvaged += repaired.salvaged;
    for (const auto& name : names_in(rec)) BOOST_TEST((name.find(".part") == std::string::npos), name);
    resumed += samples > 0 ? 1 : 0;
  }
  BOOST_TEST_MESSAGE(unfinished << " unfinished, " << salvaged << " samples salvaged, " << resumed
                                << " resumed");
  BOOST_TEST(unfinished > 100);
  BOOST_TEST(salvaged > 0);
  BOOST_TEST(resumed > 50);
  ::munmap(&progress, sizeof(Progress));
}

BOOST_AUTO_TEST_CASE(a_write_that_fails_is_reported_and_tried_again) {
  const TemporaryDirectory directory;
  struct rlimit old {};
  BOOST_REQUIRE(::getrlimit(RLIMIT_FSIZE, &old) == 0);
  const auto old_handler = ::signal(SIGXFSZ, SIG_IGN);
  std::int64_t sent = 0;
  {
    Spool spool(directory / "rec", options().shard_bytes(1 << 20));
    auto& stream = spool.add(entry("m0"));
    const auto send = [&] {
      append(spool, stream, numbered(0, sent));
      ++sent;
    };
    for (int i = 0; i < 1000; ++i) send();
    spool.flush();
    limit_files(100000, old.rlim_max);
    std::string message;
    while (message.empty()) {
      try {
        send();
      } catch (const c10::Error& error) {
        message = error.what_without_backtrace();
      }
    }
    for (const char* part :
         {"cannot write", "File too large", "1000 samples in 1 complete shards", "flush()"}) {
      BOOST_TEST((message.find(part) != std::string::npos), message);
    }
    BOOST_CHECK_THROW(send(), c10::Error);  // until it works again
    BOOST_CHECK_EXCEPTION(spool.flush(), c10::Error, says({"cannot write", "File too large"}));
    BOOST_CHECK_EXCEPTION(spool.finish(), c10::Error, says({"cannot write", "File too large"}));
    BOOST_TEST(prefix(load(directory / "rec"), 0) == 1000);
    limit_files(old.rlim_cur, old.rlim_max);
    spool.flush();
    BOOST_TEST(prefix(load(directory / "rec"), 0) == sent);
    for (int i = 0; i < 1000; ++i) send();
  }
  ::signal(SIGXFSZ, old_handler);
  BOOST_TEST(load(directory / "rec").complete());
  BOOST_TEST(prefix(load(directory / "rec"), 0) == sent);
}

BOOST_AUTO_TEST_CASE(descriptors_that_others_close_lose_nothing) {
  const TemporaryDirectory directory;
  Spool spool(directory / "rec", options());
  auto& stream = spool.add(entry("m0"));
  std::int64_t sent = 0;
  int closed = 0, failures = 0;
  const auto send = [&] {
    append(spool, stream, numbered(0, sent));
    ++sent;
  };
  for (int round = 0; round < 2000; ++round) {
    try {
      send();
      if (round % 300 == 299) {
        int now = close_shards();
        for (; now == 0; now = close_shards()) send();  // until the writer has opened one
        closed += now;
      }
      if (round % 1000 == 999) spool.flush();
    } catch (const c10::Error& error) {
      ++failures;
      spool.flush();
    }
  }
  BOOST_TEST(closed > 0);
  BOOST_TEST(failures > 0);
  spool.close();
  BOOST_TEST(prefix(load(directory / "rec"), 0) == sent);
}

BOOST_AUTO_TEST_CASE(after_an_error_of_fsync_data_is_written_again) {
  const TemporaryDirectory directory;
  Spool spool(directory / "rec", options().sync(true));
  auto& stream = spool.add(entry("m0"));
  std::int64_t sent = 0;
  for (; sent < 1000; ++sent) append(spool, stream, numbered(0, sent));
  const auto flush_in_vain = [&] {
    const Failing disk({directory.path(), 1, false, "fsync"});
    spool.flush();
  };
  BOOST_CHECK_EXCEPTION(flush_in_vain(), c10::Error,
                        says({"cannot fsync", "0-0.part", "Input/output error"}));
  BOOST_TEST(!fs::exists(directory / "rec/0-0.pt"));
  append(spool, stream, numbered(0, sent++));  // appending still works
  spool.flush();
  BOOST_TEST(prefix(load(directory / "rec"), 0) == sent);
  // Pages that the system lost are an error, and shards that were sealed before stay.
  for (; sent < 2000; ++sent) append(spool, stream, numbered(0, sent));
  BOOST_CHECK_THROW(flush_in_vain(), c10::Error);
  {
    std::fstream part(directory / "rec/0-1.part", std::ios::in | std::ios::out | std::ios::binary);
    part.seekp(5000);
    part.write("\0\0\0\0\0\0\0\0", 8);
  }
  BOOST_CHECK_EXCEPTION(spool.flush(), c10::Error,
                        says({"has lost what was written", "0-1.part", "999 samples"}));
  BOOST_TEST(prefix(load(directory / "rec"), 0) == 1001);
}

BOOST_AUTO_TEST_CASE(a_full_disk_keeps_what_it_took,
                     *boost::unit_test::label("full_disk") * boost::unit_test::precondition(may_mount{})) {
  const TemporaryDirectory directory;
  const std::string disk = directory / "disk";
  fs::create_directory(disk);
  BOOST_REQUIRE(::mount("torchtap-test", disk.c_str(), "tmpfs", 0, "size=2m") == 0);
  std::int64_t sent = 0;
  const auto fill = [&](Spool& spool, Spool::Stream& stream) {
    try {
      while (true) {
        append(spool, stream, numbered(0, sent));
        ++sent;
      }
    } catch (const c10::Error& error) {
      BOOST_TEST(says({"No space left on device"})(error));
    }
  };
  {
    Spool spool(disk + "/rec", options().shard_bytes(300000).queue_bytes(100000).sync(true));
    auto& stream = spool.add(entry("m0"));
    fill(spool, stream);
    BOOST_TEST(prefix(load(disk + "/rec"), 0) > 0);
    // After room was made, nothing is lost.
    BOOST_REQUIRE(::mount("torchtap-test", disk.c_str(), "tmpfs", MS_REMOUNT, "size=4m") == 0);
    spool.flush();
    BOOST_TEST(prefix(load(disk + "/rec"), 0) == sent);
    fill(spool, stream);
    // Without room, the destructor keeps what is complete on the disk.
  }
  const std::int64_t kept = prefix(load(disk + "/rec"), 0);
  BOOST_TEST(kept > sent - 3000);
  BOOST_TEST(!load(disk + "/rec").complete());
  BOOST_REQUIRE(::mount("torchtap-test", disk.c_str(), "tmpfs", MS_REMOUNT, "size=8m") == 0);
  BOOST_TEST(recover(disk + "/rec").samples >= kept);
  BOOST_TEST(prefix(load(disk + "/rec"), 0) >= kept);
  BOOST_TEST(load(disk + "/rec").complete());
  // A read-only disk.
  BOOST_TEST(::mount("torchtap-test", disk.c_str(), "tmpfs", MS_REMOUNT | MS_RDONLY, "size=8m") == 0);
  BOOST_CHECK_EXCEPTION(Spool(disk + "/other", options()), c10::Error, says({"Read-only file system"}));
  BOOST_CHECK_EXCEPTION(Spool(disk + "/rec", options().append(true)), c10::Error,
                        says({"Read-only file system"}));
  BOOST_TEST(recover(disk + "/rec", RecoverOptions().repair(false)).finished);
  BOOST_TEST(::umount2(disk.c_str(), MNT_DETACH) == 0);
}

BOOST_AUTO_TEST_CASE(an_obstacle_in_the_directory_is_an_error_and_does_not_block) {
  const TemporaryDirectory directory;
  Spool spool(directory / "rec", options());
  auto& stream = spool.add(entry("m0"));
  BOOST_REQUIRE(::mkfifo((directory / "rec/0-0.part").c_str(), 0666) == 0);
  append(spool, stream, numbered(0, 0));
  BOOST_CHECK_EXCEPTION(spool.flush(), c10::Error, says({"cannot create", "0-0.part", "File exists"}));
  BOOST_CHECK_EXCEPTION(spool.admit(stream, 4), c10::Error, says({"cannot create"}));
  fs::remove(directory / "rec/0-0.part");
  spool.flush();
  append(spool, stream, numbered(0, 1));
  spool.close();
  BOOST_TEST(prefix(load(directory / "rec"), 0) == 2);
  BOOST_CHECK_THROW(stream.append(numbered(0, 2)), c10::ValueError);
  BOOST_REQUIRE(::mkfifo((directory / "rec/journal.jsonl").c_str(), 0666) == 0);
  BOOST_CHECK_THROW(Spool(directory / "rec", options().append(true)), c10::Error);
  BOOST_CHECK_THROW(load(directory / "rec"), c10::ValueError);
}

BOOST_AUTO_TEST_CASE(a_directory_is_replaced_only_when_asked_and_used_by_one_spool) {
  const TemporaryDirectory directory;
  const std::string rec = directory / "rec";
  BOOST_CHECK_EXCEPTION(Spool(directory / "a/b", SpoolOptions()), c10::ValueError, says({"mkdir(true)"}));
  BOOST_CHECK_EXCEPTION(Spool(rec, options().append(true).overwrite(true)), c10::ValueError,
                        says({"not both"}));
  BOOST_CHECK_THROW(Spool(rec, options().shard_bytes(0)), c10::ValueError);
  { const Spool nothing(rec, options()); }
  BOOST_TEST(!fs::exists(rec));  // nothing was ever attached
  {
    Spool spool(rec, options());
    auto& stream = spool.add(entry("m0"));
    append(spool, stream, numbered(0, 0));
    BOOST_CHECK_EXCEPTION(Spool(rec, options().append(true)), c10::ValueError, says({"another recorder"}));
    BOOST_CHECK_EXCEPTION(recover(rec), c10::ValueError, says({"lives"}));
    spool.finish();
    BOOST_CHECK_EXCEPTION(save(rec, {}, SaveOptions().overwrite(true)), c10::ValueError, says({"spools"}));
    BOOST_TEST(!load(rec).complete());  // more may follow
  }
  BOOST_TEST(load(rec).complete());
  BOOST_CHECK_EXCEPTION(Spool(rec, options()), c10::ValueError, says({"append(true)", "overwrite(true)"}));
  {
    Spool spool(rec, options().append(true));
    BOOST_TEST(spool.add(entry("m1")).index() == 1);
    auto& stream = spool.add(entry("m0"));
    BOOST_TEST(stream.index() == 0);
    append(spool, stream, numbered(0, 1));
  }
  BOOST_TEST(prefix(load(rec), 0) == 2);
  BOOST_TEST(load(rec).at("m1").samples() == 0);
  { const Spool nothing(rec, options().overwrite(true)); }
  BOOST_TEST(prefix(load(rec), 0) == 2);  // nothing was ever attached
  write_bytes(directory / "thesis.txt", "mine");
  BOOST_CHECK_EXCEPTION(Spool(directory.path(), options().overwrite(true)), c10::ValueError,
                        says({"thesis.txt"}));
  BOOST_CHECK_THROW(Spool(directory / "thesis.txt", options()), c10::ValueError);
}

// A spool that replaces a recording is killed at its first system call, then at its second, and so on.
BOOST_AUTO_TEST_CASE(a_killed_spool_leaves_the_old_recording_or_the_new_one) {
  const TemporaryDirectory directory;
  at::set_num_threads(1);
  const std::string rec = directory / "rec";
  const auto record = [&](std::int64_t samples) {
    Spool spool(rec, options().overwrite(true).shard_bytes(4096));
    std::vector<Spool::Stream*> streams;
    for (std::int64_t i = 0; i < kStreams; ++i) streams.push_back(&spool.add(entry(c10::str("m", i))));
    for (std::int64_t sample = 0; sample < samples; ++sample) {
      for (std::int64_t i = 0; i < kStreams; ++i) {
        append(spool, *streams[static_cast<std::size_t>(i)], numbered(i, sample));
      }
    }
    spool.close();
  };
  record(8);
  std::int64_t last = 8, replaced = 0, aside = 0;
  for (std::int64_t call = 1;; ++call) {
    const std::int64_t next = last == 8 ? 10 : 8;
    const bool killed = kill_at(call, [&] { record(next); });
    const Recording found = load(rec);
    const std::int64_t now = prefix(found, 0);
    for (std::int64_t i = 1; i < kStreams; ++i) BOOST_TEST(prefix(found, i) == now);
    BOOST_TEST((now == last || now == next), now << " samples after " << last);
    if (!killed) {
      BOOST_TEST(now == next);
      break;
    }
    aside += static_cast<std::int64_t>(names_in(directory.path()).size()) - 1;
    replaced += now == next ? 1 : 0;
    last = now;
  }
  BOOST_TEST(aside > 0);
  BOOST_TEST(replaced > 0);
  BOOST_TEST(names_in(directory.path()) == (std::vector<std::string>{"rec"}),
             boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(a_recording_stays_until_the_new_one_is_whole) {
  const TemporaryDirectory directory;
  const std::string rec = directory / "rec";
  const auto begin = [&] { return std::make_unique<Spool>(rec, options().overwrite(true)); };
  {
    Spool spool(rec, options());
    auto& stream = spool.add(entry("m0"));
    for (int i = 0; i < 3; ++i) append(spool, stream, numbered(0, i));
  }
  auto spool = begin();
  spool->add(entry("m0"));
  BOOST_CHECK_THROW(begin(), c10::ValueError);
  BOOST_CHECK_EXCEPTION(save(rec, {}, SaveOptions().overwrite(true)), c10::ValueError, says({"spools"}));
  spool.reset();  // no sample arrived
  BOOST_TEST(prefix(load(rec), 0) == 3);
  BOOST_TEST(names_in(directory.path()).size() == 1u);

  // Samples that cannot be written: the old recording stays, and the new one lies beside it.
  struct rlimit old {};
  BOOST_REQUIRE(::getrlimit(RLIMIT_FSIZE, &old) == 0);
  const auto old_handler = ::signal(SIGXFSZ, SIG_IGN);
  spool = begin();
  {
    auto& few = spool->add(entry("m0"));
    append(*spool, few, numbered(0, 0));
    spool->retry();
    limit_files(100000, old.rlim_max);
    auto& many = spool->add(entry("m1"));
    for (int i = 0; i < 100; ++i) many.append(at::zeros({1000}));
    BOOST_CHECK_EXCEPTION(spool->finish(), c10::Error,
                          says({"cannot write", ".rec.torchtap-new-", "1 samples in 1 complete shards"}));
    spool.reset();
  }
  limit_files(old.rlim_cur, old.rlim_max);
  ::signal(SIGXFSZ, old_handler);
  BOOST_TEST(prefix(load(rec), 0) == 3);
  const auto names = names_in(directory.path());
  BOOST_REQUIRE(names.size() == 2u);
  BOOST_TEST(recover(directory / (names[0] == "rec" ? names[1] : names[0])).samples >= 1);

  spool = begin();
  auto& stream = spool->add(entry("m0"));
  for (int i = 0; i < 2; ++i) append(*spool, stream, numbered(0, i));
  BOOST_TEST(spool->value(stream).list().size() == 2u);
  BOOST_TEST(spool->is_at(rec));
  BOOST_TEST(prefix(load(rec), 0) == 3);
  spool->flush();
  BOOST_TEST(spool->is_at(rec));
  BOOST_TEST(prefix(load(rec), 0) == 2);
  BOOST_TEST(!load(rec).complete());
  append(*spool, stream, numbered(0, 2));
  append(*spool, stream, numbered(0, 3));
  spool->close();
  BOOST_TEST(load(rec).complete());
  BOOST_TEST(prefix(load(rec), 0) == 4);
  BOOST_TEST(names_in(directory.path()).size() == 1u);
}

BOOST_AUTO_TEST_CASE(samples_are_read_one_by_one_or_in_blocks) {
  const TemporaryDirectory directory;
  auto all = streams();
  all.pop_back();  // no samples
  {
    Spool spool(directory / "rec", options().shard_bytes(5000));
    for (std::size_t i = 0; i < all.size(); ++i) {
      auto& stream = spool.add(entry(c10::str("m", i)));
      for (const auto& sample : all[i]) append(spool, stream, sample);
    }
    auto& slots = spool.add(entry("slots"));
    for (const auto& sample : all[0]) append(spool, slots, sample.add(1), 3);
  }
  Entry kept = entry("kept");
  kept.samples = static_cast<std::int64_t>(all[1].size());
  kept.value = torchtap::core::Value(all[1]);
  Entry whole = entry("whole");
  whole.samples = 9;
  whole.reduction = "Sum";
  whole.value = torchtap::core::Value(all[2][0]);
  save(directory / "saved", {kept, whole}, SaveOptions().mkdir(true));
  const auto check = [](const torchtap::storage::SampleRange& range, const std::vector<at::Tensor>& samples) {
    std::size_t i = 0;
    for (const at::Tensor& sample : range) {
      BOOST_REQUIRE(i < samples.size());
      BOOST_TEST(torchtap_test::same(sample, samples[i++]));
    }
    BOOST_TEST(i == samples.size());
    std::vector<at::Tensor> defined;
    for (const auto& sample : samples) {
      if (sample.defined()) defined.push_back(sample);
    }
    i = 0;
    std::size_t calls = 0;
    range.each_block([&](const at::Tensor& block) {
      ++calls;
      for (const auto& sample : block.unbind(0)) {
        BOOST_REQUIRE(i < defined.size());
        BOOST_TEST(torchtap_test::same(sample, defined[i++]));
      }
    });
    BOOST_TEST(i == defined.size());
    return calls;
  };
  const Recording recording = load(directory / "rec");
  for (std::size_t i = 0; i < all.size(); ++i) {
    const std::size_t calls = check(recording.at(c10::str("m", i)).each_tensor(), all[i]);
    if (i == 0) BOOST_TEST(calls < 20u);  // 700 samples of 60 bytes in shards of 5000
  }
  std::vector<at::Tensor> more;
  for (const auto& sample : all[0]) more.push_back(sample.add(1));
  check(recording.at("slots").each_tensor(3), more);
  check(load(directory / "saved").at("kept").each_tensor(), all[1]);
  check(load(directory / "saved").at("whole").each_tensor(), {all[2][0]});
}

BOOST_AUTO_TEST_CASE(append_continues_a_recording_that_was_not_spooled) {
  const TemporaryDirectory directory;
  Entry kept = entry("m0");
  kept.samples = 2;
  kept.value = Value(std::vector<at::Tensor>{numbered(0, 0), numbered(0, 1)});
  save(directory / "rec", {kept}, SaveOptions().mkdir(true));
  {
    Spool spool(directory / "rec", options().append(true));
    append(spool, spool.add(entry("m0")), numbered(0, 2));
  }
  BOOST_TEST(prefix(load(directory / "rec"), 0) == 3);
  Entry reduced = entry("m1");
  reduced.samples = 1;
  reduced.reduction = "Sum";
  reduced.value = Value(at::ones({2}));
  save(directory / "sum", {reduced}, SaveOptions().mkdir(true));
  const auto before = names_in(directory / "sum");
  BOOST_CHECK_EXCEPTION(Spool(directory / "sum", options().append(true)), c10::ValueError,
                        says({"Sum", "m1"}));
  BOOST_TEST(load(directory / "sum").at("m1").tensor().equal(at::ones({2})));
  BOOST_TEST(recover(directory / "sum").finished);
  BOOST_TEST(names_in(directory / "sum") == before, boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(a_queue_that_is_full_drops_or_raises_as_asked) {
  const TemporaryDirectory directory;
  const at::Tensor large = at::ones({500000});
  for (const WhenFull policy : {WhenFull::wait, WhenFull::drop, WhenFull::raise}) {
    std::int64_t kept = 0, left_out = 0, dropped = 0;
    {
      Spool spool(directory / "rec", options().overwrite(true).queue_bytes(1).when_full(policy));
      auto& stream = spool.add(entry("m0"));
      for (int i = 0; i < 100; ++i) {
        try {
          if (spool.admit(stream, static_cast<std::int64_t>(large.nbytes()))) {
            stream.append(large);
            ++kept;
          } else {
            ++left_out;
          }
        } catch (const c10::Error& error) {
          BOOST_TEST(says({"is full", "not recorded"})(error));
          ++left_out;
        }
      }
      dropped = stream.dropped();
    }
    BOOST_TEST(kept + left_out == 100);
    BOOST_TEST((policy == WhenFull::wait) == (left_out == 0));
    BOOST_TEST(dropped == (policy == WhenFull::drop ? left_out : 0));
    BOOST_TEST(load(directory / "rec").at(0).samples() == kept);
    BOOST_TEST(load(directory / "rec").at(0).dropped() == dropped);
  }
}

BOOST_AUTO_TEST_CASE(each_slot_is_a_list) {
  const TemporaryDirectory directory;
  {
    Spool spool(directory / "rec", options().shard_bytes(2000));
    auto& stream = spool.add(entry("m0"));
    for (int i = 0; i < 100; ++i) {
      append(spool, stream, numbered(0, i), 0);
      append(spool, stream, numbered(1, i), 1);
    }
    BOOST_TEST(spool.value(stream).at("1").list().size() == 100u);
  }
  const Recording recording = load(directory / "rec");
  BOOST_TEST(recording.at(0).samples() == 100);
  BOOST_TEST(recording.at(0).keys() == (std::vector<std::string>{"0", "1"}),
             boost::test_tools::per_element());
  const Value value = recording.at(0).value();
  std::int64_t i = 0;
  for (const at::Tensor& sample : recording.at(0).each_tensor(1))
    BOOST_TEST(torchtap_test::same(sample, numbered(1, i++)));
  BOOST_TEST(i == 100);
  BOOST_TEST(torchtap_test::same(value.at("0").tensors()[99], numbered(0, 99)));
}

BOOST_AUTO_TEST_CASE(a_note_says_what_is_not_there) {
  const TemporaryDirectory directory;
  {
    Spool spool(directory / "rec", options());
    auto& empty = spool.add(entry("m0"));
    auto& full = spool.add(entry("m1"));
    for (auto* stream : {&empty, &full}) stream->note("no gradient reached it");
    full.note("2 were left out");
    append(spool, full, numbered(1, 0));
    BOOST_CHECK_EXCEPTION(empty.note("\xFF"), c10::ValueError, says({"Spool::Stream::note", "UTF-8"}));
  }
  const Recording recording = load(directory / "rec");
  BOOST_TEST(recording.at(0).note() == "no gradient reached it");
  BOOST_TEST(recording.at(1).note() == "2 were left out");
}

BOOST_AUTO_TEST_CASE(threads_record_while_others_flush) {
  const TemporaryDirectory directory;
  constexpr std::int64_t kEach = 300;
  {
    Spool spool(directory / "rec", options().shard_bytes(400000).queue_bytes(1 << 20));
    std::vector<std::thread> threads;
    auto& common = spool.add(entry("common"));
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&, &stream = spool.add(entry(c10::str("m", t)))] {
        for (std::int64_t i = 0; i < kEach; ++i) {
          append(spool, stream, at::full({i % 10 == 0 ? 200000 : 20}, static_cast<double>(i)));
          append(spool, common, at::full({7}, static_cast<double>(i)));
        }
      });
    }
    std::atomic<bool> done{false};
    std::thread flusher([&] {
      while (!done) spool.flush();
    });
    for (auto& thread : threads) thread.join();
    done = true;
    flusher.join();
  }
  const Recording recording = load(directory / "rec");
  BOOST_TEST(recording.at("common").samples() == 4 * kEach);
  double sum = 0;
  for (const at::Tensor& sample : recording.at("common").each_tensor()) sum += sample[3].item<double>();
  BOOST_TEST(sum == 4.0 * kEach * (kEach - 1) / 2);
  for (int t = 0; t < 4; ++t) {
    std::int64_t i = 0;
    for (const at::Tensor& sample : recording.at(c10::str("m", t)).each_tensor()) {
      if (sample.size(0) != (i % 10 == 0 ? 200000 : 20) ||
          !sample.eq(static_cast<double>(i)).all().item<bool>())
        break;
      ++i;
    }
    BOOST_TEST(i == kEach);
  }
}

BOOST_AUTO_TEST_CASE(many_modules_take_few_files) {
  const TemporaryDirectory directory;
  Spool spool(directory / "rec", options());
  std::vector<Spool::Stream*> streams;
  for (int i = 0; i < 300; ++i) streams.push_back(&spool.add(entry(c10::str("m", i))));
  std::size_t most = 0;
  for (std::int64_t sample = 0; sample < 40; ++sample) {
    for (auto* stream : streams) append(spool, *stream, at::full({1000}, static_cast<double>(sample)));
    const auto open = static_cast<std::size_t>(
        std::distance(fs::directory_iterator("/proc/self/fd"), fs::directory_iterator()));
    most = std::max(most, open);
  }
  spool.close();
  BOOST_TEST(most < 120u);
  const Recording recording = load(directory / "rec");
  for (int i = 0; i < 300; ++i) {
    BOOST_TEST(recording.at(i).samples() == 40);
    BOOST_TEST(recording.at(i).tensors()[39].eq(39).all().item<bool>());
  }
}

BOOST_AUTO_TEST_CASE(a_child_process_leaves_the_spool_alone) {
  const TemporaryDirectory directory;
  auto spool = std::make_unique<Spool>(directory / "rec", options());
  auto& stream = spool->add(entry("m0"));
  append(*spool, stream, numbered(0, 0));
  const pid_t child = ::fork();
  BOOST_REQUIRE(child >= 0);
  if (child == 0) {
    int refused = 0;
    for (const auto& call :
         std::vector<std::function<void()>>{[&] { stream.append(numbered(0, 1)); },
                                            [&] { spool->admit(stream, 4); }, [&] { spool->flush(); }}) {
      try {
        call();
      } catch (const c10::Error& error) {
        refused += says({"fork"})(error) ? 1 : 0;
      }
    }
    spool.reset();  // neither waits nor writes
    ::_exit(refused);
  }
  int status = 0;
  BOOST_REQUIRE(::waitpid(child, &status, 0) == child);
  BOOST_TEST(WIFEXITED(status));
  BOOST_TEST(WEXITSTATUS(status) == 3);
  append(*spool, stream, numbered(0, 1));
  spool.reset();
  BOOST_TEST(prefix(load(directory / "rec"), 0) == 2);
}

BOOST_AUTO_TEST_CASE(a_manifest_that_is_no_json_is_what_recover_misses) {
  const TemporaryDirectory directory;
  const std::string rec = directory / "rec";
  {
    Spool spool(rec, options());
    append(spool, spool.add(entry("m0")), numbered(0, 0));
  }
  write_bytes(rec + "/manifest.json", "{");
  BOOST_CHECK_EXCEPTION(load(rec), c10::ValueError, says({"manifest.json"}));
  const auto found = recover(rec, RecoverOptions().repair(false));
  BOOST_TEST(found.entries == 0);
  BOOST_TEST_REQUIRE(!found.missing.empty());
  BOOST_TEST(found.missing.front().find("manifest.json") != std::string::npos, found.missing.front());
}

BOOST_AUTO_TEST_CASE(what_journals_claim_is_checked) {
  const TemporaryDirectory directory;
  const std::string rec = directory / "rec";
  {
    Spool spool(rec, options().shard_bytes(1000));
    auto& stream = spool.add(entry("m0"));
    for (int i = 0; i < 50; ++i) append(spool, stream, numbered(0, i));
    spool.flush();
    fs::create_directory(directory / "cut");
    for (const auto& name : names_in(rec)) fs::copy_file(rec + "/" + name, directory / ("cut/" + name));
  }
  const std::string journal_path = directory / "cut/journal.jsonl";
  const std::string good = read_bytes(journal_path);
  BOOST_TEST(prefix(load(directory / "cut"), 0) == 50);
  // A journal that a power failure cut off anywhere has the shards whose lines are complete.
  std::int64_t last = -1;
  for (std::size_t size = 0; size <= good.size(); size += 7) {
    write_bytes(journal_path, good.substr(0, size));
    const std::int64_t now = prefix(load(directory / "cut"), 0);
    BOOST_TEST(now >= last);
    last = now;
  }
  BOOST_TEST(last >= 40);
  std::mt19937 random(1);
  std::int64_t errors = 0;
  for (int round = 0; round < 2000; ++round) {
    std::string bad = good;
    for (std::size_t edits = 1 + random() % 3; edits > 0; --edits) {
      bad[random() % bad.size()] = static_cast<char>(random() % 256);
    }
    write_bytes(journal_path, bad);
    try {
      BOOST_TEST(prefix(load(directory / "cut"), 0) >= 0);
    } catch (const c10::ValueError&) {
      ++errors;
    }
    if (round % 50 == 0) {  // recovery reads the files
      const auto found = recover(directory / "cut", RecoverOptions().repair(false));
      BOOST_TEST(found.samples <= 50);
    }
  }
  BOOST_TEST(errors > 1000);
  // A line that is not as a journal has them says so in plain words.
  std::string fields = "{\"entry\":[1]}";
  char sum[16];
  std::snprintf(sum, sizeof sum, "%08x ", torchtap::base::crc32(0, fields.data(), fields.size()));
  write_bytes(journal_path, good + sum + fields + "\n");
  BOOST_CHECK_EXCEPTION(load(directory / "cut"), c10::ValueError,
                        says({"a field is missing or of another type"}));
  // Lines with valid checksums and false claims.
  const auto claims = [&](const std::string& lines) {
    write_bytes(journal_path, good + lines);
    try {
      load(directory / "cut");
      return false;
    } catch (const c10::ValueError&) {
      return true;
    }
  };
  torchtap::storage::detail::ShardInfo shard;
  using torchtap::storage::detail::journal_shard;
  shard.file = "0-99.pt";
  shard.samples = 1;
  shard.bytes = 10;
  BOOST_TEST(claims(journal_shard(0, shard)));  // there is no such file
  for (const char* name : {"../0-0.pt", "/etc/passwd", "x.pt", ""}) {
    shard.file = name;
    BOOST_TEST(claims(journal_shard(0, shard)));
  }
  shard.file = "0-0.pt";
  BOOST_TEST(claims(journal_shard(0, shard)));  // twice
  shard.samples = -1;
  shard.file = "0-98.pt";
  BOOST_TEST(claims(journal_shard(0, shard)));
  BOOST_TEST(claims(journal_shard(-5, shard)));
  BOOST_TEST(claims(journal_shard(std::int64_t{1} << 60, shard)));

  // A damaged shard is left out and named, and the rest is the recording.
  write_bytes(journal_path, good);
  std::string bytes = read_bytes(directory / "cut/0-1.pt");
  bytes[200] = static_cast<char>(bytes[200] ^ 1);
  write_bytes(directory / "cut/0-1.pt", bytes);
  fs::remove(directory / "cut/0-3.pt");
  const auto recovered = recover(directory / "cut");
  BOOST_REQUIRE(recovered.missing.size() == 2u);
  BOOST_TEST((recovered.missing[0].find("0-1.pt") != std::string::npos), recovered.missing[0]);
  BOOST_TEST((recovered.missing[1].find("0-3.pt") != std::string::npos), recovered.missing[1]);
  BOOST_TEST(load(directory / "cut").complete());
  BOOST_TEST(load(directory / "cut").at(0).samples() == recovered.samples);
  BOOST_TEST(recovered.samples < 50);
  BOOST_TEST(fs::exists(directory / "cut/0-1.lost"));
  BOOST_CHECK_THROW(recover(directory / "nowhere"), c10::ValueError);
  BOOST_CHECK_THROW(recover(directory.path()), c10::ValueError);
}

BOOST_AUTO_TEST_CASE(samples_without_plain_bytes_are_refused_and_change_nothing) {
  const TemporaryDirectory directory;
  {
    Spool spool(directory / "rec", options());
    auto& stream = spool.add(entry("m0"));
    append(spool, stream, numbered(0, 0));
    BOOST_CHECK_THROW(stream.append(at::eye(3).to_sparse()), c10::TypeError);
    BOOST_CHECK_THROW(stream.append(at::empty({2}, at::TensorOptions(at::kMeta))), c10::TypeError);
    BOOST_CHECK_EXCEPTION(stream.append(numbered(0, 1), -1), c10::ValueError, says({"slot", "from 0", "-1"}));
    append(spool, stream, numbered(0, 1));
  }
  BOOST_TEST(prefix(load(directory / "rec"), 0) == 2);
}

BOOST_AUTO_TEST_SUITE_END()
