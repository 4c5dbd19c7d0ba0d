// The steps of a merge in which each rank merges its share of large states, and hands it to the others.
#include <ATen/Functions.h>
#include <c10/util/accumulate.h>

#include <map>
#include <utility>

#include <torchtap/base/error.hpp>
#include <torchtap/distributed/detail/protocol.hpp>

namespace torchtap::distributed::detail {
namespace {

/// Merged ranks of one module as in the tree of `merge_as_tree`, of which all are needed: at `level` are
/// 2^level neighbours.
using Levels = std::map<int, std::optional<Portion>>;

/// The result's parcels from parts other than part 0: only their tensors of elements.
std::vector<Parcel> elements_of(std::vector<Parcel> parcels, const Plan& plan) {
  for (Parcel& parcel : parcels) {
    if (plan.modules[static_cast<std::size_t>(parcel.place)].owner != Plan::kAll) continue;
    Parcel elements;
    elements.place = parcel.place;
    std::size_t next = 0;
    for (const Parcel::Slot& slot : parcel.slots) {
      elements.slots.emplace_back();
      for (std::int64_t i = 0; i < slot.tensors; ++i, ++next) {
        if (parcel.widths[next] == 0) continue;
        ++elements.slots.back().tensors;
        elements.widths.push_back(parcel.widths[next]);
        elements.beside.push_back(std::move(parcel.beside[next]));
        elements.tensors.push_back(std::move(parcel.tensors[next]));
      }
    }
    parcel = std::move(elements);
  }
  return parcels;
}

/// Puts the parts of states together where they arrive.
class Joined {
 public:
  explicit Joined(const Plan& plan) : plan_(plan) {}

  /// Takes in a parcel of `part`. Returns where its tensors belong, in their order. Throws `LinkError` if it
  /// cannot be one.
  std::vector<at::Tensor> add(Parcel parcel, std::int64_t part) {
    const bool known = parcel.place >= 0 && parcel.place < static_cast<std::int64_t>(plan_.modules.size());
    if (!known) throw damaged("the place of a result");
    const Plan::Module& module = plan_.modules[static_cast<std::size_t>(parcel.place)];
    State& state = states_[parcel.place];
    std::vector<at::Tensor> places;
    std::size_t whole = 0;
    parcel.tensors.clear();
    for (std::size_t i = 0; i < parcel.beside.size(); ++i) {
      if (module.owner != Plan::kAll || parcel.widths[i] == 0) {
        places.push_back(room_for(parcel.beside[i]));
        parcel.tensors.push_back(places.back());
        continue;
      }
      if (state.tensors.size() == whole) {
        TensorPlace all = parcel.beside[i];
        all.sizes = {c10::multiply_integers(module.whole), parcel.widths[i]};
        state.tensors.push_back(room_for(all));
      }
      const Elements elements = plan_.cut(module, part);
      at::Tensor& tensor = state.tensors[whole++];
      const auto expected = elements.length * tensor.size(1);
      if (c10::multiply_integers(parcel.beside[i].sizes) != expected ||
          parcel.beside[i].dtype != static_cast<std::int32_t>(tensor.scalar_type())) {
        throw damaged("a part of a result");
      }
      places.push_back(tensor.narrow(0, elements.begin, elements.length));
      parcel.tensors.push_back(tensor);
    }
    state.parts += 1;
    if (module.owner != Plan::kAll || part == 0) state.parcel = std::move(parcel);
    return places;
  }

  /// Calls `f(place, portion)` for each state. Passes on exceptions of loading.
  template <class F>
  void each(const core::Sink* blank, const F& f) {
    for (auto& [place, state] : states_) {
      const Plan::Module& module = plan_.modules[static_cast<std::size_t>(place)];
      const bool cut = module.owner == Plan::kAll;
      TORCH_CHECK_VALUE(!cut || state.parts == static_cast<std::int64_t>(plan_.merging.size()),
                        "a part of the result is missing; merge again.");
      state.tensors.clear();
      f(static_cast<std::size_t>(place),
        cut ? unpacked(std::move(state.parcel), blank,
                       {Elements::Use::join, module.whole, 0, plan_.cut(module, 0).length})
            : unpacked(std::move(state.parcel), blank));
    }
  }

 private:
  struct State {
    Parcel parcel;
    std::vector<at::Tensor> tensors;  // whole, [elements, further dimensions]
    std::int64_t parts = 0;
  };
  const Plan& plan_;
  std::map<std::int64_t, State> states_;
};

}  // namespace

/// Whether a state is merged by one of several ranks, or by all.
bool Protocol::is_shared(std::int64_t place) const {
  return shared_ && (options_.order() != Order::tree ||
                     plan_.modules[static_cast<std::size_t>(place)].owner == Plan::kAll);
}

/// The share of this rank's states that `part` merges. The tensors share memory.
std::vector<Parcel> Protocol::share_of(std::int64_t part) const {
  std::vector<Parcel> parcels;
  for (std::size_t i = 0; i < own_.size(); ++i) {
    const Plan::Module& module = plan_.modules[places_[i]];
    if (module.owner == Plan::kAll) {
      parcels.push_back(part_of(own_[i], plan_.cut(module, part)));
    } else if (is_shared(own_[i].place) && module.owner == plan_.merging[static_cast<std::size_t>(part)]) {
      parcels.push_back(own_[i]);
    }
  }
  return parcels;
}

/// Merges `later` into `earlier`, which is then empty, and returns it.
std::optional<Portion> Protocol::after(int rank, std::size_t place, std::optional<Portion>& earlier,
                                       std::optional<Portion> later) {
  try {
    if (later.has_value() && failure_.empty()) merge(earlier, std::move(*later));
  } catch (const std::exception& error) {
    note_failure(rank, static_cast<std::int64_t>(place), error);
  }
  return std::exchange(earlier, std::nullopt);
}

/// Takes a step in receiving from a rank; if the link breaks, the merge fails.
template <class F>
void Protocol::step_with(int rank, const F& step) {
  try {
    step();
  } catch (const LinkError& error) {
    broke(c10::str("rank ", rank, " did not hand over its state within ", options_.timeout().count(),
                   " ms, or died (", error.what(), ")"));
  }
}

/// Takes the same step with all senders; a sender that fails is removed.
template <class F>
void Protocol::advance(Senders& senders, const F& step) {
  for (int rank = 0; rank < size_; ++rank) {
    auto sender = std::move(senders[static_cast<std::size_t>(rank)]);
    if (sender == nullptr) continue;
    step_with(rank, [&] {
      step(*sender);
      senders[static_cast<std::size_t>(rank)] = std::move(sender);
    });
  }
}

/// All transfers between ranks begin at once; each rank merges in the order of ranks.
void Protocol::merge_shares() {
  if (part_ < 0) return;  // no recorder here
  Senders senders(static_cast<std::size_t>(size_));
  const auto begin = [this](int from) {
    return std::make_unique<Incoming>(*links_.data, from, root() ? patience() : patience_with_root());
  };
  for (int rank = 0; rank < size_; ++rank) {
    if (rank == rank_ || !present_[static_cast<std::size_t>(rank)]) continue;
    step_with(rank, [&] { senders[static_cast<std::size_t>(rank)] = begin(rank); });
  }
  std::vector<std::pair<int, Transport::Pending>> sent;
  const auto lost_receiver = [this](int rank, const LinkError& error) {
    broke(c10::str("rank ", rank, " did not take the state of rank ", rank_, " within ",
                   options_.timeout().count(), " ms, or died (", error.what(), ")"));
  };
  for (int step = 1; step < size_; ++step) {
    const int to = (rank_ + step) % size_;  // not all to rank 0 first
    const std::int64_t part = plan_.part_of(to);
    if (part < 0) continue;
    try {
      sent.emplace_back(
          to,
          Packet(share_of(part), {}, false).begin_send(*links_.data, to, options_.timeout() * (size_ + 2)));
    } catch (const LinkError& error) {
      lost_receiver(to, error);
    }
  }
  advance(senders, [](Incoming& sender) { sender.open(); });
  advance(senders, [](Incoming& sender) { sender.read(); });
  std::vector<std::optional<Portion>> arrived(modules_.size());
  std::vector<Levels> levels(modules_.size());
  const bool tree = options_.order() == Order::tree;
  for (int rank = 0; rank < size_; ++rank) {
    if (!present_[static_cast<std::size_t>(rank)]) continue;
    receive_share(rank, senders[static_cast<std::size_t>(rank)].get(), tree ? arrived : total_);
    senders[static_cast<std::size_t>(rank)].reset();
    for (std::size_t place = 0; tree && place < modules_.size(); ++place) {
      std::optional<Portion> now = std::exchange(arrived[place], std::nullopt);
      int level = 0;
      for (; (rank >> level & 1) != 0; ++level)
        now = after(rank, place, levels[place][level], std::move(now));
      levels[place][level] = std::move(now);
    }
  }
  for (std::size_t place = 0; tree && place < modules_.size(); ++place) {
    if (!is_shared(static_cast<std::int64_t>(place))) continue;
    for (auto& [level, portion] : levels[place]) {
      total_[place] = after(size_ - 1, place, portion, std::move(total_[place]));
    }
  }
  for (const auto& [to, finish] : sent) {
    try {
      finish();
    } catch (const LinkError& error) {
      lost_receiver(to, error);
    }
  }
  own_.clear();
  offer_.portions.clear();
}

/// Merges the share of `rank` into `total`, by place. `sender` is null for this rank, and where it was lost.
void Protocol::receive_share(int rank, Incoming* sender, std::vector<std::optional<Portion>>& total) {
  const auto each = [&](Parcel parcel) {
    tick();
    if (!failure_.empty()) return;
    const std::int64_t place = parcel.place;
    try {
      TORCH_CHECK_VALUE(place >= 0 && static_cast<std::size_t>(place) < total.size() && is_shared(place),
                        "its state names a module that this rank does not merge: its bytes were damaged on "
                        "the way; merge again.");
      const Plan::Module& module = plan_.modules[static_cast<std::size_t>(place)];
      Portion portion = module.owner == Plan::kAll
                            ? unpacked(std::move(parcel), offer_.blank.get(), plan_.cut(module, part_))
                            : unpacked(std::move(parcel), offer_.blank.get());
      merge(total[static_cast<std::size_t>(place)], std::move(portion));
    } catch (const std::exception& error) {
      note_failure(rank, place, error);
    }
  };
  if (rank == rank_) {
    for (Parcel& parcel : share_of(part_)) {
      for (at::Tensor& tensor : parcel.tensors) tensor = tensor.clone();  // a merge changes its memory
      each(std::move(parcel));
    }
    return;
  }
  if (sender == nullptr) return;
  step_with(rank, [&] {
    for (std::size_t i = 0; i < sender->parcels(); ++i) each(sender->take(i));
  });
}

/// Gives the merged share to all ranks that get the result, and takes in their shares.
void Protocol::hand_out_shares() {
  if (part_ < 0) return;  // no recorder here
  std::vector<Parcel> mine;
  try {
    mine = packed_total(/*shares=*/true);
    if (part_ != 0) mine = elements_of(std::move(mine), plan_);
  } catch (const std::exception& error) {
    if (failure_.empty()) failure_ = c10::str("rank ", rank_, ": ", text_of(error));
  }
  // A rank that could not merge sends the reason in place of its share, and reports it to the root.
  const auto gets = [this](int rank) {
    return present_[static_cast<std::size_t>(rank)] && (options_.everywhere() || rank == options_.root());
  };
  const Milliseconds timeout = options_.timeout() * (size_ + 2);
  try {
    const Packet packet(mine, failure_, broken_);
    std::vector<Transport::Pending> pending;
    for (int step = 1; step < size_; ++step) {
      const int to = (rank_ + step) % size_;
      if (gets(to)) pending.push_back(packet.begin_send(*links_.data, to, timeout));
    }
    Joined joined(plan_);
    bool complete = failure_.empty();
    std::vector<std::pair<std::int64_t, std::unique_ptr<Incoming>>> parts;
    for (std::size_t part = 0; gets(rank_) && part < plan_.merging.size(); ++part) {
      const auto from = static_cast<int>(plan_.merging[part]);
      if (from == rank_) continue;
      const Patience patience{patience_with_root().timeout, size_ + 2};
      parts.emplace_back(part, std::make_unique<Incoming>(*links_.data, from, patience));
    }
    for (const auto& part : parts) part.second->open();
    for (const Parcel& parcel : mine) {
      if (!gets(rank_)) break;
      const auto places = joined.add(parcel, part_);
      for (std::size_t i = 0; i < places.size(); ++i) places[i].copy_(parcel.tensors[i].view_as(places[i]));
    }
    for (const auto& part : parts) {
      const Verdict theirs =
          part.second->read([&](const Parcel& parcel) { return joined.add(parcel, part.first); });
      complete = complete && theirs.error.empty();
    }
    for (const auto& part : parts) {
      for (std::size_t i = 0; i < part.second->parcels(); ++i) part.second->take(i);
    }
    finish(pending);
    if (!complete || !gets(rank_)) return;
    joined.each(offer_.blank.get(),
                [this](std::size_t place, Portion portion) { total_[place] = std::move(portion); });
  } catch (const LinkError& error) {
    broke(c10::str("rank ", rank_, ": the result did not reach all ranks (", error.what(), ")"));
  } catch (const std::exception& error) {
    if (failure_.empty()) failure_ = c10::str("rank ", rank_, ": ", text_of(error));
  }
}

}  // namespace torchtap::distributed::detail
