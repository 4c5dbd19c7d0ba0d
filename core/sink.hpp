#pragma once

/// Defines `Sink`, the interface between recorders and reductions, and makes sinks of reductions.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <torchtap/base/api.hpp>
#include <torchtap/base/error.hpp>
#include <torchtap/base/recording_mode.hpp>
#include <torchtap/core/access.hpp>
#include <torchtap/core/archive.hpp>
#include <torchtap/core/detail/pass_member.hpp>
#include <torchtap/core/saved_sink.hpp>
#include <torchtap/core/unfit.hpp>
#include <torchtap/core/value.hpp>

namespace torchtap::core {

/// A type-erased reduction, fed by a recorder.
///
/// The only interface between recorders and reductions. Not thread-safe: the owner locks.
class TORCHTAP_API Sink {
 public:
  virtual ~Sink() = default;

  /// Folds one sample in. If it throws, the state is unchanged.
  virtual void update(const at::Tensor& sample) = 0;
  /// Throws the error that `update` would throw for this sample; false if only an update can find out.
  /// Changes nothing.
  virtual bool check(const at::Tensor& sample) const = 0;
  /// Adds everything that `other` has seen. Throws `c10::TypeError` if `other` is another kind of reduction,
  /// `c10::ValueError` if its configuration or the shapes it has seen differ; the state is then unchanged.
  virtual void merge(const Sink& other) = 0;
  /// The number of samples folded in so far or, under `over(dims)`, of rows.
  virtual std::int64_t count() const = 0;
  /// The results by name; empty before the first sample.
  virtual Results results() const = 0;
  /// Continues from `value` as if it were the fold of all samples so far; false if the reduction needs more
  /// numbers.
  virtual bool assign(const at::Tensor& value) = 0;
  /// A sink with the same configuration and no samples.
  virtual std::unique_ptr<Sink> fresh() const = 0;
  virtual std::unique_ptr<Sink> clone() const = 0;
  /// "Moments", "Histogram(64, -4, 4)": for manifests and messages.
  virtual std::string describe() const = 0;
  /// The expression from which it can be rebuilt: "Moments", "Series(Mean, Max)"; empty if it cannot
  /// (callables, user-defined types).
  virtual std::string recipe() const = 0;
  /// Whether samples may be folded in any order, and by several sinks that are merged in the end.
  virtual bool commutative() const = 0;
  /// The names of the tensors that it looks up in the thread's `core::Context`.
  virtual std::vector<std::string> companions() const { return {}; }
  /// The reduction, if it can share a pass over a sample with others; otherwise null.
  virtual detail::PassMember* pass_member() noexcept = 0;
  /// Access for reading.
  const detail::PassMember* pass_member() const noexcept { return const_cast<Sink*>(this)->pass_member(); }
  /// Writes configuration and state. Throws `c10::NotImplementedError` for a reduction that cannot be saved.
  virtual void save(OutputArchive& archive) const = 0;
  /// Reads a state that `save` wrote; throws as `save` does.
  virtual void load(InputArchive& archive) = 0;
};

namespace detail {

template <class T, class = void>
struct has_update : std::false_type {};
template <class T>
struct has_update<T, std::void_t<decltype(std::declval<T&>().update(std::declval<const at::Tensor&>()))>>
    : std::true_type {};

template <class T, class = void>
struct has_merge : std::false_type {};
template <class T>
struct has_merge<T, std::void_t<decltype(std::declval<T&>().merge(std::declval<const T&>()))>>
    : std::true_type {};

template <class T, class = void>
struct has_count : std::false_type {};
template <class T>
struct has_count<T, std::void_t<decltype(std::int64_t{std::declval<const T&>().count()})>> : std::true_type {
};

template <class T, class = void>
struct has_results : std::false_type {};
template <class T>
struct has_results<T, std::void_t<decltype(Results{std::declval<const T&>().results()})>> : std::true_type {};

// Copying is asked for last, and of reductions only: to copy a class that a reduction converts to, compilers
// may ask whether the class is a reduction.
template <class T>
struct is_reduction : std::conjunction<has_update<T>, has_merge<T>, has_count<T>, has_results<T>,
                                       std::is_copy_constructible<T>> {};

/// True, or an error of the compiler that says which member of a reduction `T` lacks.
template <class T>
constexpr bool checked_reduction() {
  static_assert(has_update<T>::value, "a reduction needs: void update(const at::Tensor& sample);");
  static_assert(has_merge<T>::value, "a reduction needs: void merge(const R& other);");
  static_assert(has_count<T>::value, "a reduction needs: std::int64_t count() const;");
  static_assert(has_results<T>::value, "a reduction needs: torchtap::core::Results results() const;");
  static_assert(std::is_copy_constructible_v<T>, "a reduction needs to be copyable: each module gets a copy");
  return true;
}

template <class T, class = void>
struct has_into_sink : std::false_type {};
template <class T>
struct has_into_sink<T, std::void_t<decltype(Access::into_sink(std::declval<T>()))>> : std::true_type {};

template <class T, class = void>
struct has_describe : std::false_type {};
template <class T>
struct has_describe<T, std::void_t<decltype(std::string{std::declval<const T&>().describe()})>>
    : std::true_type {};

template <class T, class = void>
struct has_recipe : std::false_type {};
template <class T>
struct has_recipe<T, std::void_t<decltype(Access::recipe(std::declval<const T&>()))>> : std::true_type {};

template <class T, class = void>
struct has_commutative : std::false_type {};
template <class T>
struct has_commutative<T, std::void_t<decltype(bool{std::declval<const T&>().commutative()})>>
    : std::true_type {};

template <class T, class = void>
struct has_companions : std::false_type {};
template <class T>
struct has_companions<T,
                      std::void_t<decltype(std::vector<std::string>{std::declval<const T&>().companions()})>>
    : std::true_type {};

template <class T, class = void>
struct has_assign : std::false_type {};
template <class T>
struct has_assign<T, std::void_t<decltype(std::declval<T&>().assign(std::declval<const at::Tensor&>()))>>
    : std::true_type {};

template <class T, class = void>
struct has_check : std::false_type {};
template <class T>
struct has_check<T, std::void_t<decltype(std::declval<const T&>().check(std::declval<const at::Tensor&>()))>>
    : std::true_type {};

template <class T, class = void>
struct has_fresh : std::false_type {};
template <class T>
struct has_fresh<T, std::void_t<decltype(T{std::declval<const T&>().fresh()})>> : std::true_type {};

}  // namespace detail

/// Whether `T` is a reduction: a regular value (a copy shares no state that a later update changes) with
/// `update(const at::Tensor&)`, `merge(const T&)`, `std::int64_t count() const` and
/// `Results results() const`.
///
/// Updates run in `base::RecordingMode`, and so do merging, assigning and loading through a recorder.
/// Optional members:
/// - `std::string describe() const`;
/// - `T fresh() const`: the same configuration without samples. Without it, the object as it was handed over
///   is the fresh one;
/// - `void check(const at::Tensor&) const`: throws the error that `update` would throw. Without it, a copy is
///   updated where several reductions have to succeed together or not at all;
/// - `void assign(const at::Tensor&)`;
/// - `std::vector<std::string> companions() const`: the names that it looks up in the thread's `Context`;
/// - `bool commutative() const`: whether samples may be folded in any order, and by several objects that are
///   merged in the end. Threads do so if there is also a `fresh()`; otherwise they take turns;
/// - cereal's `serialize` or `save` and `load`.
template <class T>
inline constexpr bool is_reduction_v = detail::is_reduction<std::decay_t<T>>::value;

/// Whether `T` folds two tensors into one: `at::Tensor(const at::Tensor& accumulated, const at::Tensor&
/// sample)`.
template <class T>
inline constexpr bool is_fold_v =
    std::is_invocable_r_v<at::Tensor, std::decay_t<T>&, const at::Tensor&, const at::Tensor&>;

/// A callable that folds samples of any shapes; made by `any_shape`.
template <class Callable>
struct AnyShape {
  /// Calls it.
  at::Tensor operator()(const at::Tensor& accumulated, const at::Tensor& sample) {
    return callable(accumulated, sample);
  }
  Callable callable;  ///< What is called.
};

/// Says that a callable `(accumulated, sample) -> accumulated` takes samples of any shapes, as one that
/// concatenates them does.
template <class Callable>
AnyShape<std::decay_t<Callable>> any_shape(Callable&& callable) {
  static_assert(is_fold_v<Callable>,
                "expected a callable at::Tensor(const at::Tensor& accumulated, const at::Tensor& sample)");
  return {std::forward<Callable>(callable)};
}

namespace detail {

template <class T>
inline constexpr bool takes_any_shape_v = false;
template <class T>
inline constexpr bool takes_any_shape_v<AnyShape<T>> = true;

}  // namespace detail

/// Makes a reduction of a callable `(accumulated, sample) -> accumulated`, starting from a copy of the first
/// sample. A sample of another shape than the first one's does not fit (`Unfit`), because adding it, say,
/// would repeat its rows; `any_shape` says otherwise.
///
/// `merge` calls it on the two accumulated values, so the callable must be associative for the result to
/// equal a single stream's. The idea is `functools.reduce`, as in torchfunc's recorders.
template <class Callable>
class Fold {
 public:
  /// Without samples.
  explicit Fold(Callable callable) : callable_(std::move(callable)) {}
  Fold(const Fold& other) : callable_(other.callable_), count_(other.count_), sizes_(other.sizes_) {
    const base::RecordingMode quiet;
    if (other.value_.defined()) value_ = other.value_.clone();  // the callable may work in place
  }
  Fold(Fold&&) = default;

  /// Folds a sample in.
  void update(const at::Tensor& sample) {
    check_no_wrapper(sample, "the callable");
    check_sizes(sample.sizes());
    fold(sample);
    if (count_++ == 0) sizes_ = sample.sizes().vec();
  }
  /// Folds the value of `other` in.
  void merge(const Fold& other) {
    if (other.count_ == 0) return;
    if (other.sizes_.has_value()) check_sizes(*other.sizes_);
    fold(other.value_);
    if (count_ == 0) sizes_ = other.sizes_;
    count_ += other.count_;
  }
  std::int64_t count() const noexcept { return count_; }
  /// "value"; empty while there are no samples.
  Results results() const { return count_ == 0 ? Results{} : Results{{"value", value_.clone()}}; }
  /// Goes on from `value`.
  void assign(const at::Tensor& value) { value_ = value.clone(); }
  Fold fresh() const { return Fold(callable_); }
  std::string describe() const { return "callable"; }

  template <class Archive>
  void serialize(Archive& archive) {
    const auto version = state_version(archive, "callable", 2);
    archive(cereal::make_nvp("count", count_), cereal::make_nvp("value", value_));
    bool known = version >= 2 && sizes_.has_value();
    std::vector<std::int64_t> sizes = sizes_.value_or(std::vector<std::int64_t>());
    if (version >= 2) archive(cereal::make_nvp("known", known), cereal::make_nvp("sizes", sizes));
    if (Archive::is_loading::value) sizes_ = known ? std::optional(std::move(sizes)) : std::nullopt;
  }

 private:
  void check_sizes(at::IntArrayRef sizes) const {
    if (detail::takes_any_shape_v<Callable> || !sizes_.has_value() || sizes == at::IntArrayRef(*sizes_))
      return;
    unfit<c10::ValueError>(c10::str("reduction: the callable got a first sample of shape ",
                                    at::IntArrayRef(*sizes_), ", and now one of ", sizes,
                                    ", which does not match it; if it takes any shape, say so "
                                    "with any_shape(callable)."));
  }
  void fold(const at::Tensor& sample) {
    // Cloned: the callable may return its argument, or a view of it, and the accumulated value must not
    // change with the sample, which the model may write to.
    at::Tensor next = value_.defined() ? callable_(value_, sample) : sample.clone();
    TORCH_CHECK_VALUE(next.defined(),
                      "reduction: the callable returned an undefined tensor for a sample of shape ",
                      sample.sizes(), "; it must return the folded tensor.");
    const bool shares =
        next.is_same(sample) || (next.has_storage() && sample.has_storage() && next.is_alias_of(sample));
    value_ = shares ? next.clone() : std::move(next);
  }

  Callable callable_;
  std::int64_t count_ = 0;
  std::optional<std::vector<std::int64_t>> sizes_;  // of the first sample; unknown of older states
  at::Tensor value_;
};

/// Adapts a reduction `R` to the `Sink` interface.
template <class R>
class SinkOf final : public Sink {
 public:
  static_assert(detail::checked_reduction<R>());

  /// A sink that owns `reduction`.
  explicit SinkOf(R reduction) : reduction_(std::move(reduction)) {
    if constexpr (!detail::has_fresh<R>::value) initial_ = std::make_shared<const R>(*reduction_);
  }

  /// The reduction itself.
  const R& reduction() const noexcept { return *reduction_; }
  /// The reduction itself.
  R& reduction() noexcept { return *reduction_; }

  void update(const at::Tensor& sample) override {
    if constexpr (kPassMember) {  // which enters the mode where it needs to
      reduction_->update(sample);
    } else {
      const base::RecordingMode quiet;
      reduction_->update(sample);
    }
  }
  bool check([[maybe_unused]] const at::Tensor& sample) const override {
    if constexpr (detail::has_check<R>::value) {
      const base::RecordingMode quiet;
      reduction_->check(sample);
    }
    return detail::has_check<R>::value;
  }
  void merge(const Sink& other) override {
    const auto* same = dynamic_cast<const SinkOf*>(&other);
    TORCH_CHECK_TYPE(same != nullptr, "merge: cannot merge ", other.describe(), " into ", describe(),
                     "; both must be the same reduction.");
    const base::RecordingMode quiet;
    reduction_->merge(*same->reduction_);
  }
  std::int64_t count() const override { return reduction_->count(); }
  Results results() const override { return reduction_->results(); }
  bool assign([[maybe_unused]] const at::Tensor& value) override {
    if constexpr (detail::has_assign<R>::value) {
      const base::RecordingMode quiet;
      reduction_->assign(value);
      return true;
    }
    return false;
  }
  std::unique_ptr<Sink> fresh() const override {
    if constexpr (detail::has_fresh<R>::value) {
      return std::make_unique<SinkOf>(reduction_->fresh());
    } else {
      return std::make_unique<SinkOf>(*initial_);
    }
  }
  std::unique_ptr<Sink> clone() const override { return std::make_unique<SinkOf>(*this); }
  std::string describe() const override {
    if constexpr (detail::has_describe<R>::value) {
      return reduction_->describe();
    } else {
      return c10::demangle(typeid(R).name());
    }
  }
  std::string recipe() const override {
    if constexpr (detail::has_recipe<R>::value) {
      return Access::recipe(*reduction_);
    } else {
      return {};
    }
  }
  bool commutative() const override {
    if constexpr (detail::has_commutative<R>::value && detail::has_fresh<R>::value) {
      return reduction_->commutative();
    } else {
      return false;
    }
  }
  std::vector<std::string> companions() const override {
    if constexpr (detail::has_companions<R>::value) {
      return reduction_->companions();
    } else {
      return {};
    }
  }
  detail::PassMember* pass_member() noexcept override {
    if constexpr (kPassMember) {
      return &*reduction_;
    } else {
      return nullptr;
    }
  }
  void save(OutputArchive& archive) const override {
    if constexpr (cereal::traits::is_output_serializable<R, OutputArchive>::value) {
      archive(*reduction_);
    } else {
      TORCH_CHECK_NOT_IMPLEMENTED(
          false, "snapshot: ", describe(),
          " cannot be saved; give it a cereal serialize(), or a pair of save() and load().");
    }
  }
  void load(InputArchive& archive) override {
    if constexpr (cereal::traits::is_input_serializable<R, InputArchive>::value) {
      const base::RecordingMode quiet;
      R loaded = *reduction_;
      archive(loaded);
      reduction_.emplace(std::move(loaded));  // not assigned: a Fold of a lambda has no assignment
    } else {
      TORCH_CHECK_NOT_IMPLEMENTED(
          false, "restore: ", describe(),
          " cannot be loaded; give it a cereal serialize(), or a pair of save() and load().");
    }
  }

 private:
  static constexpr bool kPassMember = std::is_base_of_v<detail::PassMember, R>;

  std::optional<R> reduction_;  // never empty
  std::shared_ptr<const R> initial_;
};

/// Makes a sink of a reduction, or of a callable that folds two tensors.
template <class R>
std::unique_ptr<Sink> make_sink(R&& reduction) {
  using T = std::decay_t<R>;
  if constexpr (is_fold_v<T>) {
    return std::make_unique<SinkOf<Fold<T>>>(Fold<T>(std::forward<R>(reduction)));
  } else if constexpr (!is_reduction_v<T>) {
    constexpr bool any_member = detail::has_update<T>::value || detail::has_merge<T>::value ||
                                detail::has_count<T>::value || detail::has_results<T>::value;
    static_assert(!std::is_convertible_v<T, std::string>,
                  "expected a reduction; torchtap::reductions::parse(\"mean\") makes one of its name");
    static_assert(any_member || std::is_convertible_v<T, std::string>,
                  "expected a reduction (update, merge, count, results) or a callable "
                  "at::Tensor(const at::Tensor& accumulated, const at::Tensor& sample)");
    if constexpr (any_member) static_assert(detail::checked_reduction<T>());
    return nullptr;  // not reached
  } else if constexpr (detail::has_into_sink<T>::value) {
    return Access::into_sink(T(std::forward<R>(reduction)));
  } else {
    return std::make_unique<SinkOf<T>>(std::forward<R>(reduction));
  }
}

/// Serialises `sink`; empty if it has no recipe.
inline std::optional<SavedSink> save(const Sink& sink) {
  SavedSink saved{sink.recipe(), {}};
  if (saved.recipe.empty()) return std::nullopt;
  std::ostringstream stream;
  {
    OutputArchive archive(stream);
    sink.save(archive);
  }
  saved.bytes = stream.str();
  return saved;
}

/// Serialises a reduction; empty if it has no recipe.
template <class R, class = std::enable_if_t<is_reduction_v<R>>>
std::optional<SavedSink> save(const R& reduction) {
  return save(*make_sink(reduction));
}

}  // namespace torchtap::core
