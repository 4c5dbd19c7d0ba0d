// The steps of a merge in which ranks agree, hand round and commit.
#include <algorithm>
#include <map>
#include <sstream>
#include <utility>

#include <torchtap/core/detail/error.hpp>
#include <torchtap/distributed/detail/protocol.hpp>
#include <torchtap/version.hpp>

namespace torchtap::distributed::detail {
namespace {

constexpr const char* kUnchanged = "Nothing was changed on any rank.";

std::string listed(const std::vector<int>& ranks) {
  std::ostringstream text;
  text << (ranks.size() == 1 ? "rank " : "ranks ");
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if (i != 0) text << (i + 1 == ranks.size() ? " and " : ", ");
    text << ranks[i];
  }
  return text.str();
}

std::string encoded(const std::vector<bool>& present, const std::vector<storage::EntryId>& modules) {
  std::ostringstream stream;
  {
    core::OutputArchive archive(stream);
    archive(present, static_cast<std::uint64_t>(modules.size()));
    for (const auto& id : modules) archive(id.path, id.aliases, id.type, id.kind);
  }
  return stream.str();
}

void decode(const std::string& text, std::vector<bool>& present, std::vector<storage::EntryId>& modules) {
  std::istringstream stream(text);
  core::InputArchive archive(stream);
  std::uint64_t count = 0;
  archive(present, count);
  for (std::uint64_t i = 0; i < count; ++i) {
    storage::EntryId id;
    archive(id.path, id.aliases, id.type, id.kind);
    modules.push_back(std::move(id));
  }
}

/// Numbers of eight bytes in little endian, which other languages read easily.
std::string encoded(const std::vector<std::int64_t>& numbers) {
  std::string text;
  for (const std::int64_t number : numbers) {
    for (int i = 0; i < 8; ++i)
      text += static_cast<char>((static_cast<std::uint64_t>(number) >> (8 * i)) & 0xFF);
  }
  return text;
}

std::vector<std::int64_t> decoded_numbers(const std::string& text) {
  std::vector<std::int64_t> numbers;
  for (std::size_t at = 0; at + 8 <= text.size(); at += 8) {
    std::uint64_t number = 0;
    for (std::size_t i = 8; i > 0; --i) number = (number << 8) | static_cast<unsigned char>(text[at + i - 1]);
    numbers.push_back(static_cast<std::int64_t>(number));
  }
  return numbers;
}

}  // namespace

std::string text_of(const std::exception& error) {
  const auto* const ours = dynamic_cast<const c10::Error*>(&error);
  return ours != nullptr ? ours->what_without_backtrace() : error.what();
}

Protocol::Protocol(const Group& group, const Options& options, Offer offer)
    : options_(options), offer_(std::move(offer)), rank_(group.rank()), size_(group.size()) {
  TORCH_CHECK_VALUE(options.root() >= 0 && options.root() < size_, "merge_ranks: the root is rank ",
                    options.root(), ", and the group has the ranks 0 to ", size_ - 1, ".");
  TORCH_CHECK_VALUE(options.timeout().count() > 0, "merge_ranks: the timeout is ", options.timeout().count(),
                    " ms; give a positive one.");
  TORCH_CHECK_VALUE(options.samples() >= 0, "merge_ranks: the option samples is ", options.samples(),
                    "; give the number of bytes that ranks may hand round.");
  try {
    links_ = group.links()->open();
  } catch (const LinkError& error) {
    TORCH_CHECK(false, "merge_ranks: rank ", rank_, ": ", without_stop(error.what()), ". ", kUnchanged);
  }
}

void Protocol::run() {
  pack();
  try {
    if (!agree()) return;
    fold();
    hand_round();
    commit();
  } catch (const LinkError& error) {
    lost(error.what());
  }
  put();
}

Patience Protocol::patience_with_root() const {
  return {options_.timeout() + options_.timeout() / 10 + Milliseconds(500), 1};
}

/// What cannot be packed is told to the other ranks.
void Protocol::pack() {
  if (!offer_.refusal.empty()) return;
  try {
    for (const Portion& portion : offer_.portions) own_.push_back(packed(portion));
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
    header.modules.push_back({offer_.portions[i].id, header.reduction, own_[i].bytes(), own_[i].facts});
  }
  return header;
}

/// False if no rank has anything.
bool Protocol::agree() {
  if (links_.roll != nullptr) links_.roll->arrive();
  Verdict verdict;
  if (root()) {
    const std::vector<Header> headers = gather(header());
    verdict.error = why_not(headers, rank_);
    for (const Header& one : headers) present_.push_back(one.present);
    modules_ = united(headers);
    verdict.more = encoded(present_, modules_);
    obey(decided(std::move(verdict), patience()));
  } else {
    links_.control->send_message(header().encoded(), options_.root(), patience_with_root().timeout);
    verdict = decided({}, patience_with_root());
    obey(verdict);
    decode(verdict.more, present_, modules_);
  }
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

/// On the root: what each rank says of itself.
std::vector<Header> Protocol::gather(Header mine) {
  std::vector<Header> headers(static_cast<std::size_t>(size_));
  headers[static_cast<std::size_t>(rank_)] = std::move(mine);
  const auto end = Clock::now() + options_.timeout();
  std::vector<int> missing;
  std::string why;
  for (int rank = 0; rank < size_; ++rank) {
    if (rank == rank_) continue;
    const auto left = std::chrono::duration_cast<Milliseconds>(end - Clock::now());
    try {
      headers[static_cast<std::size_t>(rank)] =
          Header::decoded(links_.control->recv_message(rank, {std::max(left, Milliseconds(1))}));
    } catch (const LinkError& error) {
      missing.push_back(rank);
      if (links_.roll != nullptr) continue;
      why = c10::str(" (", error.what(), ")");
      break;  // a group that timed out is of no more use
    }
  }
  if (missing.empty()) return headers;
  Verdict verdict;
  verdict.lost = true;
  verdict.error =
      c10::str(listed(missing), " did not come within ", options_.timeout().count(), " ms, or died", why);
  obey(decided(std::move(verdict), patience()));
  return headers;
}

/// Gives all ranks the verdict of the root.
Verdict Protocol::decided(Verdict mine, const Patience& patience) {
  std::string text = root() ? mine.encoded() : std::string();
  links_.control->broadcast_message(text, options_.root(), patience);
  return root() ? std::move(mine) : Verdict::decoded(text);
}

void Protocol::obey(const Verdict& verdict) const {
  if (verdict.error.empty()) return;
  TORCH_CHECK(!verdict.lost, "merge_ranks: ", without_stop(verdict.error), ". ", kUnchanged);
  TORCH_CHECK_VALUE(false, "merge_ranks: ", without_stop(verdict.error), ". ", kUnchanged);
}

/// Throws the error of a rank that heard nothing more, and tells other ranks where a store makes that
/// possible.
void Protocol::lost(const std::string& what) {
  std::string why = what;
  if (links_.roll != nullptr) {
    std::vector<int> missing;
    try {
      missing = links_.roll->missing();
    } catch (const LinkError&) {  // of which `what` tells
    }
    links_.roll->blame(missing.empty() ? c10::str("rank ", rank_, " reports: ", what)
                                       : c10::str(listed(missing), " did not come within ",
                                                  options_.timeout().count(), " ms, or died"));
    const std::string blamed = links_.roll->blamed();
    if (!blamed.empty()) why = blamed;
  } else if (!root()) {
    why = c10::str("the root, rank ", options_.root(), ", did not answer within ", options_.timeout().count(),
                   " ms, or died (", what, "); if it lives, its error names the rank that failed");
  }
  if (root()) {  // the others wait for a verdict, or will
    Verdict verdict;
    verdict.lost = true;
    verdict.error = why;
    try {
      decided(std::move(verdict), patience());
    } catch (const LinkError&) {
    }
  }
  TORCH_CHECK(false, "merge_ranks: ", without_stop(why), ". ", kUnchanged);
}

void Protocol::hand_round() {
  Verdict verdict;
  std::vector<Parcel> parcels;
  std::string text;
  if (root()) {
    verdict.error = failure_;
    if (failure_.empty() && options_.everywhere()) {
      try {
        parcels = packed_total();
        text = detail::encoded(parcels);
        verdict.more = encoded(sizes_of(text, parcels));
      } catch (const std::exception& error) {
        verdict.error = c10::str("rank ", rank_, ": ", text_of(error));
      }
    }
  }
  // The root may have heard of every rank before it answers.
  verdict = decided(std::move(verdict), {patience_with_root().timeout, size_ + 2});
  obey(verdict);
  if (!options_.everywhere()) return;
  if (!root()) return receive_result(verdict);
  if (size_ > 1) hand_out(*links_.data, std::move(text), parcels, options_.timeout());
  // The root goes on from the same bytes as all others do.
  try {
    for (Parcel& parcel : parcels) {
      const auto place = static_cast<std::size_t>(parcel.place);
      total_[place] = unpacked(std::move(parcel), offer_.blank.get());
    }
  } catch (const std::exception& error) {
    failure_ = text_of(error);
  }
}

void Protocol::receive_result(const Verdict& verdict) {
  const std::vector<std::int64_t> sizes = decoded_numbers(verdict.more);
  if (!offer_.present) return pass_by(*links_.data, options_.root(), sizes, options_.timeout());
  std::vector<Parcel> parcels = take_in(*links_.data, options_.root(), sizes, options_.timeout());
  try {
    for (Parcel& parcel : parcels) {
      TORCH_CHECK_VALUE(parcel.place >= 0 && static_cast<std::size_t>(parcel.place) < total_.size(),
                        "the result names a module that no rank has; its bytes were damaged on the way.");
      const auto place = static_cast<std::size_t>(parcel.place);
      total_[place] = unpacked(std::move(parcel), offer_.blank.get());
    }
  } catch (const std::exception& error) {
    failure_ = text_of(error);
  }
}

void Protocol::commit() {
  const bool puts = offer_.present && (root() || options_.everywhere());
  if (failure_.empty() && puts && offer_.ready) failure_ = offer_.ready();
  if (!root()) {
    links_.control->send_message(failure_, options_.root(), patience_with_root().timeout);
    return obey(decided({}, patience_with_root()));
  }
  Verdict verdict;
  for (int rank = 0; rank < size_; ++rank) {
    std::string why = failure_;
    if (rank != rank_) {
      try {
        why = links_.control->recv_message(rank, patience_with_root());
      } catch (const LinkError& error) {
        verdict.lost = true;
        why = c10::str("nothing was heard of it after the states were merged; it died or hangs (",
                       error.what(), ")");
      }
    }
    if (!why.empty()) verdict.error += c10::str(verdict.error.empty() ? "" : "; ", "rank ", rank, ": ", why);
  }
  obey(decided(std::move(verdict), patience()));
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
