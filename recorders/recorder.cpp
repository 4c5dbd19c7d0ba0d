// Recorders, except attaching.

#include <torchtap/base/error.hpp>
#include <torchtap/recorders/detail/attached.hpp>
#include <torchtap/recorders/detail/record.hpp>
#include <torchtap/recorders/extend/takes.hpp>
#include <torchtap/recorders/recorder.hpp>

namespace torchtap::recorders {

using detail::Record;

Recorder::Recorder(RecorderKind kind, RecorderOptions options)
    : kind_(kind),
      options_(std::make_shared<const RecorderOptions>(std::move(options))),
      attached_(std::make_shared<AttachedList>()) {
  TORCH_CHECK_VALUE(options_->reduction() == nullptr || options_->spool_directory().empty() ||
                        options_->memory_budget().has_value(),
                    this->kind(),
                    ": spool() keeps every sample and reduction() keeps none; set one of them.");
  if (options_->takes() != nullptr) options_->takes()->check(this->kind(), *options_);
  TORCH_CHECK_VALUE(!traits(kind_).parameters || options_->slot() == 0, this->kind(),
                    ": each parameter has a subrecorder of its own, so there is no slot(", options_->slot(),
                    "); ask for the parameter by its name, at(\"layer1.bias\").");
  store_ = std::make_shared<detail::Store>(options_);
}
// Both keep the options, so that `options()` never throws.
Recorder::Recorder(Recorder&& other) noexcept
    : kind_(other.kind_),
      options_(other.options_),
      store_(std::move(other.store_)),
      attached_(std::move(other.attached_)) {}
Recorder& Recorder::operator=(Recorder&& other) noexcept {
  if (this == &other) return *this;
  hooks::DeferredCompile batch;
  finish_spool();
  detach();  // the list may live on in a scope
  kind_ = other.kind_;
  options_ = other.options_;
  attached_ = std::move(other.attached_);
  store_ = std::move(other.store_);
  return *this;
}
Recorder::~Recorder() {
  hooks::DeferredCompile batch;
  finish_spool();
  detach();
  attached_.reset();
}

/// Moves samples that are still in memory to the spool, before the recorder is destroyed. The spool closes
/// with the last of its records.
void Recorder::finish_spool() noexcept {
  if (store_ == nullptr || !store_->spooling()) return;
  detach();
  for (const auto& entry : live()) {
    try {
      entry.second->spooled();
    } catch (...) {  // aliases that were changed, or no memory
    }
  }
}

void Recorder::check_not_moved(const char* call) const {
  TORCH_CHECK_VALUE(store_ != nullptr, "recorders::", kind(), "::", call,
                    ": this recorder was moved to another one, which has its modules and what they recorded; "
                    "use that one.");
}

void Recorder::check_kept(const char* call) const {
  const std::string elsewhere = options_->takes() == nullptr ? "" : options_->takes()->elsewhere(*options_);
  TORCH_CHECK_VALUE(elsewhere.empty(), "recorders::", kind(), "::", call, ": samples are ", elsewhere);
}

const Recorder::AttachedList& Recorder::attached() const noexcept {
  static const auto& none = *new const AttachedList;  // recorders may outlive static objects
  return attached_ != nullptr ? *attached_ : none;
}

std::size_t Recorder::next_attached(std::size_t position) const noexcept {
  const auto& list = attached();
  while (position < list.size() && list[position] == nullptr) ++position;
  return position;
}

const std::string& Recorder::kind() const noexcept {
  return name_of(kind_);
}

const RecorderOptions& Recorder::options() const noexcept {
  return *options_;
}

std::vector<std::pair<std::int64_t, Record*>> Recorder::live() const {
  std::vector<std::pair<std::int64_t, Record*>> records;
  const auto& list = attached();
  for (std::size_t i = next_attached(0); i < list.size(); i = next_attached(i + 1)) {
    records.emplace_back(static_cast<std::int64_t>(i), list[i]->subrecorder.record_.get());
  }
  return records;
}

std::int64_t Recorder::size() const noexcept {
  return std::distance(begin(), end());
}

std::int64_t Recorder::samples() const noexcept {
  std::int64_t count = 0;
  for (const auto& one : attached()) {
    if (one != nullptr) count += one->subrecorder.samples();
  }
  return count;
}

std::int64_t Recorder::dropped() const noexcept {
  std::int64_t count = 0;
  for (const auto& one : attached()) {
    if (one != nullptr) count += one->subrecorder.dropped();
  }
  return count;
}

const Subrecorder& Recorder::operator[](std::int64_t index) const {
  check_not_moved("operator[]");
  TORCH_CHECK_INDEX(index >= 0 && index < static_cast<std::int64_t>(attached_->size()), kind(), "[", index,
                    "]: the recorder was attached to ", attached_->size(), " modules.");
  const auto& attached = (*attached_)[static_cast<std::size_t>(index)];
  TORCH_CHECK_INDEX(attached != nullptr, kind(), "[", index,
                    "]: this subrecorder was removed; the others keep their indices.");
  return attached->subrecorder;
}

Subrecorder& Recorder::operator[](std::int64_t index) {
  return const_cast<Subrecorder&>(static_cast<const Recorder&>(*this)[index]);
}

const Subrecorder& Recorder::at(const std::string& path) const {
  check_not_moved("at");
  std::vector<std::string> paths;
  std::vector<std::int64_t> found;
  for (const auto& [index, record] : live()) {
    paths.push_back(record->id().path);
    bool matches = record->id().path == path;
    for (const auto& alias : record->id().aliases) matches = matches || alias == path;
    if (matches) found.push_back(index);
  }
  TORCH_CHECK_INDEX(!found.empty(), "recorders::", kind(), "::at: no subrecorder is called \"", path,
                    "\"; the nearest are ", base::quoted(base::nearest(path, paths)), ".");
  TORCH_CHECK_INDEX(found.size() == 1, "recorders::", kind(), "::at: \"", path,
                    "\" is the path of several subrecorders, ", c10::IntArrayRef(found), "; ask by index.");
  return (*this)[found.front()];
}

Subrecorder& Recorder::at(const std::string& path) {
  return const_cast<Subrecorder&>(std::as_const(*this).at(path));
}

std::vector<std::int64_t> Recorder::indices() const {
  std::vector<std::int64_t> result;
  for (const auto& entry : live()) result.push_back(entry.first);
  return result;
}

core::Value Recorder::remove(std::int64_t index) {
  check_not_moved("remove");
  (*this)[index];  // throws if there is none
  auto& attached = (*attached_)[static_cast<std::size_t>(index)];
  attached->detach();
  if (attached->subrecorder.record_->spooled() != nullptr) {  // it stays in the recording
    attached.reset();
    return {};
  }
  core::Value value = attached->subrecorder.value();
  store_->leave_out(attached->subrecorder.record_->module());
  attached.reset();
  return value;
}

void Recorder::reset() {
  check_not_moved("reset");
  for (const auto& entry : live()) entry.second->reset();
}

void Recorder::apply(const std::function<at::Tensor(const at::Tensor&)>& function) {
  check_not_moved("apply");
  for (auto& subrecorder : *this) subrecorder.apply(function);
}

void Recorder::apply_sample(const std::function<at::Tensor(const at::Tensor&, std::int64_t)>& function) {
  check_not_moved("apply_sample");
  for (auto& subrecorder : *this) subrecorder.apply_sample(function);
}

void Recorder::merge(const Recorder& other) {
  check_not_moved("merge");
  other.check_not_moved("merge");
  TORCH_CHECK_VALUE(kind_ == other.kind_, "recorders::", kind(), "::merge: cannot merge a ", other.kind(),
                    " into it; both have to be of the same kind.");
  const auto mine = live();
  const auto theirs = other.live();
  TORCH_CHECK_VALUE(mine.size() == theirs.size(), "recorders::", kind(), "::merge: this recorder has ",
                    mine.size(), " subrecorders, the other one ", theirs.size(),
                    "; both have to be attached to the same modules.");
  std::vector<detail::RecordData> taken;
  for (std::size_t i = 0; i < mine.size(); ++i) {
    TORCH_CHECK_VALUE(mine[i].second->id().path == theirs[i].second->id().path, "recorders::", kind(),
                      "::merge: subrecorder ", i, " is \"", mine[i].second->id().path, "\" here and \"",
                      theirs[i].second->id().path,
                      "\" there; both have to be attached to the same modules in the same order.");
    taken.push_back(theirs[i].second->data("merge"));
    std::vector<detail::SlotData> slots = mine[i].second->data("merge").slots;
    detail::join(mine[i].second->slots_of(), slots, taken.back().slots);  // throws if `merge` would
  }
  for (std::size_t i = 0; i < mine.size(); ++i) mine[i].second->merge(taken[i]);
}

bool Recorder::until_recorded(const std::function<void()>& forward) {
  check_not_moved("until_recorded");
  TORCH_CHECK_VALUE(
      !traits(kind_).gradients, "recorders::", kind(),
      "::until_recorded: gradients arrive in backward, and only a forward can be stopped; use a recorder of "
      "inputs or outputs.");
  TORCH_CHECK_VALUE(
      !empty(), "recorders::", kind(),
      "::until_recorded: the recorder is attached to nothing, so nothing would stop; attach it first.");
  std::vector<const detail::Slots*> waiting;
  for (const auto& entry : live()) waiting.push_back(&entry.second->slots_of());
  const detail::UntilRecorded until(std::move(waiting));
  try {
    forward();
  } catch (const detail::StopForward& stop) {
    if (stop.until != &until) throw;
    return true;
  }
  return false;
}

std::vector<storage::Entry> Recorder::entries() const {
  check_not_moved("entries");
  check_kept("entries");
  TORCH_CHECK_VALUE(
      !store_->spooling(), "recorders::", kind(), "::entries: samples are spooled to \"",
      options_->spool_directory(),
      "\" and may be larger than memory; call save with that directory, and read it with storage::load.");
  std::vector<storage::Entry> entries;
  for (const auto& entry : live()) entries.push_back(entry.second->entry());
  return entries;
}

void Recorder::save(const std::string& directory, const storage::SaveOptions& options) const {
  check_not_moved("save");
  check_kept("save");
  TORCH_CHECK_VALUE(!empty(), "recorders::", kind(),
                    "::save: the recorder is attached to nothing, so there is nothing to save in \"",
                    directory, "\"; attach it first.");
  if (store_->spooling()) {
    TORCH_CHECK_VALUE(store_->spool().is_at(directory), "recorders::", kind(),
                      "::save: samples are spooled to \"", store_->spool().directory(), "\" and not to \"",
                      directory, "\"; save there, and move the directory when the recorder is gone.");
    // Until failed writes succeed, no samples can be moved to the spool.
    store_->spool().retry();
    for (const auto& entry : live()) entry.second->spooled();
    store_->spool().finish();
    return;
  }
  const auto records = live();
  storage::save(
      directory, records.size(), [&](std::size_t i) { return records[i].second->entry(); }, options);
}

void Recorder::flush() {
  check_not_moved("flush");
  if (!store_->spooling()) return;
  // Until failed writes succeed, no samples can be moved to the spool.
  store_->spool().retry();
  for (const auto& entry : live()) entry.second->spooled();
  store_->spool().flush();
}

std::unique_ptr<Recorder> make(const std::string& kind, RecorderOptions options) {
  return make(kind_of(kind), std::move(options));
}

std::unique_ptr<Recorder> make(RecorderKind kind, RecorderOptions options) {
  switch (kind) {
    case RecorderKind::forward_pre:
      return std::make_unique<ForwardPre>(std::move(options));
    case RecorderKind::forward_input:
      return std::make_unique<ForwardInput>(std::move(options));
    case RecorderKind::forward_output:
      return std::make_unique<ForwardOutput>(std::move(options));
    case RecorderKind::backward_input:
      return std::make_unique<BackwardInput>(std::move(options));
    case RecorderKind::backward_output:
      return std::make_unique<BackwardOutput>(std::move(options));
    case RecorderKind::backward_parameter:
      return std::make_unique<BackwardParameter>(std::move(options));
  }
  return nullptr;
}

}  // namespace torchtap::recorders
