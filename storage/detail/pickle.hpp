#pragma once

/// Writes values as a Python pickle.

#include <c10/core/ScalarType.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <torchtap/core/value.hpp>

namespace torchtap::storage::detail {

/// How deep lists and dicts may nest, when written and when read.
constexpr int kMaxDepth = 100;

/// Throws `c10::TypeError` or `c10::ValueError` if a file cannot hold `value`: tensors without plain bytes
/// (sparse, quantized, meta …), dtypes that torch.load does not know, keys that are not UTF-8 or occur twice,
/// nesting deeper than `kMaxDepth`. `where` names the value in messages.
void check_value(const std::string& call, const std::string& where, const core::Value& value);

/// Returns the pickle of `value`, which must have passed `check_value`. Calls `store(key, data, size)` with
/// the bytes of each tensor, or of several small tensors that follow one another in a list; tensors that are
/// the same view of the same storage are stored once.
std::string pickle(const core::Value& value,
                   const std::function<void(const std::string&, const void*, std::size_t)>& store);

/// Consecutive samples of one shape in the record "data/`key`".
struct StoredRun {
  bool defined = true;  // if not, each of them is None
  std::string key;
  c10::ScalarType dtype = c10::ScalarType::Float;
  std::int64_t storage_elements = 0;  // in the whole record
  std::int64_t offset = 0;            // of the first sample, in elements
  std::vector<std::int64_t> sizes;
  std::int64_t count = 0;
};
/// Returns the pickle of a list of samples; with `stacked`, of a single run as one tensor `[count, *sizes]`.
std::string pickle_runs(const std::vector<StoredRun>& runs, bool stacked);

}  // namespace torchtap::storage::detail
