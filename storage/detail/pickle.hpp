#pragma once

/// Values as Python's pickle has them, and nothing else of pickle: no file can name a function or class
/// outside a short list, and nothing in it is ever run.

#include <cstddef>
#include <functional>
#include <string>
#include <torchtap/core/value.hpp>
#include <torchtap/storage/detail/zip.hpp>
#include <vector>

namespace torchtap::storage::detail {

/// How deep lists and dicts may nest, written or read.
constexpr int kMaxDepth = 100;

/// Throws `c10::TypeError` or `c10::ValueError` if a file cannot hold `value`: tensors without plain bytes
/// (sparse, quantized, meta …), dtypes that torch.load does not know, keys that are not UTF-8 or stand twice,
/// nesting deeper than `kMaxDepth`. `where` names the value in messages.
void check_value(const std::string& call, const std::string& where, const core::Value& value);

/// The pickle of `value`, which `check_value` has passed. The bytes of each tensor go to `store(key, data,
/// size)` on the way, those of one tensor at a time; tensors that are the same view of the same storage go
/// once.
std::string pickle(const core::Value& value,
                   const std::function<void(const std::string&, const void*, std::size_t)>& store);

/// Samples of one shape that lie one after the other in the record "data/`key`".
struct StoredRun {
  bool defined = true;  // else each of them is None
  std::string key;
  c10::ScalarType dtype = c10::ScalarType::Float;
  std::int64_t storage_elements = 0;  // in the whole record
  std::int64_t offset = 0;            // of the first sample, in elements
  std::vector<std::int64_t> sizes;
  std::int64_t count = 0;
};
/// The pickle of a list of samples, or with `stacked` of the one tensor `[count, *sizes]` that a single run
/// is.
std::string pickle_runs(const std::vector<StoredRun>& runs, bool stacked);

/// Adds a tensor to what a manifest says of several: `dtype` becomes "mixed" where it differs, `shape` -1 in
/// dimensions that do, `ragged` true where their number does.
void merge_shape(bool& first, std::string& dtype, std::vector<std::int64_t>& shape, bool& ragged,
                 const std::string& other_dtype, c10::IntArrayRef sizes);

/// The value in the record "data.pkl" of `records`; its tensors are read from the records "data/…", or with
/// `mmap` lie in mapped memory. `file` is for messages. Throws `c10::ValueError` for whatever is not a value.
core::Value unpickle(const InputFile& file, const ZipReader& records, bool mmap);

/// "float32", "complex64" …, as Python calls a dtype; "" for one that has no name there.
std::string dtype_name(c10::ScalarType type);
/// The other way round; false for a name that is none.
bool dtype_of(const std::string& name, c10::ScalarType& type);
/// Is `text` well-formed UTF-8?
bool is_utf8(const std::string& text);

}  // namespace torchtap::storage::detail
