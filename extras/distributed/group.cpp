// Sends bytes between ranks over a process group of c10d.
#include <ATen/Functions.h>

#include <algorithm>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include <torchtap/base/error.hpp>
#include <torchtap/base/no_pipe_signal.hpp>
#include <torchtap/distributed/detail/transport.hpp>
#include <torchtap/distributed/group.hpp>

namespace torchtap::distributed {
namespace detail {
namespace {

constexpr std::int64_t kSentAtOnce = std::int64_t{8} << 20;  // MPI counts bytes in 32 bits
constexpr int kTag = 0x746170;                               // "tap"

/// A transport over c10d's send, recv and broadcast: `ProcessGroup` in all versions, `Backend` in LibTorch 2.
template <class G>
class OverGroup final : public Transport {
 public:
  explicit OverGroup(c10::intrusive_ptr<G> group)
      : Transport(group->getRank(), group->getSize()),
        group_(std::move(group)),
        device_(group_->getBackendName() == "nccl" ? at::kCUDA : at::kCPU) {}

  /// Groups that take no CPU tensors copy them, one by one.
  bool direct() const override { return device_ == at::kCPU; }
  Pending send(const at::Tensor& bytes, int to, Milliseconds timeout) override {
    return transfer(bytes, timeout, {true, false, false},
                    [this, to](std::vector<at::Tensor>& piece) { return group_->send(piece, to, kTag); });
  }
  Pending recv(const at::Tensor& bytes, int from, Milliseconds timeout) override {
    return transfer(bytes, timeout, {false, true, false},
                    [this, from](std::vector<at::Tensor>& piece) { return group_->recv(piece, from, kTag); });
  }
  Pending broadcast(const at::Tensor& bytes, int root, Milliseconds timeout) override {
    return transfer(bytes, timeout, {rank() == root, rank() != root, true},
                    [this, root](std::vector<at::Tensor>& piece) {
                      c10d::BroadcastOptions options;
                      options.rootRank = root;
                      return group_->broadcast(piece, options);
                    });
  }
  void interrupt() noexcept override {
    Transport::interrupt();
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!waited_for_) return;
    try {
      waited_for_->abort();
    } catch (const std::exception&) {  // this group cannot abort; `wait` polls instead
    }
  }

 private:
  using Work = decltype(std::declval<G&>().barrier());
  struct Way {
    bool reads, writes, collective;
  };

  void wait_for(const Work& work) {
    const std::lock_guard<std::mutex> lock(mutex_);
    waited_for_ = work;
  }
  void wait(const Work& work, Milliseconds timeout, bool collective) {
    wait_for(work);
    bool done = false;
    std::string why = "the merge failed for another rank";
    try {
      if (collective) poll(work, timeout);
      if (!interrupted()) done = work->wait(timeout);
    } catch (const std::exception& error) {
      why = base::first_line(error);
    }
    wait_for({});
    if (done) return;
    if (interrupted()) give_up();
    throw LinkError(why);
  }
  /// Collectives are polled, because they cannot be aborted. Messages can be aborted, but not polled.
  void poll(const Work& work, Milliseconds timeout) const {
    constexpr auto kShortest = std::chrono::microseconds(20), kLongest = std::chrono::microseconds(2000);
    const auto begin = Clock::now();
    while (!work->isCompleted() && !interrupted() && Clock::now() - begin < timeout) {
      const auto waited = std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - begin) / 8;
      std::this_thread::sleep_for(std::clamp<std::chrono::microseconds>(waited, kShortest, kLongest));
    }
  }
  /// Breaks Gloo's connections, as a timeout does: transfers in progress end, and no later merge receives
  /// them.
  void give_up() {
    if (group_->getBackendName() != "gloo") return;
    const base::NoPipeSignal ignored;
    try {
      std::vector<at::Tensor> nothing{at::empty({1}, at::kByte)};
      group_->recv(nothing, (rank() + 1) % size(), kTag + 1)->wait(Milliseconds(1));
    } catch (const std::exception&) {
    }
  }

  /// Calls `start` for each piece. A group that takes no CPU tensors gets copies on its device, one by one.
  template <class Start>
  Pending transfer(const at::Tensor& bytes, Milliseconds timeout, Way way, Start start) {
    if (device_ != at::kCPU) {
      return [this, bytes, timeout, way, start] { staged(bytes, timeout, way, start); };
    }
    std::vector<Work> works;
    each_piece(bytes, [&](at::Tensor piece) { works.push_back(begun(piece, start)); });
    return [this, works = std::move(works), timeout, way, bytes] {
      for (const Work& work : works) wait(work, timeout, way.collective);
    };
  }
  template <class Start>
  void staged(const at::Tensor& bytes, Milliseconds timeout, Way way, const Start& start) {
    each_piece(bytes, [&](at::Tensor piece) {
      at::Tensor copy =
          way.reads ? piece.to(device_) : at::empty_like(piece, piece.options().device(device_));
      wait(begun(copy, start), timeout, way.collective);
      if (way.writes) piece.copy_(copy);
    });
  }
  template <class Start>
  static Work begun(const at::Tensor& piece, const Start& start) {
    const base::NoPipeSignal ignored;  // Gloo writes here, maybe to a rank that died
    std::vector<at::Tensor> tensors{piece};
    try {
      return start(tensors);
    } catch (const std::exception& error) {
      throw LinkError(base::first_line(error));
    }
  }
  template <class F>
  static void each_piece(const at::Tensor& bytes, const F& f) {
    for (std::int64_t at = 0; at < bytes.numel(); at += kSentAtOnce) {
      f(bytes.narrow(0, at, std::min(kSentAtOnce, bytes.numel() - at)));
    }
  }

  c10::intrusive_ptr<G> group_;
  at::Device device_;
  std::mutex mutex_;
  Work waited_for_;
};

template <class G>
std::shared_ptr<Links> links_of(const c10::intrusive_ptr<G>& group,
                                const c10::intrusive_ptr<c10d::Store>& store) {
  TORCH_CHECK_VALUE(group, "distributed::Group: the process group is null; make one first, or give a store.");
  auto over = std::make_shared<OverGroup<G>>(group);
  const int rank = over->rank(), size = over->size();
  return std::make_shared<Links>(std::move(over), store, rank, size);
}

}  // namespace
}  // namespace detail

Group::Group(const c10::intrusive_ptr<c10d::ProcessGroup>& group,
             const c10::intrusive_ptr<c10d::Store>& store, int)
    : links_(detail::links_of(group, store)) {}
Group::Group(const c10::intrusive_ptr<c10d::Backend>& group, const c10::intrusive_ptr<c10d::Store>& store,
             int)
    : links_(detail::links_of(group, store)) {}
Group::Group(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size) {
  TORCH_CHECK_VALUE(store, "distributed::Group: the store is null; make one first, or give a process group.");
  TORCH_CHECK_VALUE(rank >= 0 && rank < size, "distributed::Group: there is no rank ", rank, " of ", size,
                    "; give a number from 0 to one below the number of ranks.");
  links_ = std::make_shared<detail::Links>(nullptr, store, rank, size);
}

int Group::rank() const noexcept {
  return links_->rank();
}
int Group::size() const noexcept {
  return links_->size();
}

}  // namespace torchtap::distributed
