// Scenarios: ranks that are killed, stop, or come late.
#include <ATen/Functions.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <set>
#include <thread>

#include <torchtap/reductions/reductions.hpp>

#include "support.hpp"

namespace rank_test {
namespace {

using namespace torchtap::reductions;
using tap::distributed::Group;
using tap::distributed::Order;

tap::distributed::MergeRanksOptions limits() {
  return tap::distributed::MergeRanksOptions()
      .timeout(std::chrono::milliseconds(std::stoll(variable("RANKS_TIMEOUT", "1500"))))
      .order(variable("RANKS_ORDER") == "tree" ? Order::tree : Order::ranks);
}

bool chosen(const Group& group) {
  return group.rank() == std::stoi(variable("RANKS_WHO", "1"));
}

Series<Moments, Max> data(int rank) {
  Series reduction{Moments(), Max()};
  const std::int64_t columns = std::stoll(variable("RANKS_COLUMNS", "50"));
  for (int i = 0; i < 2; ++i) reduction.update(at::arange(columns, at::kFloat) + rank + i);
  return reduction;
}

/// Merges, and says what came of it and what is left.
void attempt(const std::string& name, const Group& group,
             const tap::distributed::MergeRanksOptions& options) {
  auto mine = data(group.rank());
  const std::string before = digest(state_of(mine));
  const auto begin = std::chrono::steady_clock::now();
  std::string outcome = "merged";
  try {
    tap::distributed::merge_ranks(mine, group, options);
  } catch (const c10::Error& error) {
    outcome = c10::str("lost ", error.what_without_backtrace());
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  say(name, " ", outcome);
  say(name, "-took ", took.count());
  say(name, "-state ", digest(state_of(mine)) == before ? "as before" : digest(state_of(mine)));
}

void killed() {
  const Group group = make_group(std::chrono::seconds(20));
  if (chosen(group)) {
    // The others have their groups by then: rank 0 serves the store in which they meet.
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
    ::raise(SIGKILL);
  }
  attempt("killed", group, limits());
}

void stopped() {
  const Group group = make_group(std::chrono::seconds(20));
  if (chosen(group)) ::raise(SIGSTOP);
  attempt("stopped", group, limits());
}

/// Dies at some moment of the merge: all others go through with it, or none.
void dies_within() {
  const Group group = make_group(std::chrono::seconds(20));
  attempt("warm", group, limits());
  if (chosen(group)) {
    std::thread([] {
      std::this_thread::sleep_for(std::chrono::microseconds(std::stoll(variable("RANKS_AFTER"))));
      ::raise(SIGKILL);
    }).detach();
  }
  attempt("within", group, limits());
  if (chosen(group)) ::pause();
}

/// Merges, and ends at once.
void last() {
  attempt("last", make_group(std::chrono::seconds(20)), limits().timeout(std::chrono::seconds(20)));
  ::_exit(0);
}

/// A rank misses a merge, comes late, and all meet again in the next one.
void late() {
  const Group group = make_group(std::chrono::seconds(20));
  if (chosen(group)) std::this_thread::sleep_for(std::chrono::milliseconds(3500));
  attempt("late", group, limits());
  std::this_thread::sleep_for(std::chrono::milliseconds(chosen(group) ? 0 : 2500));
  attempt("again", group, limits().timeout(std::chrono::seconds(20)));
}

/// A rank that comes after less than the timeout is waited for.
void slow() {
  const Group group = make_group(std::chrono::seconds(20));
  if (chosen(group)) std::this_thread::sleep_for(std::chrono::milliseconds(700));
  attempt("slow", group, limits());
}

/// A rank fails before it can merge, and says so.
void throws() {
  const Group group = make_group(std::chrono::seconds(20));
  if (chosen(group)) {
    tap::distributed::refuse_ranks("rows of the data set are missing", group, limits());
    return say("throws told");
  }
  attempt("throws", group, limits());
}

/// The names of this process's threads; of those alone that would take a SIGPIPE, if `taking`.
std::multiset<std::string> threads(bool taking) {
  std::multiset<std::string> names;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::ifstream status(task.path() / "status");
    std::string name;
    for (std::string line; std::getline(status, line);) {
      if (line.compare(0, 6, "Name:\t") == 0) name = line.substr(6);
      if (line.compare(0, 8, "SigBlk:\t") != 0) continue;
      const bool blocked = (std::stoull(line.substr(8), nullptr, 16) >> (SIGPIPE - 1) & 1) != 0;
      if (!taking || !blocked) names.insert(name);
    }
  }
  return names;
}

/// The threads of a group do not take the SIGPIPE of a connection to a rank that died.
void signals() {
  const std::size_t before = threads(false).size(), taking = threads(true).size();
  const Group group = make_group(std::chrono::seconds(20));
  say("made ", threads(false).size() - before);
  say("taking ", threads(true).size() - taking);
}

/// A rank dies while it makes the group with another; the third one comes after its death, or none does.
void dies_meeting() {
  const std::string file = variable("RANKS_FILE"), there = file + "-there";
  const int lock = ::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (variable("RANK") == "1") {
    ::flock(lock, LOCK_EX);
    std::ofstream(there) << "locked";
    std::thread([] {
      while (threads(false).count("torchtap-meet") == 0) std::this_thread::yield();
      ::raise(SIGKILL);
    }).detach();
  }
  if (variable("RANK") == "2") {
    while (!std::filesystem::exists(there)) std::this_thread::yield();
    ::flock(lock, LOCK_EX);  // that of a process ends with it
  }
  const auto begin = std::chrono::steady_clock::now();
  std::string outcome = "connected";
  try {
    make_group(std::chrono::milliseconds(std::stoll(variable("RANKS_TIMEOUT"))));
  } catch (const c10::Error& error) {
    outcome = error.what_without_backtrace();
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  say("meeting ", outcome);
  say("meeting-took ", took.count());
}

/// Rank 0, which serves the store, ends as soon as it has the group.
void server_ends() {
  std::string outcome = "connected";
  try {
    const Group group = make_group(std::chrono::seconds(20));
    if (group.rank() == 0) ::_exit(0);
    attempt("merge", group, limits());
  } catch (const c10::Error& error) {
    outcome = error.what_without_backtrace();
  }
  say("meeting ", outcome);
}

}  // namespace

void add_losses(std::map<std::string, Scenario>& all) {
  all["killed"] = killed;
  all["stopped"] = stopped;
  all["dies-within"] = dies_within;
  all["last"] = last;
  all["late"] = late;
  all["slow"] = slow;
  all["throws"] = throws;
  all["signals"] = signals;
  all["dies-meeting"] = dies_meeting;
  all["server-ends"] = server_ends;
}

}  // namespace rank_test
