#pragma once

/// Sends bytes between ranks, over a process group or over a store.

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

/// Bytes did not arrive or could not be sent: the other side died, hangs, or the connection broke.
class LinkError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// The error for bytes that no rank of torchtap sent.
inline LinkError damaged(const std::string& what) {
  return LinkError(what + " is damaged: other traffic came between; give torchtap a separate group");
}

/// Numbers of eight bytes in little endian, which other languages read easily.
std::string encoded_numbers(const std::vector<std::int64_t>& numbers);
std::vector<std::int64_t> decoded_numbers(const std::string& text);
/// Decodes lengths. Throws `LinkError` for lengths that no text can have.
std::vector<std::int64_t> decoded_lengths(const std::string& text);

/// The time to wait. If the other side takes several steps before it answers, each step may take the timeout.
struct Patience {
  Milliseconds timeout;
  int steps = 1;
};

/// Transfers of one merge. Messages between two ranks arrive in the order of sending.
class Transport {
 public:
  /// Waits for a transfer in progress, and keeps its tensor until then. Throws `LinkError`.
  using Pending = std::function<void()>;

  virtual ~Transport() = default;
  int rank() const noexcept { return rank_; }
  int size() const noexcept { return size_; }

  /// Begins to send contiguous `bytes` on the CPU to another rank.
  virtual Pending send(const at::Tensor& bytes, int to, Milliseconds timeout) = 0;
  /// Begins to fill `bytes` from rank `from`.
  virtual Pending recv(const at::Tensor& bytes, int from, Milliseconds timeout) = 0;
  /// Begins to copy rank `root`'s `bytes` into the `bytes` of all other ranks.
  virtual Pending broadcast(const at::Tensor& bytes, int root, Milliseconds timeout) = 0;

  /// Whether many transfers may be in progress, in any order among ranks.
  virtual bool direct() const { return false; }

  /// Sends a text of any length: a message of 1024 bytes with its length, as eight bytes in little endian,
  /// and its beginning; and a message with the rest, if there is one.
  virtual void send_message(const std::string& text, int to, Milliseconds timeout);
  virtual std::string recv_message(int from, const Patience& patience);
  /// Gives the text of `root` to all ranks that can be reached.
  virtual void broadcast_message(std::string& text, int root, const Patience& patience);
  /// Shows ranks that wait for this one that it is at work.
  virtual void tick() {}
  /// From another thread: makes all waiting throw `LinkError` until `begin`.
  virtual void interrupt() noexcept { interrupted_ = true; }
  bool interrupted() const noexcept { return interrupted_; }
  /// Begins a merge, before its first message.
  virtual void begin() noexcept { interrupted_ = false; }

 protected:
  Transport(int rank, int size) : rank_(rank), size_(size) {}

 private:
  int rank_;
  int size_;
  std::atomic<bool> interrupted_{false};
};

/// Waits for transfers in progress, one after the other.
void finish(const std::vector<Transport::Pending>& pending);

/// The storage of a contiguous CPU tensor as bytes, which keep it alive.
at::Tensor bytes_of(const at::Tensor& tensor);
/// The characters of a text as bytes, which keep it alive: a transfer that timed out may still write to them.
at::Tensor bytes_of(const std::shared_ptr<std::string>& text);

/// A transport over a store, with keys below `prefix`, which no other merge uses.
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

  /// A rank's sign of life. A rank that answers after a merge failed is alive.
  enum class Sign { absent, here, beats, answered };
  /// Reports that this rank takes part.
  void arrive();
  /// Reports that this rank is alive.
  void beat();
  /// Reports that this rank knows of the alarm, or is done.
  void answer();
  Sign sign_of(int rank) { return sign(beats_of(rank)); }
  /// A number that grows with each beat of a rank; `sign` interprets it.
  std::int64_t beats_of(int rank);
  static Sign sign(std::int64_t beats) noexcept;

  /// Reports that this merge fails for a rank. True for the first report; that rank finds the reason.
  bool alarm();
  bool alarmed();
  /// Decides the end of the merge: the reason of its failure, or "" if all ranks put the result in place.
  /// False if it was decided before.
  bool decide(const std::string& why);
  /// The decision, if there is one.
  std::optional<std::string> decision();

  /// Reports that this rank no longer needs the store for this merge. Returns the number of such ranks.
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

  /// The transports of one merge.
  struct Session {
    std::shared_ptr<OverStore> roll;     ///< null without a store
    bool serves = false;                 ///< whether the store ends with this process
    std::shared_ptr<Transport> control;  ///< for agreement
    std::shared_ptr<Transport> data;     ///< for states
  };
  /// Begins a merge. All ranks have to call it in the same order. Throws `LinkError`.
  Session open() const;
  /// The rank that serves the store; -1 if unknown. Throws nothing.
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

/// Waits between two questions to a store, the longer the longer one has waited since `begin`.
void nap(Clock::time_point begin);

}  // namespace torchtap::distributed::detail
