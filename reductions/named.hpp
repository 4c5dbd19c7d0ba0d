#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <torchtap/core/api.hpp>
#include <torchtap/core/sink.hpp>
#include <torchtap/reductions/options.hpp>
#include <vector>

namespace torchtap::reductions {
namespace detail {
class Scan;
}

/// `NamedOptions().over({0})`: what a row is, for all members alike.
class TORCHTAP_API NamedOptions : public RowOptions<NamedOptions> {};

/// Reductions by their names, for those who have them as text: "moments", "mean,histogram:64:-4:4".
///
/// Names are separated by commas, arguments follow after colons:
/// `sum mean moments min max abs_max norm[:P] count first last ema[:DECAY] histogram:BINS[:LOW:HIGH]
/// quantiles covariance gram top_k[:K] reservoir[:K]`. One member's results are its own; those of several are
/// called "member.result", as a `Series` has them.
class TORCHTAP_API Named {
 public:
  /// Throws `c10::ValueError` for text that is not as above, naming the part and what is known.
  explicit Named(const std::string& text, const NamedOptions& options = {});
  Named(const Named& other);
  Named& operator=(const Named& other);
  Named(Named&&) noexcept = default;
  Named& operator=(Named&&) noexcept = default;
  ~Named() = default;

  /// Hands the sample to each member; one on the CPU is read once for all that can share it. Throws what any
  /// of them throws; the state of all is then unchanged.
  void update(const at::Tensor& sample);
  /// Throws what `update` would throw for this sample; changes nothing.
  void check(const at::Tensor& sample) const;
  /// Throws `c10::Error` if `other` was made from other text or options; the state is then unchanged.
  void merge(const Named& other);
  /// Of the first member.
  std::int64_t count() const;
  /// The results of all members.
  core::Results results() const;
  /// "Mean", or "Series(Mean, Max)".
  std::string describe() const;
  /// For `restore`.
  std::string recipe() const;
  /// Of all members.
  bool commutative() const;
  Named fresh() const;

  void save(core::OutputArchive& archive) const;
  void load(core::InputArchive& archive);

  /// For torchtap itself: a reduction and its name.
  struct Member {
    /// Its name among the results.
    std::string name;
    /// The reduction.
    std::unique_ptr<core::Sink> sink;
    /// What this member does in the three steps of an update; see `Series`.
    void (*ask)(const core::Sink& sink, detail::Scan& scan);
    /// See `ask`.
    void (*check)(const core::Sink& sink, const detail::Scan& scan);
    /// See `ask`.
    void (*update)(core::Sink& sink, const detail::Scan& scan);
  };

 private:
  Named() = default;
  /// A member like `member`, with another sink.
  static Member with(const Member& member, std::unique_ptr<core::Sink> sink);

  std::vector<Member> members_;
};

}  // namespace torchtap::reductions
