// Adds slots, and counts what does not fit.
#include <utility>

#include <torchtap/base/error.hpp>
#include <torchtap/core/unfit.hpp>
#include <torchtap/recorders/detail/slots.hpp>

namespace torchtap::recorders::detail {

SlotData SlotData::clone() const {
  SlotData copy;
  if (sink != nullptr) copy.sink = sink->clone();
  copy.list.append(list);
  copy.fixed = fixed;
  copy.device = device;
  return copy;
}

Slots::Slots(RecorderKind kind, std::shared_ptr<const RecorderOptions> options, storage::EntryId id)
    : kind(kind),
      options(std::move(options)),
      id(std::move(id)),
      own_reduction(this->options->reduction() != nullptr && this->options->reduction()->recipe().empty()) {
  if (!this->options->all_tensors()) list.push_back(fresh_slot());
}

std::string Slots::describe() const {
  return id.kind + " \"" + id.path + "\" (" + id.type + ")";
}

SlotData Slots::fresh_slot() const {
  SlotData slot;
  if (options->reduction() != nullptr) slot.sink = options->reduction()->clone();
  return slot;
}

SlotData& Slots::to_fold(std::size_t index) {
  while (list.size() <= index) list.push_back(fresh_slot());
  TORCH_CHECK_VALUE(
      !list[index].fixed.has_value(), describe(),
      ": the recorded value was set by hand, and the reduction cannot continue from it; call reset() to "
      "start again, or detach() to keep it.");
  return list[index];
}

bool Slots::leaves_out(const c10::Error& error) {
  if (dynamic_cast<const core::Unfit*>(&error) == nullptr) return false;
  counts.leave_out(error.msg());
  return options->on_error() == nullptr;
}

void Slots::report() const {
  if (options->on_error() == nullptr) throw;
  options->on_error()(id.path, std::current_exception());
}

}  // namespace torchtap::recorders::detail
