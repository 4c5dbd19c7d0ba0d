// Sends samples, or the results of reductions, to a stream.
#include <c10/util/SmallVector.h>

#include <utility>
#include <vector>

#include <torchtap/base/error.hpp>
#include <torchtap/recorders/detail/record.hpp>

namespace torchtap::recorders::detail {

/// An event of a recorder that sends samples and keeps no sample.
void Record::stream_sample(hooks::Event& event) {
  if (traits(kind).gradients && !options->all_tensors() && event.slot() != options->slot()) return;
  const std::int64_t number = seen_.fetch_add(1, std::memory_order_relaxed);
  const std::int64_t every = options->stream_every();
  // First, because this is the whole cost without readers.
  if (!source_->wanted() || number % every != 0) return stop_if_last();
  // Behind a condition, because the source counts the time since the last event that it was asked for.
  const bool asks_later = static_cast<bool>(options->condition());
  std::uint64_t receivers = asks_later ? 0 : source_->receivers(number / every);
  if (receivers == 0 && !asks_later) return stop_if_last();
  if (options->nullary_condition() && !options->nullary_condition()()) {
    counts_.refused.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  const hooks::Tensors* const tensors = tensors_of(event);
  if (tensors != nullptr) {
    if (tensors->empty() && !tensors->has_unknown() && !alone_) {
      counts_.without_tensors.fetch_add(1, std::memory_order_relaxed);
      return stop_if_last();
    }
    check(*tensors);
  }
  const bool all = options->all_tensors();
  const at::Tensor& first = tensors != nullptr ? (*tensors)[all ? 0 : options->slot()] : event.gradient();
  check_capture(first);
  if (options->condition() && !options->nullary_condition() && !wanted(event, tensors, first)) {
    counts_.refused.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  if (asks_later) receivers = source_->receivers(number / every);
  if (receivers == 0) return stop_if_last();
  StreamSample sample;
  sample.sample = number;
  sample.call = event.call_index();
  if (tensors == nullptr || !all) {
    sample.slot = tensors == nullptr ? event.slot() : options->slot();
    send(first, sample, receivers);
  } else {
    for (std::int64_t i = 0; i < tensors->size(); ++i) {
      sample.slot = i;
      send((*tensors)[i], sample, receivers);
    }
  }
  samples_.fetch_add(1, std::memory_order_relaxed);
  stop_if_last();
}

void Record::send(const at::Tensor& tensor, const StreamSample& sample, std::uint64_t receivers) {
  if (options->transform() == nullptr) {
    source_->send(as_it_is_ ? tensor : prepare(tensor), sample, receivers);
    return;
  }
  at::Tensor prepared;
  {
    const Turn turn(*this);
    prepared = prepare(tensor);
  }
  source_->send(prepared, sample, receivers);
}

/// Sends the results of the reductions, after an event was folded in.
void Record::stream_results(hooks::Event& event) {
  const std::int64_t number = seen_.fetch_add(1, std::memory_order_relaxed);
  const std::int64_t every = options->stream_every();
  if (!source_->wanted() || (number + 1) % every != 0) return;
  const std::uint64_t receivers = source_->receivers(number / every);
  if (receivers == 0) return;
  std::vector<core::Results> slots;
  {
    const Lock lock(*this);
    settle();
    for (const SlotData& slot : slots_) {
      slots.push_back(slot.sink != nullptr && !slot.fixed.has_value() ? slot.sink->results()
                                                                      : core::Results{});
    }
  }
  StreamSample sample;
  sample.sample = number;
  sample.call = event.call_index();
  for (std::size_t i = 0; i < slots.size(); ++i) {
    sample.slot =
        static_cast<std::int64_t>(options->all_tensors() ? i : static_cast<std::size_t>(options->slot()));
    for (const auto& [name, result] : slots[i]) {
      sample.result = name;
      source_->send(result, sample, receivers);
    }
  }
}

}  // namespace torchtap::recorders::detail
