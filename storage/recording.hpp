#pragma once

/// A recording on disk: one `.pt` file for each module that was recorded, and a manifest that says which is
/// which.
///
/// A recording is a directory with the files `0.pt` … `N-1.pt` and `manifest.json`. In Python:
///
///     manifest = json.load(open("analysis/manifest.json"))
///     for entry in manifest["entries"]:
///         if entry["file"]:
///             value = torch.load("analysis/" + entry["file"], weights_only=True)
///             print(entry["path"], entry["kind"], entry["samples"], entry["dtype"], entry["shape"])
///
/// Beside the value, a `.pt` file holds the state of the reduction that it came from, if that is one of this
/// library's: Python does not see it, and recordings are merged by it (`merge.hpp`). docs/format.md specifies
/// all files.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <memory>
#include <string>
#include <torchtap/core/saved_sink.hpp>
#include <torchtap/core/value.hpp>
#include <torchtap/storage/entry.hpp>
#include <torchtap/storage/file.hpp>
#include <torchtap/storage/save.hpp>
#include <vector>

namespace torchtap::storage {

namespace detail {
class InputFile;
struct Folder;
struct Description;
}  // namespace detail

class SampleRange;

/// A file with samples of one entry of a spooled recording (`spool.hpp`).
struct RecordedShard {
  std::string file;
  /// Which of all tensors of a module it holds; -1 where one tensor a sample was recorded.
  std::int64_t slot = -1;
  std::int64_t samples = 0;
  std::int64_t bytes = 0;
};

/// One entry of a recording that was loaded. A regular value; copying is cheap and keeps the directory open.
///
/// What the manifest says is at hand; the tensors are read from the file each time one of `value`, `tensor`
/// and `tensors` is called, so that a recording may be larger than memory: keep the result. They throw
/// `c10::ValueError` naming file and reason if the file is damaged, does not hold what the manifest says, or
/// is gone because the recording was replaced meanwhile; never is a file of another recording read in its
/// place.
class RecordedEntry {
 public:
  RecordedEntry(std::shared_ptr<const detail::Folder> folder,
                std::shared_ptr<const detail::Description> description);

  std::int64_t index() const noexcept;
  const EntryId& id() const noexcept;
  const std::string& path() const noexcept;
  const std::vector<std::string>& aliases() const noexcept;
  const std::string& type() const noexcept;
  const std::string& kind() const noexcept;
  std::int64_t samples() const noexcept;
  const std::string& reduction() const noexcept;
  /// The `.pt` file, with its directory; "" for an entry without samples.
  std::string file() const;
  /// The size of the file, or of all shards.
  std::int64_t bytes() const noexcept;
  /// How many entries the list or dict has; 1 for a tensor, 0 for an entry without samples.
  std::int64_t number() const noexcept;
  /// The keys of a dict, in order.
  const std::vector<std::string>& keys() const noexcept;
  /// "float32" …, "mixed" or "": see the manifest's `dtype`.
  const std::string& dtype() const noexcept;
  /// -1 in dimensions where the tensors differ: see the manifest's `shape`.
  const std::vector<std::int64_t>& shape() const noexcept;

  /// Whether the tensors differ in the number of dimensions; `shape` is empty then.
  bool ragged() const noexcept;
  /// The reductions behind the value, as they were saved; empty where there are none to go on from. For
  /// `reductions::restore`.
  std::vector<core::SavedSink> state() const;

  /// What is in the file; nothing (`Value::is_none`) for an entry without samples.
  core::Value value() const;
  /// The tensor of an entry that holds one. Throws `c10::TypeError` for a list or dict, `c10::ValueError` for
  /// an entry without samples.
  at::Tensor tensor() const;
  /// A result by its name, such as "variance". Throws `c10::IndexError` listing the names there are.
  at::Tensor tensor(const std::string& key) const;
  /// The samples, in the order they were recorded; a single tensor is a list of one, no samples an empty
  /// list. Throws `c10::TypeError` for a dict.
  std::vector<at::Tensor> tensors() const;
  /// The same one after the other, without having more than one shard of a spooled recording in memory. Of a
  /// module of which all tensors were recorded, those of `slot`.
  ///
  ///     for (const at::Tensor& sample : recording.at("layer1").samples_range()) …
  SampleRange samples_range(std::int64_t slot = -1) const;
  /// The files of an entry that was spooled, in order; empty for any other.
  std::vector<RecordedShard> shards() const;
  /// How many samples a spool left out because the disk could not keep up.
  std::int64_t dropped() const noexcept;

 private:
  friend class SampleRange;
  detail::InputFile open(const std::string& call, const std::string& name) const;
  std::vector<at::Tensor> read_shard(const RecordedShard& shard) const;

  std::shared_ptr<const detail::Folder> folder_;
  std::shared_ptr<const detail::Description> description_;
};

/// The samples of an entry in the order they were recorded, undefined where a module was given no tensor.
/// Read as they are asked for: an input range, which can be gone through several times. Throws as
/// `RecordedEntry::value` does.
class SampleRange {
  struct Cursor;

 public:
  SampleRange(RecordedEntry entry, std::int64_t slot);
  class Iterator;
  Iterator begin() const;
  Iterator end() const;

 private:
  RecordedEntry entry_;
  std::int64_t slot_;
};

class SampleRange::Iterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = at::Tensor;
  using difference_type = std::ptrdiff_t;
  using pointer = const at::Tensor*;
  using reference = const at::Tensor&;

  Iterator() = default;
  const at::Tensor& operator*() const;
  const at::Tensor* operator->() const { return &**this; }
  Iterator& operator++();
  void operator++(int) { ++*this; }
  friend bool operator==(const Iterator& a, const Iterator& b) noexcept { return a.cursor_ == b.cursor_; }
  friend bool operator!=(const Iterator& a, const Iterator& b) noexcept { return !(a == b); }

 private:
  friend class SampleRange;
  std::shared_ptr<Cursor> cursor_;  // null at the end
};

inline SampleRange::Iterator SampleRange::end() const {
  return {};
}

/// A recording that was loaded: its entries, in the order of attachment. A regular value.
class Recording {
 public:
  using const_iterator = std::vector<RecordedEntry>::const_iterator;

  Recording() = default;
  Recording(std::vector<RecordedEntry> entries, std::string library, std::string created,
            bool complete = true);

  std::size_t size() const noexcept { return entries_.size(); }
  bool empty() const noexcept { return entries_.empty(); }
  const_iterator begin() const noexcept { return entries_.begin(); }
  const_iterator end() const noexcept { return entries_.end(); }

  /// The i-th entry. Throws `c10::IndexError`.
  const RecordedEntry& at(std::int64_t index) const;
  /// The entry of the module called `name`, by path or alias. Throws `c10::IndexError` listing the nearest
  /// names if there is none, or the indices if there are several.
  const RecordedEntry& at(const std::string& name) const;
  /// The paths, in order.
  std::vector<std::string> paths() const;
  /// The same, under the word of torchfunc.
  std::vector<std::string> names() const { return paths(); }
  /// The version of torchtap that wrote it, and when; "" for a single `.pt` file.
  const std::string& library() const noexcept { return library_; }
  const std::string& created() const noexcept { return created_; }
  /// False for a spooled recording that was cut off, or that is still being written: what is here is whole,
  /// and there may have been more. `recover` says what.
  bool complete() const noexcept { return complete_; }

 private:
  std::vector<RecordedEntry> entries_;
  std::string library_;
  std::string created_;
  bool complete_ = true;
};

/// Reads a recording from a directory that `save` wrote, or from a single `.pt` file, which makes a recording
/// of one entry: its path is the file's name without ".pt", its samples the length of a list or else 1.
///
/// Reads the manifest and checks that every file is there with the size that the manifest says; the tensors
/// stay on disk until they are asked for. The manifest is not trusted: names that are no plain file names, or
/// that are symbolic links, are refused, so that nothing outside the directory is read.
///
/// Throws `c10::ValueError` naming file and reason for a path that does not exist, a directory without
/// manifest, a manifest that is damaged, contradicts itself or was written by a newer schema, and for files
/// that are missing or have another size. A contradiction is what no file can hold: more tensors than bytes,
/// a shape larger than the file, an entry that is not the sum of its shards, a shard of another entry. What
/// the manifest says of a file that is wrong otherwise is found when its value is read.
Recording load(const std::string& path, const LoadOptions& options = {});

}  // namespace torchtap::storage
