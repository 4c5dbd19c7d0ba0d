// Finds the complete samples of a recording that was cut off.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <unordered_set>
#include <utility>
#include <vector>

#include <torchtap/base/error.hpp>
#include <torchtap/storage/detail/contents.hpp>
#include <torchtap/storage/detail/format.hpp>
#include <torchtap/storage/detail/manifest_check.hpp>
#include <torchtap/storage/detail/pt.hpp>
#include <torchtap/storage/detail/recording_files.hpp>
#include <torchtap/storage/detail/recoverer.hpp>
#include <torchtap/storage/detail/shard.hpp>
#include <torchtap/storage/dtype.hpp>

namespace torchtap::storage::detail {
namespace {

constexpr const char* kCall = "recover";
constexpr const char* kRowsFormat = "rows 1";

class Recoverer {
 public:
  Recoverer(std::string path, int directory, const RecoverOptions& options)
      : path_(std::move(path)), directory_(directory), options_(options) {}

  Recovery run() {
    contents_ = read_contents(kCall, path_, directory_, /*lenient=*/true);
    result_.finished = contents_.has_manifest && !contents_.has_journal && contents_.damage.empty();
    result_.missing = contents_.damage;
    pair_rows();
    for (std::size_t i = 0; i < contents_.entries.size(); ++i) {
      check(contents_.entries[i], contents_.described[i]);
    }
    if (contents_.has_journal) adopt_orphans();
    put_aside();  // last, because a file of a newer format throws and must change nothing
    if (contents_.has_journal) adopt_parts();
    put_aside();
    for (auto& entry : contents_.entries) sort(entry);
    if (options_.repair() && contents_.has_journal) {
      for (const auto& [calls, rows] : rows_of_) agree(calls, rows);
    }
    for (const auto& entry : contents_.entries) {
      for (const auto& shard : entry.shards) {
        ++result_.shards;
        result_.bytes += shard.bytes;
      }
      if (is_beside(entry.kind)) continue;
      result_.samples += entry.samples();
      ++result_.entries;
    }
    if (options_.repair() && contents_.has_journal) {
      const std::string text = manifest_of(contents_.created, contents_.entries);
      write_manifest(kCall, path_, directory_, text, /*sync=*/true);
    }
    return result_;
  }

 private:
  std::string named(std::size_t index) const {
    return c10::str("entry ", index, " (\"", contents_.entries[index].path, "\")");
  }

  void put_aside() {
    for (const auto& file : lost_) {
      if (!options_.repair() || !contents_.has_journal) break;
      ::renameat(directory_, file.c_str(), directory_, (file.substr(0, file.rfind('.')) + ".lost").c_str());
    }
    lost_.clear();
  }

  base::InputFile open(const std::string& name) const {
    return base::InputFile::open_at(kCall, directory_, name, path_ + "/" + name);
  }

  /// Describes the file of a shard; nothing, with the reason in `why`, if it is damaged.
  std::optional<ShardInfo> read(const std::string& name, std::int64_t slot, std::string& why) const {
    try {
      const base::InputFile file = open(name);
      ShardInfo found = describe_shard(file, read_value(file));
      found.file = name;
      found.slot = slot;
      found.bytes = static_cast<std::int64_t>(file.size());
      return found;
    } catch (const NewerFormat&) {
      throw;  // it may be whole
    } catch (const c10::Error& error) {
      why = error.what_without_backtrace();
      return std::nullopt;
    }
  }

  /// The error in the file of an entry that was not spooled; "" if there is none.
  std::string wrong_file(const Description& said) const {
    try {
      const base::InputFile file = open(said.file);
      check_value(file, said, read_value(file));
      read_state(file);
    } catch (const NewerFormat&) {
      throw;
    } catch (const c10::Error& error) {
      return error.what_without_backtrace();
    }
    return "";
  }

  /// The error in a file that the manifest or journal lists; "" if there is none. Replaces the description of
  /// its samples by the file's own.
  std::string wrong(ShardInfo& shard, const Description* whole) const {
    struct stat status {};
    if (::fstatat(directory_, shard.file.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0)
      return "the file is gone";
    if (!S_ISREG(status.st_mode) || status.st_size != static_cast<::off_t>(shard.bytes)) {
      return c10::str("it has ", status.st_size, " bytes, not ", shard.bytes);
    }
    if (!options_.verify()) return "";
    if (whole != nullptr && (whole->holds != "list" || !whole->reduction.empty())) return wrong_file(*whole);
    std::string why;
    auto found = read(shard.file, shard.slot, why);
    if (!found.has_value()) return why;
    if (found->samples != shard.samples) return c10::str("it holds ", found->samples, " samples");
    shard = std::move(*found);
    return "";
  }

  /// Keeps the shards of an entry that match the manifest or journal.
  void check(SpooledEntry& entry, const Description& said) {
    std::vector<ShardInfo> whole;
    for (auto& shard : entry.shards) {
      claimed_.insert(shard.file);
      if (behind_lost(entry, shard.file)) {
        lost_.push_back(shard.file);
        continue;
      }
      const std::string why = wrong(shard, said.file == shard.file ? &said : nullptr);
      if (why.empty()) {
        whole.push_back(std::move(shard));
        continue;
      }
      result_.missing.push_back(c10::str(shard.file, " with ", shard.samples, " samples of \"", entry.path,
                                         "\" is damaged: ", why));
      lost_.push_back(shard.file);
      last_.try_emplace(&entry, parse_shard_name(shard.file).value_or(ShardName{0, std::nullopt, -1}).number);
    }
    entry.shards = std::move(whole);
  }

  /// Whether a shard comes behind a lost one of rows, or of their calls: these have to match from the first
  /// one on.
  bool behind_lost(const SpooledEntry& entry, const std::string& file) {
    const auto last = last_.find(&entry);
    const auto place = parse_shard_name(file);
    if (dump_.count(&entry) == 0 || last == last_.end() || !place || place->number <= last->second)
      return false;
    result_.missing.push_back(c10::str(file, " of \"", entry.path,
                                       "\" is left out: rows before it are lost, so nothing says which "
                                       "calls its rows are of"));
    return true;
  }

  /// Finds the entries of rows and those of their calls.
  void pair_rows() {
    auto& entries = contents_.entries;
    for (std::size_t calls = 0; calls < entries.size(); ++calls) {
      const std::string& kind = entries[calls].kind;
      if (!is_calls(kind) || entries[calls].type != kRowsFormat) continue;
      for (std::size_t rows = 0; rows < entries.size(); ++rows) {
        if (entries[rows].path != entries[calls].path || entries[rows].kind + ".calls" != kind) continue;
        rows_of_.emplace(calls, rows);
        dump_.insert({&entries[calls], &entries[rows]});
      }
    }
  }

  /// Has an entry of calls have as many rows as the entry of these, by a further line
  /// (extras/rows/FORMAT.md).
  void agree(std::size_t calls, std::size_t rows) {
    SpooledEntry& entry = contents_.entries[calls];
    std::int64_t more = contents_.entries[rows].samples();
    for (const auto& shard : entry.shards) {
      for (const at::Tensor& line : read_value(open(shard.file)).tensors())
        more -= (line.dim() == 2 ? line.select(1, 4).sum() : line[4]).item<std::int64_t>();
    }
    if (more == 0) return;
    result_.missing.push_back(more > 0 ? c10::str(named(rows), ": ", more, " rows are of calls that are lost")
                                       : c10::str(named(rows), ": the last ", -more, " rows are lost"));
    ShardName name{static_cast<std::int64_t>(calls), std::nullopt, 0};
    for (const auto& file : base::names_in(kCall, path_)) {
      const auto place = parse_shard_name(file.substr(0, file.rfind('.')) + ".pt");
      if (place && place->entry == name.entry) name.number = std::max(name.number, place->number + 1);
    }
    Shard shard(folder(), name.stem(), -1);
    const std::array<std::int64_t, 5> line{0, 0, -1, 0, more};
    shard.write(c10::ScalarType::Long, line.data(), sizeof line);
    shard.commit({Run{true, c10::ScalarType::Long, {5}, 1}});
    shard.complete();
    shard.sync();
    shard.place();
    entry.shards.push_back(shard.info());
  }

  std::shared_ptr<const ShardFolder> folder() const {
    auto folder = std::make_shared<ShardFolder>();
    folder->call = kCall;
    folder->path = path_;
    folder->fd = base::Descriptor(::fcntl(directory_, F_DUPFD_CLOEXEC, 0));
    return folder;
  }

  bool known(std::int64_t entry) const {
    return entry >= 0 && entry < static_cast<std::int64_t>(contents_.entries.size()) &&
           !contents_.entries[static_cast<std::size_t>(entry)].kind.empty();
  }

  /// Adds complete shards that the journal does not list yet.
  void adopt_orphans() {
    for (const auto& name : base::names_in(kCall, path_)) {
      const auto place = parse_shard_name(name);
      if (!place.has_value() || is_part(name) || claimed_.count(name) != 0) continue;
      std::string why = "the journal names no entry " + std::to_string(place->entry);
      std::optional<ShardInfo> shard;
      if (known(place->entry) &&
          behind_lost(contents_.entries[static_cast<std::size_t>(place->entry)], name)) {
        lost_.push_back(name);
        continue;
      }
      if (known(place->entry)) shard = read(name, place->slot.value_or(-1), why);
      if (shard.has_value()) {
        contents_.entries[static_cast<std::size_t>(place->entry)].shards.push_back(std::move(*shard));
      } else {
        result_.missing.push_back(name + " is left out: " + why);
        lost_.push_back(name);
      }
    }
  }

  /// Adds shards that were being filled.
  void adopt_parts() {
    const auto folder = this->folder();
    for (const auto& name : base::names_in(kCall, path_)) {
      const auto place = parse_shard_name(name);
      if (!place.has_value() || !is_part(name)) continue;
      if (known(place->entry) &&
          behind_lost(contents_.entries[static_cast<std::size_t>(place->entry)], name)) {
        lost_.push_back(name);
      } else {
        adopt_part(folder, name, *place);
      }
    }
  }

  /// The dtype and shape of the samples of a shard, from the journal; nothing if it does not list the shard.
  std::optional<Run> announced(const ShardName& place) const {
    const auto found = contents_.open.find(place.stem());
    if (!known(place.entry) || found == contents_.open.end()) return std::nullopt;
    const OpenShard& open = found->second;
    const auto dtype = dtype_of(open.dtype);
    if (!dtype.has_value()) return std::nullopt;
    // `stacked` is the largest number of samples of this shape; negative for no limit.
    return Run{true, *dtype, open.shape, open.stacked};
  }

  void adopt_part(const std::shared_ptr<const ShardFolder>& folder, const std::string& name,
                  const ShardName& place) {
    Shard shard(folder, place.stem(), place.slot.value_or(-1));
    std::uint64_t left = 0;
    const auto kind = announced(place);
    if (kind.has_value()) {
      left = shard.adopt(*kind);
      if (shard.samples() > 0) {
        result_.salvaged += shard.samples();
        if (options_.repair()) {
          shard.complete();
          shard.sync();
          shard.place();
        }
        contents_.entries[static_cast<std::size_t>(place.entry)].shards.push_back(shard.info());
      }
    } else {
      struct stat status {};
      if (::fstatat(directory_, name.c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0) {
        left = static_cast<std::uint64_t>(status.st_size);
      }
    }
    if (left > 0) {
      result_.missing.push_back(
          c10::str(known(place.entry) ? named(static_cast<std::size_t>(place.entry)) : name, ": ", left,
                   " bytes at the end of ", name,
                   kind.has_value() ? " are not complete samples" : " are not described in the journal"));
    }
    if (shard.samples() == 0) lost_.push_back(name);
  }

  static void sort(SpooledEntry& entry) {
    // Names give the order; the file of an entry that was saved before it was spooled comes first.
    const auto key = [](const ShardInfo& shard) {
      const auto place = parse_shard_name(shard.file).value_or(ShardName{0, std::nullopt, -1});
      return std::make_pair(place.slot, place.number);
    };
    std::stable_sort(entry.shards.begin(), entry.shards.end(),
                     [&](const auto& a, const auto& b) { return key(a) < key(b); });
  }

  std::string path_;
  int directory_;
  RecoverOptions options_;
  Contents contents_;
  std::map<std::size_t, std::size_t> rows_of_;        // the entry of rows by that of their calls
  std::set<const SpooledEntry*> dump_;                // both
  std::map<const SpooledEntry*, std::int64_t> last_;  // the number of the last lost shard
  std::unordered_set<std::string> claimed_;
  std::vector<std::string> lost_;  // files to put aside
  Recovery result_;
};

}  // namespace

Recovery recover_locked(const std::string& path, int directory, const RecoverOptions& options) {
  return Recoverer(path, directory, options).run();
}

}  // namespace torchtap::storage::detail
