#pragma once

/// Reads a recording: a directory with one `.pt` file for each module that was recorded, and a manifest.
///
/// A recording is a directory with the files `0.pt` … `N-1.pt` and `manifest.json`. In Python:
///
///     manifest = json.load(open("analysis/manifest.json"))
///     for entry in manifest["entries"]:
///         if entry["file"]:
///             value = torch.load("analysis/" + entry["file"], weights_only=True)
///             print(entry["path"], entry["kind"], entry["samples"], entry["dtype"], entry["shape"])
///
/// docs/format.md specifies all files, and what else they hold.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <torchtap/base/api.hpp>
#include <torchtap/core/saved_sink.hpp>
#include <torchtap/core/value.hpp>
#include <torchtap/storage/entry.hpp>
#include <torchtap/storage/file.hpp>
#include <torchtap/storage/save.hpp>

namespace torchtap::base {
class InputFile;
}

namespace torchtap::storage {

namespace detail {
struct Folder;
struct Description;
struct EntryAccess;
}  // namespace detail

namespace extend {

/// The class whose objects are the rows of an entry, as a member `Rows`. The component rows defines it; its
/// namespace is not named here, so that programs may call something of their own `rows`.
template <class Entry>
struct RowsOf {
  static_assert(sizeof(Entry) == 0, "rows() needs #include <torchtap/rows/rows.hpp>, of the component rows");
};

}  // namespace extend

class SampleRange;

/// A file with samples of one entry of a spooled recording (`spool.hpp`).
struct TORCHTAP_API RecordedShard {
  /// Its name in the directory of the recording.
  std::string file;
  /// The slot whose tensors it holds; nothing if one tensor per sample was recorded.
  std::optional<std::int64_t> slot;
  /// How many samples it holds.
  std::int64_t samples = 0;
  /// Its size in bytes.
  std::int64_t bytes = 0;
};

/// One entry of a loaded recording. A regular value; copying is cheap and keeps the directory open.
///
/// The fields of the manifest are in memory. `value`, `tensor` and `tensors` read the file on each call, so
/// that a recording may be larger than memory: keep the result. They throw `c10::ValueError` naming file and
/// reason if the file is damaged, contradicts the manifest, or was removed because the recording was
/// replaced. They never read a file of another recording instead.
class TORCHTAP_API RecordedEntry {
 public:
  /// For torchtap: programs get one from `load`.
  RecordedEntry(std::shared_ptr<const detail::Folder> folder,
                std::shared_ptr<const detail::Description> description);

  /// Its place in the recording.
  std::int64_t index() const noexcept;
  /// The entry's path, aliases, type and kind.
  const EntryId& id() const& noexcept;
  /// For a temporary: returns by value.
  EntryId id() && { return id(); }
  /// The dotted path of the module; "" for the root.
  const std::string& path() const& noexcept;
  /// For a temporary: returns by value.
  std::string path() && { return path(); }
  /// Further paths of a shared module.
  const std::vector<std::string>& aliases() const& noexcept;
  /// For a temporary: returns by value.
  std::vector<std::string> aliases() && { return aliases(); }
  /// The type of the module.
  const std::string& type() const& noexcept;
  /// For a temporary: returns by value.
  std::string type() && { return type(); }
  /// The kind of its recorder: "ForwardOutput", …
  const std::string& kind() const& noexcept;
  /// For a temporary: returns by value.
  std::string kind() && { return kind(); }
  /// How many samples were recorded.
  std::int64_t samples() const noexcept;
  /// The reduction, such as "Moments"; "" if every sample is kept.
  const std::string& reduction() const& noexcept;
  /// For a temporary: returns by value.
  std::string reduction() && { return reduction(); }
  /// Why there may be no samples although the module ran; "" if there are some, or nothing is known.
  const std::string& note() const& noexcept;
  /// For a temporary: returns by value.
  std::string note() && { return note(); }
  /// The path of the recording's directory, or of the folder of a single `.pt` file; "" in memory.
  const std::string& directory() const& noexcept;
  /// For a temporary: returns by value.
  std::string directory() && { return directory(); }
  /// The `.pt` file, with its directory; "" for an entry without samples.
  std::string file() const;
  /// The size of the file, or of all shards, in bytes.
  std::int64_t bytes() const noexcept;
  /// How many entries the list or dict has; 1 for a tensor or text, 0 for an entry without samples.
  std::int64_t number() const noexcept;
  /// The keys of a dict, in order.
  const std::vector<std::string>& keys() const& noexcept;
  /// For a temporary: returns by value.
  std::vector<std::string> keys() && { return keys(); }
  /// The dtype of the tensors, such as "float32"; "mixed" if they differ, "" if there are none.
  const std::string& dtype() const& noexcept;
  /// For a temporary: returns by value.
  std::string dtype() && { return dtype(); }
  /// The shape of the tensors, with -1 in dimensions where they differ.
  const std::vector<std::int64_t>& shape() const& noexcept;
  /// For a temporary: returns by value.
  std::vector<std::int64_t> shape() && { return shape(); }

  /// Whether the tensors differ in the number of dimensions; `shape` is empty then.
  bool ragged() const noexcept;
  /// The saved states of the reductions behind the value, for `reductions::restore`; empty if none were
  /// saved.
  std::vector<core::SavedSink> state() const;

  /// The value in the file; nothing (`Value::is_none`) for an entry without samples.
  core::Value value() const;
  /// The tensor of an entry that holds one. Throws `c10::TypeError` for a list or dict, `c10::ValueError` for
  /// an entry without samples.
  at::Tensor tensor() const;
  /// The result called `key`, such as "variance". Throws `c10::IndexError` listing the names if there is no
  /// such result, `c10::ValueError` for an entry without samples.
  at::Tensor tensor(const std::string& key) const;
  /// 0 is no name; see `tensors`.
  at::Tensor tensor(std::nullptr_t key) const = delete;
  /// The samples, in the order they were recorded; a single tensor is a list of one, no samples an empty
  /// list. Throws `c10::TypeError` for a dict.
  std::vector<at::Tensor> tensors() const;
  /// The samples as `tensors` has them, one after the other; at most one shard of a spooled recording is in
  /// memory. If all tensors of the module were recorded, the tensors of `slot`.
  ///
  ///     for (const at::Tensor& sample : recording.at("layer1").each_tensor()) …
  SampleRange each_tensor(std::optional<std::int64_t> slot = {}) const;
  /// The samples as `rows::Rows`, for programs that include <torchtap/rows/rows.hpp>, of the component rows.
  template <class Entry = RecordedEntry>
  auto rows() const {
    return typename extend::RowsOf<Entry>::Rows(*this);
  }
  /// The files of an entry that was spooled, in order; empty for any other.
  std::vector<RecordedShard> shards() const;
  /// How many samples were dropped for lack of room, in memory or in front of the disk.
  std::int64_t dropped() const noexcept;
  /// What is missing among the samples.
  const core::NotRecorded& not_recorded() const& noexcept;
  /// For a temporary: returns by value.
  core::NotRecorded not_recorded() && { return not_recorded(); }

 private:
  friend class SampleRange;
  friend struct detail::EntryAccess;
  base::InputFile open(const std::string& call, const std::string& name) const;
  core::Value read_shard(const RecordedShard& shard) const;

  std::shared_ptr<const detail::Folder> folder_;
  std::shared_ptr<const detail::Description> description_;
};

/// The samples of an entry in the order they were recorded, undefined where the module was given no tensor.
/// An input range that reads samples during iteration, and can be iterated several times. Throws like
/// `RecordedEntry::value`.
class TORCHTAP_API SampleRange {
  struct Cursor;

 public:
  /// See `RecordedEntry::each_tensor`.
  SampleRange(RecordedEntry entry, std::optional<std::int64_t> slot);
  class Iterator;
  Iterator begin() const;
  Iterator end() const;
  /// Calls `visit` with all samples in order, several at a time: with tensors `[n, ...]` of n samples of one
  /// shape, as a shard holds them. Undefined samples are left out. Far faster than a call for each of many
  /// small samples.
  void each_block(const std::function<void(const at::Tensor&)>& visit) const;

 private:
  RecordedEntry entry_;
  std::optional<std::int64_t> slot_;
};

class TORCHTAP_API SampleRange::Iterator {
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

/// A loaded recording: its entries, in the order of attachment. A regular value.
class TORCHTAP_API Recording {
 public:
  /// To iterate over entries.
  using const_iterator = std::vector<RecordedEntry>::const_iterator;

  Recording() = default;
  /// For torchtap: programs get one from `load`.
  Recording(std::vector<RecordedEntry> entries, std::string library, std::string created,
            bool complete = true);

  std::size_t size() const noexcept { return entries_.size(); }
  bool empty() const noexcept { return entries_.empty(); }
  const_iterator begin() const noexcept { return entries_.begin(); }
  const_iterator end() const noexcept { return entries_.end(); }

  /// The i-th entry. Throws `c10::IndexError`.
  const RecordedEntry& at(std::int64_t index) const&;
  /// For a temporary: returns by value.
  RecordedEntry at(std::int64_t index) && { return at(index); }
  /// The entry of the module called `name`, by path or alias; in a dump what is beside its rows only if no
  /// module has that name. Throws `c10::IndexError` listing the nearest names if there is none, or the
  /// indices if there are several.
  const RecordedEntry& at(const std::string& name) const&;
  /// For a temporary: returns by value.
  RecordedEntry at(const std::string& name) && { return at(name); }
  /// The paths, in order.
  std::vector<std::string> paths() const;
  /// The paths, under torchfunc's name.
  std::vector<std::string> names() const { return paths(); }
  /// The version of torchtap that wrote it, and when; "" for a single `.pt` file.
  const std::string& library() const& noexcept { return library_; }
  /// For a temporary: returns by value.
  std::string library() && { return std::move(library_); }
  const std::string& created() const& noexcept { return created_; }
  /// For a temporary: returns by value.
  std::string created() && { return std::move(created_); }
  /// False for a spooled recording that was cut off or is still being written. It has all complete shards;
  /// `recover` finds the samples that are not in one.
  bool complete() const noexcept { return complete_; }

 private:
  std::vector<RecordedEntry> entries_;
  std::string library_;
  std::string created_;
  bool complete_ = true;
};

/// Reads a recording from a directory that `save` or a spool wrote, or from a single `.pt` file. The latter
/// is a recording of one entry, whose path is the file's name without ".pt" and whose number of samples is
/// the length of a list, or 1.
///
/// Reads the manifest and checks that every file exists and has the size given there; the tensors stay on
/// disk until they are read. The manifest is not trusted: names with a path and symbolic links are refused,
/// so that nothing outside the directory is read.
///
/// Throws `c10::ValueError` naming file and reason for a path that does not exist, a directory without
/// manifest, a manifest that is damaged, contradicts itself or was written by a newer format, and for files
/// that are missing or have another size. Contradictions are impossible claims: more tensors than bytes, a
/// shape larger than the file, an entry that is not the sum of its shards, a shard of another entry. Other
/// wrong claims are found when the value is read.
TORCHTAP_API Recording load(const std::string& path, const LoadOptions& options = {});

/// A recording of values in memory, such as a program read from files of other formats. Its entries name no
/// file, `bytes` is the size of their tensors, and `Entry::state` is not kept.
TORCHTAP_API Recording in_memory(const std::vector<Entry>& entries);

}  // namespace torchtap::storage
