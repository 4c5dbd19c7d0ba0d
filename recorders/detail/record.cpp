// Handles the events of a record.
#include <ATen/core/grad_mode.h>
#include <c10/macros/Macros.h>
#include <c10/util/SmallVector.h>

#include <utility>

#include <torchtap/base/capture.hpp>
#include <torchtap/base/error.hpp>
#include <torchtap/core/unfit.hpp>
#include <torchtap/recorders/detail/record.hpp>
#include <torchtap/recorders/extend/takes.hpp>

namespace torchtap::recorders::detail {

Record::Record(RecorderKind kind, std::shared_ptr<const RecorderOptions> options, storage::EntryId id,
               bool alone)
    : Changeable(kind, std::move(options), std::move(id)), alone_(alone) {}

hooks::Callback Record::hook(const model::ModuleRef& module, std::vector<hooks::Handle>& companions) {
  companions = taker().companions(shared_from_this(), module);
  if (options().defer() > 0 && !traits(kind()).gradients && module.root().reachable()) {
    auto forwards = std::make_shared<const hooks::Forwards>(module.root());
    const std::lock_guard lock(slots_.mutex);
    std::swap(forwards_, forwards);
  }
  return taker().callback(shared_from_this());
}

/// As `asks`, compiled into `record`.
C10_ALWAYS_INLINE bool Record::ask(const hooks::Event& event, Asked& asked) {
  const RecorderOptions& how = options();
  const KindTraits& of = traits(kind());
  if (!of.gradients) asked.all = of.outputs ? &event.outputs() : &event.inputs();
  if (how.nullary_condition()) {
    if (asked.all == nullptr) {
      check_capture(event.gradient());
    } else if (!asked.all->empty()) {
      check_capture((*asked.all)[0]);
    }
    if (!agrees(how.nullary_condition())) {
      taker().refuse(event);
      return false;
    }
  }
  if (asked.all != nullptr) {
    if (asked.all->empty() && !asked.all->has_unknown() && !alone_) {
      slots_.counts.without_tensors.fetch_add(1, std::memory_order_relaxed);
      stop_if_last(slots_);
      return false;
    }
    check(*asked.all);
  }
  asked.first = asked.all != nullptr ? &(*asked.all)[how.all_tensors() ? 0 : how.slot()] : &event.gradient();
  check_capture(*asked.first);
  if (how.condition() && !how.nullary_condition() && !wants(event, asked)) {
    taker().refuse(event);
    return false;
  }
  return true;
}

bool Record::asks(const hooks::Event& event, Asked& asked) {
  return ask(event, asked);
}

void Record::record(hooks::Event& event) {
  Asked asked;
  if (!is_of_slot(event) || !ask(event, asked)) return;
  try {
    switch (hand_over(event, asked)) {
      case Taker::Took::sample:
        break;
      case Taker::Took::nothing:
        slots_.counts.dropped.fetch_add(1, std::memory_order_relaxed);
        return;
      case Taker::Took::waits:
        return;
    }
  } catch (c10::Error& error) {
    // A graph would leave the sample out of each replay, which nothing would count.
    const at::Tensor& first = *asked.first;
    const bool captures = first.defined() && !first.is_cpu() && base::is_capturing(first.device());
    if (!captures && slots_.leaves_out(error)) return;
    error.add_context(c10::str("while recording ", describe(), ", sample ", samples()));
    throw;
  }
  stop_if_last(slots_);
}

/// Has the taker take one tensor, or those of all slots. Compiled into `record`.
C10_ALWAYS_INLINE Taker::Took Record::hand_over(const hooks::Event& event, const Asked& asked) {
  const bool all = options().all_tensors();
  const auto has_device = [](const at::Tensor& tensor) { return tensor.defined() && !tensor.is_cpu(); };
  if (!all || asked.all == nullptr) {
    if (has_device(*asked.first)) take_from_devices(weak_from_this());
    return taker().take(event, *asked.first, all ? static_cast<std::size_t>(event.slot()) : 0);
  }
  c10::SmallVector<at::Tensor, 2> tensors;
  for (std::int64_t i = 0; i < asked.all->size(); ++i) {
    tensors.push_back((*asked.all)[i]);
    if (has_device(tensors.back())) take_from_devices(weak_from_this());
  }
  return taker().take(event, tensors, 0);
}

/// The answer of a condition; its error names the module.
template <class Condition>
bool Record::agrees(const Condition& condition) const {
  try {
    return condition();
  } catch (c10::Error& error) {
    error.add_context("in the condition of " + describe());
    throw;
  }
}

bool Record::wants(const hooks::Event& event, const Asked& asked) const {
  std::int64_t slot = options().all_tensors() ? 0 : options().slot();
  if (asked.all == nullptr) slot = event.slot();
  const Sample sample(event.path(), event.type(), event.call_index(), samples(), slot, *asked.first,
                      options().all_tensors() ? asked.all : nullptr);
  return agrees([&] { return options().condition()(sample); });
}

void Record::on_left_out(const hooks::Event& event, const std::string& why) {
  if (!is_of_slot(event)) return;
  slots_.counts.leave_out(why);
  if (options().on_error() == nullptr) return;
  const auto error = core::UnfitSample<c10::NotImplementedError>(
      {__func__, __FILE__, static_cast<std::uint32_t>(__LINE__)}, describe() + ": " + why);
  options().on_error()(id().path, std::make_exception_ptr(error));
}

void Record::on_forward(const hooks::Tensors& tensors) {
  if (!tensors.has_unknown() || !at::GradMode::is_enabled()) return;
  guarded([&] { check(tensors); });
}

/// Throws the error about tensors that a call does not hold.
void Record::say_what_lacks(const hooks::Tensors& tensors) const {
  const char* where = traits(kind()).outputs ? "output" : "input";
  if (!tensors.has_unknown()) {
    TORCH_CHECK_TYPE(!tensors.empty(), describe(), ": there is no tensor in the ", where,
                     " of its forward, so there is nothing to record; leave this module out.");
    TORCH_CHECK_TYPE(false, describe(), ": tensor ", options().slot(), " was asked for, but the ", where,
                     " holds ", tensors.size(), tensors.size() == 1 ? " tensor" : " tensors",
                     ", numbered from 0.");
  }
  const std::string unknown = tensors.describe_unknown();
  TORCH_CHECK_TYPE(!options().all_tensors(), describe(), ": all tensors of the ", where,
                   " were asked for, but ", unknown);
  TORCH_CHECK_TYPE(!tensors.empty(), describe(), ": ", unknown);
  TORCH_CHECK_TYPE(false, describe(), ": tensor ", options().slot(), " was asked for, but beside ",
                   tensors.size(), tensors.size() == 1 ? " tensor" : " tensors", " the ", where,
                   " holds a value that is not looked into: ", unknown);
}

void Record::check_capture_of_device(const at::Tensor& sample) const {
  if (!base::is_capturing(sample.device())) return;
  const RecorderOptions& how = options();
  const char* const what = how.reduction() == nullptr   ? "keeps samples"
                           : how.condition()            ? "has a condition, which a replay does not ask"
                           : how.transform() != nullptr ? "has a transform, which a replay does not call"
                           : how.device().has_value()   ? "moves samples to another device"
                           : how.takes() != nullptr     ? how.takes()->what()
                                                        : nullptr;
  TORCH_CHECK_NOT_IMPLEMENTED(what == nullptr, describe(), ": a stream of ", sample.device(),
                              " captures a graph, in whose replays no hook is called, and this recorder ",
                              what,
                              "; record a reduction, or detach the recorder while the graph is captured.");
}

}  // namespace torchtap::recorders::detail
