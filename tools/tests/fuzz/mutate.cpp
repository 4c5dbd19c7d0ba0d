#include "mutate.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <vector>

#include <torchtap/base/crc32.hpp>
#include <torchtap/base/disk.hpp>
#include <torchtap/base/error.hpp>
#include <torchtap/storage/detail/zip.hpp>
#include <torchtap/views/frames/frame.hpp>

namespace fuzz {
namespace {

namespace detail = torchtap::storage::detail;

constexpr std::int64_t kNumbers[] = {
    0,         1,          2,         3,         7,         -1,        -2,
    16,        127,        255,       256,       65535,     1 << 20,   2147483647,
    1LL << 31, 4294967295, 1LL << 32, 1LL << 40, 1LL << 53, 1LL << 62, (1LL << 62) + 1,
    INT64_MAX, INT64_MIN};

void mutate_bytes(std::string& bytes, Random& random) {
  if (bytes.empty()) {
    bytes = std::string(1 + random.below(40), static_cast<char>(random.next()));
    return;
  }
  const std::size_t at = random.below(bytes.size());
  const std::size_t length = 1 + random.below(std::min<std::size_t>(bytes.size() - at, 24));
  switch (random.below(9)) {
    case 0:
      bytes[at] = static_cast<char>(bytes[at] ^ (1 << random.below(8)));
      break;
    case 1:
      bytes[at] = static_cast<char>(random.next());
      break;
    case 2:
      bytes.erase(at, length);
      break;
    case 3:
      bytes.insert(at, bytes.substr(random.below(bytes.size()), length));
      break;
    case 4:
      for (std::size_t i = 0; i < length; ++i) bytes[at + i] = static_cast<char>(random.next());
      break;
    case 5:
      std::memset(&bytes[at], random.once_in(2) ? 0 : 0xFF, length);
      break;
    case 6:
      if (random.once_in(4)) bytes.resize(at);
      break;
    case 7: {
      const std::string other = bytes.substr(random.below(bytes.size()), length);
      bytes.replace(at, std::min(other.size(), bytes.size() - at), other);
      break;
    }
    default: {
      const std::int64_t number = kNumbers[random.below(std::size(kNumbers))];
      const std::size_t size = std::size_t{1} << random.below(4);
      if (bytes.size() - at >= size) std::memcpy(&bytes[at], &number, size);
    }
  }
}

/// The position of a number or string in JSON.
struct Token {
  std::size_t at, size;
  bool text;
};

std::vector<Token> tokens(const std::string& json) {
  std::vector<Token> found;
  for (std::size_t i = 0; i < json.size(); ++i) {
    const std::size_t start = i;
    if (json[i] == '"') {
      for (++i; i < json.size() && json[i] != '"'; ++i) {
        if (json[i] == '\\') ++i;
      }
      found.push_back({start, std::min(i + 1, json.size()) - start, true});
    } else if (json[i] == '-' || (json[i] >= '0' && json[i] <= '9')) {
      while (i < json.size() && std::strchr("0123456789-+.eE", json[i]) != nullptr && json[i] != '\0') ++i;
      found.push_back({start, i - start, false});
      --i;
    }
  }
  return found;
}

void mutate_json(std::string& json, Random& random) {
  static const char* const kTexts[] = {"",      "..",        "../0.pt", "0.pt",    "0-0.pt",    "1.1-0.pt",
                                       "mixed", "float32",   "int8",    "tensor",  "list",      "dict",
                                       "none",  "0-99.part", "banana",  "\\u0000", "complex128"};
  const auto all = tokens(json);
  if (all.empty() || random.once_in(5)) return mutate_bytes(json, random);
  const Token& token = all[random.below(all.size())];
  std::string with;
  if (token.text) {
    const Token& other = all[random.below(all.size())];
    with = random.once_in(3) && other.text
               ? json.substr(other.at, other.size)
               : "\"" + std::string(kTexts[random.below(std::size(kTexts))]) + "\"";
  } else {
    with = std::to_string(kNumbers[random.below(std::size(kNumbers))]);
    if (random.once_in(8)) with += ", " + with;
  }
  json.replace(token.at, token.size, with);
}

void mutate_journal(std::string& journal, Random& random, bool repair) {
  if (!repair) return mutate_bytes(journal, random);
  std::vector<std::string> lines;
  for (std::size_t at = 0; at < journal.size();) {
    const std::size_t end = std::min(journal.find('\n', at), journal.size());
    lines.push_back(journal.substr(at, end - at));
    at = end + 1;
  }
  if (lines.empty()) return mutate_bytes(journal, random);
  const std::size_t which = random.below(lines.size());
  switch (random.below(6)) {
    case 0:
      lines.erase(lines.begin() + static_cast<std::ptrdiff_t>(which));
      break;
    case 1:
      lines.insert(lines.begin() + static_cast<std::ptrdiff_t>(random.below(lines.size())), lines[which]);
      break;
    default: {
      std::string json = lines[which].size() > 9 ? lines[which].substr(9) : "";
      mutate_json(json, random);
      for (char& c : json) c = c == '\n' ? ' ' : c;
      char sum[16];
      std::snprintf(sum, sizeof sum, "%08x ", torchtap::base::crc32(0, json.data(), json.size()));
      lines[which] = sum + json;
    }
  }
  journal.clear();
  for (const auto& line : lines) journal += line + "\n";
}

/// Changes the header of a .safetensors file, with its valid length.
void mutate_header(std::string& file, Random& random) {
  std::uint64_t length = 0;
  if (file.size() < sizeof length) return mutate_bytes(file, random);
  std::memcpy(&length, file.data(), sizeof length);
  if (length > file.size() - sizeof length) return mutate_bytes(file, random);
  std::string header = file.substr(sizeof length, length);
  mutate_json(header, random);
  file.replace(sizeof length, length, header);
  length = header.size();
  std::memcpy(&file[0], &length, sizeof length);
}

/// Changes a block of a run of an explorer, with valid checksums.
void mutate_blocks(std::string& run, Random& random) {
  constexpr std::size_t kBegin = 8, kHead = 12;
  std::vector<std::string> payloads;
  for (std::size_t at = kBegin; at + kHead <= run.size();) {
    std::uint32_t size = 0;
    std::memcpy(&size, run.data() + at, sizeof size);
    if (size == 0 || size > run.size() - at - kHead) break;
    payloads.push_back(run.substr(at + kHead, size));
    at += kHead + size;
  }
  if (payloads.empty()) return mutate_bytes(run, random);
  std::string& payload = payloads[random.below(payloads.size())];
  random.once_in(4) && payload[0] != 'C' ? mutate_json(payload, random) : mutate_bytes(payload, random);
  run.resize(kBegin);
  for (const std::string& one : payloads) {
    std::uint32_t head[3] = {static_cast<std::uint32_t>(one.size()),
                             torchtap::base::crc32(0, one.data(), one.size()), 0};
    head[2] = torchtap::base::crc32(0, head, 8);
    run.append(reinterpret_cast<const char*>(head), sizeof head);
    run += one;
  }
}

/// Drops, repeats, swaps or changes frames, with valid lengths and checksums.
void mutate_frames(std::string& file, Random& random) {
  namespace frames = torchtap::views::frames;
  std::vector<std::string> all;
  try {
    for (std::size_t at = 0; at < file.size(); at += all.back().size()) {
      all.push_back(file.substr(at, frames::frame_length(&file[at], file.size() - at)));
      frames::read_frame(all.back().data(), all.back().size());
    }
  } catch (const c10::Error&) {  // it was already damaged
    return mutate_bytes(file, random);
  }
  if (all.empty()) return mutate_bytes(file, random);
  const std::size_t which = random.below(all.size()), other = random.below(all.size());
  const std::string bytes = all[which];
  const auto number = [&] {
    return random.once_in(4) ? static_cast<std::uint64_t>(kNumbers[random.below(std::size(kNumbers))])
                             : random.below(4);
  };
  switch (random.below(8)) {
    case 0:
      all.erase(all.begin() + static_cast<std::ptrdiff_t>(which));
      break;
    case 1:
      all.insert(all.begin() + static_cast<std::ptrdiff_t>(other), bytes);
      break;
    case 2:
      std::swap(all[which], all[other]);
      break;
    default: {
      frames::Frame frame = frames::read_frame(bytes.data(), bytes.size());
      const frames::Frame another = frames::read_frame(all[other].data(), all[other].size());
      std::string data(static_cast<const char*>(frame.data), frame.data_bytes);
      switch (random.below(8)) {
        case 0:
          frame.kind = static_cast<frames::Kind>(random.below(frames::kKinds + 1));
          break;
        case 1:
          frame.sample = number(), frame.call = number();
          break;
        case 2:
          frame.slot = static_cast<std::uint16_t>(number());
          break;
        case 3:
          frame.thread = static_cast<std::uint32_t>(number()),
          frame.rank = static_cast<std::uint32_t>(number());
          break;
        case 4:
          frame.path = another.path, frame.type = another.type;
          break;
        case 5:  // a tensor itself, of any dtype
          frame.result = {}, frame.dtype = static_cast<std::uint8_t>(random.below(48));
          frame.sizes[0] = static_cast<std::int64_t>(
              data.size() / std::max<std::size_t>(frames::element_bytes(frame.dtype), 1));
          break;
        default:
          mutate_bytes(data, random);
          data.resize(frame.data_bytes);
      }
      frame.data = data.data();
      frame.checksum = torchtap::base::crc32(0, data.data(), data.size());
      std::string changed(frames::frame_bytes(frame), '\0');
      frames::write_header(frame, changed.data());
      data.copy(&changed[frames::header_bytes(frame)], data.size());
      all[which] = changed;
    }
  }
  file.clear();
  for (const std::string& frame : all) file += frame;
}

/// Writes another container with the same records except one that is changed, with valid checksums.
bool mutate_record(std::string& bytes, Random& random, const std::string& folder) {
  // Leaves the bytes of a state alone: cereal allocates the memory that they declare before it reads on.
  static const char* const kRecords[] = {"data.pkl", "data.pkl", "data/0", "torchtap/0/recipe"};
  static const char* const kAll[] = {"data.pkl", "byteorder",        "version",
                                     "data/0",   "data/1",           "data/2",
                                     "data/3",   "torchtap/0/bytes", "torchtap/0/recipe"};
  const std::string from = folder + "/from.pt", to = folder + "/to.pt";
  std::ofstream(from, std::ios::binary) << bytes;
  const std::string changed = kRecords[random.below(std::size(kRecords))];
  try {
    const auto file = torchtap::base::InputFile::open("fuzz", from);
    const detail::ZipReader reader(file);
    if (!reader.has(changed)) return false;
    ::unlink(to.c_str());
    torchtap::base::OutputFile out(
        "fuzz", to, torchtap::base::Descriptor(::open(to.c_str(), O_RDWR | O_CREAT | O_EXCL, 0666)));
    detail::ZipWriter writer(out);
    for (const std::string name : kAll) {
      if (!reader.has(name)) continue;
      std::string record = reader.read(name);
      if (name == changed) mutate_bytes(record, random);
      writer.record(name, record);
    }
    writer.finish();
    out.close(false);
  } catch (const c10::Error&) {  // it was already damaged
    return false;
  }
  std::ifstream stream(to, std::ios::binary);
  bytes.assign(std::istreambuf_iterator<char>(stream), {});
  return true;
}

/// Replaces the old size of a file by the new one in `text`.
void tell_size(std::string& text, std::size_t before, std::size_t now) {
  const std::string old = "\"bytes\": " + std::to_string(before) + ",";
  const std::string with = "\"bytes\": " + std::to_string(now) + ",";
  for (auto at = text.find(old); at != std::string::npos; at = text.find(old, at + with.size())) {
    text.replace(at, old.size(), with);
  }
}

bool ends_with(const std::string& text, const std::string& end) {
  return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

void mutate_file(Input& input, Random& random, bool honest, const std::string& folder) {
  auto file = input.files.begin();
  std::advance(file, static_cast<std::ptrdiff_t>(random.below(input.files.size())));
  auto& [name, bytes] = *file;
  if ((input.kind == "recording" || input.kind == "trace") && random.once_in(20)) {
    if (random.once_in(2)) input.files[name + ".part"] = bytes;
    input.files.erase(file);
    return;
  }
  const std::size_t before = bytes.size();
  if (name == "snapshot" || input.kind == "ring") {
    mutate_bytes(bytes, random);  // a single checksum covers the file, or none
  } else if (name == "manifest.json" || input.kind == "report" || input.kind == "calibration") {
    mutate_json(bytes, random);
  } else if (ends_with(name, ".safetensors") && !honest) {
    mutate_header(bytes, random);
  } else if (input.kind == "run" && !honest) {
    mutate_blocks(bytes, random);
  } else if (input.kind == "prints" && !honest) {
    mutate_frames(bytes, random);
  } else if (name == "journal.jsonl") {
    mutate_journal(bytes, random, !honest && !random.once_in(4));
  } else if (ends_with(name, ".part") && honest) {
    bytes.resize(random.below(bytes.size() + 1));  // no checksum
  } else if (honest || random.once_in(4) || !mutate_record(bytes, random, folder)) {
    mutate_bytes(bytes, random);
  }
  if (bytes.size() == before || honest || random.once_in(4)) return;
  const std::size_t now = bytes.size();
  if (input.files.count("manifest.json") != 0) tell_size(input.files["manifest.json"], before, now);
}

}  // namespace

void mutate(Input& input, Random& random, bool honest, const std::string& folder) {
  for (std::size_t times = 1 + random.below(4); times > 0 && !input.files.empty(); --times) {
    mutate_file(input, random, honest, folder);
  }
}

}  // namespace fuzz
