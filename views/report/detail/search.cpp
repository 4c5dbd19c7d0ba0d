// Sources, producers, propagators and absorbers.
#include <ATen/core/function_schema.h>

#include <algorithm>
#include <array>
#include <string_view>

#include <torchtap/views/report/detail/search.hpp>

namespace torchtap::views::report::detail {
namespace {

constexpr std::size_t most_findings = 1000;

/// Operations that overwrite all of their first argument, whatever it held.
constexpr std::array<std::string_view, 13> filling{
    "aten::copy_",   "aten::fill_",        "aten::zero_",      "aten::normal_", "aten::uniform_",
    "aten::random_", "aten::exponential_", "aten::set_",       "aten::eye_",    "aten::bernoulli_",
    "aten::cauchy_", "aten::geometric_",   "aten::log_normal_"};

bool makes_unset(const std::string& name) {
  const auto starts = [&](std::string_view with) { return name.compare(0, with.size(), with) == 0; };
  return starts("aten::empty") || starts("aten::new_empty") || starts("aten::resize");
}

/// `zeros_like` and others look at no value of their argument.
bool reads_shapes_alone(const std::string& name) {
  constexpr std::string_view like = "_like";
  const bool is_like =
      name.size() > like.size() && name.compare(name.size() - like.size(), like.size(), like) == 0;
  return is_like || name.compare(0, 10, "aten::new_") == 0;
}

bool has_values(const at::Tensor& tensor) {
  if (tensor.is_nested()) return false;  // whose sizes throw
  return at::isFloatingType(tensor.scalar_type()) || at::isComplexType(tensor.scalar_type());
}

const c10::StorageImpl* storage_of(const at::Tensor& tensor) {
  return tensor.has_storage() ? tensor.storage().unsafeGetStorageImpl() : nullptr;
}

bool is_whole(const at::Tensor& tensor) {
  return static_cast<std::size_t>(tensor.numel()) * tensor.element_size() >= tensor.storage().nbytes();
}

}  // namespace

void Search::forget() {
  memory_.clear();
  names_.clear();
}

void Search::begin() {
  forget();
  bad_held.clear();
  first.clear();
  collects = findings.empty();
}

void Search::name(const at::Tensor& tensor, const std::string& name, const std::string& module, bool held) {
  if (tensor.defined() && tensor.has_storage()) names_.insert({storage_of(tensor), Name{name, module, held}});
}

Search::Memory* Search::known(const at::Tensor& tensor) {
  const auto found = memory_.find(storage_of(tensor));
  return found == memory_.end() ? nullptr : &found->second;
}

/// Looks through the tensor, which is what is known of its memory from now on.
bool Search::look(const at::Tensor& tensor, Memory& memory) {
  const Scan found = scan(tensor);
  memory.finite = found.finite;
  memory.zeros = found.zeros;
  memory.numel = tensor.numel();
  return found.finite;
}

bool Search::finite(const at::Tensor& tensor) {
  if (!tensor.defined() || !has_values(tensor)) return true;
  if (!tensor.has_storage()) return scan(tensor).finite;
  Memory* memory = known(tensor);
  if (memory == nullptr) {
    Memory found(tensor);
    // What is not finite stays unknown, so that the operation that reads it first is told of the source; and
    // a part says nothing of the rest.
    const bool all = look(tensor, found);
    if (all && is_whole(tensor)) memory_.insert({storage_of(tensor), std::move(found)});
    return all;
  }
  if (memory->finite || memory->unset) return true;
  return memory->numel != tensor.numel() && scan(tensor).finite;
}

std::int64_t Search::zeros(const at::Tensor& tensor) {
  if (!tensor.defined() || !has_values(tensor)) return -1;
  if (tensor.has_storage()) {
    const Memory* memory = known(tensor);
    if (memory != nullptr && memory->numel == tensor.numel() && memory->zeros >= 0) return memory->zeros;
  }
  return scan(tensor).zeros;
}

void Search::add(Finding finding) {
  if (!collects) return;
  if (findings.size() < most_findings) {
    findings.push_back(std::move(finding));
  } else {
    ++left_out;
  }
}

/// A tensor that no operation of this repeat made.
void Search::source(const at::Tensor& tensor, const Where& where) {
  const auto named = names_.find(storage_of(tensor));
  // What an operation keeps for its backward is unknown until then; it is no source of its own.
  if (named == names_.end() && where.backward && !first.empty()) return;
  Finding finding;
  finding.role = Role::source;
  finding.values = count_non_finite(tensor);
  finding.backward = where.backward;
  finding.call = where.call;
  finding.module = where.module;
  finding.function = where.backward ? "a gradient from outside" : "a tensor from outside";
  if (named != names_.end()) {
    finding.function = named->second.name;
    finding.module = named->second.module;
    if (named->second.held) bad_held.push_back({named->second.name, finding.values});
  }
  finding.inputs.push_back(statistics(tensor));
  if (first.empty()) {
    first = c10::str("\"", finding.function, "\", which \"", where.module, "\" reads, holds ",
                     finding.values.nan, " NaN and ", finding.values.inf, " infinite values itself");
  }
  add(std::move(finding));
}

bool Search::read(const at::Tensor& tensor, const Where& where) {
  const bool is_new = tensor.has_storage() && has_values(tensor) && known(tensor) == nullptr;
  const bool is_finite = finite(tensor);
  if (is_new && !is_finite) {
    look(tensor, memory_.insert({storage_of(tensor), Memory(tensor)}).first->second);
    source(tensor, where);
  }
  return is_finite;
}

void Search::before(operations::Event& event, Searched& searched, const Where& where) {
  const bool fills = std::find(filling.begin(), filling.end(), event.name()) != filling.end();
  const bool reads = !reads_shapes_alone(event.name());
  const auto arguments = event.arguments();
  const auto& schema = event.schema().arguments();
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const c10::IValue& argument = arguments[i];
    if (!argument.isTensor() && !argument.isList() && !argument.isTuple()) continue;
    const bool written = event.writes(i);
    const bool overwritten = written && ((fills && i == 0) || schema[i].is_out());
    operations::for_each_tensor(argument, [&](const at::Tensor& tensor) {
      if (written) searched.written.push_back({tensor, overwritten});
      if (overwritten || !reads) return;
      if (!read(tensor, where)) searched.bad_input = true;
      searched.inputs.push_back({schema[i].name(), tensor});
    });
  }
}

void Search::make_unset(const at::Tensor& tensor) {
  if (!tensor.has_storage()) return;
  Memory memory(tensor);
  memory.unset = true;
  memory_.insert_or_assign(storage_of(tensor), std::move(memory));
}

/// The tensor was written: looks through it. `filled` says that nothing of what was there before remains.
bool Search::made(const at::Tensor& tensor, bool filled) {
  if (!has_values(tensor)) return true;
  if (!tensor.has_storage()) return scan(tensor).finite;
  Memory* memory = known(tensor);
  if (memory == nullptr)
    return look(tensor, memory_.insert({storage_of(tensor), Memory(tensor)}).first->second);
  if (memory->unset && !filled) return true;
  if (is_whole(tensor)) {
    memory->unset = false;
    return look(tensor, *memory);
  }
  // A part: what is known of the rest stays.
  const bool is_finite = scan(tensor).finite;
  memory->zeros = memory->numel = -1;
  if (!memory->unset) memory->finite = memory->finite && is_finite;
  return is_finite;
}

void Search::after(operations::Event& event, const Searched& searched, const Where& where) {
  const bool unset = makes_unset(event.name());
  bool computes = false, finite_outputs = true;
  at::Tensor bad;
  const auto note = [&](const at::Tensor& tensor, bool filled) {
    if (!has_values(tensor)) return;
    computes = true;
    if (made(tensor, filled) || !finite_outputs) return;
    finite_outputs = false;
    bad = tensor;
  };
  const auto is_written = [&](const at::Tensor& tensor) {
    return std::any_of(searched.written.begin(), searched.written.end(),
                       [&](const auto& one) { return one.tensor.is_same(tensor); });
  };
  for (const auto& written : searched.written) {
    if (unset) {
      make_unset(written.tensor);
    } else {
      note(written.tensor, written.filled);
    }
  }
  for (const c10::IValue& result : event.results()) {
    operations::for_each_tensor(result, [&](const at::Tensor& tensor) {
      if (is_written(tensor)) return;
      const auto* storage = storage_of(tensor);
      const bool view = storage != nullptr &&
                        std::any_of(searched.inputs.begin(), searched.inputs.end(),
                                    [&](const auto& one) { return storage_of(one.tensor) == storage; });
      if (view) return;
      if (unset) return make_unset(tensor);
      note(tensor, true);
    });
  }
  if (finite_outputs && !(searched.bad_input && computes)) return;
  Finding finding;
  finding.role = !finite_outputs ? (searched.bad_input ? Role::propagator : Role::producer) : Role::absorber;
  if (!collects && finding.role != Role::producer) return;
  finding.function = event.name();
  finding.module = where.module;
  finding.call = where.call;
  finding.backward = where.backward;
  if (!finite_outputs) finding.values = count_non_finite(bad);
  if (finding.role == Role::producer) {
    for (const auto& input : searched.inputs) {
      const auto named = names_.find(storage_of(input.tensor));
      const std::string name =
          named == names_.end() ? input.name : input.name + " (" + named->second.name + ")";
      finding.inputs.push_back(name + ": " + statistics(input.tensor) +
                               (is_written(input.tensor) ? ", overwritten" : ""));
    }
    if (first.empty()) {
      first = c10::str(event.name(), " in \"", where.module, "\" made ", finding.values.nan, " NaN and ",
                       finding.values.inf, " infinite values of finite ones");
      for (const std::string& input : finding.inputs) first += "; " + input;
    }
  }
  add(std::move(finding));
}

}  // namespace torchtap::views::report::detail
