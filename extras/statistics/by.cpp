// Feeds the rows of each key to the reduction of that key.

#include <ATen/Functions.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <optional>
#include <vector>

#include <torchtap/base/error.hpp>
#include <torchtap/base/recording_mode.hpp>
#include <torchtap/core/extend/state_archive.hpp>
#include <torchtap/statistics/by.hpp>
#include <torchtap/statistics/detail/rows_of_keys.hpp>
#include <torchtap/statistics/extend/chosen_rows.hpp>
#include <torchtap/statistics/extend/companions.hpp>

namespace torchtap::reductions {
namespace {

/// The result of a key that did not come.
at::Tensor without_rows(const at::Tensor& like) {
  const bool has_nan = like.is_floating_point() || like.is_complex();
  return at::full_like(like, has_nan ? std::numeric_limits<double>::quiet_NaN() : 0.0);
}

/// Facts of one group stand for all: ranks that saw other keys say the same number of things.
void keep_facts(core::OutputArchive& archive, std::size_t from, std::size_t to) {
  auto* const writer = dynamic_cast<core::extend::StateOutput*>(&archive);
  if (writer == nullptr) return;
  auto& facts = writer->facts;
  const auto begin = facts.begin();
  facts.erase(begin + static_cast<std::ptrdiff_t>(from), begin + static_cast<std::ptrdiff_t>(to));
}

std::size_t number_of_facts(core::OutputArchive& archive) {
  auto* const writer = dynamic_cast<core::extend::StateOutput*>(&archive);
  return writer == nullptr ? 0 : writer->facts.size();
}

/// A sample whose rows have keys. On the CPU they are read where they lie; on a device they are copied once,
/// group after group, so that each group is a part of the copy.
struct GroupedSample {
  GroupedSample(const at::Tensor& sample, const at::Tensor& keys, c10::ArrayRef<std::int64_t> all)
      : rows(all), source(in_order(extend::as_source(sample, keys.dim()), rows)), whole(source) {}
  GroupedSample(const GroupedSample&) = delete;
  GroupedSample& operator=(const GroupedSample&) = delete;

  /// Begins a pass over the rows of a group. It reads `part` and this, which have to outlive it.
  void begin(std::optional<Pass>& pass, at::Tensor& part,
             const statistics::detail::RowsOfKeys::Group& group) const {
    if (source.is_cpu()) {
      pass.emplace(whole, group.rows);
    } else {
      part = source.narrow(0, group.rows.data() - rows.order().data(),
                           static_cast<std::int64_t>(group.rows.size()));
      pass.emplace(part);
    }
  }

  const statistics::detail::RowsOfKeys rows;

 private:
  static at::Tensor in_order(const at::Tensor& source, const statistics::detail::RowsOfKeys& rows) {
    return source.is_cpu() ? source : extend::choose_rows(source, rows.order());
  }

  const at::Tensor source;
  const Pass whole;
};

}  // namespace

By::By(ByOptions options, Any reduction) : options_(std::move(options)), each_(std::move(reduction)) {
  TORCH_CHECK_VALUE(options_.n() >= 0 && options_.most() > 0,
                    "reductions::by: expected a positive number of keys, got ",
                    options_.n() < 0 ? options_.n() : options_.most(), ".");
  TORCH_CHECK_VALUE(options_.n() == 0 || options_.most() == options_.n(), "reductions::by: ", options_.n(),
                    " keys are given, and at most ", options_.most(), " may come; leave one of both out.");
  TORCH_CHECK_VALUE(each_.count() == 0, "reductions::by: expected a reduction without samples, got ",
                    each_.describe(), " with ", each_.count(), "; pass a new one.");
  extend::expect_other_names("reductions::by", options_.name(), each_);
  nested_ = !each_.companions().empty();
}

void By::expect_room(std::int64_t key, std::size_t keys, const char* call) const {
  TORCH_CHECK_VALUE(static_cast<std::int64_t>(keys) <= options_.most(), "reductions::By::", call,
                    ": with key ", key, ", \"", options_.name(), "\" has more than ", options_.most(),
                    " different keys, and each has a state of its own; raise ByOptions(\"", options_.name(),
                    "\").most(…), or name fewer keys.");
}

/// The reduction of a key; null if it did not come yet.
Any* By::find(std::int64_t key) {
  constexpr std::int64_t kSmall = 65536;  // keys: above, a table would be large
  const auto place = static_cast<std::size_t>(key);
  if (place < known_.groups.size() && known_.groups[place] != nullptr) return known_.groups[place];
  const auto found = groups_.find(key);
  if (found == groups_.end()) return nullptr;
  if (key < kSmall) {
    known_.groups.resize(std::max(known_.groups.size(), place + 1), nullptr);
    known_.groups[place] = &found->second;
  }
  return &found->second;
}

/// The keys of a batch.
struct By::Keys {
  at::Tensor tensor;
  c10::ArrayRef<std::int64_t> all;
  std::int64_t largest = -1;  // below 0: there are no groups
  bool one = true;            // all are equal
};

By::Keys By::keys_of(const at::Tensor& sample) const {
  Keys keys;
  keys.tensor =
      extend::on_cpu("By", options_.name(), extend::companion("By", options_.name(), sample), sample);
  TORCH_CHECK_TYPE(c10::isIntegralType(keys.tensor.scalar_type(), /*includeBool=*/true),
                   "reductions::By::update: \"", options_.name(), "\" has dtype ", keys.tensor.scalar_type(),
                   "; keys are whole numbers: convert it with to(torch::kLong).");
  if (keys.tensor.scalar_type() != at::kLong) {
    const base::RecordingMode quiet;
    keys.tensor = keys.tensor.to(at::kLong);
  }
  keys.all = {keys.tensor.data_ptr<std::int64_t>(), static_cast<std::size_t>(keys.tensor.numel())};
  for (const std::int64_t key : keys.all) {
    keys.largest = std::max(keys.largest, key);
    keys.one = keys.one && key == keys.all.front();
  }
  TORCH_CHECK_VALUE(options_.n() == 0 || keys.largest < options_.n(), "reductions::By::update: \"",
                    options_.name(), "\" has the key ", keys.largest, "; expected keys below ", options_.n(),
                    ", or negative ones for rows of no group.");
  return keys;
}

/// The first update that has a key. Throws, and changes nothing, if the keys have the name of a result.
void By::begin(const at::Tensor& sample) {
  By begun = *this;
  begun.take(sample);
  if (!begun.groups_.empty()) {
    const core::Results results = begun.groups_.begin()->second.results();
    for (const char* const more : {"", ".count", ".left_out"}) {
      TORCH_CHECK_VALUE(!results.contains(options_.name() + more), "reductions::By::update: \"",
                        options_.name(), more, "\" is a result of ", each_.describe(),
                        ", too; give the keys another name.");
    }
  }
  *this = std::move(begun);
}

void By::update(const at::Tensor& sample) {
  if (groups_.empty()) return begin(sample);
  take(sample);
}

void By::take(const at::Tensor& sample) {
  const Keys keys = keys_of(sample);
  if (keys.largest < 0) {
    left_out_ += keys.tensor.numel();
  } else if (keys.tensor.dim() == 0) {
    fold_one(keys.largest, sample);
  } else if (keys.one && !nested_) {  // companions would have other rows
    fold_one(keys.largest, extend::as_source(sample, keys.tensor.dim()));
  } else {
    fold_groups(keys, sample);
  }
}

void By::check(const at::Tensor& sample) const {
  if (groups_.empty()) return By(*this).begin(sample);
  const Keys keys = keys_of(sample);
  if (keys.largest < 0) return;
  const base::RecordingMode quiet;
  std::size_t added = 0;
  const auto member_of = [&](std::int64_t key) -> const Any& {
    const auto found = groups_.find(key);
    if (found != groups_.end()) return found->second;
    expect_room(key, groups_.size() + ++added, "update");
    return each_;
  };
  if (keys.tensor.dim() == 0) return member_of(keys.largest).check(sample);
  const GroupedSample grouped(sample, keys.tensor, keys.all);
  for (const auto& group : grouped.rows.groups) {
    const extend::Selection selection(keys.tensor.sizes(), group.rows);
    const Any& member = member_of(group.key);
    at::Tensor part;
    std::optional<Pass> pass;
    grouped.begin(pass, part, group);
    if (const auto* const sharing = extend::sharing(member)) {
      pass->ask(*sharing);
      pass->check(*sharing);
    } else {
      member.check(pass->sample());
    }
  }
}

/// A batch of one key.
void By::fold_one(std::int64_t key, const at::Tensor& sample) {
  if (Any* const known = find(key)) return known->update(sample);
  expect_room(key, groups_.size() + 1, "update");
  Any added = each_.fresh();
  added.update(sample);
  groups_.emplace(key, std::move(added));
}

/// Feeds the rows of each key to its reduction. First come all steps that can throw: members are checked, and
/// members that only an update can check are updated as copies.
void By::fold_groups(const Keys& keys, const at::Tensor& sample) {
  struct Member {
    at::Tensor part;  // the rows, on a device
    std::optional<Pass> pass;
    Any* known = nullptr;           // null if its update is in `updated`
    SharesPass* sharing = nullptr;  // null if it takes the rows as a tensor
    std::optional<Any> updated;

    Member() {}  // NOLINT: a defaulted one would fill all of it with zeros
    void fold() {
      if (sharing == nullptr) return known->update(pass->sample());
      pass->fold_into(*sharing);
    }
  };
  const base::RecordingMode quiet;
  const at::IntArrayRef shape = keys.tensor.sizes();
  const GroupedSample grouped(sample, keys.tensor, keys.all);
  const auto& groups = grouped.rows.groups;
  std::optional<extend::Selection> selection;
  const auto select = [&](const statistics::detail::RowsOfKeys::Group& group) {
    selection.reset();
    if (nested_) selection.emplace(shape, group.rows);
  };
  std::vector<Member> members(groups.size());
  std::size_t added = 0;
  for (std::size_t i = 0; i < members.size(); ++i) {
    const auto& group = groups[i];
    Member& member = members[i];
    select(group);
    grouped.begin(member.pass, member.part, group);
    member.known = find(group.key);
    const bool is_new = member.known == nullptr;
    if (is_new) {
      expect_room(group.key, groups_.size() + ++added, "update");
      member.updated = each_.fresh();
    }
    member.sharing = extend::sharing(is_new ? *member.updated : *member.known);
    if (member.sharing != nullptr) {
      member.pass->ask(*member.sharing);
      if (!is_new) member.pass->check(*member.sharing);
    } else if (!is_new && !core::Access::sink(*member.known).check(member.pass->sample())) {
      member.updated = *member.known;
    }
    if (!member.updated) continue;
    member.known = &*member.updated;
    member.fold();
    member.known = nullptr;
  }
  for (std::size_t i = 0; i < members.size(); ++i) {
    if (members[i].known != nullptr) {
      select(groups[i]);
      members[i].fold();
    } else {
      groups_.insert_or_assign(groups[i].key, std::move(*members[i].updated));
    }
  }
  left_out_ += grouped.rows.negative;
}

void By::merge(const By& other) {
  TORCH_CHECK_VALUE(describe() == other.describe(), "reductions::By::merge: cannot merge ", other.describe(),
                    " into ", describe(), "; both must be configured alike.");
  auto merged = groups_;
  for (const auto& [key, theirs] : other.groups_) {
    const auto [mine, is_new] = merged.emplace(key, theirs);
    if (!is_new) mine->second.merge(theirs);
  }
  if (!merged.empty()) expect_room(merged.rbegin()->first, merged.size(), "merge");
  groups_ = std::move(merged);
  known_ = {};
  left_out_ += other.left_out_;
}

std::int64_t By::count() const {
  return std::accumulate(groups_.begin(), groups_.end(), std::int64_t{0},
                         [](std::int64_t sum, const auto& group) { return sum + group.second.count(); });
}

std::vector<std::int64_t> By::keys() const {
  std::vector<std::int64_t> all;
  for (const auto& group : groups_) all.push_back(group.first);
  return all;
}

const Any& By::at(std::int64_t key) const& {
  const auto found = groups_.find(key);
  TORCH_CHECK_INDEX(found != groups_.end(), "reductions::By::at: no row of \"", options_.name(),
                    "\" had the key ", key, "; keys() lists those that came.");
  return found->second;
}

core::Results By::results() const {
  core::Results all;
  if (groups_.empty() && left_out_ == 0) return all;
  std::vector<std::int64_t> keys = this->keys();
  if (options_.n() != 0) {
    keys.resize(static_cast<std::size_t>(options_.n()));
    std::iota(keys.begin(), keys.end(), 0);
  }
  std::vector<std::int64_t> counts;
  std::vector<core::Results> parts;
  core::Results forms;  // one tensor of each name
  for (const std::int64_t key : keys) {
    const auto found = groups_.find(key);
    counts.push_back(found == groups_.end() ? 0 : found->second.count());
    parts.push_back(found == groups_.end() ? core::Results() : found->second.results());
    for (const auto& [name, tensor] : parts.back()) forms.set(name, tensor);
  }
  all.set(options_.name(), at::tensor(keys, at::kLong));
  all.set(options_.name() + ".count", at::tensor(counts, at::kLong));
  all.set(options_.name() + ".left_out", at::scalar_tensor(left_out_, at::kLong));
  for (const auto& [name, form] : forms) {
    std::vector<at::Tensor> each;
    bool alike = true;
    for (const auto& part : parts) {
      each.push_back(part.contains(name) ? part.at(name).to(form.device()) : without_rows(form));
      alike = alike && each.back().sizes() == form.sizes();
    }
    if (alike) all.set(name, at::stack(each));
    for (std::size_t i = 0; i < each.size() && !alike; ++i) {
      if (parts[i].contains(name)) all.set(name + "." + std::to_string(keys[i]), each[i]);
    }
  }
  return all;
}

std::string By::describe() const {
  const std::string n = options_.n() == 0 ? "" : std::to_string(options_.n()) + ", ";
  return "By(" + options_.name() + ", " + n + each_.describe() + ")";
}

std::vector<std::string> By::companions() const {
  auto names = each_.companions();
  names.insert(names.begin(), options_.name());
  return names;
}

std::string By::recipe() const {
  return extend::recipe_of("By", core::Access::recipe(each_));
}

void By::save(core::OutputArchive& archive) const {
  core::state_version(archive, "By", 1);
  ByOptions options = options_;
  archive(options, left_out_);
  const std::size_t before = number_of_facts(archive);
  each_.save(archive);
  std::size_t kept = number_of_facts(archive);
  archive(static_cast<std::uint64_t>(groups_.size()));
  for (const auto& [key, group] : groups_) {
    archive(key);
    group.save(archive);
    if (key == groups_.begin()->first) {
      keep_facts(archive, before, kept);  // it knows the shape, too
    } else {
      keep_facts(archive, kept, number_of_facts(archive));
    }
    kept = std::min(kept, number_of_facts(archive));
  }
}

void By::load(core::InputArchive& archive) {
  core::state_version(archive, "By", 1);
  ByOptions options = options_;
  std::int64_t left_out = 0;
  archive(options, left_out);
  Any each = each_;
  each.load(archive);
  By loaded(std::move(options), std::move(each));
  loaded.left_out_ = left_out;
  std::uint64_t size = 0;
  archive(size);
  for (std::uint64_t i = 0; i < size; ++i) {
    std::int64_t key = 0;
    archive(key);
    const bool ascends = loaded.groups_.empty() ? key >= 0 : key > loaded.groups_.rbegin()->first;
    TORCH_CHECK_VALUE(ascends && (loaded.options_.n() == 0 || key < loaded.options_.n()), "restore: key ",
                      key, " of ", loaded.describe(), " is not where it may be; the archive is damaged.");
    loaded.expect_room(key, loaded.groups_.size() + 1, "load");
    Any group = loaded.each_.fresh();
    group.load(archive);
    loaded.groups_.emplace(key, std::move(group));
  }
  TORCH_CHECK_VALUE(left_out >= 0, "restore: the archive claims that ", left_out,
                    " rows were left out; it is damaged.");
  *this = std::move(loaded);
}

}  // namespace torchtap::reductions
