#pragma once

/// Bytes between ranks, over a process group or over a store.

#include <ATen/core/Tensor.h>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

namespace torchtap::distributed::detail {

using Clock = std::chrono::steady_clock;
using Milliseconds = std::chrono::milliseconds;

/// Nothing came or could be sent: the other side died, hangs, or the connection broke. `what` says which.
class LinkError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// How long to wait. Where the other side is known to go through several steps before it answers, each of
/// them may take as long.
struct Patience {
  Milliseconds timeout;
  int steps = 1;
};

/// Bytes between the ranks of one merge. Messages between two ranks arrive in the order in which they were
/// sent.
class Transport {
 public:
  /// Waits until a transfer that was begun is done. Throws `LinkError`. The tensor is kept until then.
  using Pending = std::function<void()>;

  virtual ~Transport() = default;
  int rank() const noexcept { return rank_; }
  int size() const noexcept { return size_; }

  /// Begins to send contiguous `bytes` on the CPU to another rank.
  virtual Pending send(const at::Tensor& bytes, int to, Milliseconds timeout) = 0;
  /// Begins to fill `bytes` with what rank `from` sends.
  virtual Pending recv(const at::Tensor& bytes, int from, Milliseconds timeout) = 0;
  /// Begins to copy `bytes` of rank `root` to those of all other ranks.
  virtual Pending broadcast(const at::Tensor& bytes, int root, Milliseconds timeout) = 0;

  /// A text of any length: eight bytes with its length, in little endian, and the text.
  virtual void send_message(const std::string& text, int to, Milliseconds timeout);
  virtual std::string recv_message(int from, const Patience& patience);
  /// Gives all ranks the text of `root`; ranks that cannot be reached are left out.
  virtual void broadcast_message(std::string& text, int root, const Patience& patience);
  /// Tells ranks that wait for this one that it is at work.
  virtual void tick() {}
  /// From another thread: whatever waits throws `LinkError`, also later, until `begin`.
  virtual void interrupt() noexcept { interrupted_ = true; }
  /// Before the first message of a merge.
  virtual void begin() noexcept { interrupted_ = false; }

 protected:
  Transport(int rank, int size) : rank_(rank), size_(size) {}
  bool interrupted() const noexcept { return interrupted_; }

 private:
  int rank_;
  int size_;
  std::atomic<bool> interrupted_{false};
};

/// The storage of a contiguous tensor on the CPU as bytes, which keep it alive.
at::Tensor bytes_of(const at::Tensor& tensor);
/// The characters of a text as bytes, which keep it alive: a transfer that timed out may still write to them.
at::Tensor bytes_of(const std::shared_ptr<std::string>& text);

/// Over a store: keys below `prefix`, which no other merge uses.
class OverStore final : public Transport {
 public:
  OverStore(c10::intrusive_ptr<c10d::Store> store, std::string prefix, int rank, int size);

  Pending send(const at::Tensor& bytes, int to, Milliseconds timeout) override;
  Pending recv(const at::Tensor& bytes, int from, Milliseconds timeout) override;
  Pending broadcast(const at::Tensor& bytes, int root, Milliseconds timeout) override;
  void send_message(const std::string& text, int to, Milliseconds timeout) override;
  std::string recv_message(int from, const Patience& patience) override;
  void broadcast_message(std::string& text, int root, const Patience& patience) override;
  void tick() override;

  /// What the other ranks know of one. Ranks that answer once a merge fails live.
  enum class Sign { absent, here, beats, answered };
  /// Says that this rank takes part.
  void arrive();
  /// Says that it still lives.
  void beat();
  /// Says that it knows of the alarm, or is done.
  void answer();
  Sign sign_of(int rank) { return sign(beats_of(rank)); }
  /// A number that grows with each beat of a rank, and what it tells.
  std::int64_t beats_of(int rank);
  static Sign sign(std::int64_t beats) noexcept;

  /// Says that this merge fails for somebody. True for the first one, who finds out why.
  bool alarm();
  bool alarmed();
  /// Decides how the merge ends: that it fails and why, or with "" that all put the result in place. False if
  /// that was decided before.
  bool decide(const std::string& why);
  /// What was decided.
  std::optional<std::string> decision();

  /// Says that this rank needs the store no more for this merge, and counts the ranks of which that is known.
  std::int64_t leave();
  std::int64_t left();

 private:
  void put(const std::string& key, const at::Tensor& bytes);
  void wait_for(const std::string& key, Milliseconds timeout);
  std::string next_key(int from, int to);
  void take(const std::string& key, const at::Tensor& bytes, Milliseconds timeout, bool shared);
  std::string take_text(const std::string& key, Milliseconds timeout, bool shared);
  void done_with(const std::string& key, std::int64_t pieces, bool shared);

  c10::intrusive_ptr<c10d::Store> store_;
  std::string prefix_;
  std::vector<std::int64_t> sent_, received_;
  std::int64_t broadcasts_ = 0;
};

/// The links of a `Group`.
class Links {
 public:
  virtual ~Links() = default;
  Links(std::shared_ptr<Transport> group, c10::intrusive_ptr<c10d::Store> store, int rank, int size);
  Links& operator=(const Links&) = delete;

  /// What one merge uses.
  struct Session {
    std::shared_ptr<OverStore> roll;     ///< null without a store
    bool serves = false;                 ///< whether the store ends with this process
    std::shared_ptr<Transport> control;  ///< for what ranks agree on
    std::shared_ptr<Transport> data;     ///< for states
  };
  /// All ranks have to call it in the same order. Throws `LinkError`.
  Session open() const;
  /// The rank with which the store ends, as far as it is known; -1 otherwise. Throws nothing.
  int server() const noexcept;
  int rank() const noexcept { return rank_; }
  int size() const noexcept { return size_; }

 protected:
  Links(const Links&) = default;
  void served_by(int rank) noexcept { *server_ = rank; }

 private:
  std::shared_ptr<Transport> group_;  // null if there is only a store
  c10::intrusive_ptr<c10d::Store> store_;
  int rank_;
  int size_;
  std::shared_ptr<std::atomic<int>> server_ = std::make_shared<std::atomic<int>>(-1);
};

}  // namespace torchtap::distributed::detail
