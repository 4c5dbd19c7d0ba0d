#pragma once

/// Reads the manifest and the journal of a recording together.

#include <string>
#include <vector>

#include <torchtap/storage/detail/journal.hpp>
#include <torchtap/storage/detail/manifest.hpp>

namespace torchtap::storage::detail {

/// The manifest and the journal of a recording in one.
struct Contents {
  std::vector<SpooledEntry> entries;
  std::vector<Description> described;  // the same entries, with the fields of the manifest
  OpenShards open;
  std::vector<std::string> damage;
  std::string created;
  bool has_manifest = false;
  bool has_journal = false;
};
/// Reads manifest and journal of an open directory as one manifest, and fills in all of `contents` but
/// `entries` and `described`. Throws `c10::ValueError` if there is neither. With `lenient`, errors are listed
/// under `damage` instead of thrown; a newer format is always thrown.
Manifest read_manifest(const std::string& call, const std::string& path, int directory, bool lenient,
                       Contents& contents);
/// Reads the manifest and all of `Contents`. Throws `c10::ValueError` if samples cannot be appended, because
/// an entry was reduced.
Contents read_contents(const std::string& call, const std::string& path, int directory, bool lenient);

/// The text of a manifest.
std::string manifest_of(const std::string& created, const std::vector<SpooledEntry>& entries);
/// Writes `manifest.json` and puts it in place in one step.
void write_manifest(const std::string& call, const std::string& path, int directory, const std::string& text,
                    bool sync);

}  // namespace torchtap::storage::detail
