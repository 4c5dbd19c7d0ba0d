// Opens the area, and reads it.
#include "program_area.hpp"

#include <ATen/Functions.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <sstream>
#include <stdexcept>
#include <thread>

#include <torchtap/core/archive.hpp>

#include "kept_samples.hpp"

namespace torchtap::tools::preload {
namespace {

[[noreturn]] void fail(const char* what) {
  throw std::runtime_error(std::string("there is no memory to share with the program: ") + what + ": " +
                           std::strerror(errno) + ".");
}

/// Makes the file as large as it will ever be. The limit of file size (ulimit -f) counts memory as well.
bool resize(int file) {
  rlimit limit{};
  ::getrlimit(RLIMIT_FSIZE, &limit);
  const rlimit more{std::max<rlim_t>(limit.rlim_max, kAreaBytes),
                    std::max<rlim_t>(limit.rlim_max, kAreaBytes)};
  const rlimit most{limit.rlim_max, limit.rlim_max};
  if (::setrlimit(RLIMIT_FSIZE, &more) != 0) ::setrlimit(RLIMIT_FSIZE, &most);
  const auto before = std::signal(SIGXFSZ, SIG_IGN);
  const bool done = ::ftruncate(file, static_cast<off_t>(kAreaBytes)) == 0;
  const int error = errno;
  std::signal(SIGXFSZ, before);
  ::setrlimit(RLIMIT_FSIZE, &limit);
  errno = error;
  return done;
}

/// The text in an array of the area, which has been zeros.
template <std::size_t Size>
std::string text_in(const char (&array)[Size]) {
  return {array, ::strnlen(array, Size)};
}

void put(char (&array)[4096], const std::string& text) {
  if (text.size() >= sizeof array) throw std::runtime_error("\"" + text + "\" is too long a path.");
  std::memcpy(array, text.data(), text.size());
}

}  // namespace

ProgramArea::ProgramArea(const Config& config, const Libraries& libraries) {
  const int made = ::memfd_create("torchtap-preload", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (made < 0) fail("memfd_create");
  // Behind the descriptors that programs use, and get.
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  constexpr int kBehind = 1000, kRest = 16;
  const int most = static_cast<int>(std::min<rlim_t>(limit.rlim_cur, kBehind + kRest));
  int moved = -1;
  for (int from = most - kRest; moved < 0 && from < most; ++from)
    moved = ::fcntl(made, F_DUPFD, std::max(from, 3));
  ::close(made);
  if (moved < 0) fail("dup");
  file_ = base::Descriptor(moved);
  if (!resize(file_.get())) {
    if (errno != EFBIG) fail("a file of memory");
    throw std::runtime_error(
        "the hard limit of file sizes (ulimit -H -f) is too low for the memory that torchtap shares with the "
        "program. Give it to the program alone: torchtap preload … -- sh -c 'ulimit -f …; exec PROGRAM'.");
  }
  ::fcntl(file_.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
  header_ = reinterpret_cast<Header*>(at(0, kFirstPage));
  put(header_->agent, libraries.agent);
  put(header_->interposer, libraries.interposer);
  put(header_->torch, libraries.torch);
  const std::string text = text_of(config);
  header_->config_at = kFirstRoom;
  header_->config_size = text.size();
  header_->next = kFirstRoom + (text.size() + kPageBytes - 1) / kPageBytes * kPageBytes;
  std::memcpy(at(kFirstRoom, text.size()), text.data(), text.size());
}

ProgramArea::~ProgramArea() {
  for (const auto& [place, memory] : mapped_) ::munmap(memory.first, memory.second);
  for (const auto& [memory, length] : smaller_) ::munmap(memory, length);
}

std::string ProgramArea::variable() const {
  struct stat status {};
  ::fstat(file_.get(), &status);
  return std::to_string(file_.get()) + " " + std::to_string(status.st_dev) + " " +
         std::to_string(status.st_ino) + " /proc/" + std::to_string(::getpid()) + "/fd/" +
         std::to_string(file_.get());
}

void ProgramArea::close() const {
  header_->closed = true;
}

void ProgramArea::starts_here() const {
  header_->program = ::getpid();
}

char* ProgramArea::at(std::uint64_t place, std::uint64_t bytes) const {
  if (place > kAreaBytes || bytes > kAreaBytes - place)
    throw std::runtime_error("the program's memory is damaged.");
  const std::uint64_t from = place / kPageBytes * kPageBytes, size = place - from + bytes;
  auto& [memory, length] = mapped_[from];
  if (memory == nullptr || length < size) {
    if (memory != nullptr) smaller_.emplace_back(memory, length);  // there may be pointers into it
    void* const fresh = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file_.get(),
                               static_cast<off_t>(from));
    if (fresh == MAP_FAILED) {
      mapped_.erase(from);
      fail("map");
    }
    memory = static_cast<char*>(fresh);
    length = size;
  }
  return memory + (place - from);
}

Page& ProgramArea::page(std::uint32_t number) const {
  return *reinterpret_cast<Page*>(at(kFirstPage + (number - 1) * kPageBytes, sizeof(Page)));
}

std::string ProgramArea::read(const Published::Half* half) const {
  return half == nullptr ? std::string() : std::string(at(half->at, half->size), half->size);
}

/// A process that runs may publish twice meanwhile, and write what is read.
std::string ProgramArea::report_of(const Page& page) const {
  for (;;) {
    const Published::Half* const half = page.report.last(UINT64_MAX);
    const std::uint64_t generation = half == nullptr ? 0 : half->generation.load();
    std::string text = read(half);
    std::atomic_thread_fence(std::memory_order_acquire);
    if (half == nullptr || (generation != 0 && half->generation == generation)) return text;
    std::this_thread::yield();
  }
}

/// All of one generation: until the next one is whole, nothing of it is written.
template <class Read>
auto ProgramArea::of_one_generation(std::uint32_t number, Read&& read) const {
  const Page& its = page(number);
  for (;;) {
    const std::uint64_t generation = its.generation.load(std::memory_order_acquire);
    auto all = read(its, generation);
    std::atomic_thread_fence(std::memory_order_acquire);
    if (its.generation == generation) return all;
    std::this_thread::yield();
  }
}

std::string ProgramArea::result_of(std::uint32_t number) const {
  return of_one_generation(
      number, [this](const Page& its, std::uint64_t last) { return read(its.result.last(last)); });
}

std::vector<std::string> ProgramArea::parts_of(std::uint32_t number) const {
  return of_one_generation(number, [this](const Page& its, std::uint64_t last) {
    std::vector<std::string> parts;
    for (std::uint64_t place = its.first_parts; place != 0;) {
      const auto& some = *reinterpret_cast<const Parts*>(at(place, sizeof(Parts)));
      for (const Published& one : some.parts) parts.push_back(read(one.last(last)));
      place = some.next;
    }
    while (!parts.empty() && parts.back().empty()) parts.pop_back();
    return parts;
  });
}

std::vector<Report> ProgramArea::reports() const {
  std::vector<Report> reports;
  const std::uint64_t here = namespace_of_pids();
  const std::uint32_t count = std::min<std::uint32_t>(header_->pages, kMostPages);
  for (std::uint32_t number = 1; number <= count; ++number) {
    const Page& one = page(number);
    const Stage stage = one.stage;
    if (stage == Stage::none) continue;
    Report report;
    try {
      const std::string text = report_of(one);
      if (!text.empty()) report = read_from<Report>(text);
    } catch (const std::exception&) {
      // Only what the page says.
    }
    report.process = one.process;
    if (report.program.empty()) report.program = text_in(one.name);
    if (report.other_torch.empty()) report.other_torch = text_in(one.other_torch);
    report.obstacle = text_in(one.obstacle);
    report.number = number;
    report.ended = stage == Stage::ended;
    report.is_program = one.process == header_->program;
    // A process of another namespace cannot be looked at; the program waits for most of its own.
    report.gone = report.ended || one.pids != here || start_of(one.process) != one.started;
    const std::uint64_t published = one.published[one.generation % 2];
    report.missing = static_cast<std::int64_t>(one.begun - std::min(one.begun.load(), published));
    for (Report& before : reports) {
      const bool same = before.process == report.process && page(before.number).started == one.started;
      if (same) before.became_another = before.gone = true;
    }
    reports.push_back(std::move(report));
  }
  return reports;
}

/// Calls `function` for what is ready, in order, until it returns false; of a process that is gone, what is
/// not ready is left out. `read` is called for a chunk that is read to its end. Whether nothing is left.
template <class Function, class Read>
bool ProgramArea::each_kept(std::uint32_t number, Position& from, bool gone, Function&& function,
                            Read&& read) const {
  if (from.chunk == 0) from = {page(number).first_chunk, sizeof(Chunk)};
  while (from.chunk != 0) {
    const std::uint64_t bytes = reinterpret_cast<Chunk*>(at(from.chunk, sizeof(Chunk)))->bytes;
    char* const begin = at(from.chunk, bytes);
    // Before the samples: behind a chunk that is followed by another nothing comes.
    const std::uint64_t following = reinterpret_cast<Chunk*>(begin)->next.load(std::memory_order_acquire);
    while (from.next + sizeof(Kept) <= bytes) {
      const auto& kept = *reinterpret_cast<const Kept*>(begin + from.next);
      const std::uint64_t whole = kept.whole.load(std::memory_order_acquire);
      if (whole == 0 || whole > bytes - from.next) break;
      const bool is_ready = kept.ready.load(std::memory_order_acquire) != 0;
      if (!is_ready && !gone) return true;
      const bool goes_on = !is_ready || function(kept, begin + from.next + bytes_at(kept.dimensions));
      from.next += whole;
      if (!goes_on) return false;
    }
    if (following == 0) return true;
    read(from.chunk, bytes);
    from = {following, sizeof(Chunk)};
  }
  return true;
}

/// Memory that nobody needs any more.
bool ProgramArea::give_back(std::uint64_t place, std::uint64_t bytes) const {
  if (const auto known = mapped_.find(place / kPageBytes * kPageBytes); known != mapped_.end()) {
    ::munmap(known->second.first, known->second.second);
    mapped_.erase(known);
  }
  const std::uint64_t begin = (place + kPageBytes - 1) / kPageBytes * kPageBytes;
  const std::uint64_t end = (place + bytes) / kPageBytes * kPageBytes;
  return begin >= end || ::fallocate(file_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                                     static_cast<off_t>(begin), static_cast<off_t>(end - begin)) == 0;
}

bool ProgramArea::receive_kept(std::uint32_t number, bool gone, const TakeKept& take) {
  Page& its = page(number);
  return each_kept(
      number, received_[number], gone,
      [&](const Kept& kept, char* data) {
        const bool goes_on = take(kept, data);
        if (kept.kind == Kept::appended || kept.kind == Kept::sent) its.received += kept.bytes;
        return goes_on;
      },
      [&](std::uint64_t chunk, std::uint64_t bytes) {
        // A program that is not far ahead finds the memory as it was: new pages take longer than zeros.
        const auto next = [&](std::uint64_t one) {
          return reinterpret_cast<const Chunk*>(at(one, sizeof(Chunk)))->next.load(std::memory_order_acquire);
        };
        const bool is_far_ahead = next(next(chunk)) != 0;
        if (!is_far_ahead || !give_back(chunk, bytes)) std::memset(at(chunk, bytes), 0, bytes);
        ++its.chunks_read;
      });
}

void ProgramArea::receive(std::uint32_t number, bool gone, const Take& take) {
  receive_kept(number, gone, [&](const Kept& kept, const char* data) {
    if (kept.kind == Kept::file || kept.kind == Kept::appended)
      take(kept.of, kept.kind == Kept::file, {data, kept.bytes});
    return true;
  });
}

namespace {

struct SamplesOfModule {
  storage::EntryId id;
  core::Value::List samples;
  core::NotRecorded not_held;
};

}  // namespace

void ProgramArea::add_kept(std::uint32_t number, std::vector<storage::Entry>& entries) const {
  std::vector<SamplesOfModule> modules;
  const auto take = [&](const Kept& kept, char* data) {
    if (kept.of >= modules.size()) modules.resize(kept.of + std::size_t{1});
    SamplesOfModule& module = modules[kept.of];
    if (kept.kind == Kept::module) {
      std::istringstream text(std::string(data, kept.bytes));
      core::InputArchive archive(text);
      archive(module.id.path, module.id.aliases, module.id.type, module.id.kind);
    } else if (kept.kind == Kept::tensor) {
      const at::IntArrayRef sizes(reinterpret_cast<const std::int64_t*>(&kept + 1),
                                  static_cast<std::size_t>(kept.dimensions));
      module.samples.emplace_back(
          at::from_blob(data, sizes, at::TensorOptions(static_cast<at::ScalarType>(kept.dtype))));
    } else if (kept.kind == Kept::none || kept.kind == Kept::not_held) {
      module.samples.emplace_back(at::Tensor());
      if (kept.kind == Kept::none) return true;
      module.not_held.why_left_out = std::string(data, kept.bytes);
      ++module.not_held.none;
    }
    return true;
  };
  Position all;
  each_kept(number, all, /*gone=*/true, take, [](auto, auto) {});
  // The entries are in the order of their modules; the last modules may not have been published.
  std::size_t index = 0;
  for (SamplesOfModule& module : modules) {
    const auto is_its = [&](const storage::Entry& entry) {
      return entry.path == module.id.path && entry.type == module.id.type && entry.kind == module.id.kind;
    };
    const auto from = entries.begin() + static_cast<std::ptrdiff_t>(std::min(index, entries.size()));
    auto found = std::find_if(from, entries.end(), is_its);
    if (found == entries.end()) {
      storage::Entry entry;
      static_cast<storage::EntryId&>(entry) = module.id;
      found = entries.insert(entries.end(), std::move(entry));
    }
    index = static_cast<std::size_t>(found - entries.begin()) + 1;
    found->samples = static_cast<std::int64_t>(module.samples.size());
    found->not_recorded += module.not_held;
    if (!module.samples.empty()) found->value = std::move(module.samples);
  }
}

}  // namespace torchtap::tools::preload
