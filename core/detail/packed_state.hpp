#pragma once

/// Archives for a state that goes to another process: large tensors stay beside the bytes, so that they can
/// be sent from where they are.

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <string>
#include <vector>

#include <torchtap/base/api.hpp>
#include <torchtap/core/archive.hpp>

namespace torchtap::core::detail {

/// What a reduction says of its state while it is saved: whether two states fit can be told from these alone.
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

/// The place of a tensor that is not among the bytes.
struct TORCHTAP_API TensorPlace {
  std::int32_t dtype = 0;
  std::int32_t device_type = 0;
  std::vector<std::int64_t> sizes;

  template <class Archive>
  void serialize(Archive& archive) {
    archive(dtype, device_type, sizes);
  }
};

/// Writes a state as any output archive does, but for tensors of `kBeside` bytes or more, which it collects
/// as contiguous tensors on the CPU. They share memory with the state where it has them like that.
class TORCHTAP_API StateWriter final : public OutputArchive {
 public:
  /// Smaller tensors cost less to copy than a message of their own would.
  static constexpr std::size_t kBeside = std::size_t{64} << 10;

  explicit StateWriter(std::ostream& stream);
  ~StateWriter() noexcept override;

  /// What was written to the side, in order.
  std::vector<at::Tensor> tensors;
  /// What reductions said of themselves, in order.
  std::vector<StateFact> facts;
};

/// Reads what a `StateWriter` wrote. Tensors of another kind of device than the CPU come to this thread's
/// current device of that kind, or to the CPU where there is none.
class TORCHTAP_API StateReader final : public InputArchive {
 public:
  /// `tensors` are those of the writer, of the same shapes and dtypes; the state takes them over.
  StateReader(std::istream& stream, std::vector<at::Tensor> tensors);
  ~StateReader() noexcept override;

  /// The next tensor from the side. Throws `c10::ValueError` if there is none, or one of another form.
  at::Tensor take(const TensorPlace& place);
  /// Whether all were taken.
  bool finished() const noexcept { return next_ == tensors_.size(); }

 private:
  std::vector<at::Tensor> tensors_;
  std::size_t next_ = 0;
};

/// Notes the version of a reduction's state, if `archive` is a `StateWriter`.
TORCHTAP_API void note_version(OutputArchive& archive, const char* what, std::uint32_t version);
/// Notes the shape of the rows that a reduction folds, if `archive` is a `StateWriter`.
TORCHTAP_API void note_shape(OutputArchive& archive, const char* what, bool shaped,
                             const std::vector<std::int64_t>& shape);
/// The device on which a state that was on `device` is from now on: another one only if a `StateReader` read
/// it.
TORCHTAP_API at::Device placed(InputArchive& archive, at::Device device);

}  // namespace torchtap::core::detail
