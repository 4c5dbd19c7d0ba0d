
#include <algorithm>
#include <torchtap/core/error.hpp>
#include <torchtap/core/quiet.hpp>
#include <torchtap/recorders/detail/record.hpp>

namespace torchtap::recorders::detail {
namespace {

bool is_gradient(Record::Source source) noexcept {
  return source == Record::Source::backward_input || source == Record::Source::backward_output;
}

std::string list(const c10::SmallVectorImpl<const std::type_info*>& types) {
  std::string text;
  for (const auto* type : types) text += (text.empty() ? "" : ", ") + c10::demangle(type->name());
  return text;
}

}  // namespace

Awaited*& awaited_in_this_thread() noexcept {
  static thread_local Awaited* awaited = nullptr;
  return awaited;
}

const char* name_of(Record::Source source) noexcept {
  switch (source) {
    case Record::Source::forward_pre:
      return "ForwardPre";
    case Record::Source::forward_input:
      return "ForwardInput";
    case Record::Source::forward_output:
      return "ForwardOutput";
    case Record::Source::backward_input:
      return "BackwardInput";
    case Record::Source::backward_output:
      return "BackwardOutput";
  }
  return "";
}

Record::Record(Source source, std::shared_ptr<const Options> options, const core::ModuleRef& module)
    : path(module.path()),
      aliases(module.aliases()),
      type(module.type()),
      source(source),
      options(std::move(options)) {
  if (!this->options->all_tensors()) slots_.push_back(make_slot());
}

std::string Record::describe() const {
  return c10::str(name_of(source), " \"", path, "\" (", type, ")");
}

Record::Slot Record::make_slot() const {
  Slot slot;
  if (options->reduction() != nullptr) slot.sink = options->reduction()->clone();
  return slot;
}

Record::Slot Record::Slot::clone() const {
  Slot copy;
  if (sink != nullptr) copy.sink = sink->clone();
  copy.list.append(list);
  copy.fixed = fixed;
  return copy;
}

void Record::record_or_report(hooks::Event& event) {
  try {
    record(event);
  } catch (const StopForward&) {
    throw;
  } catch (...) {
    options->on_error()(path, std::current_exception());
  }
}

void Record::record(hooks::Event& event) {
  const Options& how = *options;
  if (is_gradient(source) && !how.all_tensors() && event.slot() != how.tensor()) return;
  if (how.nullary_condition() && !how.nullary_condition()()) {
    refused_.fetch_add(1, std::memory_order_relaxed);
    return;
  }

  hooks::Tensors* tensors = nullptr;
  if (source == Source::forward_pre || source == Source::forward_input) tensors = &event.inputs();
  if (source == Source::forward_output) tensors = &event.outputs();
  const std::int64_t shown = tensors != nullptr && !how.all_tensors() ? how.tensor() : 0;
  if (tensors != nullptr) {
    TORCH_CHECK_TYPE(
        shown < tensors->size(), describe(), ": tensor ", shown, " was asked for, but ",
        source == Source::forward_output ? "the output" : "the input", " holds ", tensors->size(), " tensors",
        tensors->unknown().empty()
            ? std::string(".")
            : c10::str(" and a value of type ", list(tensors->unknown()),
                       ", which torchtap does not know; specialise torchtap::hooks::Visit for it and "
                       "call torchtap::hooks::register_value."));
  }
  const at::Tensor& first = tensors != nullptr ? (*tensors)[shown] : event.gradient();
  if (how.condition()) {
    const Sample sample(event.path(), event.type(), event.call_index(), samples_.load(),
                        tensors != nullptr ? shown : event.slot(), first);
    if (!how.condition()(sample)) {
      refused_.fetch_add(1, std::memory_order_relaxed);
      return;
    }
  }

  try {
    const std::lock_guard lock(mutex_);
    if (!how.all_tensors()) {
      take(first, 0);
    } else if (tensors == nullptr) {
      take(first, static_cast<std::size_t>(event.slot()));
    } else {
      // Calls may differ in how many tensors they have (a list that grows): sample i of each slot is of call
      // i.
      while (slots_.size() < static_cast<std::size_t>(tensors->size())) {
        slots_.push_back(make_slot());
        if (slots_.back().sink != nullptr) continue;
        for (std::int64_t i = 0; i < samples_.load(); ++i) slots_.back().list.append({}, /*shared=*/false);
      }
      for (std::size_t i = 0; i < slots_.size(); ++i) {
        const auto slot = static_cast<std::int64_t>(i);
        take(slot < tensors->size() ? (*tensors)[slot] : at::Tensor(), i);
      }
    }
    samples_.store(samples_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  } catch (c10::Error& error) {
    error.add_context(c10::str("while recording ", describe(), ", sample ", samples_.load()));
    throw;
  }

  if (Awaited* awaited = awaited_in_this_thread()) {
    auto& waiting = awaited->records;
    const auto found = std::find(waiting.begin(), waiting.end(), this);
    if (found == waiting.end()) return;
    waiting.erase(found);
    if (waiting.empty()) throw StopForward{awaited};
  }
}

void Record::take(const at::Tensor& tensor, std::size_t index) {
  while (slots_.size() <= index) slots_.push_back(make_slot());
  Slot& slot = slots_[index];
  TORCH_CHECK_VALUE(
      !slot.fixed.has_value(), describe(),
      ": the recorded value was set by hand, and the reduction cannot go on from it; call reset() to "
      "start again, or detach() to keep it.");
  const Options& how = *options;
  if (!tensor.defined()) {
    if (slot.sink == nullptr) slot.list.append(tensor, /*shared=*/false);
    return;  // a reduction has nothing to fold
  }
  const bool as_it_is = how.transform() == nullptr && !how.device().has_value() && !how.dtype().has_value();
  if (slot.sink != nullptr && as_it_is) {
    slot.sink->update(tensor);
    return;
  }
  const core::Quiet quiet;
  at::Tensor sample = tensor.requires_grad() || how.capture() == Capture::alias ? tensor.detach() : tensor;
  if (how.transform() != nullptr) {
    sample = how.transform()(sample);
    TORCH_CHECK_VALUE(sample.defined(), describe(),
                      ": the transform returned an undefined tensor for one of shape ", tensor.sizes(),
                      "; it must return what is to be recorded.");
  }
  if (how.device().has_value() || how.dtype().has_value()) {
    sample = sample.to(how.device().value_or(sample.device()), how.dtype().value_or(sample.scalar_type()));
  }
  if (slot.sink != nullptr) {
    slot.sink->update(sample);
  } else if (how.capture() == Capture::alias) {
    slot.list.append(sample, /*shared=*/true);
  } else {
    slot.list.append_copy(sample);
  }
}

core::Value Record::value_of(const Slot& slot) const {
  if (slot.fixed.has_value()) return *slot.fixed;
  if (slot.sink == nullptr) {
    return slot.list.size() == 0 ? core::Value() : core::Value(slot.list.tensors(describe()));
  }
  return core::to_value(slot.sink->state());
}

core::Value Record::value_locked() const {
  if (!options->all_tensors()) return value_of(slots_[0]);
  if (slots_.empty()) return {};
  core::Value::Dict dict;
  for (std::size_t i = 0; i < slots_.size(); ++i) dict.emplace_back(std::to_string(i), value_of(slots_[i]));
  return dict;
}

core::Value Record::value() const {
  const std::lock_guard lock(mutex_);
  return value_locked();
}

core::State Record::state() const {
  const std::lock_guard lock(mutex_);
  TORCH_CHECK_VALUE(!options->all_tensors(), describe(),
                    ": all tensors are recorded, so there is not one value; ask slot(i).");
  const Slot& slot = slots_[0];
  TORCH_CHECK_VALUE(slot.sink != nullptr, describe(),
                    ": every sample is kept, nothing is reduced; ask tensors().");
  if (!slot.fixed.has_value()) return slot.sink->state();
  core::State state;
  if (slot.fixed->is_tensor()) return core::State{{"value", slot.fixed->tensor()}};
  for (const auto& [name, value] : slot.fixed->dict()) state.set(name, value.tensor());
  return state;
}

std::vector<core::SavedSink> Record::saved() const {
  const std::lock_guard lock(mutex_);
  std::vector<core::SavedSink> all;
  for (const auto& slot : slots_) {
    if (slot.sink == nullptr || slot.fixed.has_value()) return {};
    auto one = core::save(*slot.sink);
    if (!one.has_value()) return {};
    all.push_back(std::move(*one));
  }
  return all;
}

std::int64_t Record::slots() const {
  const std::lock_guard lock(mutex_);
  return static_cast<std::int64_t>(slots_.size());
}

core::Value Record::slot(std::int64_t index) const {
  const std::lock_guard lock(mutex_);
  TORCH_CHECK_INDEX(index >= 0 && index < static_cast<std::int64_t>(slots_.size()), describe(), ": slot ",
                    index, " was asked for, but ", slots_.size(), " were seen.");
  return value_of(slots_[static_cast<std::size_t>(index)]);
}

void Record::set(const core::Value& value) {
  const std::lock_guard lock(mutex_);
  const auto put = [&](Slot& slot, const core::Value& part) {
    if (slot.sink == nullptr) {
      SampleList list;
      for (const auto& tensor : part.tensors()) list.append_copy(tensor);
      slot.list = std::move(list);
    } else if (!part.is_tensor() || !slot.sink->assign(part.tensor())) {
      slot.fixed = part;
    }
  };
  if (!options->all_tensors()) {
    put(slots_[0], value);
    return;
  }
  TORCH_CHECK_VALUE(value.is_dict() && value.dict().size() == slots_.size(), describe(),
                    ": all tensors are recorded, so the value has to be a dict of ", slots_.size(),
                    " slots; got ", value.describe(), ".");
  for (std::size_t i = 0; i < slots_.size(); ++i) put(slots_[i], value.at(std::to_string(i)));
}

namespace {

core::Value applied(const core::Value& value, const std::function<at::Tensor(const at::Tensor&)>& function) {
  switch (value.kind()) {
    case core::Value::Kind::none:
      return {};
    case core::Value::Kind::tensor:
      return value.tensor().defined() ? core::Value(function(value.tensor())) : value;
    case core::Value::Kind::list: {
      core::Value::List list;
      for (const auto& item : value.list()) list.push_back(applied(item, function));
      return list;
    }
    case core::Value::Kind::dict: {
      core::Value::Dict dict;
      for (const auto& [key, item] : value.dict()) dict.emplace_back(key, applied(item, function));
      return dict;
    }
  }
  return {};
}

}  // namespace

void Record::apply(const std::function<at::Tensor(const at::Tensor&, std::int64_t)>& function) {
  const std::int64_t count = samples();
  const core::Value before = value();
  if (before.is_none()) return;
  // Outside of the lock: it is the caller's code.
  set(applied(before, [&](const at::Tensor& tensor) { return function(tensor, count); }));
}

void Record::reset() {
  const std::lock_guard lock(mutex_);
  slots_.clear();
  if (!options->all_tensors()) slots_.push_back(make_slot());
  samples_.store(0);
  refused_.store(0);
}

Record::Data Record::data() const {
  const std::lock_guard lock(mutex_);
  Data data;
  for (const auto& slot : slots_) data.slots.push_back(slot.clone());
  data.samples = samples();
  data.refused = refused_.load();
  return data;
}

void Record::put(Data data) {
  const std::lock_guard lock(mutex_);
  slots_ = std::move(data.slots);
  samples_.store(data.samples);
  refused_.store(data.refused);
}

Record::Data Record::merged(const Record& other) const {
  Data mine = data();
  Data theirs = other.data();
  while (mine.slots.size() < theirs.slots.size()) mine.slots.push_back(make_slot());
  for (std::size_t i = 0; i < theirs.slots.size(); ++i) {
    Slot& to = mine.slots[i];
    const Slot& from = theirs.slots[i];
    TORCH_CHECK_VALUE(!to.fixed.has_value() && !from.fixed.has_value(), describe(),
                      ": a value that was set by hand cannot be merged; merge first, then apply.");
    TORCH_CHECK_VALUE(
        (to.sink == nullptr) == (from.sink == nullptr), describe(),
        ": one recorder keeps every sample and the other reduces them; both have to do the same.");
    if (to.sink != nullptr) {
      try {
        to.sink->merge(*from.sink);
      } catch (c10::Error& error) {
        error.add_context(c10::str("while merging ", describe()));
        throw;
      }
    } else {
      to.list.append(from.list);
    }
  }
  mine.samples += theirs.samples;
  mine.refused += theirs.refused;
  return mine;
}

void Record::save(core::OutputArchive& archive) const {
  const Data now = data();
  archive(path, now.samples, now.refused, static_cast<std::uint64_t>(now.slots.size()));
  for (const auto& slot : now.slots) {
    TORCH_CHECK_VALUE(
        !slot.fixed.has_value(), "snapshot: ", describe(),
        ": a value that was set by hand is not the state of the reduction any more; save() it, or "
        "reset() first.");
    const bool reduced = slot.sink != nullptr;
    archive(reduced ? slot.sink->describe() : std::string());
    if (reduced) {
      slot.sink->save(archive);
    } else {
      archive(slot.list.tensors(describe()));
    }
  }
}

Record::Data Record::load(core::InputArchive& archive) const {
  Data data;
  std::string their_path;
  std::uint64_t count = 0;
  archive(their_path, data.samples, data.refused, count);
  TORCH_CHECK_VALUE(their_path == path, "restore: the snapshot has \"", their_path,
                    "\" where this recorder has \"", path,
                    "\"; attach to the same modules in the same order.");
  TORCH_CHECK_VALUE(options->all_tensors() || count == 1, "restore: ", describe(), ": the snapshot has ",
                    count, " slots, this recorder records one tensor.");
  for (std::uint64_t i = 0; i < count; ++i) {
    Slot slot = make_slot();
    std::string reduction;
    archive(reduction);
    const std::string expected = slot.sink != nullptr ? slot.sink->describe() : "";
    TORCH_CHECK_VALUE(reduction == expected, "restore: ", describe(), ": the snapshot was reduced with ",
                      reduction.empty() ? "nothing" : reduction, ", this recorder reduces with ",
                      expected.empty() ? "nothing" : expected, ".");
    if (slot.sink != nullptr) {
      slot.sink->load(archive);
    } else {
      std::vector<at::Tensor> samples;
      archive(samples);
      for (const auto& sample : samples) slot.list.append_copy(sample);
    }
    data.slots.push_back(std::move(slot));
  }
  return data;
}

}  // namespace torchtap::recorders::detail
