#pragma once

/// The steps of a merge, as each rank goes through them.

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <torchtap/core/sink.hpp>
#include <torchtap/distributed/detail/header.hpp>
#include <torchtap/distributed/detail/parcel.hpp>
#include <torchtap/distributed/detail/pulse.hpp>
#include <torchtap/distributed/group.hpp>
#include <torchtap/distributed/options.hpp>

namespace torchtap::distributed::detail {

/// What a rank brings to a merge.
struct Offer {
  bool present = false;  ///< whether it has a recorder
  std::string refusal;   ///< why it has nothing to bring although it should
  std::string kind;
  std::unique_ptr<core::Sink> blank;  ///< the reduction without samples; null if samples are kept
  std::vector<Portion> portions;
  /// Asked when the result is here and before any rank puts it in place: why this rank cannot; "" if it can.
  std::function<std::string()> ready;
  /// Puts the result in place: the rank's own modules in their order, then those of the others.
  std::function<void(std::vector<Portion>)> put;
};

/// One merge, on one rank:
///
/// 1. Each rank sends its header to rank 0 (who the root is, is one of the options that ranks have to agree
/// on), which
///    compares them and tells all ranks what it found.
/// 2. States go to the root in the order of ranks (or up a tree), and are merged as they arrive.
/// 3. The root tells whether that worked, and hands the result round.
/// 4. Each rank tells the root that it can put the result in place; the root tells all ranks to do so.
///
/// So nothing changes on any rank unless all of them got through. Between two ranks messages are in order, so
/// there are no numbers in them.
///
/// With a store, a rank that hears nothing more raises an alarm there. All that live answer it, so that it is
/// known who does not; and the store has one place for how the merge ends, which whoever comes first decides
/// for all.
class Protocol {
 public:
  Protocol(const Group& group, const Options& options, Offer offer);
  /// Throws `c10::ValueError` and `c10::Error` as `merge_ranks` does.
  void run();

 private:
  bool root() const noexcept { return rank_ == options_.root(); }
  bool leads() const noexcept { return rank_ == leader_; }
  Patience patience(int steps = 1) const { return {options_.timeout(), steps}; }
  /// For what the root sends once it has waited for others itself.
  Patience patience_with_root() const;

  // protocol.cpp
  void pack();
  Header header() const;
  bool agree();
  std::vector<Header> gather(Header mine);
  void hand_round();
  void receive_result(const Verdict& verdict);
  void commit();
  void put();
  Verdict decided(Verdict mine, const Patience& patience);
  void obey(const Verdict& verdict) const;
  void lost(const std::string& what);
  void broke(const std::string& why);
  std::string settled(const std::string& what);
  std::string who_is_lost(const std::string& what);
  Milliseconds time_to_answer() const;
  std::string store_gone(const LinkError& error) const;
  void leave(Milliseconds longest) noexcept;

  // protocol_merge.cpp
  void merge_states();
  void merge_in_order();
  void merge_as_tree();
  void merge_own();
  void merge_from(int rank, int steps);
  void merge(Portion portion, std::int64_t place);
  void send_to(int rank, std::vector<Parcel> parcels, int steps);
  std::vector<Parcel> packed_total();

  const std::shared_ptr<detail::Links> all_links_;
  Links::Session links_;
  const Options options_;
  Offer offer_;
  const int rank_;
  const int size_;
  int leader_ = 0;                             ///< who tells the others how it goes on: rank 0, then the root
  bool ready_ = false;                         ///< whether this rank said that it can put the result in place
  std::vector<Parcel> own_;                    ///< of the offer, in its order
  std::vector<std::size_t> places_;            ///< where the modules of the offer are among all
  std::vector<storage::EntryId> modules_;      ///< of all ranks
  std::vector<bool> present_;                  ///< which ranks have a recorder
  std::vector<std::optional<Portion>> total_;  ///< by place: what was merged so far; then what will be put
  std::string failure_;                        ///< of a merge; of putting the result in place
  bool broken_ = false;                        ///< whether a lost rank is the reason
  Clock::time_point ticked_ = Clock::now();
};

/// The message of an exception, without LibTorch's backtrace.
std::string text_of(const std::exception& error);

}  // namespace torchtap::distributed::detail
