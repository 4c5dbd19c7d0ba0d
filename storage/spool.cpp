// The public calls of a spool; detail/spool_impl.hpp lists the other sources.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

#include <torchtap/base/error.hpp>
#include <torchtap/storage/detail/folder.hpp>
#include <torchtap/storage/detail/recording_files.hpp>
#include <torchtap/storage/detail/spool_impl.hpp>
#include <torchtap/storage/detail/utf8.hpp>
#include <torchtap/storage/recording.hpp>
#include <torchtap/storage/spool.hpp>

namespace torchtap::storage {

void Spool::Impl::check(const char* call) const {
  TORCH_CHECK(made_here, call, ": this process is a child (fork) of the one that spools to \"", directory,
              "\", and only the parent can write there; spool to another directory here.");
  TORCH_CHECK_VALUE(!closed.load(std::memory_order_relaxed), call, ": \"", directory,
                    "\" was closed; nothing can be appended any more.");
}

void Spool::Impl::raise(const char* call, const std::string& why) const {
  TORCH_CHECK(false, call, ": ", why, " \"", where(), "\" holds ", sealed_samples.load(), " samples in ",
              sealed_shards.load(), " complete shards; ", queue.bytes(), " bytes wait in memory.",
              aside ? " The recording that they replace is still at \"" + directory + "\"." : "",
              " Make room, then call flush() or save(): they try again, and recording continues.");
}

Spool::Stream::Stream(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Spool::Stream::~Stream() = default;

void Spool::Stream::note(const std::string& text) {
  TORCH_CHECK_VALUE(
      detail::is_name(text),
      "storage::Spool::Stream::note: the note is not UTF-8, or contains a zero byte; a manifest cannot "
      "hold it.");
  impl_->spool->check("storage::Spool::Stream::note");
  const std::lock_guard lock(impl_->spool->disk);
  impl_->entry.note = text;
}

void Spool::Stream::not_recorded(const core::NotRecorded& missing) {
  impl_->spool->check("storage::Spool::Stream::not_recorded");
  const std::lock_guard lock(impl_->spool->disk);
  impl_->not_recorded = missing;
  impl_->spool->count(*impl_);
}

void Spool::Stream::complete_with(Stream& leader) {
  const std::lock_guard lock(impl_->spool->disk);
  leader.impl_->followers.push_back(impl_.get());
}

std::int64_t Spool::Stream::dropped() const noexcept {
  return impl_->dropped.load();
}
std::int64_t Spool::Stream::appended() const noexcept {
  return impl_->samples.load();
}
Spool::Stream::Before Spool::Stream::before() const {
  Before before = impl_->held;
  before.calls = impl_->spool->waiting.count({impl_->entry.path, impl_->entry.kind + ".calls"}) > 0;
  return before;
}
std::int64_t Spool::Stream::index() const noexcept {
  return impl_->index;
}

Spool::Spool(const std::string& directory, const SpoolOptions& options) : impl_(std::make_unique<Impl>()) {
  impl_->options = options;
  impl_->open(directory);
  try {
    impl_->queue.start(options.queue_bytes());
  } catch (const std::system_error& error) {
    TORCH_CHECK(false, "spool: cannot start the writer thread: ", error.what(), ".");
  }
}

Spool::~Spool() {
  if (!impl_->made_here) {
    // The writer thread does not exist in a child process, and the objects that wait for it can be neither
    // used nor destroyed.
    (void)impl_.release();
    return;
  }
  if (impl_->closed) return;
  if (!impl_->aside || impl_->has_samples()) {
    try {
      close();
    } catch (...) {
      impl_->rescue();
    }
  }
  impl_->queue.stop();
}

Spool::Stream& Spool::add(const EntryId& id) {
  impl_->check("storage::Spool::add");
  for (const auto* name : {&id.path, &id.type, &id.kind}) {
    TORCH_CHECK_VALUE(
        detail::is_name(*name),
        "storage::Spool::add: a path, type or kind is not UTF-8, or contains a zero byte; a manifest "
        "cannot hold it. Rename it.");
  }
  const std::lock_guard lock(impl_->streams_mutex);
  const auto known = impl_->waiting.find({id.path, id.kind});
  if (known != impl_->waiting.end() && !known->second.empty()) {
    Stream& stream = *known->second.front();
    known->second.pop_front();
    return stream;
  }
  auto impl = std::make_unique<Stream::Impl>();
  impl->spool = impl_.get();
  impl->index = static_cast<std::int64_t>(impl_->streams.size());
  static_cast<EntryId&>(impl->entry) = id;
  impl_->streams.emplace_back(new Stream(std::move(impl)));
  return *impl_->streams.back();
}

bool Spool::admit(Stream& stream, std::int64_t bytes) {
  return admit(stream, bytes, impl_->options.when_full());
}

bool Spool::admit(Stream& stream, std::int64_t bytes, WhenFull policy) {
  Impl& spool = *impl_;
  spool.check("storage::Spool::admit");
  do {
    if (spool.queue.has_room(bytes, policy == WhenFull::wait)) return true;
    if (const std::string why = spool.queue.failure(); !why.empty()) spool.raise("spool", why);
  } while (policy == WhenFull::wait);  // another thread had it try again
  TORCH_CHECK(policy == WhenFull::drop, "spool: the queue in front of \"", spool.directory,
              "\" is full: ", spool.queue.bytes(), " bytes of at most ", spool.options.queue_bytes(),
              " wait for the disk, and a sample of ", bytes,
              " bytes arrived. It was not recorded; all before it are. See SpoolOptions::when_full.");
  stream.impl_->dropped.fetch_add(1);
  return false;
}

void Spool::withdraw(std::int64_t count) noexcept {
  if (!impl_->made_here) return;
  const std::lock_guard disk_lock(impl_->disk);
  const std::lock_guard lock(impl_->streams_mutex);
  for (; count > 0 && !impl_->streams.empty(); --count) {
    Stream::Impl& last = *impl_->streams.back()->impl_;
    if (impl_->streams.size() <= impl_->announced || last.samples.load() > 0) return;
    impl_->streams.pop_back();
  }
}

void Spool::flush() {
  impl_->check("storage::Spool::flush");
  impl_->flush("storage::Spool::flush");
  const std::lock_guard lock(impl_->disk);
  try {
    impl_->put_in_place();
  } catch (const c10::Error& problem) {
    impl_->raise("storage::Spool::flush", problem.what_without_backtrace());
  }
}

void Spool::retry() {
  impl_->check("storage::Spool::retry");
  impl_->flush("storage::Spool::retry");
}

void Spool::finish() {
  impl_->check("storage::Spool::finish");
  impl_->finish("storage::Spool::finish");
}

void Spool::close() {
  Impl& spool = *impl_;
  if (spool.closed) return;
  spool.check("storage::Spool::close");
  spool.closed = true;
  try {
    spool.finish("storage::Spool::close");
    spool.remove_journal("storage::Spool::close");
  } catch (...) {
    spool.closed = false;
    throw;
  }
  spool.queue.stop();
  const std::lock_guard lock(spool.disk);
  spool.journal = base::Descriptor();
  if (spool.streams.empty()) spool.staging.reset();
  if (spool.streams.empty() && spool.made) {  // nothing was ever attached
    ::unlinkat(spool.folder->fd.get(), detail::kManifest, 0);
    ::rmdir(spool.directory.c_str());
  }
}

core::Value Spool::value(const Stream& stream) {
  if (!impl_->closed) retry();
  auto directory = std::make_shared<detail::Folder>();
  directory->path = impl_->where();
  directory->fd = base::Descriptor(::fcntl(impl_->folder->fd.get(), F_DUPFD_CLOEXEC, 0));
  if (!directory->fd.valid()) base::io_error("storage::Spool::value", "open", impl_->directory, errno);
  std::shared_ptr<detail::Description> description;
  {
    const std::lock_guard lock(impl_->disk);
    const auto index = static_cast<std::size_t>(stream.index());
    description = std::make_shared<detail::Description>(detail::describe(stream.impl_->entry, index));
  }
  return RecordedEntry(std::move(directory), std::move(description)).value();
}

const std::string& Spool::directory() const noexcept {
  return impl_->directory;
}

bool Spool::is_at(const std::string& path) const {
  struct stat ours {
  }, theirs{};
  const int found = impl_->aside ? ::stat(impl_->directory.c_str(), &ours)  // the recording to be replaced
                                 : ::fstat(impl_->folder->fd.get(), &ours);
  return found == 0 && ::stat(path.c_str(), &theirs) == 0 && ours.st_dev == theirs.st_dev &&
         ours.st_ino == theirs.st_ino;
}

}  // namespace torchtap::storage
