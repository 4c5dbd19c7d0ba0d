#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <torchtap/core/detail/error.hpp>
#include <torchtap/core/detail/recording_mode.hpp>
#include <torchtap/recorders/detail/record.hpp>
#include <torchtap/recorders/detail/together.hpp>

namespace torchtap::recorders::detail {
namespace {

bool is_gradient(Record::Source source) noexcept {
  return source == Record::Source::backward_input || source == Record::Source::backward_output;
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

Record::Record(Source source, std::shared_ptr<const Options> options, const model::ModuleRef& module,
               bool alone)
    : id{module.path(), module.aliases(), module.type(), name_of(source)},
      source(source),
      options(std::move(options)),
      // A transform is the user's code, which must not be called by two threads at once.
      commutative_(this->options->reduction() != nullptr && this->options->reduction()->commutative() &&
                   this->options->transform() == nullptr),
      alone_(alone) {
  if (!this->options->all_tensors()) slots_.push_back(make_slot());
}

Record::~Record() {
  if (store_ != nullptr) store_->held.fetch_sub(held_);
}

void Record::store_in(std::shared_ptr<Store> store) {
  store_ = std::move(store);
  module_ = store_->add(id);
  stream_ = store_->stream(module_);
}

std::string Record::describe() const {
  return c10::str(id.kind, " \"", id.path, "\" (", id.type, ")");
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
    options->on_error()(id.path, std::current_exception());
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
    if (tensors->empty() && !tensors->has_unknown() && !alone_) {
      without_tensors_.fetch_add(1, std::memory_order_relaxed);
      return stop_if_last();
    }
    check(*tensors);
  }
  const at::Tensor& first = tensors != nullptr ? (*tensors)[shown] : event.gradient();
  if (how.condition()) {
    const Sample sample(event.path(), event.type(), event.call_index(), samples_.load(),
                        tensors != nullptr ? shown : event.slot(), first,
                        how.all_tensors() ? tensors : nullptr);
    if (!how.condition()(sample)) {
      refused_.fetch_add(1, std::memory_order_relaxed);
      return;
    }
  }

  try {
    c10::SmallVector<at::Tensor, 2> samples;
    if (how.all_tensors() && tensors != nullptr) {
      for (std::int64_t i = 0; i < tensors->size(); ++i) samples.push_back((*tensors)[i]);
    }
    const std::int64_t slot = how.all_tensors() && tensors == nullptr ? event.slot() : 0;
    if (how.reduction() != nullptr) {
      const bool one = !how.all_tensors() || tensors == nullptr;
      fold(one ? c10::ArrayRef<at::Tensor>(first) : samples, static_cast<std::size_t>(slot));
    } else {
      const std::lock_guard lock(mutex_);
      if (!how.all_tensors() || tensors == nullptr) {
        samples.push_back(first);
      } else {
        // Calls may differ in how many tensors they have: sample i of each slot is of call i.
        while (samples.size() < slots_.size()) samples.push_back({});
      }
      if (!keep(samples, slot)) {
        dropped_.fetch_add(1, std::memory_order_relaxed);
        return;
      }
      samples_.store(samples_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    }
  } catch (c10::Error& error) {
    error.add_context(c10::str("while recording ", describe(), ", sample ", samples_.load()));
    throw;
  }
  stop_if_last();
}

/// Ends the forward of `until_recorded` that waits for this record alone.
void Record::stop_if_last() const {
  Awaited* const awaited = awaited_in_this_thread();
  if (awaited == nullptr) return;
  auto& waiting = awaited->records;
  const auto found = std::find(waiting.begin(), waiting.end(), this);
  if (found == waiting.end()) return;
  waiting.erase(found);
  if (waiting.empty()) throw StopForward{awaited};
}

/// Throws unless the call holds what is to be recorded. Of a value of an unknown type it cannot be told.
void Record::check(const hooks::Tensors& tensors) const {
  const bool enough =
      options->all_tensors() ? !tensors.empty() || is_gradient(source) : options->tensor() < tensors.size();
  if (enough && (!tensors.has_unknown() || !options->all_tensors())) return;
  const char* where =
      source == Source::forward_output || source == Source::backward_output ? "output" : "input";
  if (!tensors.has_unknown()) {
    TORCH_CHECK_TYPE(!tensors.empty(), describe(), ": there is no tensor in the ", where,
                     " of its forward, so there is nothing to record; leave this module out.");
    TORCH_CHECK_TYPE(false, describe(), ": tensor ", options->tensor(), " was asked for, but the ", where,
                     " holds ", tensors.size(), tensors.size() == 1 ? " tensor" : " tensors",
                     ", numbered from 0.");
  }
  const std::string unknown = tensors.describe_unknown();
  TORCH_CHECK_TYPE(!options->all_tensors(), describe(), ": all tensors of the ", where,
                   " were asked for, but ", unknown);
  TORCH_CHECK_TYPE(!tensors.empty(), describe(), ": ", unknown);
  TORCH_CHECK_TYPE(false, describe(), ": tensor ", options->tensor(), " was asked for, but beside ",
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

void Record::fold(c10::ArrayRef<at::Tensor> samples, std::size_t first_slot) {
  if (!commutative_) {
    const std::lock_guard lock(mutex_);
    return fold_in_turn(samples, first_slot);
  }
  // One thread alone never needs a lane.
  std::unique_lock lock(mutex_, std::defer_lock);
  if (lanes_.load(std::memory_order_acquire) == nullptr && lock.try_lock())
    return fold_in_turn(samples, first_slot);
  c10::SmallVector<at::Tensor, 2> prepared;
  if (!as_it_is()) {
    for (const at::Tensor& sample : samples) prepared.push_back(prepare(sample));
    samples = prepared;
  }
  if (lanes().update(samples, first_slot, samples_)) return;
  lock.lock();
  open_lane(samples, first_slot);
}

/// Slots that were added for an event go again if the event is not recorded.
struct Record::NewSlots {
  explicit NewSlots(std::vector<Slot>& slots) : slots(slots), before(slots.size()) {}
  ~NewSlots() {
    if (!kept) slots.erase(slots.begin() + static_cast<std::ptrdiff_t>(before), slots.end());
  }
  NewSlots(const NewSlots&) = delete;
  NewSlots& operator=(const NewSlots&) = delete;

  std::vector<Slot>& slots;
  const std::size_t before;
  bool kept = false;
};

/// Under the lock.
void Record::fold_in_turn(c10::ArrayRef<at::Tensor> samples, std::size_t first_slot) {
  if (samples.size() != 1 || first_slot >= slots_.size()) {
    fold_together(samples, first_slot);
  } else if (samples[0].defined()) {
    Slot& slot = slot_to_fold(first_slot);
    if (as_it_is()) {
      slot.sink->update(samples[0]);
    } else {
      slot.sink->update(prepare(samples[0]));
    }
  } else {
    slot_to_fold(first_slot);  // there is nothing to fold
  }
  samples_.fetch_add(1, std::memory_order_relaxed);
}

/// Under the lock: the tensors of one event, all of them or none.
void Record::fold_together(c10::ArrayRef<at::Tensor> samples, std::size_t first_slot) {
  c10::SmallVector<at::Tensor, 2> prepared;
  for (const at::Tensor& sample : samples) prepared.push_back(as_it_is() ? sample : prepare(sample));
  NewSlots added(slots_);
  for (std::size_t i = 0; i < samples.size(); ++i) slot_to_fold(first_slot + i);
  c10::SmallVector<Update, 2> updates;
  for (std::size_t i = 0; i < samples.size(); ++i) {
    if (prepared[i].defined()) updates.push_back({&slots_[first_slot + i].sink, &prepared[i]});
  }
  update_together(updates);
  added.kept = true;
}

/// Under the lock: folds in prepared samples, and lets the next ones of this thread go to its lane.
void Record::open_lane(c10::ArrayRef<at::Tensor> samples, std::size_t first_slot) {
  NewSlots added(slots_);
  for (std::size_t i = 0; i < samples.size(); ++i) slot_to_fold(first_slot + i);
  c10::SmallVector<Update, 2> updates;  // of slots that have seen nothing
  c10::SmallVector<std::pair<std::size_t, std::unique_ptr<core::Sink>>, 2> beside;
  for (std::size_t i = 0; i < samples.size(); ++i) {
    if (!samples[i].defined()) continue;
    Slot& slot = slots_[first_slot + i];
    if (slot.sink->count() == 0) {
      updates.push_back({&slot.sink, &samples[i]});
      continue;
    }
    auto sink = slot.sink->fresh();
    sink->update(samples[i]);
    slot.sink->clone()->merge(*sink);  // throws if the sample does not go with those before
    beside.emplace_back(first_slot + i, std::move(sink));
  }
  update_together(updates);
  for (auto& [index, sink] : beside) {
    if (!lanes().put(sink, index)) slots_[index].sink->merge(*sink);
  }
  added.kept = true;
  samples_.fetch_add(1, std::memory_order_relaxed);
}

Record::Slot& Record::slot_to_fold(std::size_t index) {
  while (slots_.size() <= index) slots_.push_back(make_slot());
  TORCH_CHECK_VALUE(
      !slots_[index].fixed.has_value(), describe(),
      ": the recorded value was set by hand, and the reduction cannot go on from it; call reset() to "
      "start again, or detach() to keep it.");
  return slots_[index];
}

Lanes& Record::lanes() {
  std::call_once(lanes_once_, [this] {
    lanes_owner_ = std::make_unique<Lanes>();
    lanes_.store(lanes_owner_.get(), std::memory_order_release);
  });
  return *lanes_owner_;
}

/// Under the lock: afterwards all that was recorded is in `slots_`.
void Record::merge_lanes() const {
  Lanes* const lanes = lanes_.load(std::memory_order_acquire);
  if (lanes == nullptr) return;
  c10::SmallVector<core::Sink*, 2> sinks;
  for (const Slot& slot : slots_) sinks.push_back(slot.sink.get());
  try {
    lanes->merge_into(sinks);
  } catch (c10::Error& error) {
    error.add_context(c10::str("while merging what several threads recorded of ", describe()));
    throw;
  }
}

bool Record::as_it_is() const noexcept {
  const Options& how = *options;
  return how.transform() == nullptr && !how.device().has_value() && !how.dtype().has_value();
}

/// What is recorded of a tensor.
at::Tensor Record::prepare(const at::Tensor& tensor) const {
  const Options& how = *options;
  if (!tensor.defined()) return tensor;
  const core::detail::RecordingMode quiet;
  at::Tensor sample = tensor.requires_grad() ? tensor.detach() : tensor;
  if (how.transform() != nullptr) {
    sample = how.transform()(sample);
    TORCH_CHECK_VALUE(sample.defined(), describe(),
                      ": the transform returned an undefined tensor for one of shape ", tensor.sizes(),
                      "; it must return what is to be recorded.");
  }
  if (how.device().has_value() || how.dtype().has_value()) {
    sample = sample.to(how.device().value_or(sample.device()), how.dtype().value_or(sample.scalar_type()));
  }
  return sample;
}

/// Keeps the tensors of one event, all of them or none. False if they were dropped.
bool Record::keep(c10::SmallVectorImpl<at::Tensor>& samples, std::int64_t first_slot) {
  const auto count = static_cast<std::int64_t>(samples.size());
  std::int64_t bytes = 0;
  for (at::Tensor& sample : samples) {
    if (!as_it_is()) sample = prepare(sample);
    if (!sample.defined()) continue;
    // Now, and not when all is to be saved at the end of a long run.
    TORCH_CHECK_TYPE(
        !sample.is_quantized(), describe(), ": the tensor is quantized, of dtype ", sample.scalar_type(),
        ", and files have no form for that which torch.load(weights_only=True) reads; record its "
        "values with Options().transform(torchtap::recorders::dequantized).");
    if (sample.layout() == c10::kStrided) bytes += static_cast<std::int64_t>(sample.nbytes());
  }
  if (stream_ == nullptr && options->memory_budget() >= 0 && !within_budget(bytes)) return false;
  while (static_cast<std::int64_t>(slots_.size()) < first_slot + count) {
    const auto slot = static_cast<std::int64_t>(slots_.size());
    slots_.push_back(make_slot());
    for (std::int64_t i = 0; i < samples_.load() && !is_gradient(source); ++i) {
      if (stream_ != nullptr) {
        stream_->append({}, slot);
      } else {
        slots_.back().list.append({}, /*shared=*/false);
      }
    }
  }
  if (stream_ != nullptr) {
    if (!store_->spool().admit(*stream_, bytes)) return false;
    for (std::int64_t i = 0; i < count; ++i) {
      stream_->append(samples[static_cast<std::size_t>(i)], options->all_tensors() ? first_slot + i : -1);
    }
    return true;
  }
  for (std::int64_t i = 0; i < count; ++i) {
    at::Tensor& sample = samples[static_cast<std::size_t>(i)];
    SampleList& list = slots_[static_cast<std::size_t>(first_slot + i)].list;
    if (!sample.defined()) {
      list.append(sample, /*shared=*/false);
      continue;
    }
    const core::detail::RecordingMode quiet;
    const bool alias = options->capture() == Capture::alias;
    if (alias || sample.requires_grad()) sample = sample.detach();
    if (alias) {
      list.append(sample, /*shared=*/true);
    } else {
      list.append_copy(sample);
    }
  }
  count_held();
  return true;
}

/// May samples of `bytes` be kept here? Afterwards `stream_` says whether they go to the spool.
bool Record::within_budget(std::int64_t bytes) {
  const std::int64_t budget = options->memory_budget();
  if (!store_->spooling()) {
    if (store_->held.load() + bytes <= budget) return true;
    if (options->spool_directory().empty()) {
      TORCH_CHECK(
          options->over_budget() == OverBudget::drop, describe(), ": the memory budget of ", budget,
          " bytes is used up: ", store_->held.load(), " bytes are kept, and a sample of ", bytes,
          " bytes has come. It was not recorded; all before it are. Save or reset the recorder, reduce the "
          "samples, or have them spooled (recorders::Options::spool, or memory_budget with a directory).");
      return false;
    }
    store_->spill();
  }
  move_to_spool();
  return true;
}

/// Under the lock. What throws leaves the samples where they are.
void Record::move_to_spool() {
  auto* stream = store_->stream(module_);
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    for (const at::Tensor& sample : slots_[i].list.tensors(describe())) {
      const bool bytes = sample.defined() && sample.layout() == c10::kStrided;
      store_->spool().admit(*stream, bytes ? static_cast<std::int64_t>(sample.nbytes()) : 0,
                            storage::WhenFull::wait);
      stream->append(sample, options->all_tensors() ? static_cast<std::int64_t>(i) : -1);
    }
    slots_[i].list = SampleList();
    count_held();
  }
  stream_ = stream;
}

void Record::count_held() noexcept {
  if (store_ == nullptr) return;
  std::int64_t now = 0;
  for (const Slot& slot : slots_) now += slot.list.bytes();
  store_->held.fetch_add(now - held_);
  held_ = now;
}

storage::Spool::Stream* Record::spooled() const {
  if (store_ == nullptr || !store_->spooling()) return nullptr;
  const std::lock_guard lock(mutex_);
  if (stream_ == nullptr) const_cast<Record*>(this)->move_to_spool();
  return stream_;
}

void Record::refuse_spooled(const char* call) const {
  TORCH_CHECK_VALUE(store_ == nullptr || !store_->spooling(), call, ": ", describe(),
                    ": samples are spooled to \"", store_->spool().directory(),
                    "\", where they stay as they are; save() that, and read it with "
                    "storage::load.");
}

core::Value Record::value_of(const Slot& slot) const {
  if (slot.fixed.has_value()) return *slot.fixed;
  if (slot.sink == nullptr) {
    return slot.list.size() == 0 ? core::Value() : core::Value(slot.list.tensors(describe()));
  }
  return core::to_value(slot.sink->results());
}

core::Value Record::value_locked() const {
  if (!options->all_tensors()) return value_of(slots_[0]);
  if (slots_.empty()) return {};
  core::Value::Dict dict;
  for (std::size_t i = 0; i < slots_.size(); ++i) dict.emplace_back(std::to_string(i), value_of(slots_[i]));
  return dict;
}

core::Value Record::value() const {
  if (auto* stream = spooled()) return store_->spool().value(*stream);
  const std::lock_guard lock(mutex_);
  merge_lanes();
  return value_locked();
}

core::Results Record::results() const {
  const std::lock_guard lock(mutex_);
  merge_lanes();
  TORCH_CHECK_VALUE(!options->all_tensors(), describe(),
                    ": all tensors are recorded, so there is not one value; ask slot(i).");
  const Slot& slot = slots_[0];
  TORCH_CHECK_VALUE(slot.sink != nullptr, describe(),
                    ": every sample is kept, nothing is reduced; ask tensors().");
  if (!slot.fixed.has_value()) return slot.sink->results();
  core::Results state;
  if (slot.fixed->is_tensor()) return core::Results{{"value", slot.fixed->tensor()}};
  for (const auto& [name, value] : slot.fixed->dict()) state.set(name, value.tensor());
  return state;
}

std::vector<core::SavedSink> Record::saved() const {
  const std::lock_guard lock(mutex_);
  merge_lanes();
  std::vector<core::SavedSink> all;
  for (const auto& slot : slots_) {
    if (slot.sink == nullptr || slot.fixed.has_value()) return {};
    auto one = core::save(*slot.sink);
    if (!one.has_value()) return {};
    all.push_back(std::move(*one));
  }
  return all;
}

storage::Entry Record::entry() const {
  storage::Entry entry;
  static_cast<storage::EntryId&>(entry) = id;
  entry.samples = samples();
  if (options->reduction() != nullptr) entry.reduction = options->reduction()->describe();
  if (entry.samples != 0) {
    entry.value = value();
    entry.state = saved();
  }
  return entry;
}

std::int64_t Record::slots() const {
  const std::lock_guard lock(mutex_);
  return static_cast<std::int64_t>(slots_.size());
}

core::Value Record::slot(std::int64_t index) const {
  if (spooled() != nullptr && index >= 0 && index < slots()) {
    const core::Value all = value();
    return options->all_tensors() ? all.at(std::to_string(index)) : all;
  }
  const std::lock_guard lock(mutex_);
  merge_lanes();
  TORCH_CHECK_INDEX(index >= 0 && index < static_cast<std::int64_t>(slots_.size()), describe(), ": slot ",
                    index, " was asked for, but ", slots_.size(), " were seen.");
  return value_of(slots_[static_cast<std::size_t>(index)]);
}

void Record::set(const core::Value& value) {
  refuse_spooled("Subrecorder::set");
  const std::lock_guard lock(mutex_);
  merge_lanes();
  struct CountHeld {  // however it ends
    Record* record;
    ~CountHeld() { record->count_held(); }
  } count{this};
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
    case core::Value::Kind::text:
      return value;
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
  refuse_spooled("Subrecorder::apply");
  const std::int64_t count = samples();
  const core::Value before = value();
  if (before.is_none()) return;
  // Outside of the lock: it is the caller's code.
  set(applied(before, [&](const at::Tensor& tensor) { return function(tensor, count); }));
}

void Record::reset() {
  refuse_spooled("Subrecorder::reset");
  const std::lock_guard lock(mutex_);
  if (Lanes* const lanes = lanes_.load()) lanes->clear();
  slots_.clear();
  count_held();
  if (!options->all_tensors()) slots_.push_back(make_slot());
  samples_.store(0);
  refused_.store(0);
  without_tensors_.store(0);
  dropped_.store(0);
}

Record::Data Record::data() const {
  refuse_spooled("merge and snapshot");
  const std::lock_guard lock(mutex_);
  merge_lanes();
  Data data;
  for (const auto& slot : slots_) data.slots.push_back(slot.clone());
  data.samples = samples();
  data.refused = refused_.load();
  data.without_tensors = without_tensors_.load();
  return data;
}

void Record::put(Data data) {
  const std::lock_guard lock(mutex_);
  if (Lanes* const lanes = lanes_.load()) lanes->clear();
  slots_ = std::move(data.slots);
  samples_.store(data.samples);
  refused_.store(data.refused);
  without_tensors_.store(data.without_tensors);
  count_held();
}

void Record::check_merge(const Data& theirs) const {
  Data mine = data();
  join(mine.slots, theirs.slots);
}

void Record::merge(const Data& theirs) {
  refuse_spooled("merge");
  const std::lock_guard lock(mutex_);
  merge_lanes();
  join(slots_, theirs.slots);
  samples_.fetch_add(theirs.samples);
  refused_.fetch_add(theirs.refused);
  without_tensors_.fetch_add(theirs.without_tensors);
  count_held();
}

void Record::join(std::vector<Slot>& mine, const std::vector<Slot>& theirs) const {
  while (mine.size() < theirs.size()) mine.push_back(make_slot());
  for (std::size_t i = 0; i < theirs.size(); ++i) {
    Slot& to = mine[i];
    const Slot& from = theirs[i];
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
}

void Record::save(core::OutputArchive& archive) const {
  const Data now = data();
  archive(id.path, now.samples, now.refused, now.without_tensors,
          static_cast<std::uint64_t>(now.slots.size()));
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
  refuse_spooled("restore");
  Data data;
  std::string their_path;
  std::uint64_t count = 0;
  archive(their_path, data.samples, data.refused, data.without_tensors, count);
  TORCH_CHECK_VALUE(their_path == id.path, "restore: the snapshot has \"", their_path,
                    "\" where this recorder has \"", id.path,
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
