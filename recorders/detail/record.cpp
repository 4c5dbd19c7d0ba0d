// Handles the events of a record.
#include <ATen/core/grad_mode.h>
#include <c10/macros/Macros.h>

#include <algorithm>

#include <torchtap/base/capture.hpp>
#include <torchtap/base/error.hpp>
#include <torchtap/base/recording_mode.hpp>
#include <torchtap/core/unfit.hpp>
#include <torchtap/model/extend/interposed_calls.hpp>
#include <torchtap/model/extend/node.hpp>
#include <torchtap/model/extend/script_functions.hpp>
#include <torchtap/recorders/detail/record.hpp>

namespace torchtap::recorders::detail {

Awaited*& awaited_in_this_thread() noexcept {
  static thread_local Awaited* awaited = nullptr;
  return awaited;
}

Record::Record(RecorderKind kind, std::shared_ptr<const RecorderOptions> options,
               const model::ModuleRef& module, storage::EntryId id, bool alone)
    : Record(kind, std::move(options), std::move(id), alone) {
  watched_ = model::extend::Access::node(module).keep;
  inside_hooks_ =
      module.scripted() && !traits(kind).parameters && model::extend::has_compiled_hooks(module.script());
}

Record::Record(RecorderKind kind, std::shared_ptr<const RecorderOptions> options, storage::EntryId id,
               bool alone)
    : id(std::move(id)),
      kind(kind),
      options(std::move(options)),
      // A transform is the user's code, which only one thread may call at a time.
      commutative_(this->options->reduction() != nullptr && this->options->reduction()->commutative() &&
                   this->options->transform() == nullptr),
      own_reduction_(this->options->reduction() != nullptr && this->options->reduction()->recipe().empty()),
      plain_(commutative_ && !own_reduction_),
      as_it_is_(this->options->transform() == nullptr && !this->options->device().has_value() &&
                !this->options->dtype().has_value()),
      copied_(as_it_is_ && this->options->capture() == Capture::copy && !this->options->memory_budget()),
      alone_(alone) {
  if (!this->options->all_tensors()) slots_.push_back(make_slot());
}

Record::~Record() {
  if (store_ != nullptr) store_->held.fetch_sub(held_);
}

void Record::store_in(std::shared_ptr<Store> store) {
  if (options->stream() != nullptr) source_ = options->stream()->source(id);  // first, as it may throw
  store_ = std::move(store);
  module_ = store_->add(id);
  stream_ = store_->stream(module_);
}

std::string Record::describe() const {
  return id.kind + " \"" + id.path + "\" (" + id.type + ")";
}

std::string Record::note() const {
  const std::string counted = counts_.now().note(), more = words();
  return counted + (counted.empty() || more.empty() ? "" : " ") + more;
}

/// What there is to say beside the counts.
std::string Record::words() const {
  if (inside_hooks_) {
    return "the file has hooks of this module compiled in, which its callers run around it: what its forward "
           "itself is given and returns was recorded.";
  }
  if (!counts_.now().note().empty()) return {};
  if (parameter_.has_value() && samples() == 0) {
    const at::Tensor parameter(parameter_->lock());
    return !parameter.defined() || parameter.requires_grad()
               ? ""
               : "the parameter is frozen (requires_grad is false), so no backward makes a gradient of it.";
  }
  const auto module = watched_.lock();
  if (samples() != 0 || module == nullptr || !model::extend::given_out(*module)) return {};
  return "the program got a pointer to this module by as<Impl>() instead of as<Holder>(), or in a file "
         "compiled with TORCHTAP_EXACT_TYPES; calls through that pointer are not seen.";
}

SlotData Record::make_slot() const {
  SlotData slot;
  if (options->reduction() != nullptr) slot.sink = options->reduction()->clone();
  return slot;
}

SlotData SlotData::clone() const {
  SlotData copy;
  if (sink != nullptr) copy.sink = sink->clone();
  copy.list.append(list);
  copy.fixed = fixed;
  copy.device = device;
  return copy;
}

void Record::record_or_report(hooks::Event& event) {
  try {
    record(event);
  } catch (const StopForward&) {
    throw;
  } catch (...) {
    options->on_error()(id.path, std::current_exception());
  }
}

/// Folds or keeps the tensors of an event, all of them or none. False if they were dropped. Compiled into
/// `record`.
C10_ALWAYS_INLINE bool Record::take(hooks::Event& event, const hooks::Tensors* tensors,
                                    const at::Tensor& first) {
  const bool all = options->all_tensors();
  const bool one = !all || tensors == nullptr;
  const std::int64_t slot = all && tensors == nullptr ? event.slot() : 0;
  if (one && options->reduction() != nullptr) {
    fold(first, static_cast<std::size_t>(slot), as_it_is_);
    return true;
  }
  c10::SmallVector<at::Tensor, 2> samples;
  if (!one) {
    for (std::int64_t i = 0; i < tensors->size(); ++i) samples.push_back((*tensors)[i]);
  }
  if (options->reduction() != nullptr) {
    fold(samples, static_cast<std::size_t>(slot), as_it_is_);
    return true;
  }
  if (!as_it_is_) {
    if (one) samples.push_back(first);
    const Turn turn(*this);
    for (at::Tensor& sample : samples) sample = prepare(sample);
    const std::lock_guard lock(mutex_);
    return keep_event(samples, slot, one);
  }
  const std::lock_guard lock(mutex_);
  if (!one || !keep_alike(first, slot)) {
    if (one) samples.push_back(first);
    return keep_event(samples, slot, one);
  }
  count_kept();
  return true;
}

/// Called under the lock. Keeps one tensor, or those of all slots; false if they were dropped.
bool Record::keep_event(c10::SmallVectorImpl<at::Tensor>& samples, std::int64_t first_slot, bool one) {
  // Calls may have different numbers of tensors: with undefined ones, sample i of each slot is from call i.
  while (!one && samples.size() < slots_.size()) samples.push_back({});
  if (!keep(samples, first_slot)) return false;
  count_kept();
  return true;
}

/// The answer of a condition; its error names the module.
template <class Condition>
bool Record::asked(const Condition& condition) const {
  try {
    return condition();
  } catch (c10::Error& error) {
    error.add_context("in the condition of " + describe());
    throw;
  }
}

void Record::record(hooks::Event& event) {
  const RecorderOptions& how = *options;
  if (source_ != nullptr && how.reduction() == nullptr) return stream_sample(event);
  if (traits(kind).gradients && !how.all_tensors() && event.slot() != how.slot()) return;
  const hooks::Tensors* const tensors = tensors_of(event);
  if (how.nullary_condition()) {
    if (tensors == nullptr) {
      check_capture(event.gradient());
    } else if (!tensors->empty()) {
      check_capture((*tensors)[0]);
    }
    if (!asked(how.nullary_condition())) return refuse(event);
  }

  if (tensors != nullptr) {
    if (tensors->empty() && !tensors->has_unknown() && !alone_) {
      counts_.without_tensors.fetch_add(1, std::memory_order_relaxed);
      return stop_if_last();
    }
    check(*tensors);
  }
  const at::Tensor& first =
      tensors != nullptr ? (*tensors)[how.all_tensors() ? 0 : how.slot()] : event.gradient();
  check_capture(first);
  if (how.condition() && !how.nullary_condition() && !wanted(event, tensors, first)) {
    return refuse(event);
  }
  try {
    if (!options->with().empty()) return take_with_companions(event, tensors, first);
    if (!take(event, tensors, first)) {
      counts_.dropped.fetch_add(1, std::memory_order_relaxed);
      return;
    }
    if (source_ != nullptr) stream_results(event);
  } catch (c10::Error& error) {
    // A graph would leave the sample out of each replay, which nothing would count.
    const bool captures = first.defined() && !first.is_cpu() && base::is_capturing(first.device());
    if (!captures && leaves_out(error)) return;
    error.add_context(c10::str("while recording ", describe(), ", sample ", samples()));
    throw;
  }
  stop_if_last();
}

/// Counts the sample if the error says that it does not fit. True if that is all, because no `on_error` is
/// told.
bool Record::leaves_out(const c10::Error& error) {
  if (dynamic_cast<const core::Unfit*>(&error) == nullptr) return false;
  counts_.leave_out(error.msg());
  return options->on_error() == nullptr;
}

void Record::on_left_out(const hooks::Event& event, const std::string& why) {
  if (!options->all_tensors() && event.slot() != options->slot()) return;
  counts_.leave_out(why);
  if (options->on_error() == nullptr) return;
  const auto error = core::UnfitSample<c10::NotImplementedError>(
      {__func__, __FILE__, static_cast<std::uint32_t>(__LINE__)}, describe() + ": " + why);
  options->on_error()(id.path, std::make_exception_ptr(error));
}

/// The inputs or outputs that are recorded; null for gradients, which arrive one by one.
hooks::Tensors* Record::tensors_of(hooks::Event& event) const {
  if (traits(kind).gradients) return nullptr;
  return traits(kind).outputs ? &event.outputs() : &event.inputs();
}

/// Asks the condition; `first` is the first tensor of the event to be recorded.
bool Record::wanted(hooks::Event& event, const hooks::Tensors* tensors, const at::Tensor& first) const {
  std::int64_t slot = options->all_tensors() ? 0 : options->slot();
  if (tensors == nullptr) slot = event.slot();
  const Sample sample(event.path(), event.type(), event.call_index(), counted(), slot, first,
                      options->all_tensors() ? tensors : nullptr);
  return asked([&] { return options->condition()(sample); });
}

/// Ends the forward of `until_recorded` if this is the last record that it waits for.
void Record::stop_if_last() const {
  Awaited* const awaited = awaited_in_this_thread();
  if (awaited == nullptr) return;
  auto& waiting = awaited->records;
  const auto found = std::find(waiting.begin(), waiting.end(), this);
  if (found == waiting.end()) return;
  waiting.erase(found);
  if (waiting.empty()) throw StopForward{awaited};
}

/// Throws the error about tensors that a call does not hold.
void Record::say_what_lacks(const hooks::Tensors& tensors) const {
  const char* where = traits(kind).outputs ? "output" : "input";
  if (!tensors.has_unknown()) {
    TORCH_CHECK_TYPE(!tensors.empty(), describe(), ": there is no tensor in the ", where,
                     " of its forward, so there is nothing to record; leave this module out.");
    TORCH_CHECK_TYPE(false, describe(), ": tensor ", options->slot(), " was asked for, but the ", where,
                     " holds ", tensors.size(), tensors.size() == 1 ? " tensor" : " tensors",
                     ", numbered from 0.");
  }
  const std::string unknown = tensors.describe_unknown();
  TORCH_CHECK_TYPE(!options->all_tensors(), describe(), ": all tensors of the ", where,
                   " were asked for, but ", unknown);
  TORCH_CHECK_TYPE(!tensors.empty(), describe(), ": ", unknown);
  TORCH_CHECK_TYPE(false, describe(), ": tensor ", options->slot(), " was asked for, but beside ",
                   tensors.size(), tensors.size() == 1 ? " tensor" : " tensors", " the ", where,
                   " holds a value that is not looked into: ", unknown);
}

void Record::on_forward(const hooks::Tensors& tensors) {
  if (!tensors.has_unknown() || !at::GradMode::is_enabled()) return;
  try {
    check(tensors);
  } catch (...) {
    if (options->on_error() == nullptr) throw;
    options->on_error()(id.path, std::current_exception());
  }
}

/// Detaches, transforms and converts a tensor as the options say.
at::Tensor Record::prepare(const at::Tensor& tensor) const {
  const RecorderOptions& how = *options;
  if (!tensor.defined()) return tensor;
  const base::RecordingMode quiet;
  at::Tensor sample = tensor.requires_grad() ? tensor.detach() : tensor;
  if (how.transform() != nullptr) {
    sample = how.transform()(sample);
    TORCH_CHECK_VALUE(sample.defined(), describe(),
                      ": the transform returned an undefined tensor for one of shape ", tensor.sizes(),
                      "; it must return what is to be recorded.");
  }
  if (how.device().has_value() || how.dtype().has_value()) {
    TORCH_CHECK_TYPE(
        !sample.is_complex() || c10::isComplexType(how.dtype().value_or(sample.scalar_type())), describe(),
        ": the sample is complex (", sample.scalar_type(), "), and .dtype(",
        how.dtype().value_or(sample.scalar_type()),
        ") would drop its imaginary part. Ask for a complex dtype, or for the part that you want: "
        "RecorderOptions().transform([](const at::Tensor& x) { return at::real(x); }), at::abs, "
        "or at::view_as_real.");
    sample = sample.to(how.device().value_or(sample.device()), how.dtype().value_or(sample.scalar_type()));
  }
  return sample;
}

}  // namespace torchtap::recorders::detail
