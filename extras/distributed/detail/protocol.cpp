// The steps of a merge in which ranks agree, receive the result and commit.
#include <algorithm>
#include <map>
#include <sstream>
#include <thread>
#include <utility>

#include <torchtap/base/error.hpp>
#include <torchtap/distributed/detail/lost_ranks.hpp>
#include <torchtap/distributed/detail/protocol.hpp>
#include <torchtap/version.hpp>

namespace torchtap::distributed::detail {
namespace {

constexpr const char* kUnchanged = "Nothing was changed on any rank.";
// For a rank that is ready and hears nothing more.
constexpr const char* kUnknown =
    "Nothing was changed on this rank. It cannot know whether the other ranks merged, because the root or "
    "the process that serves the store ended early; compare the ranks, or reset() all and record again.";

std::string encoded(const std::vector<bool>& present, const std::vector<storage::EntryId>& modules,
                    const Plan& plan) {
  std::ostringstream stream;
  {
    core::OutputArchive archive(stream);
    archive(present, static_cast<std::uint64_t>(modules.size()));
    for (const auto& id : modules) archive(id.path, id.aliases, id.type, id.kind);
    archive(plan);
  }
  return stream.str();
}

void decode(const std::string& text, std::vector<bool>& present, std::vector<storage::EntryId>& modules,
            Plan& plan) {
  std::istringstream stream(text);
  core::InputArchive archive(stream);
  std::uint64_t count = 0;
  archive(present, count);
  for (std::uint64_t i = 0; i < count; ++i) {
    storage::EntryId id;
    archive(id.path, id.aliases, id.type, id.kind);
    modules.push_back(std::move(id));
  }
  archive(plan);
}

}  // namespace

std::string text_of(const std::exception& error) {
  const auto* const ours = dynamic_cast<const c10::Error*>(&error);
  return ours != nullptr ? ours->what_without_backtrace() : error.what();
}

Protocol::Protocol(const Group& group, const MergeRanksOptions& options, Offer offer)
    : all_links_(group.links()),
      options_(options),
      offer_(std::move(offer)),
      rank_(group.rank()),
      size_(group.size()) {
  TORCH_CHECK_VALUE(options.root() >= 0 && options.root() < size_,
                    "distributed::merge_ranks: the root is rank ", options.root(),
                    "; give the option root(rank) a rank from 0 to ", size_ - 1, ".");
  TORCH_CHECK_VALUE(options.timeout().count() > 0, "distributed::merge_ranks: the timeout is ",
                    options.timeout().count(), " ms; give a positive one.");
  TORCH_CHECK_VALUE(options.samples() >= 0, "distributed::merge_ranks: the option samples is ",
                    options.samples(), "; give the number of bytes that ranks may merge, or 0.");
  try {
    links_ = all_links_->open();
  } catch (const LinkError& error) {
    TORCH_CHECK(false, "distributed::merge_ranks: ", store_gone(all_links_->server(), rank_, error), ". ",
                kUnchanged);
  }
}

void Protocol::run() {
  pack();
  std::optional<Pulse> pulse;
  try {
    try {
      if (links_.roll != nullptr) links_.roll->arrive();
      if (links_.roll != nullptr && size_ > 1) pulse.emplace(links_, options_.root(), options_.timeout());
      if (!agree()) return leave(options_.timeout());
      merge_states();
      hand_round();
      commit();
    } catch (const LinkError& error) {
      lost(error.what());
    }
  } catch (...) {
    leave(time_to_answer(options_.timeout()));
    throw;
  }
  leave(options_.timeout());
  pulse.reset();
  put();
}

/// The process that serves the store stays for some time, until the other ranks know the end of the merge.
void Protocol::leave(Milliseconds longest) noexcept {
  if (links_.roll == nullptr || size_ == 1) return;
  try {
    links_.roll->answer();
    std::int64_t left = links_.roll->leave();
    const auto end = Clock::now() + std::min<Milliseconds>(longest, std::chrono::seconds(10));
    while (links_.serves && left < size_ && Clock::now() < end) {
      std::this_thread::sleep_for(std::chrono::microseconds(200));
      left = links_.roll->left();
    }
  } catch (const LinkError&) {  // the process that served it ended
  }
}

Patience Protocol::patience_with_root() const {
  return {options_.timeout() + options_.timeout() / 10 + Milliseconds(500), 1};
}

/// If packing fails, the other ranks get the reason.
void Protocol::pack() {
  if (!offer_.refusal.empty()) return;
  try {
    for (const Portion& portion : offer_.portions) own_.push_back(packed(portion, false, offer_.lent));
  } catch (const std::exception& error) {
    own_.clear();
    offer_.refusal = text_of(error);
  }
}

Header Protocol::header() const {
  Header header;
  header.present = offer_.present;
  header.library = TORCHTAP_VERSION;
  header.refusal = offer_.refusal;
  header.kind = offer_.kind;
  header.reduction = offer_.blank != nullptr ? offer_.blank->describe() : "";
  header.root = options_.root();
  header.order = static_cast<std::int64_t>(options_.order());
  header.everywhere = options_.everywhere() ? 1 : 0;
  header.same_modules = options_.same_modules() ? 1 : 0;
  header.samples = options_.samples();
  for (std::size_t i = 0; i < own_.size(); ++i) {
    const Parcel& own = own_[i];
    header.modules.push_back({offer_.portions[i].id, header.reduction, own.bytes(), own.facts, own.divisible,
                              own.whole, own.bytes_of_elements()});
  }
  return header;
}

/// False if no rank has a recorder.
bool Protocol::agree() {
  Verdict verdict;
  if (leads()) {
    const std::vector<Header> headers = gather(header());
    verdict.error = why_not(headers);
    for (const Header& one : headers) present_.push_back(one.present);
    modules_ = united(headers);
    plan_ = plan_of(headers, modules_, links_.data->direct());
    verdict.more = encoded(present_, modules_, plan_);
    obey(decided(std::move(verdict), patience()));
  } else {
    links_.control->send_message(header().encoded(), leader_, patience_with_root().timeout);
    verdict = decided({}, patience_with_root());
    obey(verdict);
    decode(verdict.more, present_, modules_, plan_);
  }
  shared_ = plan_.shared(options_.root());
  part_ = shared_ ? plan_.part_of(rank_) : -1;
  rest_ = !shared_;
  for (std::size_t place = 0; place < modules_.size(); ++place) {
    rest_ = rest_ || !is_shared(static_cast<std::int64_t>(place));
  }
  leader_ = options_.root();
  all_links_->server();  // asked while the store exists
  std::map<ModuleKey, std::size_t> place;
  const std::vector<ModuleKey> all = keys_of(modules_);
  for (std::size_t i = 0; i < all.size(); ++i) place[all[i]] = i;
  std::vector<storage::EntryId> ids;
  for (const Portion& portion : offer_.portions) ids.push_back(portion.id);
  for (const ModuleKey& key : keys_of(ids)) places_.push_back(place.at(key));
  for (std::size_t i = 0; i < own_.size(); ++i) own_[i].place = static_cast<std::int64_t>(places_[i]);
  total_.resize(modules_.size());
  return std::find(present_.begin(), present_.end(), true) != present_.end();
}

/// On rank 0: the headers of all ranks.
std::vector<Header> Protocol::gather(Header mine) {
  std::vector<Header> headers(static_cast<std::size_t>(size_));
  headers[static_cast<std::size_t>(rank_)] = std::move(mine);
  const auto end = Clock::now() + options_.timeout();
  std::string why;
  for (int rank = 0; rank < size_; ++rank) {
    if (rank == rank_) continue;
    const auto left = std::chrono::duration_cast<Milliseconds>(end - Clock::now());
    try {
      headers[static_cast<std::size_t>(rank)] =
          Header::decoded(links_.control->recv_message(rank, {std::max(left, Milliseconds(1))}));
    } catch (const LinkError& error) {
      why += c10::str(why.empty() ? "" : "; ", "rank ", rank, " did not come within ",
                      options_.timeout().count(), " ms, or died (", error.what(), ")");
      // Without a store, ranks get the reason only after this rank has received all headers.
      if (links_.roll != nullptr) break;
    }
  }
  if (!why.empty()) throw LinkError(why);
  return headers;
}

/// Gives all ranks the verdict of the leading rank.
Verdict Protocol::decided(Verdict mine, const Patience& patience) {
  std::string text = leads() ? mine.encoded() : std::string();
  links_.control->broadcast_message(text, leader_, patience);
  return leads() ? std::move(mine) : Verdict::decoded(text);
}

void Protocol::obey(const Verdict& verdict) const {
  if (verdict.error.empty()) return;
  TORCH_CHECK(!verdict.lost, "distributed::merge_ranks: ", without_stop(verdict.error), ". ", kUnchanged);
  TORCH_CHECK_VALUE(false, "distributed::merge_ranks: ", without_stop(verdict.error), ". ", kUnchanged);
}

/// Handles a broken link: throws, unless the store says that all ranks put the result in place.
void Protocol::lost(const std::string& what) {
  std::string why;
  bool known = !ready_;
  if (links_.roll != nullptr) {
    try {
      why = settled(*links_.roll, what, {options_.timeout(), time_to_answer(options_.timeout())});
      if (why.empty()) return;
      known = true;
    } catch (const LinkError& gone) {
      why = store_gone(all_links_->server(), rank_, gone);
    }
  } else if (!leads()) {
    why = c10::str("the root, rank ", leader_, ", did not answer within ", options_.timeout().count(),
                   " ms, or died (", what, "); if it lives, its error names the rank that failed");
  } else {
    why = what;
    Verdict verdict;  // the other ranks wait for it, or will
    verdict.lost = true;
    verdict.error = why;
    try {
      decided(std::move(verdict), patience());
    } catch (const LinkError&) {
    }
  }
  TORCH_CHECK(false, "distributed::merge_ranks: ", without_stop(why), ". ", known ? kUnchanged : kUnknown);
}

/// Handles a broken transfer. With a store, throws, which raises the alarm. Without one, all ranks continue
/// without data until the root names the lost rank.
void Protocol::broke(const std::string& why) {
  if (links_.roll != nullptr) throw LinkError(why);
  if (failure_.empty()) failure_ = why;
  broken_ = true;
}

void Protocol::hand_round() {
  Verdict verdict;
  std::vector<Parcel> parcels;
  std::string text;
  const bool hands = rest_ && options_.everywhere();
  if (root()) {
    verdict.error = failure_;
    verdict.lost = broken_;
    if (failure_.empty() && hands) {
      try {
        parcels = packed_total();
        text = detail::encoded(parcels);
        verdict.more = encoded_numbers(sizes_of(text, parcels));
      } catch (const std::exception& error) {
        verdict.error = c10::str("rank ", rank_, ": ", text_of(error));
      }
    }
  }
  // The root may wait for every rank before it answers.
  verdict = decided(std::move(verdict), {patience_with_root().timeout, size_ + 2});
  obey(verdict);
  if (hands) {
    try {
      if (!root()) {
        parcels = receive_result(verdict);
      } else if (size_ > 1) {
        hand_out(*links_.data, std::move(text), parcels, options_.timeout());
      }
    } catch (const LinkError& error) {
      broke(c10::str("rank ", rank_, ": the result did not reach all ranks (", error.what(), ")"));
      parcels.clear();
    }
    put_in_total(
        std::move(parcels));  // on the root, too: it continues from the same bytes as all other ranks
  }
  if (shared_) hand_out_shares();
}

/// Makes portions of the parcels of the result.
void Protocol::put_in_total(std::vector<Parcel> parcels) {
  try {
    for (Parcel& parcel : parcels) {
      TORCH_CHECK_VALUE(
          parcel.place >= 0 && static_cast<std::size_t>(parcel.place) < total_.size(),
          "the result names a module that no rank has: its bytes were damaged on the way; merge again.");
      const auto place = static_cast<std::size_t>(parcel.place);
      total_[place] = unpacked(std::move(parcel), offer_.blank.get());
    }
  } catch (const std::exception& error) {
    if (failure_.empty()) failure_ = c10::str("rank ", rank_, ": ", text_of(error));
  }
}

std::vector<Parcel> Protocol::receive_result(const Verdict& verdict) {
  const std::vector<std::int64_t> sizes = decoded_numbers(verdict.more);
  if (offer_.present) return take_in(*links_.data, options_.root(), sizes, options_.timeout());
  pass_by(*links_.data, options_.root(), sizes, options_.timeout());
  return {};
}

void Protocol::commit() {
  const bool puts = offer_.present && (root() || options_.everywhere());
  if (failure_.empty() && puts && offer_.ready) {
    const std::string why = offer_.ready();
    if (!why.empty()) failure_ = c10::str("rank ", rank_, ": ", why);
  }
  if (!root()) {
    links_.control->send_message(failure_, options_.root(), patience_with_root().timeout);
    ready_ = failure_.empty();
    return obey(decided({}, patience_with_root()));
  }
  Verdict verdict;
  verdict.lost = broken_;
  std::string silent;  // ranks that broke other ranks' transfers
  for (int rank = 0; rank < size_; ++rank) {
    const auto add = [](std::string& to, const std::string& why) {
      if (!why.empty()) to += c10::str(to.empty() ? "" : "; ", why);
    };
    try {
      add(verdict.error, rank == rank_ ? failure_ : links_.control->recv_message(rank, patience_with_root()));
    } catch (const LinkError& error) {
      if (links_.roll != nullptr) throw;
      verdict.lost = true;
      add(silent,
          c10::str("rank ", rank, ": it sent nothing after the states were merged; it died or hangs (",
                   error.what(), ")"));
    }
  }
  if (!silent.empty()) verdict.error = silent;
  if (links_.roll != nullptr && verdict.error.empty() && !links_.roll->decide("")) {
    throw LinkError("the merge failed for another rank");
  }
  try {
    decided(verdict, patience());
  } catch (const LinkError&) {  // the decision stands
  }
  obey(verdict);
}

void Protocol::put() {
  if (!offer_.present || !offer_.put || (!root() && !options_.everywhere())) return;
  std::vector<Portion> merged;
  const auto add = [&](std::size_t place) {
    Portion portion = std::move(*total_[place]);
    portion.id = modules_[place];
    merged.push_back(std::move(portion));
    total_[place].reset();
  };
  for (const std::size_t place : places_) add(place);
  for (std::size_t place = 0; place < total_.size(); ++place) {
    if (total_[place].has_value()) add(place);
  }
  offer_.put(std::move(merged));
}

}  // namespace torchtap::distributed::detail
