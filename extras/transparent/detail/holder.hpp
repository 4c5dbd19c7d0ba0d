#pragma once
#pragma GCC system_header  // its warnings would concern the user's types

#include <memory>
#include <tuple>
#include <type_traits>
#include <utility>

#include <torchtap/base/is_complete.hpp>
#include <torchtap/hooks/extend/intercepted_call.hpp>
#include <torchtap/model/extend/has_forward.hpp>
#include <torchtap/model/extend/interposed_calls.hpp>
#include <torchtap/transparent/detail/types.hpp>

/// Holders of user-defined modules in a program linked with torchtap::transparent. Included by
/// overlay/torch/nn/cloneable.h, once LibTorch's header is complete.
///
/// Modules are made as plain `Impl` and never changed. The holder's `->` casts the pointer statically to a
/// *view*: a class that derives from `Impl`, adds no data and no virtual function, and has its own `forward`.
/// The object is not a view, so the cast is undefined behaviour by the standard. It works because the view's
/// members read only the address of the `Impl`, its first base (extras/transparent/RATIONALE.md).
namespace torchtap::transparent::detail {

template <class Impl>
struct IsTorchs : std::false_type {};
#define TORCHTAP_IS_TORCHS(Name) \
  template <>                    \
  struct IsTorchs<torch::nn::Name##Impl> : std::true_type {};
#define TORCHTAP_IS_TORCHS_TEMPLATE(Template, D, Name) TORCHTAP_IS_TORCHS(Name)
TORCHTAP_BUILTINS(TORCHTAP_IS_TORCHS, TORCHTAP_IS_TORCHS_TEMPLATE)
#undef TORCHTAP_IS_TORCHS_TEMPLATE
#undef TORCHTAP_IS_TORCHS

/// The parts of a member function's type.
template <class Member>
struct Call {
  static constexpr bool usual = false;
};
template <class R, bool is_const_, class... Args>
struct UsualCall {
  static constexpr bool usual = true;
  static constexpr bool is_const = is_const_;
  using Result = R;
  using Arguments = std::tuple<Args...>;
};
// Hooks run outside of the call, so their exceptions do not pass through a noexcept forward.
#define TORCHTAP_CALL(qualifiers, is_const)  \
  template <class R, class C, class... Args> \
  struct Call<R (C::*)(Args...) qualifiers> : UsualCall<R, is_const, Args...> {}
TORCHTAP_CALL(, false);
TORCHTAP_CALL(const, true);
TORCHTAP_CALL(&, false);
TORCHTAP_CALL(const&, true);
TORCHTAP_CALL(noexcept, false);
TORCHTAP_CALL(const noexcept, true);
TORCHTAP_CALL(&noexcept, false);
TORCHTAP_CALL(const& noexcept, true);
#undef TORCHTAP_CALL

template <class Impl, class = void>
struct ForwardMember {
  using Type = void;
};
template <class Impl>
struct ForwardMember<Impl, std::void_t<decltype(&Impl::forward)>> {
  using Type = decltype(&Impl::forward);
};

/// Converts to the argument of either constructor, so that a type that can be moved and copied is ambiguous.
template <class T>
struct CopiedOrMoved {
  operator const T&() const;
  operator T&&() const;
};
struct Anything {};
/// Whether a `T` where the compiler would move one is copied: its class declares no move constructor.
template <class T>
inline constexpr bool is_copied_only_v = std::is_class_v<T>&& std::is_constructible_v<T, CopiedOrMoved<T>> &&
                                         !std::is_constructible_v<T, Anything>;

/// Whether a hooked call can keep an argument declared as `Arg`. A copy constructor need not compile, nor be
/// cheap: only types that torchtap was told about are copied.
template <class Arg>
constexpr bool can_be_kept() {
  if constexpr (std::is_lvalue_reference_v<Arg>) {
    return true;
  } else if constexpr (!base::IsComplete<std::remove_reference_t<Arg>>::value) {
    return false;
  } else {
    using Value = std::remove_cv_t<std::remove_reference_t<Arg>>;
    return std::is_move_constructible_v<Value> &&
           (!is_copied_only_v<Value> || hooks::extend::can_be_copied<Value>());
  }
}
template <class Result>
constexpr bool can_be_returned() {
  if constexpr (std::is_void_v<Result>) {
    return true;
  } else {
    return can_be_kept<Result>();
  }
}
template <class Tuple>
struct AllKept;
template <class... Args>
struct AllKept<std::tuple<Args...>> : std::bool_constant<(... && can_be_kept<Args>())> {};

/// Whether calls of `Impl` can be followed, for types other than LibTorch's.
template <class Impl>
constexpr model::extend::Following following() {
  using model::extend::Following;
  if constexpr (!base::IsComplete<Impl>::value) {
    return Following::incomplete;
  } else if constexpr (std::is_final_v<Impl> || !std::is_destructible_v<Impl>) {
    return Following::final_class;
  } else if constexpr (!model::extend::may_have_forward<Impl>()) {
    return Following::no_forward;
  } else if constexpr (model::extend::is_sequential<Impl>()) {
    return Following::sequential;
  } else if constexpr (using Member = typename ForwardMember<Impl>::Type;
                       !std::is_member_function_pointer_v<Member>) {
    return Following::no_single_forward;
  } else {
    using Forward = Call<typename ForwardMember<Impl>::Type>;
    if constexpr (!Forward::usual) {
      return Following::unusual_forward;
    } else if constexpr (std::is_reference_v<typename Forward::Result>) {
      return Following::returns_reference;
    } else if constexpr (!can_be_returned<typename Forward::Result>() ||
                         !AllKept<typename Forward::Arguments>::value) {
      return Following::immovable_values;
    } else {
      return Following::yes;
    }
  }
}

/// Asked at a call with that many arguments, because Clang instantiates the defaults of the others.
template <class Impl, class... Args>
using EnableIfCallable = std::enable_if_t<hooks::extend::is_callable_v<Impl, Args...>, int>;

/// One overload of a view's `forward`: takes the first arguments and leaves the others to their defaults. A
/// template, so that it never overrides a virtual `forward`.
template <class View, class Impl, bool is_const, class R, std::size_t absent, class Tuple>
struct Overload;
template <class View, class Impl, class R, std::size_t absent, class... Args>
struct Overload<View, Impl, false, R, absent, std::tuple<Args...>> {
  template <class Callee = Impl, EnableIfCallable<Callee, Args...> = 0>
  R forward(Args... arguments) {
    return static_cast<View*>(this)->template torchtap_run<R, absent, Args...>(
        std::forward<Args>(arguments)...);
  }
};
template <class View, class Impl, class R, std::size_t absent, class... Args>
struct Overload<View, Impl, true, R, absent, std::tuple<Args...>> {
  template <class Callee = Impl, EnableIfCallable<Callee, Args...> = 0>
  R forward(Args... arguments) const {
    return static_cast<const View*>(this)->template torchtap_run<R, absent, Args...>(
        std::forward<Args>(arguments)...);
  }
};

template <class View, class Impl, class Forward, std::size_t given>
using OverloadFor = Overload<View, Impl, Forward::is_const, typename Forward::Result,
                             hooks::extend::tensors_from_v<typename Forward::Arguments, given>,
                             hooks::extend::FirstTypes<typename Forward::Arguments, given>>;

/// The view of `Impl` that its holder calls: runs hooks around its forward, found by the module's address.
template <class Impl, class Forward = Call<decltype(&Impl::forward)>,
          class Given = std::make_index_sequence<std::tuple_size_v<typename Forward::Arguments> + 1>>
class View;

template <class Impl, class Forward, std::size_t... counts>
class View<Impl, Forward, std::index_sequence<counts...>>
    : public Impl,
      public OverloadFor<View<Impl, Forward, std::index_sequence<counts...>>, Impl, Forward, counts>... {
 public:
  using TorchtapImpl = Impl;
  static constexpr bool torchtap_is_view = true;
  View(const View&) = delete;  // a copy would be of another type than the module
  View& operator=(const View&) = delete;

  using OverloadFor<View, Impl, Forward, counts>::forward...;

  template <class R, std::size_t absent, class... Given>
  R torchtap_run(Given&&... arguments) const {
    // Called through Impl's own type, so that a virtual forward is the object's.
    using Callee = std::conditional_t<Forward::is_const, const Impl, Impl>;
    auto& module = const_cast<Impl&>(static_cast<const Impl&>(*this));
    auto* entry = hooks::extend::find_interposed(module);
    if (entry == nullptr || hooks::extend::Call::hands_on(&static_cast<torch::nn::Module&>(module))) {
      return static_cast<Callee&>(module).forward(std::forward<Given>(arguments)...);
    }
    return hooks::extend::run_hooked<R, absent, Given...>(
        entry->gate, [&] { return entry->belongs_to(module); },
        [&](auto&&... given) -> R {
          return static_cast<Callee&>(module).forward(std::forward<decltype(given)>(given)...);
        },
        std::forward<Given>(arguments)...);
  }
};

/// Whether calls of `Impl` are observed by other means.
template <class Impl>
constexpr bool is_seen_elsewhere() {
  if constexpr (IsTorchs<Impl>::value) {
    return true;
  } else if constexpr (base::IsComplete<Impl>::value) {
    return std::is_base_of_v<model::extend::RunsHooks, Impl>;
  } else {
    return false;
  }
}

template <class Impl, class>
struct SeenOf {
  using Type = Impl;
};
template <class Impl>
struct SeenOf<Impl, std::enable_if_t<!is_seen_elsewhere<Impl>() &&
                                     following<Impl>() == model::extend::Following::yes>> {
  using Type = View<Impl>;
};

/// Whether holders of `Impl` mark the modules that they make. The first call also records the type. Hidden,
/// because plug-ins may have classes of one name.
template <class Impl>
[[gnu::visibility("hidden")]] bool is_marked() {
  if constexpr (is_seen_elsewhere<Impl>()) {
    return false;
  } else {
    static const bool marked = [] {
      model::extend::note_type(typeid(Impl), following<Impl>());
      return following<Impl>() == model::extend::Following::yes;
    }();
    return marked;
  }
}

template <class Impl>
std::shared_ptr<Impl> take(Impl* made) {
  if (is_marked<Impl>()) return std::shared_ptr<Impl>(made, model::extend::MadeByHolder{});
  return std::shared_ptr<Impl>(made);
}

template <class Impl>
std::shared_ptr<Impl> make_default() {
  if constexpr (std::is_default_constructible_v<Impl>) {
    if (is_marked<Impl>()) return std::shared_ptr<Impl>(::new Impl(), model::extend::MadeByHolder{true});
    return std::make_shared<Impl>();
  } else {
    return nullptr;
  }
}

template <class Impl>
std::shared_ptr<Impl> adopt(std::shared_ptr<Impl> module) {
  is_marked<Impl>();
  return module;
}

}  // namespace torchtap::transparent::detail
