// Keeps the common part of shapes and dtypes.
#include <c10/util/StringUtil.h>

#include <torchtap/storage/detail/shape_summary.hpp>
#include <torchtap/storage/dtype.hpp>

namespace torchtap::storage::detail {

void ShapeSummary::add(c10::ScalarType type, c10::IntArrayRef sizes) {
  add(dtype_name(type), sizes);
}

void ShapeSummary::add(const ShapeSummary& other) {
  if (other.dtype.empty()) return;
  add(other.dtype, other.shape);
  if (other.ragged) {
    ragged = true;
    shape.clear();
  }
}

void ShapeSummary::add(const std::string& other, c10::IntArrayRef sizes) {
  if (dtype.empty()) {
    dtype = other;
    shape = sizes.vec();
    return;
  }
  if (dtype != other) dtype = "mixed";
  if (ragged || shape.size() != sizes.size()) {
    ragged = true;
    shape.clear();
    return;
  }
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] != sizes[i]) shape[i] = -1;
  }
}

std::string shown(c10::IntArrayRef sizes) {
  constexpr std::size_t kMost = 16;
  if (sizes.size() <= kMost) return c10::str(sizes);
  std::string text = c10::str(sizes.slice(0, kMost));
  text.pop_back();
  return c10::str(text, ", …] with ", sizes.size(), " dimensions");
}

}  // namespace torchtap::storage::detail
