#pragma once

/// Defines `Pages`, in which a device adds up the samples of a reduction.

#include <ATen/core/Tensor.h>
#include <c10/core/Stream.h>
#include <c10/util/ArrayRef.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <torchtap/cuda/detail/page_kernels.hpp>
#include <torchtap/reductions/extend/ledger.hpp>

namespace torchtap::cuda::detail {

using reductions::Needs;
using reductions::extend::BitBins;
using reductions::extend::Folding;
using reductions::extend::Intake;
using reductions::extend::Rows;
using reductions::extend::SlotCounts;

/// The pages of a device in which the samples of one reduction, or of all members of a series, are added up:
/// one for each way of folding, and further ones for histograms of other ranges and the like. It needs no
/// number of the host: each replay of a CUDA graph that has captured it adds, too. Not thread-safe: the
/// owner locks.
class Pages final : public reductions::extend::Ledger {
 public:
  /// Null if there are no kernels, or if the reduction needs each sample.
  static std::unique_ptr<Pages> of(core::Sink& sink);
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;
  ~Pages() override;

  /// Samples, of several pages, that are to be added in as few launches as can be.
  class Batch {
   public:
    /// How many samples.
    std::size_t size() const noexcept { return begins_.size(); }
    /// Leaves out the `index`-th sample.
    void forget(std::size_t index);
    /// Adds them, as later work of their devices' current streams, and is empty then, also if it throws.
    /// Waits for nothing.
    void launch();

   private:
    friend class Pages;
    PageKernels* kernels_ = nullptr;
    std::vector<PageEntry> entries_;
    std::vector<std::size_t> begins_;  // of each sample's entries
  };

  /// Whether `put` can take the sample; if not, the sink itself has to. Throws the errors of `Sink::update`,
  /// and those of a merge with what `sink` has. `captures`: whether the device's current stream captures a
  /// graph; then it throws `c10::NotImplementedError` if a sample has to come first that is not captured.
  bool accepts(const at::Tensor& sample, const core::Sink& sink, bool captures);
  /// Whether a sample may stay in its batch for longer than the call in which it was accepted.
  bool may_wait() const noexcept { return mask_.empty(); }  // nobody watches over the mask
  /// Puts the sample that was accepted last into a batch, which is to be launched on the device's current
  /// stream. The sample's memory must stay as it is until then.
  void put(const at::Tensor& sample, Batch& batch, bool captures);
  /// Moves all that was added to `sink`, or discards it if that is null. Waits for the device. Returns the
  /// number of samples, those of replays among them.
  std::int64_t settle(core::Sink* sink);

  bool choose(const std::string& mask, reductions::extend::MaskOf of) override;
  void share() noexcept override { shared_ = true; }
  bool ask(const Intake& intake, Needs needs) override { return ask_page(intake, needs) != nullptr; }
  bool ask_all(const Intake& intake) override;
  bool ask_bins(const Intake& intake, const std::vector<double>& edges) override;
  bool ask_bits(const Intake& intake, BitBins bins) override;
  bool ask_decay(const Intake& intake, double decay) override;
  bool ask_power(const Intake& intake, double power) override;

  at::Tensor as_one(const Folding& folding) const override;
  c10::ArrayRef<Summary> summaries(const Folding& folding) const override;
  c10::ArrayRef<std::int64_t> bins(const Folding& folding, const std::vector<double>& edges) const override;
  const std::vector<SlotCounts>& bits(const Folding& folding, BitBins bins) const override;
  at::Tensor decayed(const Folding& folding, double decay) const override;
  at::Tensor powers(const Folding& folding, double power) const override;
  Summary total() const override;
  std::int64_t elements() const override { return pages_.front().head.elements; }
  std::int64_t rows(const Folding& folding) const override;
  std::int64_t left_out() const noexcept override { return left_out_; }
  at::Tensor last() const override;

 private:
  struct Page {
    explicit Page(const Intake& intake);

    Intake intake;                   // checks samples, and knows their shape
    std::optional<Intake> counting;  // rows of another folding
    PageParts parts;
    std::vector<double> edges;
    std::vector<std::int64_t> sizes;  // of the last sample
    DeviceRows last;                  // as the last sample lies, without its memory
    std::int64_t counted = 0;         // rows of the last sample, for `counting`
    at::Tensor memory;                // on the device; undefined before the first sample
    PageHeader head;
    at::Tensor taken;  // a copy on the CPU
    std::vector<SlotCounts> slots;
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

  Pages() = default;
  Page* ask_page(const Intake& intake, Needs needs);
  template <class Free>
  Page* ask_page(const Intake& intake, const Free& free);
  template <class T>
  bool ask_part(const Intake& intake, T PageParts::*part, T value);
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
  reductions::extend::MaskOf mask_of_ = nullptr;
  Part part_;  // of the sample that was accepted
  std::int64_t left_out_ = 0;
  PageKernels* kernels_ = nullptr;
  std::optional<Form> form_;          // of the last sample
  std::vector<c10::Stream> streams_;  // that samples came from since they were settled; the last one is last
  bool captured_ = false;             // a graph writes to the pages, which so have to stay
};

}  // namespace torchtap::cuda::detail
