#pragma once

/// The one table of dtypes, with the names that they have in Python and in files.

#include <c10/core/ScalarType.h>

#include <optional>
#include <string>
#include <vector>

#include <torchtap/base/api.hpp>

namespace torchtap::base {

/// A dtype that files hold, and its names.
struct Dtype {
  c10::ScalarType type;
  const char* python;  ///< "float32"
  /// Its typed storage in `.pt` files, "FloatStorage"; null for newer dtypes, which have none and use
  /// `_rebuild_tensor_v3`.
  const char* storage;
  const char* npy;          ///< "f4", without the byte order; "" if NumPy has none
  const char* safetensors;  ///< "F32"; "" if the format has none
};

/// The dtypes of the table that this LibTorch has.
TORCHTAP_API const std::vector<Dtype>& dtypes();
/// Null for a dtype that no file holds, or an unknown name.
TORCHTAP_API const Dtype* dtype_by_type(c10::ScalarType type);
TORCHTAP_API const Dtype* dtype_by_name(const std::string& python);
TORCHTAP_API const Dtype* dtype_by_storage(const std::string& storage);

/// "float32" for any dtype, also for dtypes that no file holds: "qint8".
TORCHTAP_API std::string dtype_text(c10::ScalarType type);
/// The dtype of that text; nothing if this LibTorch has none.
TORCHTAP_API std::optional<c10::ScalarType> dtype_of_text(const std::string& text);

}  // namespace torchtap::base
