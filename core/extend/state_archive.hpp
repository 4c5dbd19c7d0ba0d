#pragma once

/// Declares archives that do more with a state than write its bytes, for a state that goes to another
/// process.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include <torchtap/base/api.hpp>
#include <torchtap/core/archive.hpp>

namespace torchtap::core::extend {

using detail::device_of;
using detail::pack;
using detail::PackedTensor;
using detail::unpack;

/// The facts that a reduction declares about its state while it is saved: they show whether two states fit.
struct TORCHTAP_API StateFact {
  std::string what;                 ///< the reduction, "Moments"
  std::uint32_t version = 0;        ///< of its state; 0 for a fact about the shape
  bool shaped = false;              ///< whether it has a shape yet
  std::vector<std::int64_t> shape;  ///< of the rows that it folds

  template <class Archive>
  void serialize(Archive& archive) {
    archive(what, version, shaped, shape);
  }
};

/// An archive that knows which tensors of a state are made of independent elements (`core::Elementwise`).
class TORCHTAP_API StateArchive {
 public:
  virtual ~StateArchive() = default;
  /// Elements begin, or end.
  virtual void inside(bool is) noexcept = 0;
  /// The next tensors begin with these dimensions; reading may change the sizes. Does nothing outside.
  virtual void declare(std::vector<std::int64_t>& sizes) = 0;
  /// They are one dimension of the next tensors.
  virtual void flatten() = 0;
};

/// Such an archive for writing. Derive from it beside `OutputArchive`.
class TORCHTAP_API StateOutput : public StateArchive {
 public:
  /// Writes a tensor in its own way.
  virtual void put(const at::Tensor& tensor) = 0;

  /// The facts that reductions declared, in order.
  std::vector<StateFact> facts;
};

/// Such an archive for reading. Derive from it beside `InputArchive`.
class TORCHTAP_API StateInput : public StateArchive {
 public:
  /// Reads a tensor that `StateOutput::put` wrote.
  virtual at::Tensor get() = 0;
};

/// Notes the shape of the rows that a reduction folds, if `archive` is a `StateOutput`.
TORCHTAP_API void note_shape(OutputArchive& archive, const char* what, bool shaped,
                             const std::vector<std::int64_t>& shape);
/// `Elementwise::sizes` for a reduction that may be inside of one.
TORCHTAP_API void declare_elements(OutputArchive& archive, std::vector<std::int64_t>& sizes);
/// As above, for reading.
TORCHTAP_API void declare_elements(InputArchive& archive, std::vector<std::int64_t>& sizes);
/// This thread's device of that type, or the CPU where there is none: processes number their devices each for
/// itself.
TORCHTAP_API at::Device here(std::int32_t type);
/// The device of a state that `archive` says was on device number `index` of type number `type`: as
/// `device_of`, and `here` for a `StateInput`. Throws as `device_of`.
TORCHTAP_API at::Device placed(InputArchive& archive, std::int32_t type, std::int32_t index);

}  // namespace torchtap::core::extend
