#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <torchtap/core/api.hpp>
#include <torchtap/core/sink.hpp>
#include <torchtap/reductions/options.hpp>

namespace torchtap::reductions {
namespace detail {
class Scan;
}

/// `NamedOptions().over({0})`: the rows, for all members.
class TORCHTAP_API NamedOptions : public RowOptions<NamedOptions> {};

/// Reductions given as text, such as "moments" or "mean,histogram:64:-4:4".
///
/// Names are separated by commas; arguments follow after colons:
/// `sum mean moments min max abs_max norm[:P] count first last ema[:DECAY] histogram:BINS[:LOW:HIGH]`
/// `quantiles covariance gram top_k[:K] reservoir[:K]`.
/// A single member's results keep their names; those of several are called "member.result", as in a `Series`.
class TORCHTAP_API Named {
 public:
  /// Throws `c10::ValueError` if the text is invalid; the message names the invalid part and the known
  /// reductions.
  explicit Named(const std::string& text, const NamedOptions& options = {});
  Named(const Named& other);
  Named& operator=(const Named& other);
  Named(Named&&) noexcept = default;
  Named& operator=(Named&&) noexcept = default;
  ~Named() = default;

  /// Passes the sample to each member. A CPU sample is read once for all members that can share the pass.
  /// Throws whatever any of them throws, leaving the state of all unchanged.
  void update(const at::Tensor& sample);
  /// Throws whatever `update` would throw for this sample, without changing the state.
  void check(const at::Tensor& sample) const;
  /// Throws `c10::Error` if `other` was made from other text or options, leaving the state unchanged.
  void merge(const Named& other);
  /// Count of the first member.
  std::int64_t count() const;
  /// The results of all members.
  core::Results results() const;
  /// "Mean", or "Series(Mean, Max)".
  std::string describe() const;
  /// Recipe for `restore`.
  std::string recipe() const;
  /// Whether all members are.
  bool commutative() const;
  Named fresh() const;

  void save(core::OutputArchive& archive) const;
  void load(core::InputArchive& archive);

  /// Internal: a reduction and its name.
  struct Member {
    /// Prefix of its results.
    std::string name;
    /// The reduction.
    std::unique_ptr<core::Sink> sink;
    /// The member's three steps of an update; see `Series`.
    void (*ask)(const core::Sink& sink, detail::Scan& scan);
    /// See `ask`.
    void (*check)(const core::Sink& sink, const detail::Scan& scan);
    /// See `ask`.
    void (*update)(core::Sink& sink, const detail::Scan& scan);
  };

 private:
  Named() = default;
  /// A copy of `member` with another sink.
  static Member with(const Member& member, std::unique_ptr<core::Sink> sink);

  std::vector<Member> members_;
};

}  // namespace torchtap::reductions
