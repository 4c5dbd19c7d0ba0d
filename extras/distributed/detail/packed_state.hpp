#pragma once

/// Archives for a state that goes to another process: large tensors stay beside the bytes, so that they can
/// be sent from where they are.

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <string>
#include <utility>
#include <vector>

#include <torchtap/base/api.hpp>
#include <torchtap/core/extend/state_archive.hpp>

namespace torchtap::distributed::detail {

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

/// The elements of the states of `Elementwise` in an archive, which may hold only a part of them.
///
/// Elements count if there are `kFewest` or more; smaller states are the same in every part.
class TORCHTAP_API Elements {
 public:
  static constexpr std::int64_t kFewest = 1024;

  /// Part `index` of `parts` of `count` elements: where it begins, for `index` = `parts` where the last one
  /// ends. Parts begin at multiples of `kFewest`.
  static std::int64_t begin_of(std::int64_t count, std::int64_t parts, std::int64_t index) noexcept {
    return index == parts ? count : count / kFewest * index / parts * kFewest;
  }

  /// The treatment of the elements by an archive.
  enum class Use {
    see,   ///< a writer: notes them
    none,  ///< a reader: nothing
    cut,   ///< a reader: takes a part of a whole state
    join,  ///< a reader: makes a whole state of a part's bytes and whole tensors
  };
  Elements() = default;
  /// For a reader that takes a part or joins parts: the sizes of all elements, and the part that it takes, or
  /// from whose bytes it makes the whole.
  Elements(Use how, std::vector<std::int64_t> all, std::int64_t from, std::int64_t size)
      : use(how), whole(std::move(all)), begin(from), length(size) {}

  /// Elements begin, or end.
  void enter(bool is) noexcept {
    inside = is;
    many = many && is;
  }
  /// The next tensors begin with these dimensions; reading changes the sizes. Does nothing outside.
  void declare(std::vector<std::int64_t>& sizes);
  /// Whether a tensor of these sizes, which comes next, is made of elements that count; a writer notes it.
  bool has(at::IntArrayRef sizes);
  /// The number of elements.
  std::int64_t count() const noexcept;
  /// The sizes of a tensor after reading it: its part, or the whole that is made of parts.
  std::vector<std::int64_t> read(at::IntArrayRef sizes) const;

  Use use = Use::see;
  std::vector<std::int64_t> whole;  ///< empty: no elements
  std::int64_t begin = 0, length = 0;
  bool divisible = true;  ///< whether all elements that count have the same sizes, and tensors of them
  bool inside = false;    ///< of an `Elementwise`
  bool many = false;      ///< whether its elements count
  bool flat = false;      ///< whether they are one dimension of the next tensors
};

/// Writes a state as any output archive does, but collects tensors of `kBeside` bytes or more as contiguous
/// tensors on the CPU. They share memory with the state where it has them like that.
class TORCHTAP_API StateWriter final : public core::OutputArchive, public core::extend::StateOutput {
 public:
  /// Smaller tensors cost less to copy than a separate message would.
  static constexpr std::size_t kBeside = std::size_t{64} << 10;

  /// `elements_beside`: also puts smaller tensors of elements beside the bytes.
  explicit StateWriter(std::ostream& stream, bool elements_beside = false);
  ~StateWriter() noexcept override;

  /// The collected tensors, in order.
  std::vector<at::Tensor> tensors;
  /// For each tensor that is made of elements the size of all further dimensions; 0 for the others.
  std::vector<std::int64_t> widths;
  Elements elements;
  const bool elements_beside;

  void inside(bool is) noexcept override { elements.enter(is); }
  void declare(std::vector<std::int64_t>& sizes) override { elements.declare(sizes); }
  void flatten() override { elements.flat = true; }
  void put(const at::Tensor& tensor) override;
};

/// Reads the state that a `StateWriter` wrote. Tensors of other devices than the CPU are loaded to this
/// thread's current device of that type, or to the CPU where there is none.
class TORCHTAP_API StateReader final : public core::InputArchive, public core::extend::StateInput {
 public:
  /// `tensors` are the writer's, or have the same shapes and dtypes; the state takes them over.
  StateReader(std::istream& stream, std::vector<at::Tensor> tensors);
  /// Reads a part of the state, with the part's rows of those `tensors` that are made of elements; or makes a
  /// whole state of a part's bytes and whole tensors. Such tensors need to have as many numbers, in any
  /// shape.
  StateReader(std::istream& stream, std::vector<at::Tensor> tensors, Elements elements);
  ~StateReader() noexcept override;

  Elements elements;

  void inside(bool is) noexcept override { elements.enter(is); }
  void declare(std::vector<std::int64_t>& sizes) override { elements.declare(sizes); }
  void flatten() override { elements.flat = true; }
  at::Tensor get() override;
  /// The next tensor from the side. Throws `c10::ValueError` if there is none, or one of another form.
  at::Tensor take(const TensorPlace& place);
  /// Whether all were taken.
  bool finished() const noexcept { return next_ == tensors_.size(); }

 private:
  std::vector<at::Tensor> tensors_;
  std::size_t next_ = 0;
};

}  // namespace torchtap::distributed::detail
