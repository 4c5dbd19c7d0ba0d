#pragma once

/// The one list of dtypes that files hold, with all their names.

#include <c10/core/ScalarType.h>

#include <string>
#include <vector>

namespace torchtap::storage::detail {

/// A dtype and its names.
struct Dtype {
  c10::ScalarType type;
  const char* python;  ///< "float32"
  /// Its typed storage in `.pt` files, "FloatStorage"; null for newer dtypes, which have none and use
  /// `_rebuild_tensor_v3`.
  const char* storage;
};

/// The dtypes of the table that this LibTorch has.
const std::vector<Dtype>& dtype_table();
/// Null for a dtype that no file holds, or an unknown name.
const Dtype* dtype_by_type(c10::ScalarType type);
const Dtype* dtype_by_name(const std::string& python);
const Dtype* dtype_by_storage(const std::string& storage);

}  // namespace torchtap::storage::detail
