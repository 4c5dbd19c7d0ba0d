#pragma once

/// Defines `Send` and `SendResults`, which send samples, or the results of reductions, to a stream.

#include <atomic>
#include <memory>
#include <optional>

#include <torchtap/recorders/detail/fold.hpp>

namespace torchtap::recorders::detail {

/// Sends samples to a stream and keeps none (`RecorderOptions::stream`).
class Send final : public Taker {
 public:
  Send(Slots& slots, Prepare& prepare);
  /// A hook that asks the source first, because this is the whole cost without readers.
  hooks::Callback callback(const std::shared_ptr<Record>& record) override;
  Took take(const hooks::Event& event, c10::ArrayRef<at::Tensor> tensors, std::size_t first_slot) override;
  std::int64_t seen() const noexcept override { return seen_.load(); }
  void restart() noexcept override;

 private:
  void on_event(Record& record, hooks::Event& event);

  Prepare& prepare_;
  const std::shared_ptr<StreamSource> source_;
  std::atomic<std::int64_t> seen_{0};  // events that might have been sent
};

/// Sends the results of the reductions after each sample that a receiver wants.
class SendResults final : public TakerAround {
 public:
  SendResults(Slots& slots, std::unique_ptr<Fold> folds);
  Took take(const hooks::Event& event, c10::ArrayRef<at::Tensor> tensors, std::size_t first_slot) override;
  void restart() noexcept override { seen_.store(0); }

 private:
  void send_results(const hooks::Event& event);

  const std::shared_ptr<StreamSource> source_;
  std::atomic<std::int64_t> seen_{0};
};

}  // namespace torchtap::recorders::detail
