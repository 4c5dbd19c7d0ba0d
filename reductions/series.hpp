#pragma once

#include <array>
#include <string>
#include <tuple>
#include <utility>

#include <torchtap/reductions/detail/nested.hpp>
#include <torchtap/reductions/detail/scan.hpp>

namespace torchtap::reductions {

/// Several reductions of one stream: `Series(Moments(), Min(), Max(), Count())`.
///
/// Its results are those of its members, named `member.result`, where `member` is the member's description up
/// to its arguments in snake case: "moments.mean", "abs_max.value", "top_k.indices". Further members of the
/// same name are numbered: "sum_2", "sum_3".
template <class... Rs>
class Series {
 public:
  static_assert(sizeof...(Rs) > 0 && (core::is_reduction_v<Rs> && ...),
                "Series takes reductions: void update(const at::Tensor&); void merge(const R&); std::int64_t "
                "count() const; torchtap::core::Results results() const;");

  /// Takes copies of these reductions, in this order.
  explicit Series(Rs... reductions) : members_(std::move(reductions)...) {}

  /// A member by index, or by type if that occurs once.
  template <std::size_t I>
  const auto& get() const noexcept {
    return *std::get<I>(members_);
  }
  /// The member of a type that occurs once.
  template <class R>
  const R& get() const noexcept {
    return *std::get<detail::Assignable<R>>(members_);
  }

  /// Passes the sample to each member. Throws whatever any of them throws, leaving the state of all
  /// unchanged.
  ///
  /// A CPU sample is read once for all members that can share the pass. Members with a `check` are checked
  /// first. Of those without, one is updated in place and the others as copies.
  void update(const at::Tensor& sample) {
    detail::Scan scan(sample);
    each([&](const auto& member) {
      if constexpr (detail::has_scan<std::decay_t<decltype(member)>>::value) member.ask(scan);
    });
    check_known(scan, Indices());
    update_unknown<0>(sample);
    each([&](auto& member) {
      using Member = std::decay_t<decltype(member)>;
      if constexpr (detail::has_scan<Member>::value) {
        member.update(scan);
      } else if constexpr (knows<Member>) {
        member.update(sample);
      }
    });
  }
  /// Throws whatever `update` would throw for this sample, without changing the state. Available if every
  /// member has it.
  template <class T = void, class = std::enable_if_t<(detail::has_check<Rs>::value && ...), T>>
  void check(const at::Tensor& sample) const {
    check_known(detail::Scan(sample), Indices());
  }
  /// Merges member by member. Throws whatever any of them throws; the state of all is then unchanged.
  void merge(const Series& other) {
    Members merged = members_;
    merge_into(merged, other.members_, Indices());
    members_ = std::move(merged);
  }
  /// Count of the first member.
  std::int64_t count() const { return get<0>().count(); }
  /// The results of all members as "member.result"; members without samples contribute nothing.
  core::Results results() const {
    core::Results result;
    const auto names = this->names();
    std::size_t i = 0;
    each([&](const auto& member) {
      const core::Results part = member.results();
      for (const auto& [name, tensor] : part) result.set(names[i] + "." + name, tensor);
      ++i;
    });
    return result;
  }
  /// The prefix of each member's results.
  std::array<std::string, sizeof...(Rs)> names() const {
    std::array<std::string, sizeof...(Rs)> plain, result;
    std::size_t i = 0;
    each([&](const auto& member) { plain[i++] = detail::snake_case(detail::describe(member)); });
    for (i = 0; i < plain.size(); ++i) {
      int same = 1;
      for (std::size_t j = 0; j < i; ++j) same += plain[j] == plain[i] ? 1 : 0;
      result[i] = same == 1 ? plain[i] : plain[i] + "_" + std::to_string(same);
    }
    return result;
  }
  /// "Series(Moments, Min)".
  std::string describe() const {
    std::string text;
    each([&](const auto& member) { text += (text.empty() ? "" : ", ") + detail::describe(member); });
    return "Series(" + text + ")";
  }
  /// Recipe for `restore`.
  std::string recipe() const {
    std::string text;
    bool known = true;
    each([&](const auto& member) {
      const std::string part = detail::recipe(member);
      known = known && !part.empty();
      text += (text.empty() ? "" : ", ") + part;
    });
    return known ? detail::recipe_of("Series", text) : "";
  }
  /// Whether all members are.
  bool commutative() const {
    bool all = true;
    each([&](const auto& member) { all = all && detail::commutative(member); });
    return all;
  }
  /// Available if every member has it.
  template <class T = void, class = std::enable_if_t<detail::all_fresh_v<Rs...>, T>>
  Series fresh() const {
    return std::apply([](const auto&... members) { return Series(members->fresh()...); }, members_);
  }

  template <class Archive>
  void serialize(Archive& archive) {
    core::state_version(archive, "Series", 1);
    std::apply([&](auto&... members) { archive(*members...); }, members_);
  }

 private:
  using Members = std::tuple<detail::Assignable<Rs>...>;
  using Indices = std::index_sequence_for<Rs...>;

  template <class Member>
  static constexpr bool knows = detail::has_check<std::decay_t<Member>>::value;

  template <class F>
  void each(F&& f) {
    std::apply([&](auto&... members) { (f(*members), ...); }, members_);
  }
  template <class F>
  void each(F&& f) const {
    std::apply([&](const auto&... members) { (f(*members), ...); }, members_);
  }
  template <std::size_t... I>
  void check_known(const detail::Scan& scan, std::index_sequence<I...>) const {
    const auto check = [&](const auto& member) {
      using Member = std::decay_t<decltype(member)>;
      if constexpr (detail::has_scan<Member>::value) {
        member.check(scan);
      } else if constexpr (knows<Member>) {
        member.check(scan.sample());
      }
    };
    (check(*std::get<I>(members_)), ...);
  }
  /// Updates the members from `I` on that have no check. The copies are adopted on the way back, when nothing
  /// can throw any more. The last member is updated in place, since it does not change if it throws.
  template <std::size_t I>
  void update_unknown(const at::Tensor& sample) {
    if constexpr (I < sizeof...(Rs)) {
      using Member = std::tuple_element_t<I, std::tuple<Rs...>>;
      if constexpr (knows<Member>) {
        update_unknown<I + 1>(sample);
      } else if constexpr (!unknown_after<I>(Indices())) {
        std::get<I>(members_)->update(sample);
      } else {
        detail::Assignable<Member> next = std::get<I>(members_);
        next->update(sample);
        update_unknown<I + 1>(sample);
        std::get<I>(members_) = std::move(next);
      }
    }
  }
  template <std::size_t From, std::size_t... I>
  static constexpr bool unknown_after(std::index_sequence<I...>) {
    return ((I > From && !knows<Rs>) || ...);
  }
  template <std::size_t... I>
  static void merge_into(Members& into, const Members& from, std::index_sequence<I...>) {
    (std::get<I>(into)->merge(*std::get<I>(from)), ...);
  }

  Members members_;
};

}  // namespace torchtap::reductions
