#pragma once

/// One pass over a sample that several reductions share.

#include <ATen/core/Tensor.h>

#include <memory>

#include <torchtap/base/api.hpp>
#include <torchtap/core/detail/pass_member.hpp>
#include <torchtap/reductions/detail/requests.hpp>
#include <torchtap/reductions/summary.hpp>

namespace torchtap::reductions {

class Pass;

namespace detail {

class Ledger;

/// What a pass is made of: the sample, what is asked of it, and who answers.
struct PassParts {
  explicit PassParts(const at::Tensor& tensor) : sample(tensor), answers(requests) {}
  PassParts(const PassParts& whole, c10::ArrayRef<std::int64_t> rows)
      : sample(whole.sample, rows), answers(requests) {}
  PassParts(const at::Tensor& like, const Answers& others)
      : sample(Readable::read_elsewhere(like)), answers(others) {}

  Readable sample;
  Requests requests{sample};
  const Answers& answers;  // `requests`, or those of a ledger
};

PassParts& parts_of(Pass& pass) noexcept;
const PassParts& parts_of(const Pass& pass) noexcept;

}  // namespace detail

/// A reduction that shares one pass over a sample with others, say in a `Series`: first each says what it
/// needs to know of the sample, then the sample is read once, then each folds the answer in.
///
/// The reductions of this library derive from it. Derive your own from `FromSummary` if it needs only a
/// `Summary` of each sample; else derive it from this class and override the three functions, which may be
/// private.
class TORCHTAP_API SharesPass : public core::detail::PassMember {
 protected:
  SharesPass() = default;
  SharesPass(const SharesPass&) = default;
  SharesPass(SharesPass&&) = default;
  SharesPass& operator=(const SharesPass&) = default;
  SharesPass& operator=(SharesPass&&) = default;
  virtual ~SharesPass() = default;

 private:
  friend class Pass;
  friend class AnySeries;
  friend class Where;
  friend class detail::Ledger;

  /// Asks a ledger for everything that `fold_ledger` will need; false if each sample is needed.
  virtual bool ask_ledger(detail::Ledger& ledger) const;
  /// Folds the samples of a ledger into a reduction without samples.
  virtual void fold_ledger(const detail::Ledger& ledger);
  /// Asks for everything that `fold` will need.
  virtual void ask(Pass& pass) const = 0;
  /// Throws the error that `fold` would throw.
  virtual void check_sample(const Pass& pass) const = 0;
  /// Folds the sample in. If it throws, the state is unchanged.
  virtual void fold(const Pass& pass) = 0;
};

/// One pass over a sample for several reductions: they ask first, then the sample is read once. The sample
/// must outlive the pass.
class TORCHTAP_API Pass {
 public:
  /// For torchtap: a pass over the samples of a ledger, which knows all answers. `like` stands for them as
  /// one sample; its elements are not read. Both must outlive the pass.
  Pass(const at::Tensor& like, const detail::Answers& ledger) : parts_(like, ledger) {}
  /// A pass over all rows of a sample.
  explicit Pass(const at::Tensor& sample) : parts_(sample) {}
  /// A pass over some rows, ascending and at least one, of the sample of another pass, which is contiguous
  /// and on the CPU. It is equal to a pass over `whole.sample().index_select(0, rows)`, but reads rows where
  /// they lie if that is faster. Both must outlive the pass.
  Pass(const Pass& whole, c10::ArrayRef<std::int64_t> rows) : parts_(whole.parts_, rows) {}

  /// The sample itself; chosen rows are copied when they are first asked for.
  const at::Tensor& sample() const { return parts_.sample.tensor(); }

  /// The three steps of an update, for each member in turn: all ask, all are checked, all fold.
  void ask(const SharesPass& member) { member.ask(*this); }
  /// Throws the error that `fold_into` would throw.
  void check(const SharesPass& member) const { member.check_sample(*this); }
  /// Folds the sample into `member`.
  void fold_into(SharesPass& member) const { member.fold(*this); }

  /// Asks for a summary of all elements.
  void ask_total(Needs needs) { parts_.requests.ask_total(needs); }
  /// The summary of all elements, which was asked for. For samples that the kernels cannot read it is
  /// computed with operations of ATen, which synchronises with the sample's device. Throws `c10::TypeError`
  /// for a sample that is not of real numbers.
  Summary total() const;

 private:
  friend detail::PassParts& detail::parts_of(Pass& pass) noexcept;
  friend const detail::PassParts& detail::parts_of(const Pass& pass) noexcept;

  detail::PassParts parts_;
};

namespace detail {

inline PassParts& parts_of(Pass& pass) noexcept {
  return pass.parts_;
}
inline const PassParts& parts_of(const Pass& pass) noexcept {
  return pass.parts_;
}

}  // namespace detail

}  // namespace torchtap::reductions
