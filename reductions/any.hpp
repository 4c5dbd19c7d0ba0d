#pragma once

/// A reduction whose type is known only when the program runs.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <torchtap/base/api.hpp>
#include <torchtap/core/sink.hpp>

namespace torchtap::reductions {

/// Any reduction: `restore` and `parse` return it, and a recorder, a `Series` or a combinator takes it like
/// any other. A copy shares nothing with its original.
///
/// The idea is `std::any`'s; `get` asks for the type inside. An object that was moved from can only be
/// assigned to and destroyed.
class TORCHTAP_API Any {
 public:
  /// Holds a copy of `reduction`, or a `core::Fold` of a callable `(accumulated, sample) -> accumulated`.
  template <class R, class = std::enable_if_t<!std::is_same_v<std::decay_t<R>, Any>>,
            class = std::enable_if_t<core::is_reduction_v<R> || core::is_fold_v<R>>>
  Any(R&& reduction) : sink_(core::make_sink(std::forward<R>(reduction))) {}  // NOLINT: any reduction is one
  /// Holds the reduction of `sink`. Throws `c10::ValueError` if it is null.
  explicit Any(std::unique_ptr<core::Sink> sink);
  Any(const Any& other) : sink_(other.sink_->clone()) {}
  Any(Any&&) noexcept = default;
  Any& operator=(Any other) noexcept {
    sink_ = std::move(other.sink_);
    return *this;
  }
  ~Any() = default;

  /// Folds a sample in. Throws the reduction's error, which leaves it unchanged.
  void update(const at::Tensor& sample) { sink_->update(sample); }
  /// Throws the error that `update` would throw for this sample. Changes nothing.
  void check(const at::Tensor& sample) const;
  /// Merges `other` as if its samples had followed this object's. Throws `c10::TypeError` if it holds another
  /// kind of reduction, and the reduction's errors; the state is unchanged then.
  void merge(const Any& other) { sink_->merge(*other.sink_); }
  /// Samples, or rows under `over(dims)`.
  std::int64_t count() const { return sink_->count(); }
  /// The results by name; empty before the first sample.
  core::Results results() const { return sink_->results(); }
  /// "Mean(over=[0])".
  std::string describe() const { return sink_->describe(); }
  /// Whether samples may arrive in any order.
  bool commutative() const { return sink_->commutative(); }
  /// The names of the tensors that it looks up in the thread's `core::Context`.
  std::vector<std::string> companions() const { return sink_->companions(); }
  /// The same configuration without samples.
  Any fresh() const { return Any(sink_->fresh()); }

  /// The reduction inside if it is an `R`; otherwise null.
  template <class R>
  const R* get() const& noexcept {
    const auto* const same = dynamic_cast<const core::SinkOf<R>*>(sink_.get());
    return same == nullptr ? nullptr : &same->reduction();
  }
  /// Not of a temporary, with which the reduction ends.
  template <class R>
  const R* get() && = delete;

  /// As recorders and `storage::merge` hold a reduction.
  operator std::unique_ptr<core::Sink>() && {
    return std::move(sink_);
  }  // NOLINT: so that `restore` is a Restore

  /// For cereal: saves the reduction.
  void save(core::OutputArchive& archive) const { sink_->save(archive); }
  /// For cereal: into a reduction of the same kind.
  void load(core::InputArchive& archive) { sink_->load(archive); }

 private:
  friend struct core::Access;
  std::string recipe() const { return sink_->recipe(); }
  core::Sink& sink() noexcept { return *sink_; }
  const core::Sink& sink() const noexcept { return *sink_; }
  std::unique_ptr<core::Sink> into_sink() && { return std::move(sink_); }

  std::unique_ptr<core::Sink> sink_;
};

}  // namespace torchtap::reductions
