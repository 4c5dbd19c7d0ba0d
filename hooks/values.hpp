#pragma once

/// Finds the tensors inside the arguments and results of modules, for values of any type.

#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>
#include <torch/version.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <iterator>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <type_traits>
#include <typeinfo>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <variant>
#include <vector>

#include <torchtap/base/api.hpp>
#include <torchtap/base/error.hpp>
#include <torchtap/hooks/detail/plain.hpp>

// Before LibTorch 2.3, c10::optional was a separate type; since then it is std::optional.
#define TORCHTAP_OWN_OPTIONAL \
  (TORCH_VERSION_MAJOR < 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR < 3))
#if TORCHTAP_OWN_OPTIONAL
#include <c10/util/Optional.h>
#endif

namespace torchtap::hooks {

class Event;

/// The optional that LibTorch's module interface uses.
#if TORCHTAP_OWN_OPTIONAL
template <class T>
using TorchOptional = c10::optional<T>;
#else
template <class T>
using TorchOptional = std::optional<T>;
#endif

/// The tensors inside the arguments or the result of one call, flattened in order. An absent one (an
/// undefined tensor, an empty optional) keeps its slot.
///
/// Refers to the call's own values: assigning to an element replaces it for the module or for its caller.
/// Valid only while the hook runs.
class TORCHTAP_API Tensors {
  friend class Event;

 public:
  std::int64_t size() const noexcept { return static_cast<std::int64_t>(slots_.size()); }
  bool empty() const noexcept { return slots_.empty(); }

  /// The tensor in slot `index`; undefined if the call had none there. Throws `c10::IndexError`.
  at::Tensor& operator[](std::int64_t index) {
    if (index < 0 || index >= size()) refuse(index);
    return *slots_[static_cast<std::size_t>(index)];
  }
  /// Access for reading.
  const at::Tensor& operator[](std::int64_t index) const {
    if (index < 0 || index >= size()) refuse(index);
    return *slots_[static_cast<std::size_t>(index)];
  }

  /// Iterates over the tensors in the order of slots: `for (at::Tensor& tensor : event.outputs())`.
  template <class Tensor>
  class Iterator {
   public:
    using iterator_category = std::forward_iterator_tag;
    using value_type = at::Tensor;
    using difference_type = std::ptrdiff_t;
    using pointer = Tensor*;
    using reference = Tensor&;

    Iterator() = default;
    explicit Iterator(at::Tensor* const* slot) noexcept : slot_(slot) {}
    reference operator*() const noexcept { return **slot_; }
    pointer operator->() const noexcept { return *slot_; }
    Iterator& operator++() noexcept {
      ++slot_;
      return *this;
    }
    Iterator operator++(int) noexcept { return Iterator(slot_++); }
    friend bool operator==(Iterator a, Iterator b) noexcept { return a.slot_ == b.slot_; }
    friend bool operator!=(Iterator a, Iterator b) noexcept { return a.slot_ != b.slot_; }

   private:
    at::Tensor* const* slot_ = nullptr;
  };
  using iterator = Iterator<at::Tensor>;
  using const_iterator = Iterator<const at::Tensor>;
  iterator begin() noexcept { return iterator(slots_.data()); }
  iterator end() noexcept { return iterator(slots_.data() + slots_.size()); }
  const_iterator begin() const noexcept { return const_iterator(slots_.data()); }
  const_iterator end() const noexcept { return const_iterator(slots_.data() + slots_.size()); }

  /// Types of values that may contain tensors but that torchtap cannot look into: `Visit` is not specialised
  /// for them or, for values that pass between entries of a `Sequential`, `register_value` was not called.
  const std::vector<const std::type_info*>& unknown() const noexcept {
    static const auto& none = *new const std::vector<const std::type_info*>;  // models may outlive statics
    return seldom_ == nullptr ? none : seldom_->unknown;
  }
  /// Whether there are any.
  bool has_unknown() const noexcept { return seldom_ != nullptr && !seldom_->unknown.empty(); }
  /// Names those types and the remedy in one or two sentences; empty if there are none.
  std::string describe_unknown() const;

  Tensors(const Tensors&) = delete;  // an absent slot points into the object itself
  Tensors& operator=(const Tensors&) = delete;

 protected:
  Tensors() = default;
  ~Tensors() = default;

  /// Adds a slot.
  void push_back(at::Tensor& tensor) { slots_.push_back(&tensor); }
  /// Records a type that has no `Visit`.
  void push_unknown(const std::type_info& type);
  /// Records a type for which `register_value` was not called.
  void push_unregistered(const std::type_info& type);
  /// Records the unknown types of `other`.
  void push_unknown_of(const Tensors& other);
  /// Adds the slot of an empty optional or of an argument left to its default.
  void push_absent() {
    if (!absent_.has_value()) absent_.emplace();
    slots_.push_back(&*absent_);
  }
  /// Adds the tensors of `found`, read-only: replacing one is an error that names `pointer`, the type of the
  /// pointer to them.
  void push_fixed(const Tensors& found, const std::type_info& pointer);

  /// Whether a value is passed to the module or returned to its caller.
  enum class Of { inputs, outputs };
  /// Marks the slots from `begin` on as tensors in a copy of a shared value. `replace` installs the copy; it
  /// is called only if a hook replaced one of them. `replace` lives as long as this object.
  void keep(std::int64_t begin, std::function<void(Of)> replace);
  /// Call it once the hooks have run. Throws `c10::ValueError` if a hook assigned a tensor to an empty
  /// optional or to an argument left out.
  void put_back(Of of) {
    if (absent_.has_value() && absent_->defined()) refuse_absent(of);
    if (seldom_ != nullptr) replace_kept(of);
  }
  /// Whether hooks replaced a tensor by an undefined one, of tensors that were all there.
  bool lost_one() const noexcept { return given_ == Given::whole && lacks_one(); }
  /// The slots, from the first to behind the last, that `put_back` could not put back when it threw.
  std::pair<std::int64_t, std::int64_t> refused() const noexcept {
    return seldom_ == nullptr ? std::pair<std::int64_t, std::int64_t>() : seldom_->refused;
  }

 private:
  struct Copy {
    std::size_t begin;
    std::vector<at::Tensor> before;
    std::function<void(Of)> replace;
    bool replaced = false;
  };

  /// What hooks were given; known once one has got access that lets it replace tensors.
  enum class Given : std::uint8_t { unknown, whole, lacking };

  [[noreturn]] void refuse(std::int64_t index) const;
  [[noreturn]] static void refuse_absent(Of of);
  void replace_kept(Of of);
  bool lacks_one() const noexcept {
    return std::any_of(begin(), end(), [](const at::Tensor& tensor) { return !tensor.defined(); });
  }
  void note_given() noexcept {
    if (given_ == Given::unknown) given_ = lacks_one() ? Given::lacking : Given::whole;
  }

  // Separate from the slots, because most calls do not need it.
  struct TORCHTAP_API Seldom {
    Seldom() = default;
    ~Seldom();  // apart, as most calls have none
    std::vector<const std::type_info*> unknown, unregistered;
    std::deque<Copy> kept;  // inner values before the values that contain them
    std::pair<std::int64_t, std::int64_t> refused;
  };
  Seldom& seldom() {
    if (seldom_ == nullptr) seldom_ = std::make_unique<Seldom>();
    return *seldom_;
  }

  c10::SmallVector<at::Tensor*, 4> slots_;
  std::optional<at::Tensor> absent_;
  std::unique_ptr<Seldom> seldom_;
  Given given_ = Given::unknown;
};

namespace detail {

/// The tensors of one call while torchtap collects them and puts back the replacements of hooks.
class TORCHTAP_API CallTensors final : public Tensors {
 public:
  CallTensors() = default;
  using Tensors::keep;
  using Tensors::lost_one;
  using Tensors::Of;
  using Tensors::push_absent;
  using Tensors::push_back;
  using Tensors::push_fixed;
  using Tensors::push_unknown;
  using Tensors::push_unknown_of;
  using Tensors::push_unregistered;
  using Tensors::put_back;
  using Tensors::refused;
};

}  // namespace detail

/// Finds the tensors inside a value of type `T`. Specialise it for a struct of your own:
///
///     template <>
///     struct torchtap::hooks::Visit<Detections> {
///       template <class Visitor>
///       static void apply(Detections& value, Visitor&& visit) { visit(value.boxes); visit(value.scores); }
///     };
///
/// Leave the body empty if there are no tensors in it. If such values pass between entries of a `Sequential`,
/// also call `hooks::register_value<Detections>()` once.
///
/// Built in, nested at will:
/// - tuples, pairs, arrays, vectors, lists, deques, optionals, variants;
/// - the values of maps: of `std::map` in the order of its keys; of `c10::Dict` and `torch::OrderedDict` in
///   the order of insertion; of `std::unordered_map` in the order of its keys if these are numbers,
///   enumerators, strings, or pairs and tuples of these, else in iteration order;
/// - the targets of `std::unique_ptr` and `std::shared_ptr`, `c10::List`, `at::TensorList` (any
///   `c10::ArrayRef`) and `c10::IValue`. These may be shared: if a hook replaces a tensor in one, the module
///   or the caller gets a copy of it, otherwise the same object;
/// - `PackedSequence` (data, batch sizes, sorted indices, unsorted indices).
///
/// Numbers, enumerators, strings, devices, generators, functions, modules and trivially copyable types that
/// refer to no tensors hold none. A value of any other type is recorded as unknown.
template <class T, class = void>
struct Visit {
  /// Tells types for which there is no specialisation.
  using Unspecialised = T;
  /// Calls `visit` with each tensor in `value`, or with each value that may hold some.
  template <class Visitor>
  static void apply([[maybe_unused]] T& value, [[maybe_unused]] Visitor&& visit) {
    if constexpr (std::is_convertible_v<T*, at::Tensor*>) {
      visit(static_cast<at::Tensor&>(value));
    } else if constexpr (!detail::IsComplete<T>::value) {
      visit.unknown(typeid(T*));
    } else if constexpr (!detail::is_plain_v<T>) {
      visit.unknown(typeid(T));
    }
  }
};

namespace detail {

/// Whether no specialisation of `Visit` finds the tensors in a `T`.
template <class T, class = void>
inline constexpr bool is_unknown_v = false;
template <class T>
inline constexpr bool is_unknown_v<T, std::void_t<typename Visit<T>::Unspecialised>> =
    !is_plain_v<T> && !std::is_convertible_v<T*, at::Tensor*>;

/// The visitor passed to `Visit`.
struct TORCHTAP_API Collector {
  CallTensors& tensors;

  void operator()(at::Tensor& tensor) const { tensors.push_back(tensor); }
  template <class T>
  void operator()(T& value) const {
    if constexpr (std::is_const_v<T>) {
      fixed(const_cast<std::remove_const_t<T>&>(value));
    } else {
      Visit<T>::apply(value, *this);
    }
  }
  void absent() const { tensors.push_absent(); }
  void unknown(const std::type_info& type) const { tensors.push_unknown(type); }

  /// For values that can only be read.
  template <class T>
  void fixed(T& value) const {
    if constexpr (!is_plain_v<T>) {
      CallTensors found;
      Collector{found}(value);
      tensors.push_fixed(found, typeid(T*));
    }
  }
  /// Visits `copy`; `replace` would install it in place of the original.
  template <class T, class Replace>
  void copied(T& copy, Replace replace) const {
    const std::int64_t begin = tensors.size();
    (*this)(copy);
    if (tensors.size() != begin) tensors.keep(begin, std::move(replace));
  }
};

/// The number of tensors in every value of type `T` if the type determines it, else 0.
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
template <class T>
inline constexpr std::size_t tensors_in_v<std::shared_ptr<T>> = tensors_in_v<T>;
template <class T, class D>
inline constexpr std::size_t tensors_in_v<std::unique_ptr<T, D>> = tensors_in_v<T>;

/// Visits the elements in order.
template <class Range>
struct VisitRange {
  template <class Visitor>
  static void apply([[maybe_unused]] Range& value, [[maybe_unused]] Visitor&& visit) {
    if constexpr (!is_plain_v<typename Range::value_type>) {
      for (auto& part : value) visit(part);
    }
  }
};

/// An empty optional keeps the slots of the tensors that it might hold: an LSTM has three inputs, with or
/// without a state.
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

/// Whether `<` orders all values of the type. A list, because detection by the compiler accepts every
/// `std::pair` and then fails.
template <class K>
inline constexpr bool is_ordered_v = std::is_scalar_v<K>;
template <class... Ts>
inline constexpr bool is_ordered_v<std::basic_string<Ts...>> = true;
template <class A, class B>
inline constexpr bool is_ordered_v<std::pair<A, B>> = is_ordered_v<A>&& is_ordered_v<B>;
template <class... Ts>
inline constexpr bool is_ordered_v<std::tuple<Ts...>> = (is_ordered_v<Ts> && ...);

/// Visits the values of a map in the order of the map.
template <class Map>
struct VisitMapped {
  template <class Visitor>
  static void apply([[maybe_unused]] Map& value, [[maybe_unused]] Visitor&& visit) {
    if constexpr (!is_plain_v<typename Map::mapped_type>) {
      for (auto& entry : value) visit(entry.second);
    }
  }
};

/// Visits the values of an unordered map, in the order of its keys if they have one.
template <class Map>
struct VisitHashed {
  template <class Visitor>
  static void apply(Map& value, Visitor&& visit) {
    if constexpr (is_ordered_v<typename Map::key_type> && !is_plain_v<typename Map::mapped_type>) {
      std::vector<typename Map::value_type*> entries;
      entries.reserve(value.size());
      for (auto& entry : value) entries.push_back(&entry);
      std::stable_sort(entries.begin(), entries.end(),
                       [](const auto* a, const auto* b) { return a->first < b->first; });
      for (auto* entry : entries) visit(entry->second);
    } else {
      VisitMapped<Map>::apply(value, visit);
    }
  }
};

/// Elements of a set cannot be changed, and tensors cannot be ordered.
template <class Set>
struct VisitSet {
  template <class Visitor>
  static void apply(Set& /*value*/, [[maybe_unused]] Visitor&& visit) {
    if constexpr (!is_plain_v<typename Set::value_type>) visit.unknown(typeid(Set));
  }
};

template <class T>
constexpr bool can_be_copied();
template <class T>
struct PartsCanBeCopied : std::true_type {};
template <template <class...> class X, class... Parts>
struct PartsCanBeCopied<X<Parts...>> : std::bool_constant<(... && can_be_copied<Parts>())> {};
template <template <class, std::size_t> class X, class Part, std::size_t N>
struct PartsCanBeCopied<X<Part, N>> : std::bool_constant<can_be_copied<Part>()> {};
template <template <class, unsigned> class X, class Part, unsigned N>
struct PartsCanBeCopied<X<Part, N>> : std::bool_constant<can_be_copied<Part>()> {};
template <class T>
struct PartsCanBeCopied<std::shared_ptr<T>> : std::true_type {};

/// Whether a copy of a `T` compiles. A std::vector<std::unique_ptr<…>> says that it can be copied and so does
/// each struct that has one, so parts are asked, and a type without a specialisation of `Visit` is not
/// believed.
template <class T>
constexpr bool can_be_copied() {
  if constexpr (!std::is_same_v<T, std::remove_cv_t<T>>) {
    return can_be_copied<std::remove_cv_t<T>>();
  } else if constexpr (!IsComplete<T>::value || !std::is_copy_constructible_v<T> ||
                       std::is_base_of_v<torch::nn::Module, T>) {
    return false;
  } else {
    return is_plain_v<T> || (!is_unknown_v<T> && PartsCanBeCopied<T>::value);
  }
}

/// Whether a pointer's target is exactly a `T`, not a derived type.
template <class T>
bool is_exactly([[maybe_unused]] const T& value) {
  if constexpr (std::is_polymorphic_v<T>) {
    return typeid(value) == typeid(T);
  } else {
    return true;
  }
}

}  // namespace detail

template <class... Ts>
struct Visit<std::tuple<Ts...>> {
  template <class Visitor>
  static void apply(std::tuple<Ts...>& value, [[maybe_unused]] Visitor&& visit) {
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

template <class T, class A>
struct Visit<std::vector<T, A>, std::enable_if_t<!std::is_same_v<T, bool>>>
    : detail::VisitRange<std::vector<T, A>> {};
template <class T, std::size_t N>
struct Visit<std::array<T, N>> : detail::VisitRange<std::array<T, N>> {};
template <class... Ts>
struct Visit<std::list<Ts...>> : detail::VisitRange<std::list<Ts...>> {};
template <class... Ts>
struct Visit<std::deque<Ts...>> : detail::VisitRange<std::deque<Ts...>> {};
template <class T, unsigned N>
struct Visit<c10::SmallVector<T, N>> : detail::VisitRange<c10::SmallVector<T, N>> {};

template <class... Ts>
struct Visit<std::map<Ts...>> : detail::VisitMapped<std::map<Ts...>> {};
template <class... Ts>
struct Visit<std::multimap<Ts...>> : detail::VisitMapped<std::multimap<Ts...>> {};
template <class... Ts>
struct Visit<std::unordered_map<Ts...>> : detail::VisitHashed<std::unordered_map<Ts...>> {};
template <class... Ts>
struct Visit<std::unordered_multimap<Ts...>> : detail::VisitHashed<std::unordered_multimap<Ts...>> {};
template <class... Ts>
struct Visit<std::set<Ts...>> : detail::VisitSet<std::set<Ts...>> {};
template <class... Ts>
struct Visit<std::multiset<Ts...>> : detail::VisitSet<std::multiset<Ts...>> {};
template <class... Ts>
struct Visit<std::unordered_set<Ts...>> : detail::VisitSet<std::unordered_set<Ts...>> {};
template <class... Ts>
struct Visit<std::unordered_multiset<Ts...>> : detail::VisitSet<std::unordered_multiset<Ts...>> {};

template <class T>
struct Visit<std::optional<T>> : detail::VisitOptional<std::optional<T>> {};
#if TORCHTAP_OWN_OPTIONAL
template <class T>
struct Visit<c10::optional<T>> : detail::VisitOptional<c10::optional<T>> {};
#endif

template <class... Ts>
struct Visit<std::variant<Ts...>> {
  template <class Visitor>
  static void apply(std::variant<Ts...>& value, Visitor&& visit) {
    if (!value.valueless_by_exception()) std::visit([&](auto& part) { visit(part); }, value);
  }
};

template <class T, class D>
struct Visit<std::unique_ptr<T, D>> {
  template <class Visitor>
  static void apply(std::unique_ptr<T, D>& value, Visitor&& visit) {
    if constexpr (!detail::IsComplete<T>::value || std::is_array_v<T>) {
      if (value != nullptr && !detail::is_plain_v<std::remove_all_extents_t<T>>) {
        visit.unknown(typeid(std::unique_ptr<T, D>));
      }
    } else if constexpr (!detail::is_plain_v<T>) {
      if (value == nullptr) {
        for (std::size_t i = 0; i < detail::tensors_in_v<T>; ++i) visit.absent();
      } else {
        visit(*value);
      }
    }
  }
};

template <class T>
struct Visit<std::shared_ptr<T>> {
  template <class Visitor>
  static void apply(std::shared_ptr<T>& value, Visitor&& visit) {
    using Plain = std::remove_cv_t<T>;
    if constexpr (!detail::IsComplete<T>::value || std::is_array_v<T>) {
      if (value != nullptr && !detail::is_plain_v<std::remove_all_extents_t<T>>) {
        visit.unknown(typeid(std::shared_ptr<T>));
      }
    } else if constexpr (!detail::is_plain_v<T>) {
      if (value == nullptr) {
        for (std::size_t i = 0; i < detail::tensors_in_v<T>; ++i) visit.absent();
        return;
      }
      if (value.use_count() == 1 && !std::is_const_v<T>) {
        visit(*value);
        return;
      }
      if constexpr (detail::can_be_copied<Plain>()) {
        if (detail::is_exactly<Plain>(*value)) {
          auto copy = std::make_shared<Plain>(*value);
          Plain& inside = *copy;
          visit.copied(inside, [&value, copy](detail::CallTensors::Of) { value = copy; });
          return;
        }
      }
      visit.fixed(const_cast<Plain&>(*value));
    }
  }
};

/// The tensors in a value of any type that hooks read, such as the result of a `forward`, in the order of
/// slots. Undefined ones are left out.
template <class Value>
std::vector<at::Tensor> tensors_in(Value& value) {
  detail::CallTensors found;
  detail::Collector{found}(value);
  std::vector<at::Tensor> tensors;
  for (std::int64_t i = 0; i < found.size(); ++i) {
    if (found[i].defined()) tensors.push_back(found[i]);
  }
  return tensors;
}

}  // namespace torchtap::hooks

#include <torchtap/hooks/detail/torch_values.hpp>
