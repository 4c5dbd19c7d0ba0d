// The step of a merge that moves and merges states.
#include <utility>

#include <torchtap/base/error.hpp>
#include <torchtap/distributed/detail/protocol.hpp>

namespace torchtap::distributed::detail {

void Protocol::merge_states() {
  if (rest_) options_.order() == Order::tree ? merge_as_tree() : merge_in_order();
  if (shared_) merge_shares();
}

void Protocol::merge_in_order() {
  if (!root()) {
    // The root receives from the ranks before this one first.
    if (offer_.present) send_to(options_.root(), std::move(own_), rank_ + 2);
    return;
  }
  for (int rank = 0; rank < size_; ++rank) {
    if (rank == rank_) {
      merge_own();
    } else if (present_[static_cast<std::size_t>(rank)]) {
      merge_from(rank, 1);
    }
  }
}

/// Merges in a binomial tree: rank 2k takes in 2k + 1, then 4k takes in 4k + 2, so merged ranks are always
/// neighbours.
void Protocol::merge_as_tree() {
  merge_own();
  int depth = 1;
  for (int step = 1; step < size_; step *= 2, ++depth) {
    if (rank_ % (2 * step) == step) {
      send_to(rank_ - step, failure_.empty() ? packed_total() : std::vector<Parcel>(), depth + 1);
      total_.clear();
      total_.resize(modules_.size());
      break;
    }
    if (rank_ + step < size_) merge_from(rank_ + step, depth);
  }
  if (options_.root() == 0) return;
  if (rank_ == 0) {
    send_to(options_.root(), failure_.empty() ? packed_total() : std::vector<Parcel>(), depth + 1);
    total_.clear();
    total_.resize(modules_.size());
  } else if (root()) {
    failure_.clear();  // rank 0 has it from the tree
    broken_ = false;
    merge_from(0, depth + 1);
  }
}

void Protocol::merge_own() {
  for (std::size_t i = 0; i < offer_.portions.size(); ++i) {
    if (is_shared(static_cast<std::int64_t>(places_[i]))) continue;
    try {
      own_[i].tensors.clear();  // the offer has the state
      if (offer_.lent != nullptr) offer_.portions[i].slots.push_back({offer_.lent->clone(), {}});
      merge(total_[places_[i]], std::move(offer_.portions[i]));
    } catch (const std::exception& error) {
      note_failure(rank_, static_cast<std::int64_t>(places_[i]), error);
    }
  }
}

/// Keeps the first failure of a merge, with the module of the state of `rank`.
void Protocol::note_failure(int rank, std::int64_t place, const std::exception& error) {
  if (!failure_.empty()) return;
  const bool known = place >= 0 && static_cast<std::size_t>(place) < modules_.size();
  failure_ = c10::str("rank ", rank, ": \"", known ? modules_[static_cast<std::size_t>(place)].path : "",
                      "\": ", text_of(error));
}

/// Says now and then, while states arrive, that this rank lives.
void Protocol::tick() {
  const Clock::time_point now = Clock::now();
  if (now - ticked_ <= Milliseconds(100)) return;
  links_.control->tick();
  ticked_ = now;
}

void Protocol::merge_from(int rank, int steps) {
  const auto each = [&](Parcel parcel) {
    tick();
    if (!failure_.empty()) return;
    const std::int64_t place = parcel.place;
    try {
      TORCH_CHECK_VALUE(
          place >= 0 && static_cast<std::size_t>(place) < total_.size(),
          "its state names a module that no rank has: its bytes were damaged on the way; merge again.");
      merge(total_[static_cast<std::size_t>(place)], unpacked(std::move(parcel), offer_.blank.get()));
    } catch (const std::exception& error) {
      note_failure(rank, place, error);
    }
  };
  try {
    const Verdict theirs = recv(*links_.data, rank, patience(steps), each);
    if (!failure_.empty()) return;
    failure_ = theirs.error;
    broken_ = theirs.lost;
  } catch (const LinkError& error) {
    broke(c10::str("rank ", rank, " did not hand over its state within ", options_.timeout().count(),
                   " ms, or died (", error.what(), ")"));
  }
}

/// Merges like `Recorder::merge`: the samples of `portion` follow the present ones.
void Protocol::merge(std::optional<Portion>& total, Portion portion) const {
  if (!total.has_value()) {
    total = std::move(portion);
    return;
  }
  while (total->slots.size() < portion.slots.size()) {
    total->slots.push_back({offer_.blank != nullptr ? offer_.blank->clone() : nullptr, {}});
  }
  for (std::size_t i = 0; i < portion.slots.size(); ++i) {
    auto& into = total->slots[i];
    auto& from = portion.slots[i];
    if (into.sink != nullptr && from.sink != nullptr) {
      into.sink->merge(*from.sink);
    } else {
      into.samples.insert(into.samples.end(), from.samples.begin(), from.samples.end());
    }
  }
  total->samples += portion.samples;
  total->not_recorded += portion.not_recorded;
}

void Protocol::send_to(int rank, std::vector<Parcel> parcels, int steps) {
  try {
    send(*links_.data, std::move(parcels), rank, failure_, broken_, patience(steps));
  } catch (const LinkError& error) {
    broke(c10::str("rank ", rank, " did not take the state of rank ", rank_, " within ",
                   options_.timeout().count(), " ms, or died (", error.what(), ")"));
  }
}

/// Moves the merged portions out as parcels; entries without data stay.
std::vector<Parcel> Protocol::packed_total(bool shares) {
  std::vector<Parcel> parcels;
  for (std::size_t place = 0; place < total_.size(); ++place) {
    if (!total_[place].has_value() || is_shared(static_cast<std::int64_t>(place)) != shares) continue;
    parcels.push_back(packed(*total_[place], plan_.modules[place].owner == Plan::kAll));
    parcels.back().place = static_cast<std::int64_t>(place);
    total_[place].reset();
  }
  return parcels;
}

}  // namespace torchtap::distributed::detail
