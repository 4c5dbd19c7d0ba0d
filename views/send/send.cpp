// Sends samples, or the results of reductions, to a stream.
#include <c10/util/SmallVector.h>

#include <utility>
#include <vector>

#include <torchtap/base/error.hpp>
#include <torchtap/views/send/send.hpp>

namespace torchtap::views::send {

using recorders::StreamSample;
using recorders::extend::SlotData;
using recorders::extend::stop_if_last;

void Sends::check(const std::string& kind, const recorders::RecorderOptions& options) const {
  TORCH_CHECK_VALUE(
      options.spool_directory().empty() && (options.reduction() != nullptr || !options.memory_budget()), kind,
      ": stream() sends samples and keeps none, so there is nothing for spool() or "
      "memory_budget(); attach a second recorder to keep them.");
}

std::string Sends::elsewhere(const recorders::RecorderOptions& options) const {
  if (options.reduction() != nullptr) return "";
  return "streamed and not kept; `torchtap tail` writes them as a recording, or attach a second recorder "
         "without stream().";
}

std::unique_ptr<recorders::extend::Taker> Sends::taker(Slots& slots, Prepare& prepare,
                                                       std::unique_ptr<Fold> folds) const {
  if (folds != nullptr) return std::make_unique<SendResults>(slots, std::move(folds), *this);
  return std::make_unique<Send>(slots, prepare, *this);
}

Send::Send(Slots& slots, Prepare& prepare, const Sends& sends)
    : Taker(slots), prepare_(prepare), source_(sends.stream->source(slots.id)), every_(sends.every) {}

hooks::Callback Send::callback(const std::shared_ptr<Record>& record) {
  return [this, record](hooks::Event& event) { record->guarded([&] { on_event(*record, event); }); };
}

void Send::on_event(Record& record, hooks::Event& event) {
  if (!record.is_of_slot(event)) return;
  const std::int64_t number = seen_.fetch_add(1, std::memory_order_relaxed);
  if (!source_->wanted() || number % every_ != 0) return stop_if_last(slots_);
  // Behind a condition, because the source counts the time since the last event that it was asked for.
  const bool asks_later = static_cast<bool>(slots_.options->condition());
  std::uint64_t receivers = asks_later ? 0 : source_->receivers(number / every_);
  if (receivers == 0 && !asks_later) return stop_if_last(slots_);
  Record::Asked asked;
  if (!record.asks(event, asked)) return;
  if (asks_later) receivers = source_->receivers(number / every_);
  if (receivers == 0) return stop_if_last(slots_);
  const auto send = [&](const at::Tensor& tensor, std::int64_t slot) {
    const StreamSample sample{number, event.call_index(), slot, {}};
    if (prepare_.as_it_is()) return source_->send(tensor, sample, receivers);
    at::Tensor prepared;
    {
      const Prepare::Turn turn(prepare_);
      prepared = prepare_(tensor);
    }
    source_->send(prepared, sample, receivers);
  };
  if (asked.all == nullptr || !slots_.options->all_tensors()) {
    send(*asked.first, asked.all == nullptr ? event.slot() : slots_.options->slot());
  } else {
    for (std::int64_t i = 0; i < asked.all->size(); ++i) send((*asked.all)[i], i);
  }
  slots_.samples.fetch_add(1, std::memory_order_relaxed);
  stop_if_last(slots_);
}

/// Never called: `callback` takes the events.
recorders::extend::Taker::Took Send::take(const hooks::Event& /*event*/,
                                          c10::ArrayRef<at::Tensor> /*tensors*/, std::size_t /*first_slot*/) {
  return Took::nothing;
}

void Send::restart() noexcept {
  seen_.store(0);
  slots_.samples.store(0);  // none were kept
}

SendResults::SendResults(Slots& slots, std::unique_ptr<Fold> folds, const Sends& sends)
    : TakerAround(slots, std::move(folds)), source_(sends.stream->source(slots.id)), every_(sends.every) {}

recorders::extend::Taker::Took SendResults::take(const hooks::Event& event, c10::ArrayRef<at::Tensor> tensors,
                                                 std::size_t first_slot) {
  const Took took = folds().take(event, tensors, first_slot);
  send_results(event);
  return took;
}

void SendResults::send_results(const hooks::Event& event) {
  const std::int64_t number = seen_.fetch_add(1, std::memory_order_relaxed);
  if (!source_->wanted() || (number + 1) % every_ != 0) return;
  const std::uint64_t receivers = source_->receivers(number / every_);
  if (receivers == 0) return;
  std::vector<core::Results> results;
  {
    const Slots::Lock lock(slots_);
    settle();
    for (const SlotData& slot : slots_.list) {
      results.push_back(slot.sink != nullptr && !slot.fixed.has_value() ? slot.sink->results()
                                                                        : core::Results{});
    }
  }
  for (std::size_t i = 0; i < results.size(); ++i) {
    StreamSample sample{number, event.call_index(), slots_.options->slot(), {}};
    if (slots_.options->all_tensors()) sample.slot = static_cast<std::int64_t>(i);
    for (const auto& [name, result] : results[i]) {
      sample.result = name;
      source_->send(result, sample, receivers);
    }
  }
}

}  // namespace torchtap::views::send

namespace torchtap::recorders {

using views::send::Sends;

RecorderOptions& RecorderOptions::stream(std::shared_ptr<Stream> stream, std::int64_t every) {
  TORCH_CHECK_VALUE(stream != nullptr,
                    "recorders::RecorderOptions::stream: there is no stream; make a publisher first.");
  TORCH_CHECK_VALUE(every >= 1, "recorders::RecorderOptions::stream: every ", every,
                    " is not a number of samples; 1 sends each.");
  return takes(std::make_shared<Sends>(std::move(stream), every));
}

std::shared_ptr<Stream> RecorderOptions::stream() const noexcept {
  const auto* const sends = dynamic_cast<const Sends*>(takes_.get());
  return sends == nullptr ? nullptr : sends->stream;
}

std::int64_t RecorderOptions::stream_every() const noexcept {
  const auto* const sends = dynamic_cast<const Sends*>(takes_.get());
  return sends == nullptr ? 1 : sends->every;
}

}  // namespace torchtap::recorders
