// The part of a spool that opens its directory.
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <iterator>

#include <torchtap/base/error.hpp>
#include <torchtap/base/staging.hpp>
#include <torchtap/storage/detail/recording_files.hpp>
#include <torchtap/storage/detail/recoverer.hpp>
#include <torchtap/storage/detail/spool_impl.hpp>

namespace torchtap::storage {
namespace {

constexpr const char* kCall = "spool";

}  // namespace

void Spool::Impl::check_options() const {
  TORCH_CHECK_VALUE(options.shard_bytes() > 0 && options.queue_bytes() > 0, kCall,
                    ": shard_bytes and queue_bytes have to be positive; got ", options.shard_bytes(), " and ",
                    options.queue_bytes(), ".");
  TORCH_CHECK_VALUE(!options.overwrite() || !options.append(), kCall,
                    ": overwrite replaces a recording and append continues it; set one of them, not both.");
}

/// Opens or makes the directory, and returns the names in it. Throws unless it may be replaced or continued.
std::vector<std::string> Spool::Impl::take_directory(const std::string& path, bool there) {
  if (!there) {
    if (::mkdir(directory.c_str(), 0777) != 0)
      base::io_error(kCall, "create the directory", directory, errno);
    made = true;
  }
  folder = std::make_shared<detail::ShardFolder>();
  folder->call = kCall;
  folder->path = directory;
  folder->fd = base::Descriptor(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!folder->fd.valid()) base::io_error(kCall, "open", directory, errno);
  std::vector<std::string> names = base::names_in(kCall, directory);
  std::vector<std::string> foreign;
  std::copy_if(names.begin(), names.end(), std::back_inserter(foreign),
               [](const std::string& name) { return !detail::is_recording_file(name); });
  if (foreign.size() > 5) foreign.resize(5);
  TORCH_CHECK_VALUE(foreign.empty(), kCall, ": \"", path, "\" holds files that are no part of a recording (",
                    base::quoted(foreign), " …). Choose another directory, for example \"", path,
                    "/recording\" with mkdir(true).");
  TORCH_CHECK_VALUE(!detail::is_spooling(directory), kCall, ": \"", path,
                    "\" is being written to by another recorder; spool to a directory of its own.");
  TORCH_CHECK_VALUE(names.empty() || options.overwrite() || options.append(), kCall, ": \"", path,
                    "\" holds a recording already. Choose another directory, or pass "
                    "SpoolOptions().append(true) to go on with "
                    "it, or overwrite(true) to replace it.");
  return names;
}

/// Locks the directory before anything in it is changed.
void Spool::Impl::lock_journal(const std::string& path, bool fresh) {
  const std::string name = where() + "/" + detail::kJournal;
  journal = base::Descriptor(::openat(folder->fd.get(), detail::kJournal,
                                      O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0666));
  if (!journal.valid()) base::io_error(kCall, "create", name, errno);
  if (::flock(journal.get(), LOCK_EX | LOCK_NB) == 0) return;
  if (errno != EWOULDBLOCK) {
    const int error = errno;
    if (fresh) ::unlinkat(folder->fd.get(), detail::kJournal, 0);
    base::io_error(kCall, "lock", name, error);
  }
  TORCH_CHECK_VALUE(false, kCall, ": \"", path,
                    "\" is being written to by another recorder; spool to a directory of its own.");
}

/// Begins a folder beside the recording, which stays as it is until the new one is put in its place.
void Spool::Impl::open_aside(const base::Target& target, const std::string& path) {
  base::check_exchangeable(kCall, directory);
  replaced = detail::lock_recording(directory);
  TORCH_CHECK_VALUE(replaced.has_value(), kCall, ": \"", path,
                    "\" is being written to by another recorder; spool to a directory of its own.");
  base::sweep(target, detail::is_recording_file);
  staging = std::make_unique<base::Staging>(kCall, target, detail::is_recording_file);
  aside_path = staging->path();
  aside = true;
  folder->path = aside_path;
  folder->fd = staging->duplicate();
}

/// Replaces the old recording by the new one, from the first step on that is not done. Called under `disk`.
void Spool::Impl::put_in_place() {
  if (staging == nullptr) return;
  staging->place(/*overwrite=*/true, options.sync());
  folder->path = directory;
  aside = false;
  staging->settle(options.sync());
  staging.reset();
  replaced.reset();
}

void Spool::Impl::open(const std::string& path) {
  check_options();
  const base::Target target = base::resolve(kCall, path, options.mkdir());
  directory = target.path();
  bool fresh = false;
  try {
    base::put_back(target, detail::is_recording_file, detail::kManifest);
    struct stat status {};
    const bool there = ::stat(directory.c_str(), &status) == 0;
    TORCH_CHECK_VALUE(there || options.mkdir(), kCall, ": \"", path,
                      "\" does not exist. Create the directory first, or pass SpoolOptions().mkdir(true).");
    TORCH_CHECK_VALUE(!there || S_ISDIR(status.st_mode), kCall, ": \"", path,
                      "\" is a file, but a recording is a directory; name a directory.");
    const std::vector<std::string> names = take_directory(path, there);
    if (options.overwrite() && !names.empty()) open_aside(target, path);
    const bool missing = std::find(names.begin(), names.end(), detail::kJournal) == names.end();
    lock_journal(path, missing);
    fresh = missing;  // it is this spool's to remove
    created = detail::utc_now();
    if (options.append() && !names.empty()) go_on(/*cut_off=*/!fresh);
    if (::ftruncate(journal.get(), 0) != 0)
      base::io_error(kCall, "truncate", where() + "/" + detail::kJournal, errno);
    log(detail::journal_head(created), options.sync());
    if (options.sync() && !aside) {
      base::sync_directory(kCall, directory);
      base::sync_directory(kCall, target.parent);
    }
  } catch (...) {
    if (fresh && !aside) ::unlink((directory + "/" + detail::kJournal).c_str());
    if (made) ::rmdir(directory.c_str());
    target.undo();
    throw;
  }
}

/// Continues the existing recording, which is recovered first if it was `cut_off`.
void Spool::Impl::go_on(bool cut_off) {
  if (cut_off) detail::recover_locked(directory, folder->fd.get(), RecoverOptions());
  const detail::Contents contents = detail::read_contents(kCall, directory, folder->fd.get(), false);
  created = contents.created;
  for (const auto& entry : contents.entries) {
    auto impl = std::make_unique<Stream::Impl>();
    impl->spool = this;
    impl->index = static_cast<std::int64_t>(streams.size());
    impl->entry = entry;
    impl->before = entry.not_recorded;
    const detail::Description left = detail::describe(entry, 0);
    impl->held = {left.samples, left.form.dtype, left.form.shape};
    streams.emplace_back(new Stream(std::move(impl)));
    waiting[{entry.path, entry.kind}].push_back(streams.back().get());
  }
  announced = streams.size();  // in the manifest
  for (const auto& name : base::names_in(kCall, directory)) {
    const auto place = detail::parse_shard_name(name.substr(0, name.rfind('.')) + ".pt");
    if (!place.has_value() || place->entry >= static_cast<std::int64_t>(streams.size())) continue;
    auto& next =
        streams[static_cast<std::size_t>(place->entry)]->impl_->next_number[place->slot.value_or(-1)];
    next = std::max(next, place->number + 1);
  }
  // The manifest lists plain files as shards from now on, and the journal adds shards to them.
  detail::write_manifest(kCall, directory, folder->fd.get(), detail::manifest_of(created, contents.entries),
                         options.sync());
}

}  // namespace torchtap::storage
