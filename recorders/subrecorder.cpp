// Subrecorders: the calls of a user, passed to the record.
#include <torchtap/base/error.hpp>
#include <torchtap/recorders/detail/record.hpp>
#include <torchtap/recorders/subrecorder.hpp>

namespace torchtap::recorders {

const std::string& Subrecorder::path() const noexcept {
  return record_->id().path;
}
const std::vector<std::string>& Subrecorder::aliases() const noexcept {
  return record_->id().aliases;
}
const std::string& Subrecorder::type() const noexcept {
  return record_->id().type;
}
std::int64_t Subrecorder::samples() const noexcept {
  return record_->samples();
}
std::int64_t Subrecorder::events() const noexcept {
  return record_->events();
}

std::int64_t Subrecorder::without_tensors() const noexcept {
  return record_->not_recorded().without_tensors.load();
}

std::int64_t Subrecorder::left_out() const noexcept {
  return record_->not_recorded().left_out();
}
std::int64_t Subrecorder::unmatched() const noexcept {
  return record_->not_recorded().unmatched.load();
}

std::int64_t Subrecorder::dropped() const noexcept {
  return record_->not_recorded().dropped.load();
}

std::string Subrecorder::note() const {
  return record_->note();
}

at::Tensor Subrecorder::tensor() const {
  const core::Value value = record_->value();
  TORCH_CHECK_VALUE(!value.is_none(), record_->describe(), ": nothing was recorded yet (", events(),
                    " events were seen).", note().empty() ? "" : " Maybe " + note());
  TORCH_CHECK_VALUE(!value.is_list(), record_->describe(), ": every sample is kept, here ", value.describe(),
                    "; call tensors().");
  TORCH_CHECK_VALUE(value.is_tensor(), record_->describe(), ": there are several results, ", value.describe(),
                    "; get one by name with tensor(name).");
  return value.tensor();
}

at::Tensor Subrecorder::tensor(const std::string& result) const {
  const core::Results all = results();
  TORCH_CHECK_VALUE(!all.empty(), record_->describe(), ": nothing was recorded yet (", events(),
                    " events were seen), so there is no \"", result, "\".",
                    note().empty() ? "" : " Maybe " + note());
  return all.at(result);
}

std::vector<at::Tensor> Subrecorder::tensors() const {
  TORCH_CHECK_VALUE(
      record_->options().reduction() == nullptr && !record_->options().all_tensors(), record_->describe(),
      ": samples are ",
      record_->options().all_tensors() ? "kept by slot; call slot(i)." : "reduced; call tensor().");
  const core::Value value = record_->value();
  return value.is_none() ? std::vector<at::Tensor>() : value.tensors();
}

core::Results Subrecorder::results() const {
  return record_->results();
}
core::Value Subrecorder::value() const {
  return record_->value();
}
std::int64_t Subrecorder::slots() const noexcept {
  return record_->slots();
}
core::Value Subrecorder::slot(std::int64_t index) const {
  return record_->slot(index);
}
void Subrecorder::set(core::Value value) {
  record_->set(value);
}

void Subrecorder::apply(const std::function<at::Tensor(const at::Tensor&)>& function) {
  record_->apply([&](const at::Tensor& tensor, std::int64_t /*samples*/) { return function(tensor); });
}
void Subrecorder::apply_sample(const std::function<at::Tensor(const at::Tensor&, std::int64_t)>& function) {
  record_->apply(function);
}

void Subrecorder::reset() {
  record_->reset();
}
core::Value Subrecorder::take() {
  return record_->take();
}

}  // namespace torchtap::recorders
