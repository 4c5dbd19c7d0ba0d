// Merges recordings entry by entry, in rounds if there are many.
#include <unistd.h>

#include <algorithm>
#include <utility>

#include <torchtap/base/error.hpp>
#include <torchtap/base/staging.hpp>
#include <torchtap/core/sink.hpp>
#include <torchtap/storage/detail/joined.hpp>
#include <torchtap/storage/detail/recording_files.hpp>
#include <torchtap/storage/detail/save_entries.hpp>
#include <torchtap/storage/merge.hpp>

namespace torchtap::storage {
namespace {

using detail::JoinedEntry;

/// Whether the value is a dict by slot, as `RecorderOptions::all_tensors` makes it.
bool by_slots(const RecordedEntry& entry) {
  return !entry.keys().empty() && entry.keys().front() == "0";
}

void append(core::Value::List& list, const core::Value& value) {
  list.insert(list.end(), value.list().begin(), value.list().end());
}

/// Kept samples, one list after the other; by slot if there are several.
core::Value appended(const std::vector<RecordedEntry>& parts) {
  core::Value::List list;
  std::vector<std::pair<std::string, core::Value::List>> slots;
  for (const auto& part : parts) {
    const core::Value value = part.value();
    if (value.is_list()) {
      append(list, value);
      continue;
    }
    for (std::size_t i = 0; i < value.dict().size(); ++i) {
      const auto& [key, samples] = value.dict()[i];
      if (i == slots.size()) slots.emplace_back(key, core::Value::List());
      append(slots[i].second, samples);
    }
  }
  if (slots.empty()) return list;
  core::Value::Dict dict;
  for (auto& [key, samples] : slots) dict.emplace_back(key, std::move(samples));
  return dict;
}

/// Merges the reductions of all parts by their states.
void reduce(const std::vector<RecordedEntry>& parts, const Restore& restore, Entry& merged) {
  std::vector<std::unique_ptr<core::Sink>> slots;
  for (const auto& part : parts) {
    const auto states = part.state();
    TORCH_CHECK_VALUE(
        !states.empty(), "merge: \"", part.file(), "\" holds results of ", part.reduction(),
        " without a saved state, so they cannot be merged. Callables, map and types without a recipe "
        "save no state.");
    for (std::size_t i = 0; i < states.size(); ++i) {
      auto sink = restore(states[i]);
      if (i == slots.size()) {
        slots.push_back(std::move(sink));
      } else {
        slots[i]->merge(*sink);
      }
    }
  }
  core::Value::Dict values;
  for (std::size_t i = 0; i < slots.size(); ++i) {
    values.emplace_back(std::to_string(i), core::to_value(slots[i]->results()));
    auto state = core::save(*slots[i]);
    TORCH_CHECK_VALUE(state.has_value(), "merge: the restored ", slots[i]->describe(),
                      " has no recipe, so its state cannot be saved again.");
    merged.state.push_back(std::move(*state));
  }
  merged.value = by_slots(parts.front()) ? core::Value(std::move(values)) : values.front().second;
}

void write_merged(const JoinedEntry& joined, const Restore& restore, detail::EntryWriter& writer) {
  std::vector<RecordedEntry> parts;  // the entries with samples
  Entry merged;
  for (const auto& entry : joined.parts) {
    merged.samples += entry.samples();
    if (entry.samples() != 0) parts.push_back(entry);
  }
  static_cast<EntryId&>(merged) = joined.parts.front().id();
  merged.reduction = joined.parts.front().reduction();
  merged.not_recorded = joined.not_recorded();
  merged.note = joined.note();
  try {
    const bool spooled = std::any_of(joined.parts.begin(), joined.parts.end(),
                                     [](const auto& entry) { return !entry.shards().empty(); });
    if (spooled) return writer.write(detail::with_all_shards(joined));
    if (parts.size() == 1) {
      merged.value = parts.front().value();
      merged.state = parts.front().state();
    } else if (!parts.empty() && merged.reduction.empty()) {
      merged.value = appended(parts);
    } else if (!parts.empty()) {
      reduce(parts, restore, merged);
    }
    writer.write(merged);
  } catch (c10::Error& error) {
    error.add_context("while merging " + detail::named(joined.parts.front()));
    throw;
  }
}

/// Merges parts that are few enough to be open at the same time.
void merge_at_once(const std::vector<std::string>& parts, const std::string& directory,
                   const Restore& restore, const MergeOptions& options, std::size_t rounds) {
  const auto joined = detail::joined_by_module(parts, options.all_modules());
  detail::save_entries(
      directory, joined.size(),
      [&](std::size_t i, detail::EntryWriter& writer) {
        if (options.on_entry()) options.on_entry()(joined.size() * rounds);
        write_merged(joined[i], restore, writer);
      },
      options.save());
}

/// A recording of the first rounds, gone with this object.
class Intermediate {
 public:
  Intermediate() = default;
  explicit Intermediate(std::string path) : path_(std::move(path)) {}
  Intermediate(Intermediate&& other) noexcept : path_(std::exchange(other.path_, {})) {}
  Intermediate& operator=(Intermediate&& other) noexcept {
    std::swap(path_, other.path_);
    return *this;
  }
  ~Intermediate() {
    if (!path_.empty()) base::remove_folder(path_, detail::is_recording_file);
  }
  const std::string& path() const noexcept { return path_; }

 private:
  std::string path_;
};

}  // namespace

void merge(const std::vector<std::string>& parts, const std::string& directory, const Restore& restore,
           const MergeOptions& options) {
  TORCH_CHECK_VALUE(!parts.empty(), "merge: no recordings were given, so there is nothing to merge.");
  TORCH_CHECK_VALUE(restore != nullptr,
                    "merge: the function that restores reductions is empty; pass reductions::restore.");
  TORCH_CHECK_VALUE(options.at_once() >= 2, "merge: at_once is ", options.at_once(),
                    "; at least 2 parts have to be open at a time.");
  const auto most = static_cast<std::size_t>(options.at_once());
  if (parts.size() <= most) return merge_at_once(parts, directory, restore, options, 1);
  // The last round saves to `directory`, so an error in it leaves that as it is.
  const base::Target target = base::resolve("merge", directory, options.save().mkdir());
  const std::size_t rounds = (parts.size() - 2) / (most - 1) + 1;
  MergeOptions between = options;
  between.save(SaveOptions().mkdir(true).overwrite(true).sync(false));
  try {
    Intermediate so_far;
    std::size_t next = 0;
    for (std::size_t round = 1; round <= rounds; ++round) {
      std::vector<std::string> now;
      if (round > 1) now.push_back(so_far.path());
      while (now.size() < most && next < parts.size()) now.push_back(parts[next++]);
      if (round == rounds) return merge_at_once(now, directory, restore, options, rounds);
      Intermediate merged(c10::str(target.temporary_prefix(), "merge-", ::getpid(), "-", round));
      merge_at_once(now, merged.path(), restore, between, rounds);
      so_far = std::move(merged);
    }
  } catch (...) {
    target.undo();
    throw;
  }
}

}  // namespace torchtap::storage
