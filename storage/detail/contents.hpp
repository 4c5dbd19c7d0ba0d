#pragma once

/// What the recording in an open directory says of itself: manifest and journal together.

#include <string>
#include <vector>

#include <torchtap/storage/detail/journal.hpp>
#include <torchtap/storage/detail/manifest.hpp>

namespace torchtap::storage::detail {

/// What the recording in an open directory says of itself: manifest and journal together.
struct Contents {
  std::vector<SpooledEntry> entries;
  std::vector<Description> described;  // the same as the manifest has them
  std::vector<OpenShard> open;
  std::vector<std::string> damage;
  std::string created;
  bool has_manifest = false;
  bool has_journal = false;
};
/// Manifest and journal of an open directory as one manifest; of `contents`, all but `entries` and
/// `described` is filled in. Throws `c10::ValueError` if there is neither. With `lenient`, what is wrong with
/// them is listed under `damage` instead of thrown; a newer format is an error in any case.
Manifest read_manifest(const std::string& call, const std::string& path, int directory, bool lenient,
                       Contents& contents);
/// Throws `c10::ValueError` if it cannot be gone on with sample by sample, because an entry was reduced.
/// `lenient` as for `read_manifest`.
Contents read_contents(const std::string& call, const std::string& path, int directory, bool lenient);

/// Puts a manifest in place.
void write_manifest(const std::string& call, const std::string& path, int directory,
                    const std::string& created, const std::vector<SpooledEntry>& entries, bool sync);

}  // namespace torchtap::storage::detail
