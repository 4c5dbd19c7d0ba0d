// Converts manifests to and from JSON.
#include <cereal/archives/json.hpp>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <sstream>

#include <torchtap/base/crc32.hpp>
#include <torchtap/base/error.hpp>
#include <torchtap/storage/detail/format.hpp>
#include <torchtap/storage/detail/journal.hpp>
#include <torchtap/storage/detail/manifest.hpp>

namespace torchtap::storage::detail {
namespace {

constexpr std::int64_t kManifestFormat = 2;
constexpr std::int64_t kUnspooledFormat = 1;  // still written for recordings without shards
constexpr std::uint64_t kLargestManifest = std::uint64_t{1} << 30;
constexpr int kDeepestManifest = 16;
// The last field, in front of its value; older manifests lack it. In a text it would stand with backslashes.
constexpr const char* kChecksum = "\"crc32\": \"";

/// The checksum of the first `size` bytes.
std::string checksum(const std::string& text, std::size_t size) {
  char sum[16];
  std::snprintf(sum, sizeof sum, "%08x", base::crc32(0, text.data(), size));
  return sum;
}

}  // namespace

std::string to_json(Manifest manifest) {
  manifest.library = library_version();
  const bool spooled = std::any_of(manifest.entries.begin(), manifest.entries.end(),
                                   [](const auto& entry) { return !entry.shards.empty(); });
  manifest.format = spooled ? kManifestFormat : kUnspooledFormat;
  std::ostringstream stream;
  {
    using How = cereal::JSONOutputArchive::Options;
    // Indented by little: cereal writes each character by a call.
    cereal::JSONOutputArchive archive(stream, How(/*precision=*/17, How::IndentChar::space, 1));
    archive(cereal::make_nvp("format", manifest.format), cereal::make_nvp("library", manifest.library),
            cereal::make_nvp("created", manifest.created), cereal::make_nvp("count", manifest.count),
            cereal::make_nvp("entries", manifest.entries));
  }
  std::string text = stream.str();
  text.resize(text.size() - 2);  // without "\n}"
  text += ",\n ";
  return text + kChecksum + checksum(text, text.size()) + "\"\n}\n";
}

Manifest from_json(const base::InputFile& file) {
  const std::string text = file.read_all(kLargestManifest);
  if (nests_deeper(text, kDeepestManifest)) file.bad("it nests deeper than any manifest; it is damaged");
  Manifest manifest;
  try {
    std::istringstream stream(text);
    cereal::JSONInputArchive archive(stream);
    archive(cereal::make_nvp("format", manifest.format));
    if (manifest.format >= 1 && manifest.format <= kManifestFormat) {
      archive(cereal::make_nvp("library", manifest.library), cereal::make_nvp("created", manifest.created),
              cereal::make_nvp("count", manifest.count), cereal::make_nvp("entries", manifest.entries));
    }
  } catch (const c10::Error&) {
    throw;
  } catch (const std::exception&) {  // cereal::Exception, rapidjson's among them; std::length_error
    file.bad(
        "it is not the manifest of a recording, or it is damaged: it is not JSON, or a field is missing or "
        "of another type");
  }
  check_format(file, manifest.format, kManifestFormat);
  const auto field = text.rfind(kChecksum);
  if (field != std::string::npos &&
      text.compare(field + std::strlen(kChecksum), 8, checksum(text, field)) != 0) {
    file.bad(
        "its checksum is another one: it is damaged, or was edited (whoever edits it has to remove its last "
        "field, crc32)");
  }
  return manifest;
}

}  // namespace torchtap::storage::detail
