#pragma once

/// Values written as Python's pickle.

#include <c10/core/ScalarType.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <torchtap/core/value.hpp>

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

}  // namespace torchtap::storage::detail
