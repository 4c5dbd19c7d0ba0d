#pragma once

/// Folds one stream of samples into several reductions whose types are known only when the program runs.

#include <cstdint>
#include <string>
#include <vector>

#include <torchtap/base/api.hpp>
#include <torchtap/reductions/any.hpp>
#include <torchtap/reductions/pass.hpp>

namespace torchtap::reductions {

/// Several reductions of one stream: `AnySeries({Moments(), Min(), Count()})`. If the types are known to the
/// compiler, `Series` also gives access to members by type.
///
/// It has its members' results, named `member.result`, where `member` is the member's description up to its
/// arguments in snake case: "moments.mean", "abs_max.value", "top_k.indices". Further members of the same
/// name are numbered: "sum_2", "sum_3".
class TORCHTAP_API AnySeries : public SharesPass {
 public:
  /// Takes these reductions, in this order. Throws `c10::ValueError` if there are none.
  explicit AnySeries(std::vector<Any> members);

  /// Number of members.
  std::size_t size() const noexcept { return members_.size(); }
  /// The `index`-th member. Throws `c10::IndexError`.
  const Any& at(std::size_t index) const&;
  /// For a temporary: returns by value.
  Any at(std::size_t index) && { return at(index); }

  /// Passes the sample to each member. A sample is read once for all members that can share the pass. Throws
  /// the error of any of them; the state of all is unchanged then.
  void update(const at::Tensor& sample);
  /// Throws the error that `update` would throw for this sample. Changes nothing.
  void check(const at::Tensor& sample) const;
  /// Merges member by member. Throws the error of any of them; the state of all is unchanged then.
  void merge(const AnySeries& other);
  /// Count of the first member.
  std::int64_t count() const { return members_.front().count(); }
  /// The results of all members as "member.result"; members without samples contribute nothing.
  core::Results results() const;
  /// The prefix of each member's results.
  std::vector<std::string> names() const;
  /// "Series(Moments, Min)".
  std::string describe() const;
  /// Whether all members are commutative.
  bool commutative() const;
  /// The names of the tensors that members look up in the thread's `core::Context`.
  std::vector<std::string> companions() const;
  AnySeries fresh() const;

  /// For cereal: the members one after another.
  void save(core::OutputArchive& archive) const;
  /// For cereal: into members of the same kinds.
  void load(core::InputArchive& archive);

 private:
  friend struct core::Access;
  std::string recipe() const;
  bool ask_ledger(detail::Ledger& ledger) const override;
  void fold_ledger(const detail::Ledger& ledger) override;
  void ask(Pass& pass) const override;
  void check_sample(const Pass& pass) const override;
  void fold(const Pass& pass) override;

  std::vector<Any> members_;
};

}  // namespace torchtap::reductions
