#include <ATen/core/grad_mode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/inductor/aoti_torch/utils.h>

#include <algorithm>

#include <torchtap/base/error.hpp>
#include <torchtap/base/recording_mode.hpp>
#include <torchtap/exported/detail/tapped_run.hpp>

namespace torchtap::exported::detail {
namespace {

using hooks::extend::CallTensors;

/// Removes and returns the text up to the next ';'.
std::string_view next_field(std::string_view& text) {
  const auto end = std::min(text.find(';'), text.size());
  const std::string_view field = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return field;
}

std::string name_of(const Place& place) {
  return c10::str('"', place.module.path, "\" (", place.module.type, ")");
}

/// The tensors of a tap while hooks run; finds the tensors that hooks changed.
class Tensors {
 public:
  explicit Tensors(std::vector<at::Tensor>& tensors) : now_(tensors), before_(tensors) {
    for (const at::Tensor& tensor : before_) versions_.push_back(version_of(tensor));
  }

  /// Appends the tensors from `next` on to `tensors`: one for each 'T' of `slots`, an absent one for each
  /// '-'.
  void collect(std::string_view slots, std::size_t& next, CallTensors& tensors) {
    for (const char slot : slots) {
      if (slot == '-') {
        tensors.push_absent();
      } else if (next < now_.size()) {
        tensors.push_back(now_[next++]);
      }
    }
  }

  /// Copies replaced tensors into the model. Throws if hooks changed tensors of a tap without `replace`.
  void put_back(const Place& place, bool replaceable) {
    for (std::size_t i = 0; i < now_.size(); ++i) {
      const at::Tensor& before = before_[i];
      const bool replaced = !now_[i].is_same(before);
      if (replaceable) {
        if (replaced) overwrite(place, before, now_[i]);
        continue;
      }
      TORCH_CHECK_NOT_IMPLEMENTED(
          !replaced && versions_[i] == version_of(before), "exported::Model::run: a hook ",
          replaced ? "replaced" : "wrote to", " a tensor of ", name_of(place),
          ", which was tapped for reading; export the model with torchtap.export.tapped(model, replace=True)",
          replaced ? "." : ". The outputs of this run may be wrong.");
    }
  }

 private:
  static std::int64_t version_of(const at::Tensor& tensor) {
    return tensor.is_inference() ? 0 : static_cast<std::int64_t>(tensor._version());
  }
  static void overwrite(const Place& place, const at::Tensor& before, const at::Tensor& now) {
    TORCH_CHECK_VALUE(now.defined() && now.sizes() == before.sizes() && now.dtype() == before.dtype(),
                      "exported::Model::run: a hook replaced a tensor of ", name_of(place), ", ",
                      before.sizes(), ' ', before.dtype(), ", by ",
                      now.defined() ? c10::str(now.sizes(), ' ', now.dtype()) : std::string("none"),
                      "; replace it by a tensor of the same shape and dtype.");
    const at::NoGradGuard no_grad;
    const c10::impl::ExcludeDispatchKeyGuard unseen(base::operations_key);
    before.copy_(now);
  }

  std::vector<at::Tensor>& now_;
  std::vector<at::Tensor> before_;
  std::vector<std::int64_t> versions_;
};

}  // namespace

Run::~Run() {
  while (!open_.empty()) open_.pop_back();
}

void* Run::wanted(std::string_view path) noexcept {
  if (error_ != nullptr) return nullptr;
  Place* const place = package_.find(path);
  if (place == nullptr) {
    try {
      TORCH_CHECK_VALUE(false, "exported::Model::run: \"", package_.file(), "\" has a tap at \"", path,
                        "\" which its list of taps lacks; compile the model with torchtap.export.compile.");
    } catch (...) {
      error_ = std::current_exception();
    }
    return nullptr;
  }
  return hooks::extend::is_idle(place->torchtap_gate()) ? nullptr : place;
}

void Run::receive(void* place, const AtenTensorHandle* handles, std::size_t count, std::string_view kind,
                  bool replaceable) noexcept {
  try {
    const Receiving none(nullptr);  // hides this run from a model that a hook calls
    std::vector<at::Tensor> tensors;
    tensors.reserve(count);
    for (std::size_t i = 0; i < count; ++i)
      tensors.push_back(*torch::aot_inductor::tensor_handle_to_tensor_pointer(handles[i]));
    fire(*static_cast<Place*>(place), tensors, kind, replaceable);
  } catch (...) {
    error_ = std::current_exception();
  }
}

void Run::fire(Place& place, std::vector<at::Tensor>& tensors, std::string_view kind, bool replaceable) {
  const std::string_view when = next_field(kind);
  std::string_view slots = next_field(kind);
  const std::string all(tensors.size(), 'T');
  if (slots.empty()) slots = all;  // the model's own code calls this tap
  if (when == "input") {
    enter(place, tensors, slots, replaceable);
  } else {
    TORCH_CHECK_VALUE(when == "output", "exported::Model::run: a tap at ", name_of(place), " has the kind \"",
                      when, "\"; use \"input\" or \"output\".");
    leave(place, tensors, slots, replaceable);
  }
}

void Run::enter(Place& place, std::vector<at::Tensor>& tensors, std::string_view slots, bool replaceable) {
  auto open = std::make_unique<Open>(place);
  if (open->call.idle()) return;
  if (open->call.wants_inputs()) {
    Tensors taken(tensors);
    CallTensors inputs;
    std::size_t next = 0;
    taken.collect(slots, next, inputs);
    open->call.before(inputs);
    taken.put_back(place, replaceable);
  }
  open_.push_back(std::move(open));
}

// `slots` describes the outputs, or the inputs and the outputs with a '|' in between.
void Run::leave(Place& place, std::vector<at::Tensor>& tensors, std::string_view slots, bool replaceable) {
  auto open = take_open(place);
  if (open == nullptr) open = std::make_unique<Open>(place);
  if (open->call.idle() || !open->call.wants_outputs()) return;
  Tensors taken(tensors);
  CallTensors inputs, outputs;
  std::size_t next = 0;
  const auto bar = slots.find('|');
  const bool has_inputs = bar != std::string_view::npos;
  if (has_inputs) taken.collect(slots.substr(0, bar), next, inputs);
  taken.collect(has_inputs ? slots.substr(bar + 1) : slots, next, outputs);
  if (has_inputs) {
    open->call.after(outputs, inputs);
  } else {
    open->call.after(outputs);
  }
  taken.put_back(place, replaceable);
}

std::unique_ptr<Run::Open> Run::take_open(const Place& place) {
  const auto found =
      std::find_if(open_.rbegin(), open_.rend(), [&](const auto& open) { return &open->place == &place; });
  if (found == open_.rend()) return nullptr;
  auto open = std::move(*found);
  open_.erase(std::next(found).base());
  return open;
}

}  // namespace torchtap::exported::detail
