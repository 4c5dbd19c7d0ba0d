// Checks the claims of manifests.
#include <c10/core/ScalarType.h>

#include <algorithm>
#include <unordered_set>

#include <torchtap/base/error.hpp>
#include <torchtap/storage/detail/manifest_check.hpp>
#include <torchtap/storage/detail/recording_files.hpp>
#include <torchtap/storage/dtype.hpp>

namespace torchtap::storage::detail {
namespace {

constexpr std::int64_t kMost = std::int64_t{1} << 53;  // the largest integer that all JSON readers keep exact
constexpr std::int64_t kMostEmpty = std::int64_t{1} << 24;

/// Whether `name` names a file in the folder itself.
bool is_plain(const std::string& name) {
  return !name.empty() && name != "." && name != ".." && name.find('/') == std::string::npos &&
         name.find('\\') == std::string::npos && name.find('\0') == std::string::npos;
}

bool is_count(std::int64_t number) {
  return number >= 0 && number <= kMost;
}

/// The error in the shape of `count` tensors in a file of `bytes` bytes; "" if there is none. `one`: they
/// have one shape and dtype.
std::string wrong_shape(const ShapeSummary& form, bool one, std::int64_t count, std::int64_t bytes) {
  const auto& [dtype, shape, ragged] = form;
  std::int64_t elements = count;
  bool known = true, fits = true;
  for (const auto extent : shape) {
    if (extent < -1) return "claims the shape " + shown(shape);
    known = known && extent >= 0;
    fits = fits && !__builtin_mul_overflow(elements, extent < 0 ? 1 : extent, &elements);
  }
  if (ragged && !shape.empty()) return "claims one shape, and that shapes differ";
  if (one && (!known || ragged || dtype == "mixed")) return "claims several shapes or dtypes of one tensor";
  if (dtype.empty()) return shape.empty() && !ragged ? "" : "claims a shape and no dtype";
  const bool empty = std::find(shape.begin(), shape.end(), 0) != shape.end();
  if (ragged || !known || empty) return "";
  // A dtype that this LibTorch does not know takes at least one byte per element.
  const auto size =
      static_cast<std::int64_t>(c10::elementSize(dtype_of(dtype).value_or(c10::ScalarType::Byte)));
  if (!fits || elements > bytes / size) {
    return c10::str("claims ", count, " of the shape ", shown(shape), " and dtype ", dtype, " in ", bytes,
                    " bytes");
  }
  return "";
}

/// Checks one entry; throws `c10::ValueError` for impossible claims.
class EntryCheck {
 public:
  EntryCheck(const base::InputFile& file, const Description& part, std::int64_t index,
             std::unordered_set<std::string>& files)
      : file_(file), part_(part), index_(index), files_(files) {}

  void run() {
    if (part_.index != index_) bad(c10::str("claims to be entry ", part_.index));
    if (!is_count(part_.samples)) bad(c10::str("claims ", part_.samples, " samples"));
    const core::NotRecorded& missing = part_.not_recorded;
    for (const std::int64_t count : {missing.refused, missing.without_tensors, missing.left_out, missing.none,
                                     missing.dropped, missing.unmatched, missing.unmatched_samples}) {
      if (!is_count(count)) bad(c10::str("claims ", count, " events that were not recorded"));
    }
    if (!is_count(part_.bytes)) bad(c10::str("claims ", part_.bytes, " bytes"));
    if (!part_.shards.empty()) return shards();
    if (part_.file.empty()) {
      if (part_.samples > 0) bad(c10::str("claims ", part_.samples, " samples and names no file"));
      if (part_.bytes != 0 || part_.number != 0)
        bad("names no file and claims that there is something in it");
    } else {
      if (part_.samples == 0) bad("claims 0 samples and names a file");
      if (!is_plain(part_.file)) {
        bad(c10::str("names the file \"", part_.file,
                     "\", which is not a plain name in the recording's directory"));
      }
      if (!files_.insert(part_.file).second) {
        file_.bad(c10::str("two entries name the file \"", part_.file, "\""));
      }
    }
    contents();
  }

 private:
  [[noreturn]] void bad(const std::string& reason) const {
    file_.bad(named(static_cast<std::size_t>(index_), part_.path) + " " + reason);
  }

  void contents() const {
    const std::string& holds = part_.holds;
    if (holds != "none" && holds != "tensor" && holds != "list" && holds != "dict" && holds != "text") {
      bad("claims to hold \"" + holds + "\", which no file holds");
    }
    if (holds != "dict" && !part_.keys.empty()) bad("claims keys and to hold \"" + holds + "\"");
    const std::unordered_set<std::string> distinct(part_.keys.begin(), part_.keys.end());
    if (distinct.size() != part_.keys.size()) bad("names a key twice");
    const auto expected = holds == "none"     ? 0
                          : holds == "tensor" ? 1
                          : holds == "text"   ? 1
                          : holds == "dict"   ? static_cast<std::int64_t>(part_.keys.size())
                                              : part_.number;
    // Each item of a list takes at least one byte.
    if (part_.number != expected || part_.number < 0 || (holds == "list" && part_.number > part_.bytes)) {
      bad(c10::str("claims ", part_.number, " tensors, which contradicts its other fields"));
    }
    if (holds == "list" && part_.reduction.empty() && part_.number != part_.samples) {
      bad(c10::str("claims ", part_.samples, " samples and a list of ", part_.number));
    }
    const std::string wrong = wrong_shape(part_.form, holds == "tensor", 1, part_.bytes);
    if (!wrong.empty()) bad(wrong);
  }

  void shards() const {
    if (!part_.file.empty()) bad("names a file and shards");
    for (const auto& shard : part_.shards) {
      check(shard);
      if (!files_.insert(shard.file).second) {
        file_.bad(c10::str("the file \"", shard.file, "\" is named twice"));
      }
    }
    // Its own fields must be the sums over its shards.
    const Description sum = describe(part_.spooled(), static_cast<std::size_t>(index_));
    const auto differs = [&](const char* field, const auto& said, const auto& found) {
      if (said != found) bad(c10::str("and its shards contradict each other in \"", field, "\""));
    };
    differs("samples", part_.samples, sum.samples);
    differs("bytes", part_.bytes, sum.bytes);
    differs("holds", part_.holds, sum.holds);
    differs("number", part_.number, sum.number);
    differs("keys", part_.keys, sum.keys);
    differs("dtype", part_.form.dtype, sum.form.dtype);
    differs("shape", part_.form.shape, sum.form.shape);
    differs("ragged", part_.form.ragged, sum.form.ragged);
    differs("reduction", part_.reduction, sum.reduction);
  }

  void check(const ShardInfo& shard) const {
    const std::string name = "the shard \"" + shard.file + "\" ";
    ShardName place{index_, std::nullopt, 0};
    // An entry that was saved before it was spooled also has the file "INDEX.pt".
    if (shard.file != std::to_string(index_) + ".pt") {
      const auto parsed = parse_shard_name(shard.file);
      if (!parsed.has_value() || is_part(shard.file)) {
        bad(c10::str("names the shard \"", shard.file, "\", which is not the name of a shard"));
      }
      place = *parsed;
    }
    if (place.entry != index_ || place.slot.value_or(-1) != shard.slot) {
      file_.bad(c10::str(name, "is claimed to be of entry ", index_, " and slot ", shard.slot));
    }
    if (!is_count(shard.samples) || !is_count(shard.bytes) || shard.samples == 0 || shard.bytes == 0) {
      file_.bad(c10::str(name, "claims ", shard.samples, " samples and ", shard.bytes, " bytes"));
    }
    const bool stacked = shard.holds == "tensor";
    if (!stacked && shard.holds != "list") file_.bad(name + "claims to hold \"" + shard.holds + "\"");
    if (!stacked && shard.samples > shard.bytes) {
      file_.bad(c10::str(name, "claims ", shard.samples, " samples in ", shard.bytes, " bytes"));
    }
    const std::string wrong = wrong_shape(shard.form, stacked, stacked ? shard.samples : 1, shard.bytes);
    if (!wrong.empty()) file_.bad(name + wrong);
  }

  const base::InputFile& file_;
  const Description& part_;
  const std::int64_t index_;
  std::unordered_set<std::string>& files_;
};

/// Recordings have no expanded tensors: a tensor that is larger than its file is a view that repeats a few
/// elements.
void check_tensors(const base::InputFile& file, const core::Value& value) {
  each_tensor(value, [&](const at::Tensor& tensor) {
    if (static_cast<std::uint64_t>(tensor.nbytes()) <= file.size()) return;
    file.bad(c10::str("it claims a tensor of shape ", tensor.sizes(), ", which is ", tensor.nbytes(),
                      " bytes, and has ", file.size(), " bytes itself; no recording has such files"));
  });
}

}  // namespace

void check_manifest(const base::InputFile& file, Manifest& manifest, std::vector<std::string>* damage) {
  const auto size = static_cast<std::int64_t>(manifest.entries.size());
  if (manifest.count != size) {
    file.bad(c10::str("it claims ", manifest.count, " entries and lists ", size));
  }
  std::unordered_set<std::string> files;
  for (std::int64_t i = 0; i < size; ++i) {
    Description& part = manifest.entries[static_cast<std::size_t>(i)];
    try {
      EntryCheck(file, part, i, files).run();
    } catch (const c10::Error& error) {
      if (damage == nullptr) throw;
      damage->push_back(error.what_without_backtrace());
      part = describe(SpooledEntry{part, {}, {}, {}}, static_cast<std::size_t>(i));
    }
  }
}

void check_value(const base::InputFile& file, const Description& part, const core::Value& value) {
  Entry entry;
  entry.value = value;
  const Description found = describe(entry, 0);
  if (found.holds != part.holds) {
    file.bad(
        c10::str("it holds ", value.describe(), ", and the manifest says it holds \"", part.holds, "\""));
  }
  const auto differs = [&](const char* field, const auto& said, const auto& is) {
    if (said == is) return;
    file.bad(c10::str("it holds ", value.describe(), ", and the manifest says something else (\"", field,
                      "\"); file and manifest do not belong together"));
  };
  differs("number", part.number, found.number);
  differs("keys", part.keys, found.keys);
  differs("dtype", part.form.dtype, found.form.dtype);
  differs("shape", part.form.shape, found.form.shape);
  differs("ragged", part.form.ragged, found.form.ragged);
  check_tensors(file, value);
}

ShardInfo describe_shard(const base::InputFile& file, const core::Value& value) {
  ShardInfo shard;
  const bool stacked = value.is_tensor() && value.tensor().defined() && value.tensor().dim() > 0;
  if (stacked) {
    shard.holds = "tensor";
    shard.samples = value.tensor().size(0);
    shard.form.add(value.tensor().scalar_type(), value.tensor().sizes().slice(1));
    // Samples without elements take no space in the file, but some in memory.
    if (value.tensor().numel() == 0 && shard.samples > kMostEmpty) {
      file.bad(c10::str("it claims ", shard.samples, " samples without elements"));
    }
  } else if (value.is_list()) {
    shard.holds = "list";
    shard.samples = static_cast<std::int64_t>(value.list().size());
    for (const auto& item : value.list()) {
      if (!item.is_none() && !item.is_tensor())
        file.bad("it holds " + item.describe() + " among its samples");
      if (item.is_tensor()) shard.form.add(item.tensor().scalar_type(), item.tensor().sizes());
    }
  } else {
    file.bad("it holds " + value.describe() + " and no samples");
  }
  check_tensors(file, value);
  return shard;
}

void check_shard(const base::InputFile& file, const ShardInfo& said, const core::Value& value) {
  const ShardInfo found = describe_shard(file, value);
  if (found.samples != said.samples) {
    file.bad(c10::str("it holds ", value.describe(), ", and the manifest says ", said.samples, " samples"));
  }
  if (found.holds != said.holds || found.form != said.form) {
    file.bad(c10::str("it holds ", value.describe(),
                      ", and the manifest says another dtype or shape; file and manifest do not belong "
                      "together"));
  }
}

}  // namespace torchtap::storage::detail
