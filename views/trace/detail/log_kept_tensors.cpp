// Keeps tensors: as aliases, which are copied before an operation writes to their memory.
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <c10/core/CPUAllocator.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/version.h>

#include <algorithm>
#include <atomic>

#include <torchtap/base/error.hpp>
#include <torchtap/base/glob.hpp>
#include <torchtap/base/recording_mode.hpp>
#include <torchtap/base/reused_memory.hpp>
#include <torchtap/views/frames/bulk_copy.hpp>
#include <torchtap/views/trace/detail/generator.hpp>
#include <torchtap/views/trace/detail/log.hpp>

namespace torchtap::views::trace::detail {
namespace {

/// A tensor of the same memory that belongs to no graph.
at::Tensor alias_of(const at::Tensor& tensor) {
  // tensor_data() calls no operation, but needs a version counter.
  return tensor.is_inference() ? tensor.detach() : tensor.tensor_data();
}

bool share_memory(const at::Tensor& a, const at::Tensor& b) {
  return a.has_storage() && b.has_storage() &&
         a.storage().unsafeGetStorageImpl() == b.storage().unsafeGetStorageImpl();
}

/// Large, in LibTorch's own memory on the CPU and all of it, and no transform has the tensor itself.
bool is_worth_copying(const at::Tensor& kept) {
  constexpr std::size_t least = std::size_t{64} << 10;  // smaller blocks are soon used again
  return kept.has_storage() && kept.device().is_cpu() && kept.storage().nbytes() >= least &&
         kept.storage().allocator() == c10::GetCPUAllocator() && !kept.is_nested() && kept.use_count() == 1 &&
         kept.is_non_overlapping_and_dense() && kept.nbytes() == kept.storage().nbytes();
}

c10::Storage copy_of(const c10::Storage& storage) {
  c10::Storage copy = base::reused_storage(storage.nbytes());
  frames::bulk_copy(copy.data_ptr().get(), storage.data_ptr().get(), storage.nbytes());
  return copy;
}

/// `kept`, which only the log has, shows the bytes of `storage` from now on.
void move_to(const c10::Storage& storage, at::Tensor& kept) {
  at::TensorImpl* const tensor = kept.unsafeGetTensorImpl();
  tensor->set_allow_tensor_metadata_change(true);
  tensor->set_storage_keep_dtype(storage);
}

bool is_digits(const std::string& text) {
  return !text.empty() && text.find_first_not_of("0123456789", text[0] == '-' ? 1 : 0) == std::string::npos;
}

/// Whether a name may be the label of a node of this type. The label itself is known only when the pass has
/// ended.
bool may_mean(const std::string& name, const std::string& type) {
  if (is_digits(name)) return true;
  if (base::is_glob(name)) {
    const std::string start = name.substr(0, name.find_first_of("*?["));
    const std::size_t both = std::min(start.size(), type.size());
    return start.compare(0, both, type, 0, both) == 0;
  }
  return name.compare(0, type.size(), type) == 0 || type.find(name) != std::string::npos;
}

/// Adds the gradient that arrives at a node of autograd.
class GradientHook final : public torch::autograd::FunctionPreHook {
 public:
  GradientHook(std::weak_ptr<Gradients> gradients, std::int64_t value, std::uint32_t output)
      : gradients_(std::move(gradients)), value_(value), output_(output) {}

  torch::autograd::variable_list operator()(const torch::autograd::variable_list& arrived) override {
    const auto gradients = gradients_.lock();
    if (gradients == nullptr || output_ >= arrived.size() || !arrived[output_].defined()) return arrived;
    const base::RecordingMode quiet;
    const at::Tensor gradient = arrived[output_].detach();
    const std::lock_guard lock(gradients->mutex);
    at::Tensor& sum = gradients->of[value_];
    sum = sum.defined() ? sum + gradient : gradient.clone();
    return arrived;
  }

 private:
  std::weak_ptr<Gradients> gradients_;
  std::int64_t value_;
  std::uint32_t output_;
};

}  // namespace

bool Log::wanted(const at::Tensor& tensor, const Facts* facts, bool input) {
  static const std::string input_name = "input", outside_name = "outside", root;
  const std::string& plain = input ? input_name : outside_name;
  const std::string& type = facts != nullptr ? facts->type : plain;
  if (options.predicate()) {
    const std::int64_t context = context_of_thread();
    const Candidate candidate{facts != nullptr ? facts->name : plain, type,
                              context >= 0 ? modules[contexts[context].module].path : root,
                              static_cast<std::int64_t>(operations.size()), tensor};
    const Asks asks(*this);
    return options.predicate()(candidate);
  }
  const auto& names = options.names();
  if (names.empty()) return options.saved() == Save::all;
  // LibTorch's C++ calls addmm, matmul and add_, which are logged as one linear.
  const bool part_of_linear = type == "t" || type == "addmm" || type == "matmul" || type == "add";
  return std::any_of(names.begin(), names.end(), [&](const std::string& name) {
    return may_mean(name, type) || (part_of_linear && may_mean(name, "linear")) || may_mean(name, "output");
  });
}

void Log::consider(const at::Tensor& tensor, std::int64_t number, const Facts* facts, Memory* memory) {
  if (options.saved() == Save::none && options.names().empty() && !options.predicate()) return;
  const bool input = values[number].origin == Origin::input;
  if (wanted(tensor, facts, input)) keep(tensor, number, memory);
  if (options.gradients() && values[number].kept.defined()) follow_gradient(tensor, number);
}

void Log::keep_returned(const at::Tensor& tensor, std::int64_t value, std::int64_t module) {
  const auto& names = options.names();
  const std::string& path = modules[module].path;
  const auto named = [&](const std::string& name) {
    if (base::is_glob(name) && base::matches_glob(name, path)) return true;
    return name.compare(0, path.size(), path) == 0 &&
           (name.size() == path.size() || name[path.size()] == ':');
  };
  if (values[value].kept.defined() || path.empty() || !std::any_of(names.begin(), names.end(), named)) return;
  keep(tensor, value, memory_of(tensor));
  if (options.gradients() && values[value].kept.defined()) follow_gradient(tensor, value);
}

bool Log::afford(std::int64_t bytes, const Value& value) {
  if (!options.memory_budget() || held_bytes + bytes <= *options.memory_budget()) {
    held_bytes += bytes;
    return true;
  }
  TORCH_CHECK(options.over_budget() == OverBudget::drop, "views::trace: a tensor of shape ",
              c10::IntArrayRef(value.sizes.data(), value.sizes.size()), " takes ", bytes, " bytes more, ",
              held_bytes, " are held, and the memory budget is ", *options.memory_budget(),
              "; keep fewer tensors, raise TraceOptions::memory_budget, or give it OverBudget::drop.");
  ++dropped;
  return false;
}

void Log::keep(const at::Tensor& tensor, std::int64_t number, Memory* memory) {
  if (values[number].of_transform) return;
  at::Tensor kept;
  if (tensor.is_nested()) {
    try {
      kept = tensor.detach();
    } catch (const c10::Error&) {  // not all versions can
      return;
    }
  } else if (options.transform() || options.device() || options.dtype()) {
    const base::RecordingMode quiet;
    kept = tensor.detach();
    if (options.transform()) {
      const Asks asks(*this);
      kept = options.transform()(kept);
    }
    TORCH_CHECK_VALUE(kept.defined(), "views::trace: TraceOptions::transform returned no tensor.");
    TORCH_CHECK_TYPE(
        !kept.is_complex() || c10::isComplexType(options.dtype().value_or(kept.scalar_type())),
        "views::trace: the tensor is complex (", kept.scalar_type(), "), and .dtype(",
        options.dtype().value_or(kept.scalar_type()),
        ") would drop its imaginary part. Ask for a complex dtype, or for the part that you want: "
        "TraceOptions().transform([](const at::Tensor& x) { return at::real(x); }), at::abs, "
        "or at::view_as_real.");
    kept = kept.to(options.device().value_or(kept.device()), options.dtype().value_or(kept.scalar_type()));
  } else if (tensor.has_storage()) {
    kept = alias_of(tensor);
  } else {  // sparse, MKL-DNN: whether they are written to is not known by their memory
    const base::RecordingMode quiet;
    kept = tensor.detach().clone();
  }
  Value& value = values[number];
  value.own = !share_memory(kept, tensor);
  std::int64_t bytes = 0;
  if (value.own) {
    bytes = kept.is_nested() ? 0 : kept.numel() * static_cast<std::int64_t>(kept.element_size());
  } else if (!memory->counted && value.origin != Origin::parameter) {
    bytes = static_cast<std::int64_t>(tensor.storage().nbytes());
  }
  if (bytes > 0 && !afford(bytes, value)) return;
  if (!value.own) {
    if (value.origin != Origin::parameter) memory->counted = true;
    memory->aliases.push_back(number);
    if (is_worth_copying(kept)) may_be_dropped(memory);
    value.version = kept.is_inference() ? 0 : kept._version();
  }
  value.kept = std::move(kept);
}

void Log::copy_aliases(Memory& memory) {
  const base::RecordingMode quiet;
  for (const std::int64_t number : memory.aliases) {
    Value& value = values[number];
    if (value.own || !value.kept.defined()) continue;
    if (!afford(value.bytes, value)) {
      value.kept.reset();
      continue;
    }
    if (is_worth_copying(value.kept)) {
      move_to(copy_of(value.kept.storage()), value.kept);
    } else {
      value.kept = value.kept.clone();
    }
    value.own = true;
    ++copied;
  }
  memory.aliases.clear();
}

/// Copies tensors that the program frees soon, except in the first pass, which may be the only one: copies
/// need memory that no earlier pass has left.
void Log::may_be_dropped(Memory* memory) {
  static std::atomic<bool> kept_before{false};
  if (!again_) again_ = kept_before.exchange(true);
  if (*again_ && std::find(recent_.begin(), recent_.end(), memory) == recent_.end()) {
    recent_[next_recent_++ % recent_.size()] = memory;
  }
}

/// Only the log still has the memory of tensors that the program has dropped. A copy elsewhere gives it back
/// to malloc for the next operation, which would have to wait for new pages where malloc has gone without.
void Log::copy_dropped() {
  for (Memory*& memory : recent_) {
    if (memory == nullptr) continue;
    if (memory->aliases.empty()) {  // copied before a write
      memory = nullptr;
      continue;
    }
    const auto kept = [&](std::int64_t number) -> at::Tensor& { return values[number].kept; };
    const auto only_here = [&](std::int64_t number) {
      return kept(number).use_count() == 1 && kept(number).storage().use_count() == memory->aliases.size();
    };
    if (!std::all_of(memory->aliases.begin(), memory->aliases.end(), only_here)) continue;
    const c10::Storage copy = copy_of(kept(memory->aliases.front()).storage());
    for (const std::int64_t number : memory->aliases) {
      move_to(copy, kept(number));
      values[number].own = true;
    }
    memory->aliases.clear();
    memory = nullptr;
  }
}

void Log::follow_gradient(const at::Tensor& tensor, std::int64_t value) {
  if (!tensor.requires_grad()) return;
  GraphNode node = tensor.grad_fn();
  if (node == nullptr) {  // of a leaf; it lives until a graph has it
    node = torch::autograd::impl::grad_accumulator(tensor);
    if (node == nullptr) return;
    leaves_.push_back(node);
    node->add_pre_hook(std::make_unique<GradientHook>(gradients, value, 0U));
    return;
  }
  auto hook =
      std::make_unique<GradientHook>(gradients, value, static_cast<std::uint32_t>(tensor.output_nr()));
#if TORCH_VERSION_MAJOR >= 2
  node->add_tensor_pre_hook(std::move(hook));
#else
  node->add_pre_hook(std::move(hook));
#endif
}

}  // namespace torchtap::views::trace::detail
