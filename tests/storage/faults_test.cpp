// Every system call of every operation fails once, and all fail from it on: what is on the disk is the old
// whole or the new whole, the answer says which, and the operation succeeds when it is done again.
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <functional>
#include <memory>
#include <ostream>

#include <torchtap/base/write_file.hpp>
#include <torchtap/storage/merge.hpp>
#include <torchtap/storage/recover.hpp>
#include <torchtap/storage/save.hpp>
#include <torchtap/storage/spool.hpp>

#include "support.hpp"
#include "system_calls.hpp"

BOOST_AUTO_TEST_SUITE(faults)

using namespace torchtap_test;
using torchtap::storage::Entry;
using torchtap::storage::load;
using torchtap::storage::load_value;
using torchtap::storage::merge;
using torchtap::storage::MergeOptions;
using torchtap::storage::recover;
using torchtap::storage::save;
using torchtap::storage::save_value;
using torchtap::storage::SaveOptions;
using torchtap::storage::Spool;
using torchtap::storage::SpoolOptions;

namespace {

const std::string kNone = "none", kOld = "old", kNew = "new";

/// Samples with the numbers from `first` to before `last` in them.
std::vector<at::Tensor> numbers(int first, int last) {
  std::vector<at::Tensor> all;
  for (; first < last; ++first) all.push_back(at::full({3}, first));
  return all;
}

bool same(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin(), [](const auto& x, const auto& y) {
           return torchtap_test::same(x, y);
         });
}

Entry entry(const std::string& path, const std::vector<at::Tensor>& samples) {
  Entry entry;
  entry.path = path;
  entry.samples = static_cast<std::int64_t>(samples.size());
  entry.value = Value(Value::List(samples.begin(), samples.end()));
  return entry;
}

/// "none" if nothing is at `path`, "old" if it is a recording with the samples of `old`, "new" if it is one
/// with those of `now`, else what is wrong.
std::string which(const std::string& path, const std::vector<at::Tensor>& old,
                  const std::vector<at::Tensor>& now) {
  std::string found;
  const std::string error = error_of([&] {
    const auto recording = load(path);
    for (std::int64_t i = 0; i < static_cast<std::int64_t>(recording.size()); ++i) {
      const auto samples = recording.at(i).tensors();
      const std::string one = same(samples, now) ? kNew : same(samples, old) ? kOld : "a mixture";
      found = i == 0 || found == one ? one : "a mixture";
    }
  });
  if (contains(error, "there is no such") || contains(error, "no manifest.json")) return kNone;
  return error.empty() ? found : error;
}

/// Something that replaces what is in a folder.
struct Operation {
  std::string name;
  std::string before;
  std::function<void(const std::string& folder)> prepare;
  std::function<void(const std::string& folder)> run;
  std::function<std::string(const std::string& folder)> state;
  std::vector<std::string> names;  // in the folder when it is done
};

const SaveOptions kReplace = SaveOptions().mkdir(true).overwrite(true);

std::vector<Operation> operations() {
  const auto nothing = [](const std::string&) {};
  const auto saves = [](const std::string& name, int first) {
    return [=](const std::string& folder) {
      save(folder + name, {entry("a", numbers(first, first + 3)), entry("b", numbers(first, first + 3))},
           kReplace);
    };
  };
  const auto recording = [](const std::string& folder) {
    return which(folder + "/r", numbers(0, 3), numbers(10, 13));
  };
  const auto value = [](int number) {
    return
        [=](const std::string& folder) { save_value(folder + "/v.pt", at::full({3000}, number), kReplace); };
  };
  const auto read_value = [](const std::string& folder) {
    if (!fs::exists(folder + "/v.pt")) return kNone;
    const auto read = load_value(folder + "/v.pt").tensor();
    return read.equal(at::full({3000}, 1)) ? kNew : read.equal(at::full({3000}, 0)) ? kOld : "a mixture";
  };
  const auto text = [](const std::string& words) {
    return [=](const std::string& folder) {
      torchtap::base::write_file("test", folder + "/t", [&](std::ostream& stream) { stream << words; });
    };
  };
  return {
      {"save", kNone, nothing, saves("/r", 10), recording, {"r"}},
      {"save in new folders",
       kNone,
       nothing,
       saves("/x/y/r", 10),
       [=](const std::string& folder) { return recording(folder + "/x/y"); },
       {"x"}},
      {"save over another", kOld, saves("/r", 0), saves("/r", 10), recording, {"r"}},
      {"save without sync",
       kOld,
       saves("/r", 0),
       [](const std::string& folder) {
         save(folder + "/r", {entry("a", numbers(10, 13))}, SaveOptions(kReplace).sync(false));
       },
       recording,
       {"r"}},
      {"save_value", kNone, nothing, value(1), read_value, {"v.pt"}},
      {"save_value over another", kOld, value(0), value(1), read_value, {"v.pt"}},
      {"write_file",
       kOld,
       text("old"),
       text("new"),
       [](const std::string& folder) { return read_bytes(folder + "/t"); },
       {"t"}},
      {"merge",
       kOld,
       [=](const std::string& folder) {
         for (int i = 0; i < 3; ++i)
           save(folder + "/p" + std::to_string(i), {entry("a", numbers(10 + i, 11 + i))}, kReplace);
         saves("/r", 0)(folder);
       },
       [](const std::string& folder) {
         merge(
             {folder + "/p0", folder + "/p1", folder + "/p2"}, folder + "/r",
             [](const auto&) { return nullptr; }, MergeOptions().save(kReplace).at_once(2));
       },
       recording,
       {"p0", "p1", "p2", "r"}},
  };
}

/// Calls `trial` in an empty folder with the first call failing, then the second, …; and with all failing
/// from the first on, then from the second on, … `trial` returns whether there were fewer calls.
void with_each_fault(const std::string& name,
                     const std::function<bool(const std::string& folder, Faults faults)>& trial) {
  const TemporaryDirectory directory;
  without_waiting = true;
  for (const bool all : {false, true}) {
    for (Faults faults{directory / "d", 1, all};; ++faults.first) {
      fs::create_directories(faults.folder);
      const bool fewer = trial(faults.folder, faults);
      torchtap::base::remove_folder(faults.folder);
      if (!fewer) continue;
      BOOST_TEST(faults.first > 3, name);  // otherwise calls are not counted
      break;
    }
  }
  without_waiting = false;
}

}  // namespace

BOOST_AUTO_TEST_CASE(the_old_or_the_new_is_whole_and_the_answer_says_which) {
  for (const bool exchange : {true, false}) {
    without_exchange = !exchange;
    for (const Operation& operation : operations()) {
      const bool exchanges = operation.before == kOld && operation.names.back() == "r";
      if (!exchange && !exchanges) continue;
      with_each_fault(operation.name, [&](const std::string& folder, const Faults& faults) {
        operation.prepare(folder);
        std::string said, failed;
        bool fewer = false;
        {
          const Failing failing(faults);
          said = error_of([&] { operation.run(folder); });
          fewer = failing.calls() < faults.first;
          failed = failing.failed();
        }
        const std::string where =
            c10::str(operation.name, ", call ", faults.first, faults.all ? " and all after it: " : ": ",
                     failed, "\nsaid: ", said);
        BOOST_TEST((!fewer || said.empty()), where);
        const bool placed = said.empty() || contains(said, "is in place");
        BOOST_TEST(operation.state(folder) == (placed ? kNew : operation.before), where);
        BOOST_TEST(error_of([&] { operation.run(folder); }) == "", where);
        BOOST_TEST(operation.state(folder) == kNew, where);
        BOOST_TEST(names_in(folder) == operation.names, boost::test_tools::per_element());
        return fewer;
      });
    }
  }
  without_exchange = false;
}

namespace {

constexpr int kBefore = 7, kFirst = 15,
              kAll = 20;  // samples of the old recording; before the fault; in the end

/// Which recording was there before, and how the spool takes its place.
struct Way {
  std::string name;
  bool before;
  SpoolOptions options;
  bool exchange = true;
};

std::vector<Way> ways() {
  const auto options = SpoolOptions().mkdir(true).shard_bytes(100);
  return {{"new", false, options},
          {"replaces", true, SpoolOptions(options).overwrite(true)},
          {"replaces by two renames", true, SpoolOptions(options).overwrite(true), false},
          {"continues", true, SpoolOptions(options).append(true)}};
}

/// Appends what `admit` takes, and adds it to `taken`.
void append(Spool& spool, Spool::Stream& stream, int first, int last, std::vector<at::Tensor>& taken) {
  for (const auto& sample : numbers(first, last)) {
    bool admitted = false;
    error_of([&] { admitted = spool.admit(stream, static_cast<std::int64_t>(sample.nbytes())); });
    if (!admitted) continue;
    stream.append(sample);
    taken.push_back(sample);
  }
}

Entry named(const std::string& path) {
  Entry entry;
  entry.path = path;
  return entry;
}

void spool_old(const Way& way, const std::string& path) {
  if (!way.before) return;
  Spool spool(path, SpoolOptions().mkdir(true).shard_bytes(40));
  std::vector<at::Tensor> taken;
  append(spool, spool.add(named("m")), 0, kBefore, taken);
  spool.close();
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_spool_loses_no_sample_that_it_took) {
  for (const Way& way : ways()) {
    without_exchange = !way.exchange;
    with_each_fault(way.name, [&](const std::string& folder, const Faults& faults) {
      const std::string path = folder + "/sp";
      spool_old(way, path);
      const auto old = numbers(0, way.before ? kBefore : 0);
      std::vector<at::Tensor> all = way.options.append() ? old : std::vector<at::Tensor>();
      std::unique_ptr<Spool> spool;
      Spool::Stream* stream = nullptr;
      std::string said, failed;
      bool fewer = false;
      {
        const Failing failing(faults);
        said = error_of([&] {
          spool = std::make_unique<Spool>(path, way.options);
          stream = &spool->add(named("m"));
          append(*spool, *stream, 100, 100 + kFirst, all);
          spool->flush();
        });
        fewer = failing.calls() < faults.first;
        failed = failing.failed();
      }
      const std::string where = c10::str(way.name, ", call ", faults.first,
                                         faults.all ? " and all after it: " : ": ", failed, "\nsaid: ", said);
      BOOST_TEST((!fewer || said.empty()), where);
      if (way.options.overwrite()) {
        const bool placed = said.empty() || contains(said, "is in place");
        BOOST_TEST(which(path, old, all) == (placed ? kNew : kOld), where);
      }
      if (spool == nullptr) {
        if (way.before) BOOST_TEST(which(path, old, old) == kNew, where);
        if (!faults.all) BOOST_TEST(error_of([&] { Spool(path, way.options).close(); }) == "", where);
        return fewer;
      }
      BOOST_TEST(error_of([&] { spool->flush(); }) == "", where);
      append(*spool, *stream, 100 + kFirst, 100 + kAll, all);
      BOOST_TEST(error_of([&] { spool->close(); }) == "", where);
      BOOST_TEST(which(path, old, all) == kNew, where);
      BOOST_TEST(load(path).complete(), where);
      // What could not be removed of the old one goes with the next.
      if (said.empty() && !fewer) save(path, {}, kReplace);
      BOOST_TEST(names_in(folder) == (std::vector<std::string>{"sp"}), boost::test_tools::per_element());
      return fewer;
    });
  }
  without_exchange = false;
}

// A recorder is destroyed while the disk fails.
BOOST_AUTO_TEST_CASE(a_spool_that_is_destroyed_leaves_the_old_recording_or_the_first_samples_of_the_new) {
  for (const Way& way : ways()) {
    without_exchange = !way.exchange;
    with_each_fault(way.name, [&](const std::string& folder, const Faults& faults) {
      const std::string path = folder + "/sp";
      spool_old(way, path);
      const auto old = numbers(0, way.before ? kBefore : 0);
      std::vector<at::Tensor> all = way.options.append() ? old : std::vector<at::Tensor>();
      bool fewer = false;
      std::string failed;
      {
        const Failing failing(faults);
        error_of([&] {
          Spool spool(path, way.options);
          append(spool, spool.add(named("m")), 100, 100 + kAll, all);
        });
        fewer = failing.calls() < faults.first;
        failed = failing.failed();
      }
      const std::string where =
          c10::str(way.name, ", call ", faults.first, faults.all ? " and all after it: " : ": ", failed);
      for (const bool recovered : {false, true}) {
        std::string state = which(path, old, all);
        if (!way.options.overwrite() && state == "a mixture") {  // the first ones
          const auto found = load(path).at(0).tensors();
          BOOST_TEST(found.size() >= old.size(), where);
          BOOST_TEST(same(found, {all.begin(), all.begin() + static_cast<std::ptrdiff_t>(found.size())}),
                     where);
          state = kNew;
        }
        if (state.empty() || (!way.before && state == kOld)) state = kNone;  // no entry, or no sample
        BOOST_TEST((state == kNew || state == (way.before ? kOld : kNone)), where << ": " << state);
        if (fewer) BOOST_TEST((state == kNew && load(path).complete()), where);
        if (state == kNone || recovered || !fs::exists(path))
          break;  // it may be at its backup, where load finds it
        recover(path);
      }
      return fewer;
    });
  }
  without_exchange = false;
}

BOOST_AUTO_TEST_CASE(a_finished_spool_stays_finished) {
  with_each_fault("finished", [&](const std::string& folder, const Faults& faults) {
    const std::string path = folder + "/sp";
    std::vector<at::Tensor> all;
    auto spool = std::make_unique<Spool>(path, SpoolOptions().mkdir(true));
    append(*spool, spool->add(named("m")), 0, kFirst, all);
    spool->finish();
    bool fewer = false;
    std::string failed;
    {
      const Failing failing(faults);
      spool.reset();
      fewer = failing.calls() < faults.first;
      failed = failing.failed();
    }
    BOOST_TEST(which(path, {}, all) == kNew, failed);
    // The journal alone says that a recording is being written.
    BOOST_TEST((load(path).complete() || contains(failed, "unlinkat")), failed);
    BOOST_TEST(!fs::exists(path + "/manifest.json.part"), failed);
    return fewer;
  });
  const TemporaryDirectory directory;
  Spool spool(directory / "sp", SpoolOptions().mkdir(true));
  std::vector<at::Tensor> all;
  append(spool, spool.add(named("m")), 0, kFirst, all);
  {
    const Failing failing({directory.path(), 1, true, "unlinkat"});
    BOOST_CHECK_EXCEPTION(spool.close(), c10::Error, says({"close", "cannot remove", "journal.jsonl"}));
  }
  spool.close();
  BOOST_TEST(load(directory / "sp").complete());
}

BOOST_AUTO_TEST_CASE(the_reason_of_the_system_is_said) {
  const TemporaryDirectory directory;
  const std::string path = directory / "sp";
  {
    const Failing failing({directory.path(), 1, true, "flock"});
    BOOST_CHECK_EXCEPTION(Spool(path, SpoolOptions().mkdir(true)), c10::Error,
                          says({"spool: cannot lock", "journal.jsonl", "Input/output error"}));
  }
  std::vector<at::Tensor> taken;
  Spool spool(path, SpoolOptions().mkdir(true));
  append(spool, spool.add(named("m")), 0, 3, taken);
  spool.flush();
  {
    const Failing failing({directory.path(), 1, true, "flock"});
    BOOST_CHECK_EXCEPTION(recover(path), c10::Error,
                          says({"recover: cannot lock", "journal.jsonl", "Input/output error"}));
  }
  for (const int call : {1, 2}) {
    const Failing failing({directory.path(), call, false, "fstatat"});
    BOOST_CHECK_EXCEPTION(
        load(path), c10::Error,
        says({"load: cannot read", call == 1 ? "manifest.json" : "journal.jsonl", "errno 5"}));
  }
}

BOOST_AUTO_TEST_SUITE_END()
