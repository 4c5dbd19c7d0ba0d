// Scenarios: ranks that are killed, stop, or come late.
#include <ATen/Functions.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
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

}  // namespace

void add_losses(std::map<std::string, Scenario>& all) {
  all["killed"] = killed;
  all["stopped"] = stopped;
  all["dies-within"] = dies_within;
  all["last"] = last;
  all["late"] = late;
  all["slow"] = slow;
  all["throws"] = throws;
}

}  // namespace rank_test
