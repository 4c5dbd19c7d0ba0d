// Writes the lines of a journal, and reads and checks them.
#include <cereal/archives/json.hpp>

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <limits>
#include <sstream>
#include <stdexcept>

#include <torchtap/base/crc32.hpp>
#include <torchtap/base/error.hpp>
#include <torchtap/storage/detail/format.hpp>
#include <torchtap/storage/detail/journal.hpp>
#include <torchtap/storage/detail/recording_files.hpp>

namespace torchtap::storage::detail {
namespace {

constexpr std::int64_t kJournalFormat = 2;
constexpr std::uint64_t kLargestJournal = std::uint64_t{1} << 32;
constexpr int kDeepest = 8;

struct Head {
  std::int64_t format = kJournalFormat;
  std::string library = library_version();
  std::string created;

  template <class Archive>
  void serialize(Archive& archive) {
    archive(CEREAL_NVP(format), CEREAL_NVP(library), CEREAL_NVP(created));
  }
};

struct EntryLine : EntryId {
  std::int64_t entry = 0;

  template <class Archive>
  void serialize(Archive& archive) {
    archive(CEREAL_NVP(entry), CEREAL_NVP(path), CEREAL_NVP(aliases), CEREAL_NVP(type), CEREAL_NVP(kind));
  }
};

struct ShardLine {
  std::int64_t entry = 0;
  ShardInfo shard;

  template <class Archive>
  void serialize(Archive& archive) {
    archive(CEREAL_NVP(entry), CEREAL_NVP(shard));
  }
};

struct NotRecordedLine {
  std::int64_t entry = 0;
  core::NotRecorded not_recorded;

  template <class Archive>
  void serialize(Archive& archive) {
    archive(CEREAL_NVP(entry), CEREAL_NVP(not_recorded));
  }
};

/// `what` names the object: {"shard": {…}}.
template <class T>
std::string line(const char* what, const T& object) {
  std::ostringstream stream;
  {
    cereal::JSONOutputArchive archive(stream, cereal::JSONOutputArchive::Options::NoIndent());
    archive(cereal::make_nvp(what, object));
  }
  std::string json;
  for (const char c : stream.str()) {
    if (c != '\n') json += c;  // between values: within strings it is escaped
  }
  char sum[16];
  std::snprintf(sum, sizeof sum, "%08x ", base::crc32(0, json.data(), json.size()));
  return sum + json + "\n";
}

template <class T>
T parse(const std::string& json, const char* what) {
  T object;
  try {
    std::istringstream stream(json);
    cereal::JSONInputArchive archive(stream);
    archive(cereal::make_nvp(what, object));
  } catch (const std::exception&) {  // cereal's and rapidjson's, whose texts say nothing to a user
    throw std::invalid_argument("it is not JSON, or a field is missing or of another type");
  }
  return object;
}

SpooledEntry& entry_at(Journal& journal, std::int64_t index, std::size_t most) {
  if (index < 0 || static_cast<std::uint64_t>(index) >= most) {
    throw std::out_of_range(c10::str("it is of entry ", index, ", but there are at most ", most, " entries"));
  }
  const auto place = static_cast<std::size_t>(index);
  if (journal.entries.size() <= place) journal.entries.resize(place + 1);
  return journal.entries[place];
}

/// Throws unless the name of the shard fits its entry and slot, and the size of its samples can be computed.
void check_open(const OpenShard& shard) {
  const auto name = parse_shard_name(shard.name + ".part");
  if (!name.has_value() || name->entry != shard.entry || name->slot.value_or(-1) != shard.slot) {
    throw std::invalid_argument("it calls a shard \"" + shard.name +
                                "\", which is not of its entry and slot");
  }
  std::int64_t elements = 1;
  for (const auto extent : shard.shape) {
    if (extent < 0 || __builtin_mul_overflow(elements, std::max<std::int64_t>(extent, 1), &elements) ||
        elements > std::numeric_limits<std::int64_t>::max() / 16) {
      throw std::invalid_argument("it claims samples of shape " + shown(shard.shape));
    }
  }
  if (shard.stacked < -1) throw std::invalid_argument("it claims a negative number of samples");
}

/// Adds a line to `journal`. `most` is the largest number of entries that is possible.
void take(Journal& journal, const base::InputFile& file, const std::string& json, std::size_t most) {
  if (nests_deeper(json, kDeepest)) throw std::length_error("it nests too deep");
  const std::string what = json.substr(0, json.find(':'));
  if (what == "{\"recording\"") {
    const auto head = parse<Head>(json, "recording");
    check_format(file, head.format, kJournalFormat);
    journal.library = head.library;
    journal.created = head.created;
  } else if (what == "{\"entry\"") {
    auto entry = parse<EntryLine>(json, "entry");
    SpooledEntry& place = entry_at(journal, entry.entry, most);
    static_cast<EntryId&>(place) = std::move(entry);
  } else if (what == "{\"open\"") {
    auto shard = parse<OpenShard>(json, "open");
    entry_at(journal, shard.entry, most);
    check_open(shard);
    const auto [open, fresh] = journal.open.emplace(shard.name, shard);
    if (!fresh) open->second.stacked = shard.stacked;
  } else if (what == "{\"shard\"") {
    auto shard = parse<ShardLine>(json, "shard");
    SpooledEntry& place = entry_at(journal, shard.entry, most);
    journal.open.erase(shard.shard.file.substr(0, shard.shard.file.rfind('.')));
    place.shards.push_back(std::move(shard.shard));
  } else if (what == "{\"not_recorded\"") {
    auto missing = parse<NotRecordedLine>(json, "not_recorded");
    entry_at(journal, missing.entry, most).not_recorded = std::move(missing.not_recorded);
  } else {
    throw std::invalid_argument("it is of an unknown kind; update torchtap");
  }
}

}  // namespace

bool nests_deeper(const std::string& json, int most) {
  int depth = 0;
  bool quoted = false;
  for (std::size_t i = 0; i < json.size(); ++i) {
    const char c = json[i];
    if (quoted) {
      if (c == '\\') ++i;
      if (c == '"') quoted = false;
      continue;
    }
    if (c == '"') quoted = true;
    if (c == '[' || c == '{') ++depth;
    if (c == ']' || c == '}') --depth;
    if (depth > most) return true;
  }
  return false;
}

Journal read_journal(const base::InputFile& file, std::size_t known) {
  const std::string text = file.read_all(kLargestJournal);
  const std::size_t most = known + static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
  Journal journal;
  std::vector<std::string> torn;  // damaged lines since the last valid one
  std::int64_t number = 0;
  for (std::size_t at = 0; at < text.size();) {
    ++number;
    const auto end = std::min(text.find('\n', at), text.size());
    const std::string sum = text.substr(at, std::min<std::size_t>(9, end - at));
    const std::string json = text.substr(std::min(at + 9, end), end - std::min(at + 9, end));
    char expected[16];
    std::snprintf(expected, sizeof expected, "%08x ", base::crc32(0, json.data(), json.size()));
    if (sum != expected || end == text.size()) {
      torn.push_back(c10::str("line ", number, " of its journal is damaged"));
    } else {
      journal.damage.insert(journal.damage.end(), torn.begin(), torn.end());
      torn.clear();
      try {
        take(journal, file, json, most);
      } catch (const NewerFormat&) {
        throw;
      } catch (const std::exception& error) {
        journal.damage.push_back(c10::str("line ", number, " of its journal cannot be read: ", error.what()));
      }
    }
    at = end + 1;
  }
  return journal;
}

std::string journal_head(const std::string& created) {
  Head head;
  head.created = created;
  return line("recording", head);
}

std::string journal_entry(std::int64_t index, const EntryId& entry) {
  return line("entry", EntryLine{entry, index});
}

std::string journal_open(const OpenShard& shard) {
  return line("open", shard);
}

std::string journal_shard(std::int64_t entry, const ShardInfo& shard) {
  return line("shard", ShardLine{entry, shard});
}

std::string journal_not_recorded(std::int64_t entry, const core::NotRecorded& not_recorded) {
  return line("not_recorded", NotRecordedLine{entry, not_recorded});
}

std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  ::gmtime_r(&now, &parts);
  char text[32];
  return std::string(text, std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts));
}

}  // namespace torchtap::storage::detail
