#pragma once

/// Implementation of torchtap/hooks/hooked.hpp. Separate from it because it includes none of LibTorch's
/// module headers (include cloneable.h before it): under torchtap::transparent those headers include this
/// file.

#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <tuple>
#include <type_traits>
#include <typeinfo>
#include <utility>
#include <vector>

#include <torchtap/base/error.hpp>
#include <torchtap/hooks/detail/call.hpp>
#include <torchtap/hooks/detail/hook_point.hpp>

namespace torchtap::hooks::detail {
/// Names a specialisation of LibTorch's Cloneable, a friend of Module.
struct CloneAccess {};
}  // namespace torchtap::hooks::detail

namespace torch::nn {

class GRUImpl;
class LSTMImpl;
class RNNImpl;
class AdaptiveMaxPool1dImpl;
class AdaptiveMaxPool2dImpl;
class AdaptiveMaxPool3dImpl;
class FractionalMaxPool2dImpl;
class FractionalMaxPool3dImpl;
class MaxPool1dImpl;
class MaxPool2dImpl;
class MaxPool3dImpl;

/// LibTorch's `Cloneable<Derived>::clone` for a type derived from `Derived`. As a specialisation of Cloneable
/// it is a friend of Module and may read its children.
template <>
class Cloneable<torchtap::hooks::detail::CloneAccess> {
 public:
  template <class T>
  static std::shared_ptr<Module> clone_as(const T& self,
                                          const torchtap::hooks::TorchOptional<Device>& device) {
    NoGradGuard no_grad;
    auto copy = std::make_shared<T>(self);
    Module& to = *copy;
    const Module& from = self;
    to.parameters_.clear();
    to.buffers_.clear();
    to.children_.clear();
    copy->reset();
    check(to.parameters_.size() == from.parameters_.size(), "parameters");
    for (const auto& parameter : from.parameters_) {
      to.parameters_[parameter.key()].set_data(copy_of(parameter.value(), device));
    }
    check(to.buffers_.size() == from.buffers_.size(), "buffers");
    for (const auto& buffer : from.buffers_)
      to.buffers_[buffer.key()].set_data(copy_of(buffer.value(), device));
    check(to.children_.size() == from.children_.size(), "child modules");
    for (const auto& child : from.children_) to.children_[child.key()]->clone_(*child.value(), device);
    return copy;
  }

  static bool name_as(const Module& module, const std::type_info& type) {
    if (!module.name_.has_value()) module.name_ = c10::demangle(type.name());
    return true;
  }

 private:
  static Tensor copy_of(const Tensor& tensor, const torchtap::hooks::TorchOptional<Device>& device) {
    return device.has_value() && tensor.device() != *device ? tensor.to(*device) : tensor.clone();
  }
  static void check(bool same, const char* what) {
    TORCH_CHECK(
        same, "The cloned module does not have the same number of ", what,
        " as the original module after calling reset(). Are you sure you called register_*() inside reset() "
        "and not the constructor?");
  }
};

}  // namespace torch::nn

namespace torchtap::hooks {

namespace detail {

template <class Forward>
struct Signature;
template <class R, class C, class... Args>
struct Signature<R (C::*)(Args...)> {
  using Type = R(Args...);
};
template <class R, class C, class... Args>
struct Signature<R (C::*)(Args...) const> {
  using Type = R(Args...);
};
template <class R, class C, class... Args>
struct Signature<R (C::*)(Args...) noexcept> {
  using Type = R(Args...);
};
template <class R, class C, class... Args>
struct Signature<R (C::*)(Args...) const noexcept> {
  using Type = R(Args...);
};

template <class Impl, class = void>
struct ForwardOf {
  static_assert(!std::is_same_v<Impl, Impl>,
                "TORCHTAP_MODULE needs a type with exactly one forward(), not overloaded and not a template");
};
template <class Impl>
struct ForwardOf<Impl, std::void_t<decltype(&Impl::forward)>> {
  using Type = typename Signature<decltype(&Impl::forward)>::Type;
};

/// One argument of a hooked call, declared as `Arg`. References refer to the caller's own object: forward may
/// keep its address, or change members of it that are `mutable`. Here an argument by value, which hooks may
/// change: the object is a parameter of the functions around the call.
template <class Arg, class = void>
class Argument {
 public:
  explicit Argument(Arg&& given) : value_(given) {}
  void collect(CallTensors& inputs) { Collector{inputs}(value_); }
  /// The value to pass to forward.
  Arg& pass() { return value_; }
  /// Adds the tensors that a forward without a result wrote to this argument; here there are none.
  void collect_output(CallTensors& /*outputs*/) {}

 private:
  Arg& value_;
};

/// A tensor that forward only reads: the caller's own, unless a hook replaced it.
template <>
class Argument<const at::Tensor&> {
 public:
  explicit Argument(const at::Tensor& given) : caller_(given), value_(given) {}
  void collect(CallTensors& inputs) { inputs.push_back(value_); }
  const at::Tensor& pass() const { return value_.is_same(caller_) ? caller_ : value_; }
  void collect_output(CallTensors& /*outputs*/) {}

 private:
  const at::Tensor& caller_;
  at::Tensor value_;
};

/// Another value that forward only reads: the caller's own, or a copy of it if a hook replaced a tensor in
/// it.
template <class T>
class Argument<const T&, std::enable_if_t<!std::is_same_v<T, at::Tensor>>> {
 public:
  explicit Argument(const T& given) : caller_(given) {}
  Argument(const Argument&) = delete;
  Argument& operator=(const Argument&) = delete;

  void collect([[maybe_unused]] CallTensors& inputs) {
    if constexpr (!is_plain_v<T>) {
      CallTensors found;
      Collector{found}(const_cast<T&>(caller_));
      if constexpr (can_be_copied<T>()) {
        if (is_exactly<T>(caller_)) {
          collect_copied(found, inputs);
          return;
        }
      }
      inputs.push_fixed(found, typeid(const T*));
    }
  }
  const T& pass() const { return *passed_; }
  void collect_output(CallTensors& /*outputs*/) {}

 private:
  struct Copy {
    T value;
    CallTensors tensors;
    explicit Copy(const T& original) : value(original) { Collector{tensors}(value); }
  };

  void collect_copied(const CallTensors& found, CallTensors& inputs) {
    inputs.push_unknown_of(found);
    if (found.empty()) return;
    const std::int64_t begin = inputs.size();
    tensors_.reserve(static_cast<std::size_t>(found.size()));
    for (std::int64_t i = 0; i < found.size(); ++i) inputs.push_back(tensors_.emplace_back(found[i]));
    inputs.keep(begin, [this](CallTensors::Of of) {
      const auto copy = std::make_shared<Copy>(caller_);
      TORCH_CHECK_NOT_IMPLEMENTED(copy->tensors.size() == static_cast<std::int64_t>(tensors_.size()),
                                  "hooks: a hook replaced a tensor in an argument of type ",
                                  c10::demangle(typeid(T).name()), ", and a copy of it has ",
                                  copy->tensors.size(), " tensors instead of ", tensors_.size(), ".");
      for (std::int64_t i = 0; i < copy->tensors.size(); ++i) {
        const at::Tensor& now = tensors_[static_cast<std::size_t>(i)];
        if (!copy->tensors[i].is_same(now)) copy->tensors[i] = now;
      }
      copy->tensors.put_back(of);
      passed_ = &copy->value;
      copy_ = copy;
    });
  }

  const T& caller_;
  const T* passed_ = std::addressof(caller_);
  std::vector<at::Tensor> tensors_;  // seen by the hooks in place of the caller's
  std::shared_ptr<const void> copy_;
};

/// A tensor reference: the caller's own variable, unless a hook replaced the tensor. If forward then assigns
/// another tensor, the caller gets that.
template <>
class Argument<at::Tensor&> {
 public:
  explicit Argument(at::Tensor& given) : caller_(given), value_(given) {}
  Argument(const Argument&) = delete;
  Argument& operator=(const Argument&) = delete;
  ~Argument() {
    if (is_assigned()) caller_ = value_;
  }
  void collect(CallTensors& inputs) { inputs.push_back(value_); }
  at::Tensor& pass() {
    if (value_.is_same(caller_)) return caller_;
    passed_ = value_;
    return value_;
  }
  void collect_output(CallTensors& outputs) {
    // Changed in place: report the caller's own tensor, as an alias of it may have been passed.
    outputs.push_back(is_assigned() ? value_ : caller_);
  }

 private:
  bool is_assigned() const { return passed_.has_value() && !value_.is_same(*passed_); }

  at::Tensor& caller_;
  at::Tensor value_;
  std::optional<at::Tensor> passed_;
};

/// Another value that forward may write to. Tensors that hooks replaced in it are put back after the call,
/// unless forward has assigned others.
template <class T>
class Argument<T&, std::enable_if_t<!std::is_const_v<T> && !std::is_same_v<T, at::Tensor>>> {
 public:
  explicit Argument(T& given) : given_(given) {}
  Argument(const Argument&) = delete;
  Argument& operator=(const Argument&) = delete;
  ~Argument() { restore(); }

  void collect(CallTensors& inputs) {
    const std::int64_t begin = inputs.size();
    Collector{inputs}(given_);
    if (inputs.size() == begin) return;
    inputs_ = &inputs;
    for (std::int64_t i = begin; i < inputs.size(); ++i) replaced_.push_back({i, inputs[i], {}});
  }
  T& pass() {
    std::vector<Replaced> replaced;
    for (auto& one : replaced_) {
      one.by = (*inputs_)[one.slot];
      if (!one.by.is_same(one.original)) replaced.push_back(std::move(one));
    }
    replaced_ = std::move(replaced);
    return given_;
  }
  void collect_output(CallTensors& outputs) {
    restore();
    Collector{outputs}(given_);
  }

 private:
  struct Replaced {
    std::int64_t slot;
    at::Tensor original, by;
  };

  void restore() noexcept {
    if constexpr (!is_plain_v<T>) {
      if (replaced_.empty()) return;
      try {
        CallTensors now;
        Collector{now}(given_);
        for (std::int64_t i = 0; i < now.size(); ++i) {
          for (const auto& one : replaced_) {
            if (now[i].is_same(one.by)) now[i] = one.original;
          }
        }
        now.put_back(CallTensors::Of::inputs);
      } catch (const std::exception&) {  // out of memory; read-only tensors were not replaced
      }
      replaced_.clear();
    }
  }

  T& given_;
  const CallTensors* inputs_ = nullptr;
  std::vector<Replaced> replaced_;
};

/// A value that forward may move from.
template <class T>
class Argument<T&&> : public Argument<T&> {
 public:
  explicit Argument(T&& given) : Argument<T&>(given) {}
  void collect_output(CallTensors& /*outputs*/) {}
};

template <class R, std::size_t absent, class Forward, class... Args>
R run_with(Call& call, Forward&& forward, Argument<Args>&&... arguments) {
  CallTensors inputs;
  (arguments.collect(inputs), ...);
  for (std::size_t left = absent; left != 0; --left) inputs.push_absent();
  call.before(inputs);
  CallTensors outputs;
  if constexpr (std::is_void_v<R>) {
    std::invoke(forward, static_cast<Args&&>(arguments.pass())...);
    (arguments.collect_output(outputs), ...);
    call.after(outputs);
  } else {
    std::decay_t<R> result = std::invoke(forward, static_cast<Args&&>(arguments.pass())...);
    Collector{outputs}(result);
    call.after(outputs);
    return result;
  }
}

/// Runs `forward(arguments...)` with the hooks behind `gate`, provided that `is_mine()` holds once the gate
/// is entered. `Args` are as forward declares them: deduction takes a `T&&` for a `T`. `absent` is the number
/// of tensors in arguments that the caller left to their defaults. If forward returns nothing, its outputs
/// are the tensors in the arguments that it may write to.
template <class R, std::size_t absent, class... Args, class IsMine, class Forward>
R run_hooked(Gate& gate, IsMine&& is_mine, Forward&& forward, Args&&... arguments) {
  static_assert(
      !std::is_reference_v<R>,
      "TORCHTAP_MODULE needs a forward() that returns a value: a reference may refer to an argument that "
      "hooks have replaced");
  if (is_idle(gate)) return std::invoke(forward, std::forward<Args>(arguments)...);
  Call call(gate);
  if (call.idle() || !is_mine()) return std::invoke(forward, std::forward<Args>(arguments)...);
  return run_with<R, absent>(call, forward, Argument<Args>(std::forward<Args>(arguments))...);
}

template <class Impl, class Enabled, class... Args>
struct CallableImpl : std::false_type {};
template <class Impl, class... Args>
struct CallableImpl<Impl, std::void_t<decltype(std::declval<Impl&>().forward(std::declval<Args>()...))>,
                    Args...> : std::true_type {};
/// Whether forward can be called with exactly these arguments, the rest being defaults.
template <class Impl, class... Args>
inline constexpr bool is_callable_v = CallableImpl<Impl, void, Args...>::value;

template <class Tuple, std::size_t... I>
std::tuple<std::tuple_element_t<I, Tuple>...> first_types(std::index_sequence<I...>);
template <class Tuple, std::size_t N>
using FirstTypes = decltype(first_types<Tuple>(std::make_index_sequence<N>()));

template <class Tuple>
struct Decayed;
template <class... Ts>
struct Decayed<std::tuple<Ts...>> {
  using Type = std::tuple<std::decay_t<Ts>...>;
};
/// The number of tensors in the elements of `Tuple` from the `N`th on.
template <class Tuple, std::size_t N>
inline constexpr std::size_t tensors_from_v =
    tensors_in_v<typename Decayed<Tuple>::Type> - tensors_in_v<typename Decayed<FirstTypes<Tuple, N>>::Type>;

/// The overload of `forward` that leaves the trailing default arguments to `Impl`. Const although it calls a
/// non-const forward, so that `&Hooked::forward` in AnyModule still means the full one.
template <class Derived, class Impl, class R, std::size_t absent, class Tuple>
struct ShortForward;
template <class Derived, class Impl, class R, std::size_t absent, class... Args>
struct ShortForward<Derived, Impl, R, absent, std::tuple<Args...>> {
  R forward(Args... arguments) const {
    auto& self = const_cast<Derived&>(static_cast<const Derived&>(*this));
    return self.template torchtap_run<R, absent, Args...>(std::forward<Args>(arguments)...);
  }
};

/// All overloads with fewer than `N` arguments.
template <class Derived, class Impl, class R, class Tuple, std::size_t N, class = void>
struct ShortForwards {
  void forward() const = delete;  // gives derived types a name to inherit
};
template <class Derived, class Impl, class R, class Tuple>
struct IsShort;
template <class Derived, class Impl, class R, class... Args>
struct IsShort<Derived, Impl, R, std::tuple<Args...>> : std::bool_constant<is_callable_v<Impl, Args...>> {};

template <class Derived, class Impl, class R, class Tuple, std::size_t N>
struct ShortForwards<Derived, Impl, R, Tuple, N,
                     std::enable_if_t<(N > 1) && IsShort<Derived, Impl, R, FirstTypes<Tuple, N - 1>>::value>>
    : ShortForwards<Derived, Impl, R, Tuple, N - 1>,
      ShortForward<Derived, Impl, R, tensors_from_v<Tuple, N - 1>, FirstTypes<Tuple, N - 1>> {
  using ShortForwards<Derived, Impl, R, Tuple, N - 1>::forward;
  using ShortForward<Derived, Impl, R, tensors_from_v<Tuple, N - 1>, FirstTypes<Tuple, N - 1>>::forward;
};

template <class Member>
struct OtherForward {
  static constexpr bool of_torch = false;
};
/// Methods of LibTorch's modules besides forward that do the same work. Neither calls the other.
template <class R, class C, class... Args>
struct OtherForward<R (C::*)(Args...)> {
  template <class... Owners>
  static constexpr bool is_one_of = (std::is_same_v<C, Owners> || ...);
  static constexpr bool of_torch =
      is_one_of<torch::nn::GRUImpl, torch::nn::LSTMImpl, torch::nn::RNNImpl, torch::nn::AdaptiveMaxPool1dImpl,
                torch::nn::AdaptiveMaxPool2dImpl, torch::nn::AdaptiveMaxPool3dImpl,
                torch::nn::FractionalMaxPool2dImpl, torch::nn::FractionalMaxPool3dImpl,
                torch::nn::MaxPool1dImpl, torch::nn::MaxPool2dImpl, torch::nn::MaxPool3dImpl>;
  using Result = R;
  template <std::size_t i>
  using Parameter = std::tuple_element_t<i, std::tuple<Args...>>;
};

/// `Impl` with a hook point. Its hooks also run around LibTorch's second forward method, if it has one.
template <class Impl, class = void>
class WithHookPoint : public Impl, public HookPoint {
 public:
  using Impl::Impl;
  explicit WithHookPoint(const Impl& other) : Impl(other) {}
  WithHookPoint() = default;
};

template <class Impl>
class WithHookPoint<Impl,
                    std::enable_if_t<OtherForward<decltype(&Impl::forward_with_packed_input)>::of_torch>>
    : public Impl, public HookPoint {
  using Other = OtherForward<decltype(&Impl::forward_with_packed_input)>;
  using Result = typename Other::Result;
  using Packed = typename Other::template Parameter<0>;
  using State = typename Other::template Parameter<1>;

 public:
  using Impl::Impl;
  explicit WithHookPoint(const Impl& other) : Impl(other) {}
  WithHookPoint() = default;

  Result forward_with_packed_input(Packed packed_input, State state = {}) {
    return run_hooked<Result, 0, Packed, State>(
        this->torchtap_gate(), [] { return true; },
        [this](auto&&... given) -> Result {
          return this->Impl::forward_with_packed_input(std::forward<decltype(given)>(given)...);
        },
        std::forward<Packed>(packed_input), std::forward<State>(state));
  }
};

template <class Impl>
class WithHookPoint<Impl, std::enable_if_t<OtherForward<decltype(&Impl::forward_with_indices)>::of_torch>>
    : public Impl, public HookPoint {
  using Other = OtherForward<decltype(&Impl::forward_with_indices)>;
  using Result = typename Other::Result;
  using Input = typename Other::template Parameter<0>;

 public:
  using Impl::Impl;
  explicit WithHookPoint(const Impl& other) : Impl(other) {}
  WithHookPoint() = default;

  Result forward_with_indices(Input input) {
    return run_hooked<Result, 0, Input>(
        this->torchtap_gate(), [] { return true; },
        [this](auto&&... given) -> Result {
          return this->Impl::forward_with_indices(std::forward<decltype(given)>(given)...);
        },
        std::forward<Input>(input));
  }
};

/// Whether `Impl::clone` is Cloneable's own, which can be redone for the derived type.
template <class Member>
struct IsCloneable : std::false_type {};
template <class Owner, class... Args>
struct IsCloneable<std::shared_ptr<torch::nn::Module> (torch::nn::Cloneable<Owner>::*)(Args...) const>
    : std::true_type {};

}  // namespace detail

/// `Impl` with hooks around its forward. Made by `TORCHTAP_MODULE`; costs a few nanoseconds a call without
/// hooks.
///
/// `forward` has the signature of `Impl::forward`, default arguments included, so that calls, `AnyModule`,
/// `Sequential` and `FORWARD_HAS_DEFAULT_ARGS` keep working. Objects made as plain `Impl`
/// (`std::make_shared<Impl>()`) run no hooks, nor do calls that name `Impl::forward` itself.
template <class Impl, class Forward = typename detail::ForwardOf<Impl>::Type>
class HookedWith;

template <class Impl, class R, class... Args>
class HookedWith<Impl, R(Args...)> : public detail::WithHookPoint<Impl>,
                                     public detail::ShortForwards<HookedWith<Impl, R(Args...)>, Impl, R,
                                                                  std::tuple<Args...>, sizeof...(Args)> {
  using TorchtapShort =
      detail::ShortForwards<HookedWith<Impl, R(Args...)>, Impl, R, std::tuple<Args...>, sizeof...(Args)>;

 public:
  /// The type given to TORCHTAP_MODULE.
  using TorchtapImpl = Impl;
  using detail::WithHookPoint<Impl>::WithHookPoint;
  explicit HookedWith(const Impl& other) : detail::WithHookPoint<Impl>(other) {}
  HookedWith() = default;

  using TorchtapShort::forward;
  R forward(Args... arguments) { return torchtap_run<R, 0, Args...>(std::forward<Args>(arguments)...); }

  /// Internal: the body of all overloads of `forward`.
  template <class Result, std::size_t absent, class... Given>
  Result torchtap_run(Given&&... arguments) {
    return detail::run_hooked<Result, absent, Given...>(
        this->torchtap_gate(), [] { return true; },
        [this](auto&&... given) -> Result {
          return this->Impl::forward(std::forward<decltype(given)>(given)...);
        },
        std::forward<Given>(arguments)...);
  }

  /// A deep copy that can be hooked and starts without hooks.
  std::shared_ptr<torch::nn::Module> clone(const TorchOptional<torch::Device>& device = {}) const override {
    if constexpr (detail::IsCloneable<decltype(&Impl::clone)>::value) {
      return torch::nn::Cloneable<detail::CloneAccess>::clone_as(*this, device);
    } else {
      return Impl::clone(device);
    }
  }

 private:
  // Without this, Module::name() would return HookedWith<…> instead of Impl. A function, because GCC 12 fails
  // to compile some such conversions to a virtual base in the initialiser itself.
  bool torchtap_set_name() { return torch::nn::Cloneable<detail::CloneAccess>::name_as(*this, typeid(Impl)); }
  bool torchtap_named_ = torchtap_set_name();
};

template <class Impl>
using Hooked = HookedWith<Impl>;

}  // namespace torchtap::hooks

namespace torch::detail {

/// Overloads for default arguments hide `forward` from this check; AnyModule itself finds the full one.
template <class Impl, class Forward>
struct has_forward<torchtap::hooks::HookedWith<Impl, Forward>> {
  static constexpr bool value = true;
};

}  // namespace torch::detail
