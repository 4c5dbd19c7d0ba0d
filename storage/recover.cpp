#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <torchtap/core/detail/error.hpp>
#include <torchtap/storage/journal.hpp>
#include <torchtap/storage/manifest.hpp>
#include <torchtap/storage/pickle.hpp>
#include <torchtap/storage/pt.hpp>
#include <torchtap/storage/recover.hpp>
#include <torchtap/storage/shard.hpp>
#include <unordered_set>
#include <utility>

namespace torchtap::storage {
namespace detail {
namespace {

constexpr const char* kCall = "recover";

class Recoverer {
 public:
  Recoverer(std::string path, int directory, const RecoverOptions& options)
      : path_(std::move(path)), directory_(directory), options_(options) {}

  Recovery run() {
    contents_ = read_contents(kCall, path_, directory_, /*lenient=*/true);
    result_.finished = contents_.has_manifest && !contents_.has_journal && contents_.damage.empty();
    result_.missing = contents_.damage;
    for (auto& entry : contents_.entries) check(entry);
    if (contents_.has_journal) {
      adopt_orphans();
      adopt_parts();
    }
    for (auto& entry : contents_.entries) {
      sort(entry);
      for (const auto& shard : entry.shards) {
        ++result_.shards;
        result_.bytes += shard.bytes;
      }
      result_.samples += entry.samples();
    }
    result_.entries = static_cast<std::int64_t>(contents_.entries.size());
    if (options_.repair() && contents_.has_journal) {
      write_manifest(kCall, path_, directory_, contents_.created, contents_.entries, /*sync=*/true);
    }
    return result_;
  }

 private:
  std::string named(std::size_t index) const {
    return c10::str("entry ", index, " (\"", contents_.entries[index].path, "\")");
  }

  void lose(const std::string& file) {
    if (!options_.repair() || !contents_.has_journal) return;
    ::renameat(directory_, file.c_str(), directory_, (file.substr(0, file.rfind('.')) + ".lost").c_str());
  }

  /// What a shard's file says of itself; false, with the reason in `why`, if it is not whole.
  bool read(ShardInfo& shard, std::string& why) const {
    try {
      const InputFile file = InputFile::open_at(kCall, directory_, shard.file, path_ + "/" + shard.file);
      ShardInfo found = describe_shard(file, read_value(file));
      found.file = shard.file;
      found.slot = shard.slot;
      found.bytes = static_cast<std::int64_t>(file.size());
      shard = std::move(found);
    } catch (const c10::Error& error) {
      why = error.what_without_backtrace();
      return false;
    }
    return true;
  }

  /// Keeps the shards of an entry that are what the manifest or journal claims.
  void check(SpooledEntry& entry) {
    std::vector<ShardInfo> whole;
    for (auto& shard : entry.shards) {
      claimed_.insert(shard.file);
      struct stat status {};
      std::string why;
      if (::fstatat(directory_, shard.file.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0) {
        why = "the file is gone";
      } else if (!S_ISREG(status.st_mode) || status.st_size != static_cast<::off_t>(shard.bytes)) {
        why = c10::str("it has ", status.st_size, " bytes, not ", shard.bytes);
      } else if (options_.verify()) {
        ShardInfo found;
        found.file = shard.file;
        found.slot = shard.slot;
        if (read(found, why)) {
          if (found.samples != shard.samples) {
            why = c10::str("it holds ", found.samples, " samples");
          } else {
            shard = std::move(found);  // the file knows best
          }
        }
      }
      if (why.empty()) {
        whole.push_back(std::move(shard));
        continue;
      }
      result_.missing.push_back(c10::str(shard.file, " with ", shard.samples, " samples of \"", entry.path,
                                         "\" is damaged: ", why));
      lose(shard.file);
    }
    entry.shards = std::move(whole);
  }

  bool known(std::int64_t entry) const {
    return entry >= 0 && entry < static_cast<std::int64_t>(contents_.entries.size()) &&
           !contents_.entries[static_cast<std::size_t>(entry)].kind.empty();
  }

  /// Shards that were completed and had not got into the journal.
  void adopt_orphans() {
    for (const auto& name : list(kCall, path_)) {
      std::int64_t entry = 0, slot = 0, number = 0;
      if (!parse_shard_name(name, entry, slot, number) || is_part(name) || claimed_.count(name) != 0)
        continue;
      ShardInfo shard;
      shard.file = name;
      shard.slot = slot;
      std::string why = "the journal names no entry " + std::to_string(entry);
      if (known(entry) && read(shard, why)) {
        contents_.entries[static_cast<std::size_t>(entry)].shards.push_back(std::move(shard));
      } else {
        result_.missing.push_back(name + " is left out: " + why);
        lose(name);
      }
    }
  }

  /// Shards that were being filled.
  void adopt_parts() {
    auto folder = std::make_shared<ShardFolder>();
    folder->call = kCall;
    folder->path = path_;
    folder->fd = Descriptor(::fcntl(directory_, F_DUPFD_CLOEXEC, 0));
    for (const auto& name : list(kCall, path_)) {
      std::int64_t entry = 0, slot = 0, number = 0;
      if (!parse_shard_name(name, entry, slot, number) || !is_part(name)) continue;
      const std::string stem = name.substr(0, name.size() - 5);
      const auto open = std::find_if(contents_.open.begin(), contents_.open.end(),
                                     [&](const OpenShard& shard) { return shard.name == stem; });
      Shard shard(folder, stem, slot);
      std::uint64_t left = 0;
      Run kind;
      const bool described =
          known(entry) && open != contents_.open.end() && dtype_of(open->dtype, kind.dtype);
      if (described) {
        kind.sizes = open->shape;
        if (shard.adopt(kind, open->stacked, left)) {
          result_.salvaged += shard.samples();
          if (options_.repair()) {
            shard.complete();
            shard.sync();
            shard.place();
          }
          contents_.entries[static_cast<std::size_t>(entry)].shards.push_back(shard.info());
        }
      }
      struct stat status {};
      if (!described && ::fstatat(directory_, name.c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0) {
        left = static_cast<std::uint64_t>(status.st_size);
      }
      if (left > 0) {
        result_.missing.push_back(c10::str(known(entry) ? named(static_cast<std::size_t>(entry)) : name, ": ",
                                           left, " bytes at the end of ", name,
                                           described ? " are no whole samples" : " have no description"));
      }
      if (options_.repair() && shard.samples() == 0) lose(name);
    }
  }

  static void sort(SpooledEntry& entry) {
    // Names carry the order; a file from before the recording was spooled comes first.
    const auto key = [](const ShardInfo& shard) {
      std::int64_t index = 0, slot = -1, number = -1;
      parse_shard_name(shard.file, index, slot, number);
      return std::make_pair(slot, number);
    };
    std::stable_sort(entry.shards.begin(), entry.shards.end(),
                     [&](const auto& a, const auto& b) { return key(a) < key(b); });
  }

  std::string path_;
  int directory_;
  RecoverOptions options_;
  Contents contents_;
  std::unordered_set<std::string> claimed_;
  Recovery result_;
};

}  // namespace

Recovery recover_locked(const std::string& path, int directory, const RecoverOptions& options) {
  return Recoverer(path, directory, options).run();
}

}  // namespace detail

Recovery recover(const std::string& directory, const RecoverOptions& options) {
  const detail::Descriptor fd(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd.valid()) {
    detail::bad_file(detail::kCall, directory,
                     errno == ENOENT    ? "there is no such directory"
                     : errno == ENOTDIR ? "it is a file, not the directory of a recording"
                                        : "the directory cannot be opened");
  }
  const detail::Descriptor journal(
      ::openat(fd.get(), detail::kJournal, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  TORCH_CHECK_VALUE(!journal.valid() || ::flock(journal.get(), LOCK_EX | LOCK_NB) == 0, "recover: \"",
                    directory,
                    "\" is being written to by a recorder that lives; there is nothing to recover yet.");
  const Recovery result = detail::recover_locked(directory, fd.get(), options);
  if (options.repair() && journal.valid()) {
    if (::unlinkat(fd.get(), detail::kJournal, 0) != 0) {
      detail::io_error(detail::kCall, "remove", directory + "/" + detail::kJournal, errno);
    }
    ::fsync(fd.get());
  }
  return result;
}

}  // namespace torchtap::storage
