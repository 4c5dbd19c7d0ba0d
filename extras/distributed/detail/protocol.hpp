#pragma once

/// The steps of a merge on one rank.

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <torchtap/core/sink.hpp>
#include <torchtap/distributed/detail/header.hpp>
#include <torchtap/distributed/detail/packet.hpp>
#include <torchtap/distributed/detail/parcel.hpp>
#include <torchtap/distributed/detail/plan.hpp>
#include <torchtap/distributed/detail/pulse.hpp>
#include <torchtap/distributed/group.hpp>
#include <torchtap/distributed/options.hpp>

namespace torchtap::distributed::detail {

/// A rank's part in a merge.
struct Offer {
  bool present = false;  ///< whether it has a recorder
  std::string refusal;   ///< why it cannot take part; "" if it can
  std::string kind;
  std::unique_ptr<core::Sink> blank;  ///< the reduction without samples; null if samples are kept
  std::vector<Portion> portions;
  const core::Sink* lent =
      nullptr;  ///< the sink of the one portion, which has no slots then; not to be changed
  /// Called when the result has arrived and before any rank puts it in place: why this rank cannot; "" if it
  /// can.
  std::function<std::string()> ready;
  /// Puts the result in place: the rank's own modules in their order, then the other ranks' modules.
  std::function<void(std::vector<Portion>)> put;
};

/// One merge, on one rank:
///
/// 1. Each rank sends its header to rank 0 (the root is one of the options that have to agree), which
///    compares the headers and sends all ranks its verdict and the plan, with the share of each rank.
/// 2. Small states go to the root in the order of ranks (or up a tree), and are merged as they arrive. Each
///    rank sends each other rank its share of large states, and merges its own share.
/// 3. The root reports whether this succeeded, and broadcasts the result; other ranks send each rank their
///    shares of it.
/// 4. Each rank reports to the root that it can put the result in place; the root asks all ranks to do so.
///
/// So nothing changes on any rank unless all ranks succeed. Messages between two ranks arrive in order, so
/// they need no numbers.
///
/// With a store, a rank that hears nothing more raises an alarm there. All living ranks answer it, so the
/// others are known; and the store has one place for the end of the merge, which the first rank decides for
/// all.
class Protocol {
 public:
  Protocol(const Group& group, const MergeRanksOptions& options, Offer offer);
  /// Throws `c10::ValueError` and `c10::Error` as `merge_ranks` does.
  void run();

 private:
  bool root() const noexcept { return rank_ == options_.root(); }
  bool leads() const noexcept { return rank_ == leader_; }
  Patience patience(int steps = 1) const { return {options_.timeout(), steps}; }
  /// For messages that the root sends after it waited for other ranks.
  Patience patience_with_root() const;

  // protocol.cpp
  void pack();
  Header header() const;
  bool agree();
  std::vector<Header> gather(Header mine);
  void hand_round();
  std::vector<Parcel> receive_result(const Verdict& verdict);
  void put_in_total(std::vector<Parcel> parcels);
  void commit();
  void put();
  Verdict decided(Verdict mine, const Patience& patience);
  void obey(const Verdict& verdict) const;
  void lost(const std::string& what);
  void broke(const std::string& why);
  void leave(Milliseconds longest) noexcept;

  // protocol_merge.cpp
  void merge_states();
  void merge_in_order();
  void merge_as_tree();
  void merge_own();
  void merge_from(int rank, int steps);
  void merge(std::optional<Portion>& total, Portion portion) const;
  void note_failure(int rank, std::int64_t place, const std::exception& error);
  void tick();
  void send_to(int rank, std::vector<Parcel> parcels, int steps);
  std::vector<Parcel> packed_total(bool shares = false);

  // protocol_shares.cpp
  void merge_shares();
  std::vector<Parcel> share_of(std::int64_t part) const;
  using Senders = std::vector<std::unique_ptr<Incoming>>;  ///< by rank
  template <class F>
  void step_with(int rank, const F& step);
  template <class F>
  void advance(Senders& senders, const F& step);
  void receive_share(int rank, Incoming* sender, std::vector<std::optional<Portion>>& total);
  std::optional<Portion> after(int rank, std::size_t place, std::optional<Portion>& earlier,
                               std::optional<Portion> later);
  void hand_out_shares();
  bool is_shared(std::int64_t place) const;

  const std::shared_ptr<detail::Links> all_links_;
  Links::Session links_;
  const MergeRanksOptions options_;
  Offer offer_;
  const int rank_;
  const int size_;
  int leader_ = 0;                         ///< the rank that decides: rank 0, then the root
  bool ready_ = false;                     ///< whether this rank said that it can put the result in place
  std::vector<Parcel> own_;                ///< of the offer, in its order
  std::vector<std::size_t> places_;        ///< where the modules of the offer are among all
  std::vector<storage::EntryId> modules_;  ///< of all ranks
  std::vector<bool> present_;              ///< which ranks have a recorder
  Plan plan_;
  bool shared_ = false;                        ///< whether ranks besides the root merge
  bool rest_ = true;                           ///< whether the root merges states that are not shared
  std::int64_t part_ = -1;                     ///< of the shared states, which this rank merges
  std::vector<std::optional<Portion>> total_;  ///< by place: merged so far; then the result
  std::string failure_;                        ///< of a merge; of putting the result in place
  bool broken_ = false;                        ///< whether a lost rank is the reason
  Clock::time_point ticked_ = Clock::now();
};

/// The message of an exception, without LibTorch's backtrace.
std::string text_of(const std::exception& error);

}  // namespace torchtap::distributed::detail
