#pragma once

#include <memory>
#include <torchtap/core/direct.hpp>
#include <torchtap/hooks/detail/direct.hpp>
#include <torchtap/hooks/detail/hooked.hpp>
#include <type_traits>
#include <utility>

/// The user's own modules in a program linked with torchtap::transparent: what TORCH_MODULE defines there. A
/// holder still contains an `Impl`, to all who ask; calls through the holder, and through what `Module::as`
/// returns for it, run hooks. Included by overlay/torch/nn/cloneable.h, once LibTorch's is complete.
namespace torchtap::transparent {

/// `Impl` with hooks around its forward. Has nothing in it that an `Impl` has not where `forward` looks, so
/// that a holder may call through it whatever it was given, and finds the hooks by the module's address.
template <class Impl, class Forward = typename hooks::detail::ForwardOf<Impl>::Type>
class TransparentWith;

template <class Impl, class R, class... Args>
class TransparentWith<Impl, R(Args...)>
    : public Impl,
      public core::DirectPoint,
      public hooks::detail::ShortForwards<TransparentWith<Impl, R(Args...)>, Impl, R, std::tuple<Args...>,
                                          sizeof...(Args)> {
  using Short = hooks::detail::ShortForwards<TransparentWith<Impl, R(Args...)>, Impl, R, std::tuple<Args...>,
                                             sizeof...(Args)>;

 public:
  /// What it is for all purposes but calling it.
  using TorchtapImpl = Impl;
  using TorchtapSeenAs = Impl;
  using Impl::Impl;
  explicit TransparentWith(const Impl& other) : Impl(other) {}
  TransparentWith() = default;

  using Short::forward;
  R forward(Args... arguments) { return torchtap_run<R, 0, Args...>(std::forward<Args>(arguments)...); }

  /// Not to be called: what all overloads of `forward` do.
  template <class Result, std::size_t absent, class... Given>
  Result torchtap_run(Given... arguments) {
    auto* entry = hooks::detail::find_direct(*this);
    if (entry == nullptr) return this->Impl::forward(std::forward<Given>(arguments)...);
    return hooks::detail::run_hooked<Result, absent>(
        entry->gate, [&] { return entry->belongs_to(*this, core::Direct::holder); },
        [this](auto&&... given) -> Result {
          return this->Impl::forward(std::forward<decltype(given)>(given)...);
        },
        std::forward<Given>(arguments)...);
  }

  /// Not to be called. GCC draws conclusions from a type of an unnamed namespace of which no object is ever
  /// made, but a holder calls through this one whatever it was given; so one might be made.
  [[gnu::used]] static void torchtap_instantiate(const Impl& other) {
    if constexpr (std::is_copy_constructible_v<Impl>) TransparentWith{other}.is_training();
  }

  std::shared_ptr<torch::nn::Module> clone(
      const hooks::TorchOptional<torch::Device>& device = {}) const override {
    if constexpr (hooks::detail::IsCloneable<decltype(&Impl::clone)>::value) {
      return torch::nn::Cloneable<hooks::detail::CloneAccess>::clone_as(*this, device);
    } else {
      return Impl::clone(device);
    }
  }

 private:
  // Module::name() would otherwise tell of TransparentWith<…> where it told of Impl. A function, as GCC 12
  // does not compile all such conversions to a virtual base in the initialiser itself.
  bool set_name() { return torch::nn::Cloneable<hooks::detail::CloneAccess>::name_as(*this, typeid(Impl)); }
  bool named_ = set_name();
};

/// What `torch::nn::ModuleHolder<Impl>` is, but for how it makes and calls its module.
template <class Impl>
class TransparentHolder : public torch::nn::ModuleHolder<Impl> {
  using Base = torch::nn::ModuleHolder<Impl>;
  using Seen = TransparentWith<Impl>;

  template <class Head, class... Tail>
  static constexpr bool is_copy = sizeof...(Tail) == 0 &&
                                  (std::is_base_of_v<Base, std::decay_t<Head>> ||
                                   std::is_convertible_v<Head, std::shared_ptr<Impl>>);

  template <class T = Impl>
  static std::shared_ptr<Impl> make_default() {
    if constexpr (std::is_default_constructible_v<T>) return std::make_shared<Seen>();
    return nullptr;
  }

 public:
  using TorchtapContained = Seen;

  TransparentHolder() : Base(make_default()) {
    static_assert(std::is_default_constructible_v<Impl>,
                  "You are trying to default construct a module which has no default constructor. Use = "
                  "nullptr to give it the empty state (e.g. `Linear linear = nullptr;` instead of `Linear "
                  "linear;`).");
  }
  /* implicit */ TransparentHolder(std::nullptr_t) : Base(nullptr) {}
  /* implicit */ TransparentHolder(std::shared_ptr<Impl> module) : Base(std::move(module)) {}
  template <class Head, class... Tail, class = std::enable_if_t<!is_copy<Head, Tail...>>>
  explicit TransparentHolder(Head&& head, Tail&&... tail)
      : Base(std::shared_ptr<Impl>(new Seen(std::forward<Head>(head), std::forward<Tail>(tail)...))) {}

  Seen* operator->() { return get(); }
  const Seen* operator->() const { return get(); }
  Seen& operator*() { return *get(); }
  const Seen& operator*() const { return *get(); }
  Seen* get() {
    static_cast<void>(&Seen::torchtap_instantiate);
    return static_cast<Seen*>(Base::get());
  }
  const Seen* get() const { return static_cast<const Seen*>(Base::get()); }

  template <class... Args>
  auto operator()(Args&&... args) -> torch::detail::return_type_of_forward_t<Seen, Args...> {
    return get()->forward(std::forward<Args>(args)...);
  }
};

template <class Impl, class = void>
struct IsComplete : std::false_type {};
template <class Impl>
struct IsComplete<Impl, std::void_t<decltype(sizeof(Impl))>> : std::true_type {};

template <class Impl, class = void>
struct HasOneForward : std::false_type {};
template <class Impl>
struct HasOneForward<Impl, std::void_t<decltype(&Impl::forward)>>
    : std::bool_constant<std::is_member_function_pointer_v<decltype(&Impl::forward)>> {};

template <class Signature>
inline constexpr bool returns_reference_v = true;
template <class R, class... Args>
inline constexpr bool returns_reference_v<R(Args...)> = std::is_reference_v<R>;

/// A type that cannot be seen through keeps LibTorch's holder: not complete yet, without a forward, with
/// several, with one that returns a reference, final, or one that runs hooks by itself.
template <class Impl>
constexpr bool can_be_seen() {
  if constexpr (!IsComplete<Impl>::value) {
    return false;
  } else if constexpr (std::is_final_v<Impl> || std::is_base_of_v<core::HookPoint, Impl> ||
                       !HasOneForward<Impl>::value) {
    return false;
  } else {
    return !returns_reference_v<typename hooks::detail::ForwardOf<Impl>::Type>;
  }
}

template <class Impl>
struct HolderOf {
  using Type =
      std::conditional_t<can_be_seen<Impl>(), TransparentHolder<Impl>, torch::nn::ModuleHolder<Impl>>;
};

}  // namespace torchtap::transparent

namespace torch::detail {

/// Overloads for default arguments hide `forward` from the check; AnyModule itself finds the full one.
template <class Impl, class Forward>
struct has_forward<torchtap::transparent::TransparentWith<Impl, Forward>> {
  static constexpr bool value = true;
};

}  // namespace torch::detail
