// Folds each sample into all members of a series or into none, and merges and saves the series.

#include <algorithm>
#include <utility>

#include <torchtap/base/error.hpp>
#include <torchtap/reductions/any_series.hpp>
#include <torchtap/reductions/detail/ledger.hpp>
#include <torchtap/reductions/detail/nested.hpp>
#include <torchtap/reductions/detail/sharing.hpp>

namespace torchtap::reductions {
namespace {

using detail::sharing;

/// A type without a description of its own by its name alone.
std::string described(const Any& member) {
  const std::string text = member.describe();
  return text.find("::") == std::string::npos ? text : detail::short_name(text);
}

std::string joined(const std::vector<std::string>& parts) {
  std::string text;
  for (const auto& part : parts) text += (text.empty() ? "" : ", ") + part;
  return text;
}

}  // namespace

AnySeries::AnySeries(std::vector<Any> members) : members_(std::move(members)) {
  TORCH_CHECK_VALUE(!members_.empty(), "reductions::AnySeries: expected at least one reduction, got none.");
}

const Any& AnySeries::at(std::size_t index) const& {
  TORCH_CHECK_INDEX(index < members_.size(), "reductions::AnySeries::at: expected an index below ",
                    members_.size(), ", got ", index, ".");
  return members_[index];
}

void AnySeries::update(const at::Tensor& sample) {
  Pass pass(sample);
  ask(pass);
  fold(pass);
}

void AnySeries::check(const at::Tensor& sample) const {
  Pass pass(sample);
  ask(pass);
  check_sample(pass);
}

bool AnySeries::ask_ledger(detail::Ledger& ledger) const {
  ledger.share();
  return std::all_of(members_.begin(), members_.end(), [&](const Any& member) {
    const auto* const one = sharing(member);
    return one != nullptr && one->ask_ledger(ledger);
  });
}

void AnySeries::fold_ledger(const detail::Ledger& ledger) {
  for (Any& member : members_) sharing(member)->fold_ledger(ledger);
}

void AnySeries::ask(Pass& pass) const {
  for (const Any& member : members_) {
    if (const auto* const one = sharing(member)) pass.ask(*one);
  }
}

void AnySeries::check_sample(const Pass& pass) const {
  for (const Any& member : members_) {
    if (const auto* const one = sharing(member)) {
      pass.check(*one);
    } else {
      member.check(pass.sample());
    }
  }
}

/// First does everything that can throw: members are checked; members that only an update can check are
/// updated as copies, except the last, which does not change if it throws.
void AnySeries::fold(const Pass& pass) {
  std::vector<Any*> unknown, known;
  for (Any& member : members_) {
    if (const auto* const one = sharing(member)) {
      if (members_.size() > 1) pass.check(*one);
    } else {
      (core::Access::sink(member).check(pass.sample()) ? known : unknown).push_back(&member);
    }
  }
  std::vector<Any> updated;
  for (std::size_t i = 0; i + 1 < unknown.size(); ++i) {
    updated.push_back(*unknown[i]);
    updated.back().update(pass.sample());
  }
  if (!unknown.empty()) unknown.back()->update(pass.sample());
  for (std::size_t i = 0; i < updated.size(); ++i) *unknown[i] = std::move(updated[i]);
  for (Any* const member : known) member->update(pass.sample());
  for (Any& member : members_) {
    if (auto* const one = sharing(member)) pass.fold_into(*one);
  }
}

void AnySeries::merge(const AnySeries& other) {
  TORCH_CHECK_VALUE(members_.size() == other.members_.size(), "merge: cannot merge ", other.describe(),
                    " into ", describe(), "; both must be the same reduction.");
  std::vector<Any> merged = members_;
  for (std::size_t i = 0; i < merged.size(); ++i) merged[i].merge(other.members_[i]);
  members_ = std::move(merged);
}

core::Results AnySeries::results() const {
  core::Results all;
  const auto names = this->names();
  for (std::size_t i = 0; i < members_.size(); ++i) {
    const core::Results part = members_[i].results();
    for (const auto& [name, tensor] : part) all.set(names[i] + "." + name, tensor);
  }
  return all;
}

std::vector<std::string> AnySeries::names() const {
  std::vector<std::string> plain, result;
  for (const Any& member : members_) {
    plain.push_back(detail::snake_case(described(member)));
    const auto same = std::count(plain.begin(), plain.end(), plain.back());
    result.push_back(same == 1 ? plain.back() : plain.back() + "_" + std::to_string(same));
  }
  return result;
}

std::string AnySeries::describe() const {
  std::vector<std::string> parts;
  for (const Any& member : members_) parts.push_back(described(member));
  return "Series(" + joined(parts) + ")";
}

std::string AnySeries::recipe() const {
  std::vector<std::string> parts;
  for (const Any& member : members_) {
    parts.push_back(core::Access::recipe(member));
    if (parts.back().empty()) return "";
  }
  return detail::recipe_of("Series", joined(parts));
}

bool AnySeries::commutative() const {
  return std::all_of(members_.begin(), members_.end(),
                     [](const Any& member) { return member.commutative(); });
}

std::vector<std::string> AnySeries::companions() const {
  std::vector<std::string> all;
  for (const Any& member : members_) {
    for (auto& name : member.companions()) all.push_back(std::move(name));
  }
  return all;
}

AnySeries AnySeries::fresh() const {
  std::vector<Any> members;
  for (const Any& member : members_) members.push_back(member.fresh());
  return AnySeries(std::move(members));
}

void AnySeries::save(core::OutputArchive& archive) const {
  core::state_version(archive, "Series", 1);
  for (const Any& member : members_) member.save(archive);
}

void AnySeries::load(core::InputArchive& archive) {
  std::vector<Any> loaded = members_;
  core::state_version(archive, "Series", 1);
  for (Any& member : loaded) member.load(archive);
  members_ = std::move(loaded);
}

}  // namespace torchtap::reductions
