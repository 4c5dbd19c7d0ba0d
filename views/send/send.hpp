#pragma once

/// Defines `Send` and `SendResults`, which send samples, or the results of reductions, to a stream.

#include <atomic>
#include <memory>
#include <string>
#include <utility>

#include <torchtap/recorders/extend/record.hpp>
#include <torchtap/recorders/extend/takes.hpp>
#include <torchtap/views/send/stream.hpp>

namespace torchtap::views::send {

using recorders::Stream;
using recorders::StreamSource;
using recorders::extend::Fold;
using recorders::extend::Prepare;
using recorders::extend::Record;
using recorders::extend::Slots;

/// Has recorders send to a stream (`RecorderOptions::stream`).
class Sends final : public recorders::extend::Takes {
 public:
  Sends(std::shared_ptr<Stream> stream, std::int64_t every) : stream(std::move(stream)), every(every) {}
  const char* what() const noexcept override { return "sends to a stream"; }
  void check(const std::string& kind, const recorders::RecorderOptions& options) const override;
  std::string elsewhere(const recorders::RecorderOptions& options) const override;
  std::unique_ptr<recorders::extend::Taker> taker(Slots& slots, Prepare& prepare,
                                                  std::unique_ptr<Fold> folds) const override;

  const std::shared_ptr<Stream> stream;
  const std::int64_t every;
};

/// Sends samples to a stream and keeps none (`RecorderOptions::stream`).
class Send final : public recorders::extend::Taker {
 public:
  Send(Slots& slots, Prepare& prepare, const Sends& sends);
  /// A hook that asks the source first, because this is the whole cost without readers.
  hooks::Callback callback(const std::shared_ptr<Record>& record) override;
  Took take(const hooks::Event& event, c10::ArrayRef<at::Tensor> tensors, std::size_t first_slot) override;
  std::int64_t seen() const noexcept override { return seen_.load(); }
  void restart() noexcept override;

 private:
  void on_event(Record& record, hooks::Event& event);

  Prepare& prepare_;
  const std::shared_ptr<StreamSource> source_;
  const std::int64_t every_;
  std::atomic<std::int64_t> seen_{0};  // events that might have been sent
};

/// Sends the results of the reductions after each sample that a receiver wants.
class SendResults final : public recorders::extend::TakerAround {
 public:
  SendResults(Slots& slots, std::unique_ptr<Fold> folds, const Sends& sends);
  Took take(const hooks::Event& event, c10::ArrayRef<at::Tensor> tensors, std::size_t first_slot) override;
  void restart() noexcept override { seen_.store(0); }

 private:
  void send_results(const hooks::Event& event);

  const std::shared_ptr<StreamSource> source_;
  const std::int64_t every_;
  std::atomic<std::int64_t> seen_{0};
};

}  // namespace torchtap::views::send
