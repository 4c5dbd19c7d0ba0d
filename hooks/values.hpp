#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>
#include <torch/version.h>

#include <array>
#include <cstdint>
#include <optional>
#include <torchtap/core/error.hpp>
#include <tuple>
#include <type_traits>
#include <typeinfo>
#include <utility>
#include <vector>

// c10::optional was a type of its own before LibTorch 2.3, and is std::optional since.
#define TORCHTAP_OWN_OPTIONAL \
  (TORCH_VERSION_MAJOR < 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR < 3))
#if TORCHTAP_OWN_OPTIONAL
#include <c10/util/Optional.h>
#endif

namespace torch::nn {
struct ASMoutput;
}

namespace torchtap::hooks {

/// The optional that LibTorch's module interface uses.
#if TORCHTAP_OWN_OPTIONAL
template <class T>
using TorchOptional = c10::optional<T>;
#else
template <class T>
using TorchOptional = std::optional<T>;
#endif

/// The tensors inside the arguments or the result of one call, flattened in order. What is absent (an
/// undefined tensor, an empty optional) keeps its place.
///
/// Refers to the call's own values: assigning to an element replaces what the module gets or what its caller
/// gets. Valid only while the hook runs.
class Tensors {
 public:
  std::int64_t size() const noexcept { return static_cast<std::int64_t>(slots_.size()); }
  bool empty() const noexcept { return slots_.empty(); }

  /// The tensor in slot `index`, undefined where nothing was passed. Throws `c10::IndexError`.
  at::Tensor& operator[](std::int64_t index) {
    check(index);
    return *slots_[static_cast<std::size_t>(index)];
  }
  const at::Tensor& operator[](std::int64_t index) const {
    check(index);
    return *slots_[static_cast<std::size_t>(index)];
  }

  void push_back(at::Tensor& tensor) { slots_.push_back(&tensor); }
  /// Notes a value in which tensors may be, of a type that `Visit` was not told about (see `register_value`).
  void push_unknown(const std::type_info& type) { unknown_.push_back(&type); }
  const c10::SmallVectorImpl<const std::type_info*>& unknown() const noexcept { return unknown_; }
  /// Keeps the place of an empty optional or of an argument that was left to its default.
  void push_absent() { slots_.push_back(&absent_); }
  /// Throws `c10::ValueError` if a hook put a tensor where the call has an empty optional or no argument.
  void check_absent(const char* what) const {
    TORCH_CHECK_VALUE(!absent_.defined(), "hooks: a hook assigned a tensor to a slot of the ", what,
                      " that holds an empty optional or an argument left out; only what is there can be "
                      "replaced.");
  }

  Tensors() = default;
  Tensors(const Tensors&) = delete;  // refers to itself where a slot is absent
  Tensors& operator=(const Tensors&) = delete;

 private:
  void check(std::int64_t index) const {
    TORCH_CHECK_INDEX(index >= 0 && index < size(), "hooks::Tensors: slot ", index,
                      " was asked for, but there are ", size(), ".");
  }

  c10::SmallVector<at::Tensor*, 4> slots_;
  at::Tensor absent_;
  c10::SmallVector<const std::type_info*, 1> unknown_;
};

/// How the tensors inside a value of type `T` are found. Specialise it for a struct of your own:
///
///     template <>
///     struct torchtap::hooks::Visit<Detections> {
///       template <class Visitor>
///       static void apply(Detections& value, Visitor&& visit) { visit(value.boxes); visit(value.scores); }
///     };
///
/// and, if such values pass between entries of a `Sequential`, call `hooks::register_value<Detections>()`
/// once. Built in: tensors, tuples, pairs, arrays, vectors and optionals of such, nested at will. Anything
/// else holds no tensors.
template <class T, class = void>
struct Visit {
  template <class Visitor>
  static void apply(T& /*value*/, Visitor&& /*visit*/) {}
};

namespace detail {

struct Collector {
  Tensors& tensors;
  void operator()(at::Tensor& tensor) const { tensors.push_back(tensor); }
  void absent() const { tensors.push_absent(); }
  template <class T>
  void operator()(T& value) const {
    Visit<T>::apply(value, *this);
  }
};

}  // namespace detail

template <class... Ts>
struct Visit<std::tuple<Ts...>> {
  template <class Visitor>
  static void apply(std::tuple<Ts...>& value, Visitor&& visit) {
    std::apply([&](auto&... parts) { (visit(parts), ...); }, value);
  }
};

template <class A, class B>
struct Visit<std::pair<A, B>> {
  template <class Visitor>
  static void apply(std::pair<A, B>& value, Visitor&& visit) {
    visit(value.first);
    visit(value.second);
  }
};

template <class T>
struct Visit<std::vector<T>, std::enable_if_t<!std::is_same_v<T, bool>>> {
  template <class Visitor>
  static void apply(std::vector<T>& value, Visitor&& visit) {
    for (T& part : value) visit(part);
  }
};

/// What `AdaptiveLogSoftmaxWithLoss` returns. Here, not where that type is hooked, as every file has to see
/// it; a template, so that it need not be complete.
template <class T>
struct Visit<T, std::enable_if_t<std::is_same_v<T, torch::nn::ASMoutput>>> {
  template <class Visitor>
  static void apply(T& value, Visitor&& visit) {
    visit(value.output);
    visit(value.loss);  // a plain number in most versions of LibTorch
  }
};

template <class T, std::size_t N>
struct Visit<std::array<T, N>> {
  template <class Visitor>
  static void apply(std::array<T, N>& value, Visitor&& visit) {
    for (T& part : value) visit(part);
  }
};

namespace detail {

/// How many tensors a value of type `T` holds if every value of it holds as many, else 0.
template <class T>
inline constexpr std::size_t tensors_in_v = std::is_same_v<T, at::Tensor> ? 1 : 0;
template <class... Ts>
inline constexpr std::size_t tensors_in_v<std::tuple<Ts...>> = (std::size_t{0} + ... + tensors_in_v<Ts>);
template <class A, class B>
inline constexpr std::size_t tensors_in_v<std::pair<A, B>> = tensors_in_v<A> + tensors_in_v<B>;
template <class T, std::size_t N>
inline constexpr std::size_t tensors_in_v<std::array<T, N>> = N* tensors_in_v<T>;
template <class T>
inline constexpr std::size_t tensors_in_v<std::optional<T>> = tensors_in_v<T>;
#if TORCHTAP_OWN_OPTIONAL
template <class T>
inline constexpr std::size_t tensors_in_v<c10::optional<T>> = tensors_in_v<T>;
#endif

/// An empty one keeps the places of the tensors that it might hold: an LSTM has three inputs, with a state or
/// without.
template <class Optional>
struct VisitOptional {
  template <class Visitor>
  static void apply(Optional& value, Visitor&& visit) {
    if (value.has_value()) {
      visit(*value);
    } else {
      for (std::size_t i = 0; i < tensors_in_v<Optional>; ++i) visit.absent();
    }
  }
};

}  // namespace detail

template <class T>
struct Visit<std::optional<T>> : detail::VisitOptional<std::optional<T>> {};
#if TORCHTAP_OWN_OPTIONAL
template <class T>
struct Visit<c10::optional<T>> : detail::VisitOptional<c10::optional<T>> {};
#endif

}  // namespace torchtap::hooks
