// Looks up companions in the thread's context, checks them, and chooses their rows.

#include <ATen/Functions.h>
#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>

#include <torchtap/base/capture.hpp>
#include <torchtap/base/error.hpp>
#include <torchtap/base/recording_mode.hpp>
#include <torchtap/base/strided.hpp>
#include <torchtap/core/context.hpp>
#include <torchtap/core/unfit.hpp>
#include <torchtap/statistics/detail/chosen_rows.hpp>
#include <torchtap/statistics/extend/companions.hpp>

namespace torchtap::statistics::detail {
namespace {

thread_local const Selection* innermost_selection = nullptr;

/// Whether this thread runs a backward, which may run parts of a forward again (checkpointing).
bool in_backward() noexcept {
  return torch::autograd::get_current_graph_task_exec_info() != nullptr;
}

bool begins_with(at::IntArrayRef shape, at::IntArrayRef start) {
  return start.size() <= shape.size() && shape.slice(0, start.size()) == start;
}

/// Outer selections choose first.
at::Tensor selected(const Selection* selection, const at::Tensor& companion, const std::string& name) {
  if (selection == nullptr) return companion;
  return selection->of(selected(selection->outer(), companion, name), name);
}

}  // namespace

Selection::Selection(at::IntArrayRef shape, c10::ArrayRef<std::int64_t> rows)
    : shape_(shape), rows_(rows), outer_(innermost_selection) {
  innermost_selection = this;
}

Selection::~Selection() {
  innermost_selection = outer_;
}

at::Tensor Selection::of(const at::Tensor& companion, const std::string& name) const {
  const auto dims = static_cast<std::int64_t>(shape_.size());
  if (dims == 0) return companion;
  if (begins_with(companion.sizes(), shape_)) return choose_rows(as_rows(companion, dims), rows_);
  TORCH_CHECK_VALUE(begins_with(shape_, companion.sizes()), "reductions::update: \"", name, "\" has shape ",
                    companion.sizes(), ", and rows are chosen by a tensor of shape ", shape_,
                    "; the one has to be how the other begins.");
  std::vector<std::int64_t> sizes = companion.sizes().vec();  // of a sequence: for each of its tokens
  sizes.resize(shape_.size(), 1);
  return choose_rows(companion.reshape(sizes).expand(shape_).reshape({-1}), rows_);
}

at::Tensor as_rows(const at::Tensor& tensor, std::int64_t dims) {
  if (dims < 2) return tensor;
  const base::RecordingMode quiet;
  return tensor.flatten(0, dims - 1);
}

at::Tensor as_source(const at::Tensor& sample, std::int64_t dims) {
  const at::Tensor plain = sample.is_conj() || sample.is_neg() ? sample.resolve_conj().resolve_neg() : sample;
  const at::Tensor rows = as_rows(plain, dims);
  return rows.is_cpu() ? rows.contiguous() : rows;
}

at::Tensor choose_rows(const at::Tensor& tensor, c10::ArrayRef<std::int64_t> rows) {
  const auto count = static_cast<std::int64_t>(rows.size());
  if (count == tensor.size(0) && std::is_sorted(rows.begin(), rows.end())) return tensor;
  const at::Tensor index = at::from_blob(const_cast<std::int64_t*>(rows.data()), {count}, at::kLong);
  return tensor.index_select(0, index.to(tensor.device()));
}

at::Tensor any_companion(const char* what, const std::string& name) {
  at::Tensor found = core::Context::find(name);
  if (!found.defined() && in_backward()) {  // which a recorder must not end
    core::unfit<c10::ValueError>(
        c10::str("reductions::", what, "::update: nothing is called \"", name,
                 "\" in this thread, where backward runs a part of the forward again; "
                 "name it around the backward, too."));
  }
  TORCH_CHECK_VALUE(found.defined(), "reductions::", what, "::update: nothing is called \"", name,
                    "\" in this thread; name it around the forward: core::Context named(\"", name,
                    "\", tensor).");
  if (innermost_selection == nullptr) return found;
  const base::RecordingMode quiet;
  return selected(innermost_selection, found, name);
}

at::Tensor companion(const char* what, const std::string& name, const at::Tensor& sample) {
  reductions::extend::expect_plain(what, sample);
  at::Tensor found = any_companion(what, name);
  TORCH_CHECK_TYPE(found.layout() == c10::kStrided, "reductions::", what, "::update: \"", name, "\" is a ",
                   found.toString(), "; convert it with to_dense() first.");
  TORCH_CHECK_VALUE(found.is_cpu() || found.device() == sample.device(), "reductions::", what, "::update: \"",
                    name, "\" is on ", found.device(), " and the sample on ", sample.device(),
                    "; name a tensor on the sample's device or on the CPU.");
  TORCH_CHECK_VALUE(begins_with(sample.sizes(), found.sizes()), "reductions::", what, "::update: \"", name,
                    "\" has shape ", found.sizes(), " and the sample ", sample.sizes(),
                    "; it belongs to rows of the sample, so its shape has to be how the sample's begins.");
  return found;
}

at::Tensor mask(const std::string& name, const at::Tensor& sample) {
  at::Tensor found = companion("Where", name, sample);
  TORCH_CHECK_TYPE(found.scalar_type() == at::kBool, "reductions::Where::update: \"", name, "\" has dtype ",
                   found.scalar_type(), "; a mask is of bool: convert it with to(torch::kBool).");
  return found;
}

at::Tensor on_cpu(const char* what, const std::string& name, const at::Tensor& companion,
                  const at::Tensor& sample) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      sample.is_cpu() || !base::is_capturing(sample.device()), "reductions::", what, "::update: a stream of ",
      sample.device(), " captures a graph, and choosing rows by \"", name,
      "\" waits for the device, which a capture does not allow; update outside of the capture.");
  if (companion.is_cpu() && companion.is_contiguous()) return companion;
  const base::RecordingMode quiet;
  return companion.cpu().contiguous();
}

}  // namespace torchtap::statistics::detail
