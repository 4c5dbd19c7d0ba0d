// Reads a prints file, and finds which records are of one call.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <sstream>
#include <system_error>
#include <unordered_set>

#include <torchtap/base/crc32.hpp>
#include <torchtap/base/disk.hpp>
#include <torchtap/base/error.hpp>
#include <torchtap/base/format.hpp>
#include <torchtap/views/compare/run.hpp>

namespace torchtap::views::compare {

using frames::Frame;
using frames::Kind;

namespace {

constexpr char kRead[] = "views::compare::Run::read";

[[noreturn]] void failed(const std::string& verb, const std::string& file, int error) {
  TORCH_CHECK(false, kRead, ": cannot ", verb, " \"", file, "\": ", std::generic_category().message(error),
              " (errno ", error, ").");
}

/// The bytes of a pipe in a file that is gone when it is closed.
base::Descriptor spooled(const std::string& name, int from) {
  std::string temporary = (std::filesystem::temp_directory_path() / "torchtap-prints-XXXXXX").string();
  base::Descriptor to(::mkostemp(temporary.data(), O_CLOEXEC));
  if (!to.valid()) failed("make", temporary, errno);
  ::unlink(temporary.c_str());
  std::vector<char> buffer(std::size_t{1} << 18);
  while (true) {
    const ::ssize_t got = ::read(from, buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) failed("read", name, errno);
    if (got == 0) return to;
    for (::ssize_t done = 0; done < got;) {
      const ::ssize_t put = ::write(to.get(), buffer.data() + done, static_cast<std::size_t>(got - done));
      if (put < 0 && errno != EINTR) failed("write", temporary, errno);
      done += std::max<::ssize_t>(put, 0);
    }
  }
}

base::InputFile open(const std::string& name) {
  struct stat status {};
  if (name == "-") return {kRead, "standard input", spooled("standard input", STDIN_FILENO)};
  if (::stat(name.c_str(), &status) == 0 && !S_ISREG(status.st_mode) && !S_ISDIR(status.st_mode)) {
    const base::Descriptor pipe(::open(name.c_str(), O_RDONLY | O_CLOEXEC));
    if (!pipe.valid()) failed("open", name, errno);
    return {kRead, name, spooled(name, pipe.get())};
  }
  return base::InputFile::open(kRead, name);
}

/// The fingerprint in these bytes; `fault` says what is wrong with it.
Fingerprint checked(const void* bytes, std::string& fault) {
  Fingerprint print;
  std::memcpy(&print, bytes, sizeof print);
  fault = base::unreadable_format(print.version, 1);
  if (print.dims > 8) fault = c10::str("its fingerprint has ", int{print.dims}, " dimensions");
  std::int64_t elements = 2;  // complex numbers count as two
  for (std::size_t i = 0; fault.empty() && i < print.dims; ++i) {
    if (print.sizes[i] < 0 || __builtin_mul_overflow(elements, print.sizes[i], &elements))
      fault = c10::str("in its fingerprint dimension ", i, " is ", print.sizes[i]);
  }
  return print;
}

/// The fingerprint of a whole tensor; nothing if this LibTorch does not have its dtype.
std::optional<Fingerprint> fingerprint_of(const Frame& frame) {
  Fingerprint print;
  const bool known =
      frames::element_bytes(frame.dtype) != 0 &&
      torchtap_fingerprint(frame.data, frame.dtype, frame.dims, frame.sizes.data(), &print) == 0;
  return known ? std::make_optional(print) : std::nullopt;
}

/// A text without data is one that stands behind a name and a tab, or alone.
std::string_view name_before(std::string_view text) {
  const auto tab = text.find('\t');
  return tab == std::string_view::npos ? std::string_view() : text.substr(0, tab);
}
std::string_view without_name(std::string_view text) {
  return text.substr(text.find('\t') + 1);  // all of it where there is no tab
}

bool is_event(Kind kind) {
  return kind == Kind::forward_input || kind == Kind::forward_output;
}
bool is_weight(Kind kind) {
  return kind == Kind::parameter || kind == Kind::buffer;
}

}  // namespace

struct Run::File {
  base::InputFile input;

  /// The frame at `at`, whose length is known. A large one is mapped: `kept` holds its bytes.
  Frame frame(std::uint64_t at, std::uint64_t length, std::shared_ptr<void>& kept) const {
    kept = length <= (1 << 20)
               ? std::shared_ptr<void>(new char[length], [](void* p) { delete[] static_cast<char*>(p); })
               : input.map(at, length);
    if (length <= (1 << 20)) input.read_at(at, kept.get(), length);
    return frames::read_frame(kept.get(), length);
  }
  Frame frame(std::uint64_t at, std::shared_ptr<void>& kept) const {
    std::array<char, 16> begin;
    input.read_at(at, begin.data(), begin.size());
    return frame(at, frames::frame_length(begin.data(), begin.size()), kept);
  }
};

Run::Run(std::string name, std::unique_ptr<File> file) : name_(std::move(name)), file_(std::move(file)) {}
Run::Run(Run&&) noexcept = default;
Run& Run::operator=(Run&&) noexcept = default;
Run::~Run() = default;

Run Run::read(const std::string& name) {
  Run run(name, std::make_unique<File>(File{open(name)}));
  const base::InputFile& input = run.file_->input;
  std::vector<char> buffer(std::size_t{1} << 18);
  std::uint64_t at = 0, from = 0,
                filled = 0;  // the buffer has `filled` bytes of the file, beginning with byte `from`
  const auto have = [&](std::uint64_t bytes) {
    if (at >= from && at + bytes <= from + filled) return buffer.data() + (at - from);
    from = at;
    filled = std::min<std::uint64_t>(buffer.size(), input.size() - at);
    input.read_at(from, buffer.data(), filled);
    return buffer.data();
  };
  while (at < input.size()) {
    const std::uint64_t left = input.size() - at;
    try {
      // If too few bytes are left to read the frame's length, they have to be the beginning of a frame.
      const std::uint64_t length = left < 16 ? 16 : frames::frame_length(have(16), 16);
      if (left < 16 && std::memcmp(have(left), "TTF1", std::min<std::uint64_t>(left, 4)) != 0)
        input.bad("it is not a prints file");
      run.cut_off_ = length > left;
      if (run.cut_off_) break;
      std::shared_ptr<void> kept;
      run.add(length <= buffer.size() ? frames::read_frame(have(length), length)
                                      : run.file_->frame(at, length, kept),
              at);
      at += length;
    } catch (const c10::ValueError& error) {
      std::string why = error.what_without_backtrace();
      if (why.rfind(kRead, 0) == 0) throw;
      if (why.rfind("views::", 0) == 0) why.erase(0, why.find(": ") + 2);  // the call that found it
      while (!why.empty() && why.back() == '.') why.pop_back();
      input.bad(
          c10::str(at == 0 ? "it is not a prints file, or damaged: at byte " : "at byte ", at, ": ", why));
    }
  }
  if (input.size() == 0)
    input.bad("it is empty; write one with python3 -m torchtap_compare or torchtap preload --fingerprint");
  std::stable_sort(run.sequences_.begin(), run.sequences_.end(),
                   [](const Sequence& a, const Sequence& b) { return a.rank < b.rank; });
  for (std::uint32_t i = 0; i < run.sequences_.size(); ++i) run.find_calls(run.sequences_[i], i);
  return run;
}

std::uint32_t Run::number(std::string_view text) {
  const auto [found, fresh] = numbers_.emplace(std::string(text), static_cast<std::uint32_t>(texts_.size()));
  if (fresh) texts_.push_back(found->first);
  return found->second;
}

std::uint32_t Run::number_of(const std::string& text) const {
  const auto found = numbers_.find(text);
  return found == numbers_.end() ? kNone : found->second;
}

void Run::add(const Frame& frame, std::uint64_t at) {
  TORCH_CHECK_VALUE(!frame.has_checksum || base::crc32(0, frame.data, frame.data_bytes) == frame.checksum,
                    "the checksum of its data is another one than it says; the file is damaged");
  if (frame.kind == Kind::header) {
    std::istringstream lines{std::string(frame.text)};
    for (std::string line; std::getline(lines, line);) {
      const auto tab = line.find('\t');
      if (tab != std::string::npos) header_[line.substr(0, tab)] = line.substr(tab + 1);
    }
    return;
  }
  const bool operation = frame.kind == Kind::operation_argument || frame.kind == Kind::operation_result;
  if (!is_event(frame.kind) && !is_weight(frame.kind) && !operation) return;
  Record record;
  record.at = at;
  record.path = number(frame.path), record.type = number(frame.type);
  record.sample = static_cast<std::uint32_t>(frame.sample),
  record.call = static_cast<std::uint32_t>(frame.call);
  record.thread = frame.thread, record.rank = frame.rank;
  record.slot = frame.slot, record.kind = frame.kind;
  record.name = record.text = number("");
  const bool undefined = frame.without_data && frame.result == "fingerprint" &&
                         frame.text.find("got one that is undefined") != std::string_view::npos;
  if (undefined || frame.result == "value" || frame.result == "exception") {
    record.holds = frame.result == "exception" ? Record::Holds::exception : Record::Holds::value;
    record.name = number(name_before(frame.text));
    record.text = number(undefined ? "None" : without_name(frame.text));
  } else if (!frame.without_data && frame.result == "fingerprint") {
    record.name = number(frame.text);
    TORCH_CHECK_VALUE(frame.data_bytes == sizeof(Fingerprint), "its fingerprint has ", frame.data_bytes,
                      " bytes, but ", sizeof(Fingerprint), " are one");
    std::string fault;
    const Fingerprint print = checked(frame.data, fault);
    TORCH_CHECK_VALUE(fault.empty(), fault);
    record.at += frames::header_bytes(frame);
    record.digest = {print.digest[0], print.digest[1]};
    record.holds = Record::Holds::fingerprint;
  } else if (!frame.without_data && frame.result.empty()) {
    if (const auto print = fingerprint_of(frame)) {
      record.digest = {print->digest[0], print->digest[1]};
      record.holds = Record::Holds::tensor;
    }
  }
  if (record.holds == Record::Holds::nothing) record.name = number(name_before(frame.text));
  const auto index = static_cast<std::uint32_t>(records_.size());
  records_.push_back(record);
  if (is_weight(record.kind)) return weights_.push_back(index);
  if (operation) return operations_.push_back(index);
  const auto [place, fresh] = places_.emplace(std::make_pair(record.rank, record.thread), sequences_.size());
  if (fresh) sequences_.push_back({record.rank, record.thread, {}, {}});
  sequences_[place->second].events.push_back({index, kNone});
}

/// Calls lie within each other as the inputs and outputs do. A call without outputs (it returned no tensor,
/// or threw) is taken to have no calls inside, because its end was not recorded.
void Run::find_calls(Sequence& sequence, std::uint32_t number) {
  const auto key = [](const Record& r) { return (std::uint64_t{r.path} << 32) | r.sample; };
  std::unordered_set<std::uint64_t> returned;
  for (const auto& event : sequence.events) {
    const Record& record = records_[event.record];
    if (record.kind == Kind::forward_output) returned.insert(key(record));
  }
  std::unordered_map<std::uint32_t, std::uint32_t> ordinals;
  std::vector<std::uint32_t> open;
  const auto takes = [&](const Call& call, const Record& record) {
    const Record& own = records_[call.inputs.empty() ? call.outputs.front() : call.inputs.front()];
    const auto& slots = record.kind == Kind::forward_input ? call.inputs : call.outputs;
    return key(own) == key(record) && (record.kind == Kind::forward_output || call.outputs.empty()) &&
           (slots.empty() || records_[slots.back()].slot < record.slot);
  };
  for (auto& event : sequence.events) {
    const Record& record = records_[event.record];
    const bool input = record.kind == Kind::forward_input;
    auto found =
        std::find_if(open.rbegin(), open.rend(), [&](std::uint32_t i) { return takes(calls_[i], record); });
    if (found != open.rend()) {
      open.erase(found.base(), open.end());
    } else {
      while (!open.empty() && !calls_[open.back()].outputs.empty()) open.pop_back();  // these have ended
      Call call;
      call.path = record.path, call.type = record.type, call.sequence = number;
      call.ordinal = ordinals[record.path]++;
      if (!open.empty()) {
        call.parent = open.back();
        calls_[open.back()].leaf = false;
      }
      const auto index = static_cast<std::uint32_t>(calls_.size());
      calls_.push_back(std::move(call));
      sequence.calls.push_back(index);
      // The same slot again without an end: another call of another root of the same name.
      if (returned.count(key(record)) != 0) open.push_back(index);
      event.call = index;
      (input ? calls_[index].inputs : calls_[index].outputs).push_back(event.record);
      continue;
    }
    event.call = open.back();
    (input ? calls_[event.call].inputs : calls_[event.call].outputs).push_back(event.record);
  }
}

bool Run::is_there(const Record& record) const {
  return record.holds != Record::Holds::value || text(record.text) != "None";
}

bool Run::model_is_unseen() const {
  const auto language = header_.find("language");
  return !calls_.empty() && language != header_.end() && language->second == "c++" &&
         std::none_of(calls_.begin(), calls_.end(), [&](const Call& call) { return path(call).empty(); });
}

std::int64_t Run::later_forwards() const {
  const auto found = header_.find("later_forwards");
  return found == header_.end() ? 0 : std::strtoll(found->second.c_str(), nullptr, 10);
}

std::string Run::not_recorded() const {
  const auto found = header_.find("not_recorded");
  return found == header_.end() ? "" : found->second;
}

std::optional<Fingerprint> Run::print(const Record& record) const {
  if (record.holds != Record::Holds::fingerprint && record.holds != Record::Holds::tensor)
    return std::nullopt;
  if (record.holds == Record::Holds::tensor) {
    std::shared_ptr<void> kept;
    return fingerprint_of(file_->frame(record.at, kept));
  }
  Fingerprint print;
  file_->input.read_at(record.at, &print, sizeof print);
  return print;
}

std::string Run::reason(const Record& record) const {
  if (record.holds != Record::Holds::nothing) return "";
  std::shared_ptr<void> kept;
  const Frame frame = file_->frame(record.at, kept);
  return frame.text.empty() ? "its file holds no fingerprint of it" : std::string(without_name(frame.text));
}

}  // namespace torchtap::views::compare
