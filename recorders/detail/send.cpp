// Sends samples, or the results of reductions, to a stream.
#include <c10/util/SmallVector.h>

#include <utility>
#include <vector>

#include <torchtap/recorders/detail/record.hpp>
#include <torchtap/recorders/detail/send.hpp>
#include <torchtap/recorders/detail/until_recorded.hpp>

namespace torchtap::recorders::detail {

Send::Send(Slots& slots, Prepare& prepare)
    : Taker(slots), prepare_(prepare), source_(slots.options->stream()->source(slots.id)) {}

hooks::Callback Send::callback(const std::shared_ptr<Record>& record) {
  return [this, record](hooks::Event& event) { record->guarded([&] { on_event(*record, event); }); };
}

void Send::on_event(Record& record, hooks::Event& event) {
  if (!record.is_of_slot(event)) return;
  const std::int64_t number = seen_.fetch_add(1, std::memory_order_relaxed);
  const std::int64_t every = slots_.options->stream_every();
  if (!source_->wanted() || number % every != 0) return stop_if_last(slots_);
  // Behind a condition, because the source counts the time since the last event that it was asked for.
  const bool asks_later = static_cast<bool>(slots_.options->condition());
  std::uint64_t receivers = asks_later ? 0 : source_->receivers(number / every);
  if (receivers == 0 && !asks_later) return stop_if_last(slots_);
  Record::Asked asked;
  if (!record.asks(event, asked)) return;
  if (asks_later) receivers = source_->receivers(number / every);
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
Taker::Took Send::take(const hooks::Event& /*event*/, c10::ArrayRef<at::Tensor> /*tensors*/,
                       std::size_t /*first_slot*/) {
  return Took::nothing;
}

void Send::restart() noexcept {
  seen_.store(0);
  slots_.samples.store(0);  // none were kept
}

SendResults::SendResults(Slots& slots, std::unique_ptr<Fold> folds)
    : TakerAround(slots, std::move(folds)), source_(slots.options->stream()->source(slots.id)) {}

Taker::Took SendResults::take(const hooks::Event& event, c10::ArrayRef<at::Tensor> tensors,
                              std::size_t first_slot) {
  const Took took = folds().take(event, tensors, first_slot);
  send_results(event);
  return took;
}

void SendResults::send_results(const hooks::Event& event) {
  const std::int64_t number = seen_.fetch_add(1, std::memory_order_relaxed);
  const std::int64_t every = slots_.options->stream_every();
  if (!source_->wanted() || (number + 1) % every != 0) return;
  const std::uint64_t receivers = source_->receivers(number / every);
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

}  // namespace torchtap::recorders::detail
