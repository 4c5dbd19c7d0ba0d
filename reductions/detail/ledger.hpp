#pragma once

/// Adds samples up on a device for reductions that take them in together, later.

#include <ATen/core/Tensor.h>
#include <c10/core/Stream.h>
#include <c10/util/ArrayRef.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <torchtap/core/accumulator.hpp>
#include <torchtap/reductions/detail/intake.hpp>
#include <torchtap/reductions/extend/bit_bins.hpp>
#include <torchtap/reductions/extend/device_kernels.hpp>
#include <torchtap/reductions/summary.hpp>

namespace torchtap::reductions {

class SharesPass;

namespace detail {

/// The pages of a device in which the samples of one reduction, or of all members of a series, are added up:
/// one for each way of folding, and further ones for histograms of other ranges and the like.
///
/// Reductions ask for what they need, as they ask a `Pass`. When the samples are taken, they answer as one
/// large sample of the CPU would.
class Ledger final : public core::Accumulator {
 public:
  /// Null if there are no kernels, or if the reduction needs each sample.
  static std::unique_ptr<Ledger> of(const SharesPass& reduction);
  Ledger(const Ledger&) = delete;
  Ledger& operator=(const Ledger&) = delete;
  ~Ledger() override;

  bool accepts(const at::Tensor& sample, const core::Sink& sink, bool captures) override;
  std::unique_ptr<Batch> batch() const override;
  bool may_wait() const noexcept override { return mask_.empty(); }  // nobody watches over the mask
  void put(const at::Tensor& sample, Batch& batch, bool captures) override;
  std::int64_t settle(core::Sink* sink) override;

  /// Takes only the rows that the companion of this name chooses. False if the ledger serves others, too.
  bool choose(const std::string& mask);
  /// Says that several reductions ask.
  void share() noexcept { shared_ = true; }

  // What reductions ask for. False if their way of folding cannot be served: elementwise, or with an error
  // for what is not finite.
  bool ask(const Intake& intake, Needs needs) { return ask_page(intake, needs) != nullptr; }
  /// A summary of all elements, and the number of rows.
  bool ask_all(const Intake& intake);
  bool ask_bins(const Intake& intake, const std::vector<double>& edges);
  bool ask_bits(const Intake& intake, extend::BitBins bins);
  /// (1 - decay) times the sum of all rows, each times decay to the power of the rows behind it.
  bool ask_decay(const Intake& intake, double decay);
  /// The sum of the magnitudes of finite elements, each to this power.
  bool ask_power(const Intake& intake, double power);

  // The answers, while samples are settled.
  /// A tensor with the dtype and as many rows as all samples have, for checks of its shape. Its elements are
  /// not to be read.
  at::Tensor as_one(const Folding& folding) const;
  /// Of each kept element.
  c10::ArrayRef<Summary> summaries(const Folding& folding) const;
  /// [kept, bins + 3]: bins, below, above, NaN.
  c10::ArrayRef<std::int64_t> bins(const Folding& folding, const std::vector<double>& edges) const;
  const std::vector<extend::SlotCounts>& bits(const Folding& folding, extend::BitBins bins) const;
  /// [kept], float64.
  at::Tensor decayed(const Folding& folding, double decay) const;
  at::Tensor powers(const Folding& folding, double power) const;
  // For those who asked for all: a summary of all elements, and how many elements and rows there are.
  Summary total() const;
  std::int64_t elements() const { return pages_.front().head.elements; }
  std::int64_t rows(const Folding& folding) const;
  /// Number of elements of masks that were false.
  std::int64_t left_out() const noexcept { return left_out_; }
  /// A tensor of the shape and dtype of the last sample. Its elements are not to be read.
  at::Tensor last() const;

 private:
  struct Page {
    explicit Page(const Intake& intake);

    Intake intake;                   // checks samples, and knows their shape
    std::optional<Intake> counting;  // rows of another folding
    extend::PageParts parts;
    std::vector<double> edges;
    std::vector<std::int64_t> sizes;  // of the last sample
    extend::DeviceRows last;          // as the last sample lies, without its memory
    std::int64_t counted = 0;         // rows of the last sample, for `counting`
    at::Tensor memory;                // on the device; undefined before the first sample
    extend::PageHeader head;
    at::Tensor taken;  // a copy on the CPU
    std::vector<extend::SlotCounts> slots;
  };
  /// What is the same of samples that lie alike.
  struct Form {
    std::vector<std::int64_t> sizes, strides;
    c10::ScalarType dtype;
    bool plain;  // the memory is read as it is

    bool is_of(const at::Tensor& sample) const;
  };

  /// What is added of a sample: it, or its rows and those that are chosen.
  struct Part {
    at::Tensor rows, mask;
  };

  class PageBatch;

  Ledger() = default;
  Page* ask_page(const Intake& intake, Needs needs);
  template <class Free>
  Page* ask_page(const Intake& intake, const Free& free);
  template <class T>
  bool ask_part(const Intake& intake, T extend::PageParts::*part, T value);
  bool finish();
  const Page& page(const Folding& folding) const;
  const Page* counting(const Folding& folding) const;
  template <class Has>
  const Page& page(const Folding& folding, const Has& has) const;
  bool find_rows(const at::Tensor& sample, bool captures, Part& part) const;
  bool look(const at::Tensor& sample, const core::Sink& sink);
  void try_merge(const core::Sink& sink);
  void open(Page& page, const at::Tensor& sample);
  void follow(const c10::Stream& before, const c10::Stream& now) const;
  void read(Page& page);
  static c10::ArrayRef<Summary> summaries_of(const Page& page);
  static at::Tensor numbers(const Page& page, std::int64_t at);

  std::vector<Page> pages_;
  std::vector<Intake> rows_asked_;  // by `ask_all`
  bool shared_ = false;
  std::string mask_;  // empty: all rows
  Part part_;         // of the sample that was accepted
  std::int64_t left_out_ = 0;
  extend::DeviceKernels* kernels_ = nullptr;
  std::optional<Form> form_;          // of the last sample
  std::vector<c10::Stream> streams_;  // that samples came from since they were settled; the last one is last
  bool captured_ = false;             // a graph writes to the pages, which so have to stay
};

}  // namespace detail
}  // namespace torchtap::reductions
