// Waits until all ranks are connected, and asks in the store who is lost.
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include <algorithm>
#include <atomic>
#include <future>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include <torchtap/base/error.hpp>
#include <torchtap/base/thread.hpp>
#include <torchtap/distributed/detail/header.hpp>
#include <torchtap/distributed/detail/lost_ranks.hpp>
#include <torchtap/distributed/detail/meeting.hpp>
#include <torchtap/distributed/detail/pulse.hpp>

namespace torchtap::distributed::detail {
namespace {

/// Polls, because a store that waits takes no heartbeats meanwhile; and no longer once ranks gave up.
class Polled final : public c10d::PrefixStore {
 public:
  using PrefixStore::PrefixStore;
  std::vector<std::uint8_t> get(const std::string& key) override {
    wait({key});
    return PrefixStore::get(key);
  }
  void wait(const std::vector<std::string>& keys) override { wait(keys, getTimeout()); }
  void wait(const std::vector<std::string>& keys, const Milliseconds& timeout) override {
    const auto begin = Clock::now();
    while (!check(keys)) {
      if (given_up_ || Clock::now() - begin > timeout) throw LinkError("the others did not come");
      nap(begin);
    }
  }
  void give_up() noexcept { given_up_ = true; }

 private:
  std::atomic<bool> given_up_{false};
};

/// For the rank that serves the store: until the ranks that live know what was decided.
void stay(OverStore& roll, Clock::time_point end) {
  const auto begin = Clock::now();
  const auto living = [&] {
    std::int64_t count = 0;
    for (int rank = 0; rank < roll.size(); ++rank)
      count += roll.sign_of(rank) == OverStore::Sign::answered ? 1 : 0;
    return count;
  };
  while (Clock::now() < end && roll.left() < living()) nap(begin);
}

}  // namespace

Group met(const Meeting& meeting,
          const std::function<Group(const c10::intrusive_ptr<c10d::Store>&)>& connect) {
  const auto begin = Clock::now();
  const auto left = std::chrono::duration_cast<Milliseconds>(meeting.end - begin);
  const Milliseconds silence = std::max(meeting.timeout / 4, Milliseconds(1));
  RollCall call{meeting.timeout, time_to_answer(std::clamp(left / 4, Milliseconds(1), silence)), false};
  Links::Session session;
  session.roll = std::make_shared<OverStore>(meeting.store, "meeting", meeting.rank, meeting.size);
  session.data = session.roll;
  OverStore& roll = *session.roll;
  const auto goes_on = [&] {
    if (roll.interrupted()) throw LinkError("another rank gave up");
    call.absent_lost = Clock::now() > meeting.end - 2 * call.answer;
    if (call.absent_lost)
      throw LinkError(c10::str("not all ranks were connected within ", meeting.timeout.count(), " ms"));
  };
  const auto polled = c10::make_intrusive<Polled>("group", meeting.store);
  const auto made =
      std::make_shared<std::packaged_task<Group()>>([connect, polled] { return connect(polled); });
  std::future<Group> result = made->get_future();
  std::thread thread;
  std::optional<Group> group;
  std::string why;
  try {
    roll.arrive();
    const Pulse pulse(session, 0, silence);
    try {
      thread = base::start_thread("torchtap-meet", [made] { (*made)(); });
      while (result.wait_for(Milliseconds(1)) != std::future_status::ready) goes_on();
      group = result.get();
      if (meeting.store->add("connected", 1) == meeting.size) roll.decide("");
      while (!roll.decision().has_value()) {
        goes_on();
        nap(begin);
      }
      why = *roll.decision();
      roll.answer();
    } catch (const std::exception& error) {
      why = settled(roll, base::first_line(error), call);
    }
    roll.leave();
    if (!why.empty() && meeting.rank == meeting.server) stay(roll, Clock::now() + call.answer);
  } catch (const LinkError& error) {
    why = store_gone(meeting.server, meeting.rank, error);
  }
  polled->give_up();
  // Gloo waits for a connection five times as long as it was told, and cannot be interrupted.
  if (thread.joinable()) result.valid() ? thread.detach() : thread.join();
  TORCH_CHECK(why.empty() && group.has_value(), "distributed::from_environment: ", without_stop(why),
              ". Start all ranks again, within the timeout.");
  return *std::move(group);
}

}  // namespace torchtap::distributed::detail
