// Sources, producers, propagators, absorbers and origins.
#include <ATen/core/function_schema.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <string_view>

#include <torchtap/views/report/detail/non_finite_search.hpp>

namespace torchtap::views::report::detail {
namespace {

constexpr std::size_t most_findings = 1000;  // of a kind
constexpr std::size_t most_parts = 32;       // of a memory that are told apart

/// Operations that copy their argument unchanged; uninitialised memory stays uninitialised in the copy.
constexpr std::array<std::string_view, 7> copying{"aten::clone",      "aten::to",      "aten::_to_copy",
                                                  "aten::contiguous", "aten::reshape", "aten::flatten",
                                                  "aten::pin_memory"};

template <std::size_t size>
bool is_one_of(const std::array<std::string_view, size>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

bool makes_unset(const std::string& name) {
  const auto starts = [&](std::string_view with) { return name.compare(0, with.size(), with) == 0; };
  return starts("aten::empty") || starts("aten::new_empty") || starts("aten::resize");
}

bool has_values(const at::Tensor& tensor) {
  if (tensor.is_nested()) return false;  // whose sizes throw
  return at::isFloatingType(tensor.scalar_type()) || at::isComplexType(tensor.scalar_type());
}

bool is_whole(const at::Tensor& tensor) {
  return static_cast<std::size_t>(tensor.numel()) * tensor.element_size() >= tensor.storage().nbytes();
}

bool is_infinite(const c10::IValue& value) {
  if (value.isDouble()) return std::isinf(value.toDouble());
  if (value.isComplexDouble()) {
    return std::isinf(value.toComplexDouble().real()) || std::isinf(value.toComplexDouble().imag());
  }
  if (!value.isDoubleList()) return false;
  const auto& list = value.toDoubleList();
  return std::any_of(list.begin(), list.end(), [](double one) { return std::isinf(one); });
}

NonFinite& operator+=(NonFinite& sum, const NonFinite& values) {
  sum.nan += values.nan;
  sum.inf += values.inf;
  sum.intended_inf += values.intended_inf;
  return sum;
}

/// Exact counts of a tensor that has these kinds.
NonFinite count(const at::Tensor& tensor, const Kinds& kinds) {
  NonFinite values = count_non_finite(tensor);
  if (!kinds.inf && kinds.intended) std::swap(values.inf, values.intended_inf);
  return values;
}

}  // namespace

bool NonFiniteSearch::Memory::explains(const watch::Region& region) const {
  return all_explained || std::any_of(explained.begin(), explained.end(),
                                      [&](const watch::Region& one) { return one.overlaps(region); });
}

Kinds NonFiniteSearch::Memory::kinds_of(const Scan& scan) const {
  return {scan.nan, scan.inf && has.inf, scan.inf && !has.inf};
}

void NonFiniteSearch::Memory::explain(const watch::Region& region, const Kinds& kinds) {
  has |= kinds;
  clean = false;
  if (all_explained) return;
  all_explained = explained.size() == most_parts;
  if (!all_explained) explained.push_back(region);
}

void NonFiniteSearch::begin(std::int64_t repeat) {
  forget();
  bad_held.clear();
  first.clear();
  repeat_ = repeat;
  for (std::size_t kind = 0; kind < found_.size(); ++kind) collects_[kind] = found_[kind].empty();
  intended_.clear();
}

/// Looks through the tensor, unless it was the last one that was looked through.
const Scan& NonFiniteSearch::look(const at::Tensor& tensor, Memory& memory) {
  watch::Region region(tensor);
  if (memory.numel == tensor.numel() && memory.last.covers(region) && region.covers(memory.last)) {
    return memory.found;
  }
  memory.found = scan(tensor);
  memory.last = std::move(region);
  memory.numel = tensor.numel();
  if (!memory.found.finite() || !is_whole(tensor)) return memory.found;
  memory.clean = true;
  memory.unset = memory.all_explained = false;
  memory.has = {};
  memory.explained.clear();
  return memory.found;
}

/// The origin of a tensor's values that no operation of this repeat made.
Kinds NonFiniteSearch::from_outside(const at::Tensor& tensor, const Scan& found, bool backward) const {
  Kinds kinds;
  kinds.nan = found.nan;
  if (!found.inf) return kinds;
  const Owned* owned = owners_.find(tensor);
  if (owned != nullptr && owned->kind != Owned::input) {
    kinds.intended = owned->kind == Owned::buffer;
  } else {
    kinds.intended = !backward && !has_positive_infinity(tensor);
  }
  kinds.inf = !kinds.intended;
  return kinds;
}

Kinds NonFiniteSearch::kinds(const at::Tensor& tensor) {
  if (!tensor.defined() || !has_values(tensor)) return {};
  if (!tensor.has_storage()) return from_outside(tensor, scan(tensor), false);
  Memory& memory = memory_.get(tensor);
  if (memory.clean) return {};
  const Scan& found = look(tensor, memory);
  if (found.finite()) return {};
  if (memory.explains(memory.last)) return memory.kinds_of(found);
  return memory.unset ? Kinds() : from_outside(tensor, found, false);
}

void NonFiniteSearch::add(Occurrence finding, Kind kind) {
  if (!collects_[kind]) return;
  finding.repeat = repeat_;
  auto& found = found_[kind];
  if (kind == of_intended) {
    // A mask is written and absorbed in each call of each block: once says it.
    const auto key = std::make_tuple(finding.role, finding.function, finding.module, finding.backward);
    const auto [known, is_new] = intended_.emplace(key, found.size());
    if (!is_new) {
      found[known->second].values += finding.values;
      return;
    }
  }
  if (found.size() == most_findings) {
    ++left_out;
    return;
  }
  found.push_back(std::move(finding));
  moments_[kind].push_back(moment_++);
}

std::vector<Occurrence> NonFiniteSearch::findings() const {
  std::vector<Occurrence> all = found_[of_nan];
  const auto& infinite = found_[of_inf];
  all.insert(all.end(), infinite.begin(), infinite.end());
  if (became_nan_) {  // then these two are one story
    std::vector<std::int64_t> moments = moments_[of_nan];
    moments.insert(moments.end(), moments_[of_inf].begin(), moments_[of_inf].end());
    std::vector<std::size_t> order(all.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::sort(order.begin(), order.end(),
              [&](std::size_t a, std::size_t b) { return moments[a] < moments[b]; });
    std::vector<Occurrence> ordered;
    ordered.reserve(all.size());
    for (const std::size_t i : order) ordered.push_back(std::move(all[i]));
    all = std::move(ordered);
  }
  all.insert(all.end(), found_[of_intended].begin(), found_[of_intended].end());
  return all;
}

/// A tensor that no operation of this repeat made.
void NonFiniteSearch::source(const at::Tensor& tensor, const Kinds& kinds, bool unset, const Where& where) {
  const Owned* owned = owners_.find(tensor);
  // A tensor that an operation saved for its backward has no known origin until then; it does not count as a
  // source.
  if (owned == nullptr && where.backward && !first.empty()) return;
  Occurrence finding;
  finding.values = count(tensor, kinds);
  finding.backward = where.backward;
  finding.call = where.call;
  finding.module = where.module;
  finding.function = where.backward ? "a gradient from outside"
                     : unset        ? "memory that no operation filled"
                                    : "a tensor from outside";
  if (owned != nullptr) {
    finding.function = owned->name;
    finding.module = owned->path;
    if (owned->kind != Owned::input) bad_held.push_back({owned->name, finding.values});
  }
  finding.inputs.push_back(statistics(tensor));
  if (kinds.intended) {
    Occurrence origin = finding;
    origin.role = Role::origin;
    origin.values.nan = origin.values.inf = 0;
    finding.values.intended_inf = 0;
    add(std::move(origin), of_intended);
  }
  if (!kinds.nan && !kinds.inf) return;
  if (first.empty()) {
    first = c10::str("\"", finding.function, "\", which \"", where.module, "\" reads, holds ",
                     finding.values.nan, " NaN and ", finding.values.inf, " infinite values itself");
  }
  add(std::move(finding), kinds.nan ? of_nan : of_inf);
}

Kinds NonFiniteSearch::read(const at::Tensor& tensor, const Where& where) {
  if (!has_values(tensor)) return {};
  if (!tensor.has_storage()) return from_outside(tensor, scan(tensor), where.backward);
  Memory& memory = memory_.get(tensor);
  if (memory.clean) return {};
  const Scan found = look(tensor, memory);
  if (found.finite()) return {};
  if (memory.explains(memory.last)) return memory.kinds_of(found);
  const Kinds kinds = from_outside(tensor, found, where.backward);
  memory.explain(memory.last, kinds);
  source(tensor, kinds, false, where);
  return kinds;
}

void NonFiniteSearch::read(Searched& searched, const at::Tensor& tensor, const Where& where) {
  const Kinds kinds = read(tensor, where);
  searched.in |= kinds;
  const bool noted = (kinds.nan && collects_[of_nan]) || (kinds.inf && collects_[of_inf]) ||
                     (kinds.intended && collects_[of_intended]);
  if (noted) searched.counts += count(tensor, kinds);
}

void NonFiniteSearch::before(operations::Event& event, const std::vector<bool>& reads, Searched& searched,
                             const Where& where) {
  const auto& returned = event.schema().returns();
  searched.views = std::any_of(returned.begin(), returned.end(), [](const c10::Argument& one) {
    return one.alias_info() != nullptr && !one.alias_info()->isWrite();
  });
  const auto arguments = event.arguments();
  const auto& schema = event.schema().arguments();
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const c10::IValue& argument = arguments[i];
    searched.infinite = searched.infinite || is_infinite(argument);
    if (!argument.isTensor() && !argument.isList() && !argument.isTuple()) continue;
    const bool written = event.writes(i);
    operations::for_each_tensor(argument, [&](const at::Tensor& tensor) {
      if (written) searched.written.push_back({tensor, !reads[i]});
      if (!reads[i]) return;
      searched.inputs.push_back({schema[i].name(), tensor});
      const Memory* memory = memory_.find(tensor);
      if (memory != nullptr && memory->unset) {
        if (!written) searched.unset.push_back(tensor);
        return;
      }
      if (!searched.views) read(searched, tensor, where);
    });
  }
}

void NonFiniteSearch::make_unset(const at::Tensor& tensor) {
  if (!tensor.has_storage()) return;
  Memory memory;
  memory.unset = true;
  memory_.set(tensor, std::move(memory));
}

/// The tensor was written.
void NonFiniteSearch::look_at_output(Output& output, const Searched& searched) {
  const at::Tensor& tensor = output.tensor;
  if (!tensor.has_storage()) {
    output.found = scan(tensor);
    return;
  }
  Memory& memory = memory_.get(tensor);
  memory.numel = -1;  // what was known of it
  const bool whole = is_whole(tensor);
  if (memory.unset && !output.filled) {
    // The rest of it is as memory happens to be.
    output.found = scan(tensor);
    output.found.nan = output.found.nan && searched.in.nan;
    output.found.inf = output.found.inf && (searched.in.inf || searched.in.intended || searched.infinite);
    return;
  }
  if (whole) {
    memory.unset = memory.clean = memory.all_explained = false;
    memory.has = {};
    memory.explained.clear();
  }
  output.found = look(tensor, memory);
}

/// Uninitialised memory matters only if its content reaches a result: `baddbmm` with a beta of 0 does not
/// read it.
void NonFiniteSearch::read_unset(Searched& searched, const Scan& made, const Where& where) {
  for (const at::Tensor& tensor : searched.unset) {
    if (!has_values(tensor)) continue;
    Memory& memory = memory_.get(tensor);
    const Scan found = look(tensor, memory);
    if (found.finite()) continue;
    const bool explained = memory.explains(memory.last);
    const Kinds kinds = explained ? memory.kinds_of(found) : from_outside(tensor, found, where.backward);
    if (!explained) {
      if (!(kinds.nan && made.nan) && !((kinds.inf || kinds.intended) && made.inf)) continue;
      memory.explain(memory.last, kinds);
      source(tensor, kinds, true, where);
    }
    searched.in |= kinds;
    searched.counts += count(tensor, kinds);
  }
}

std::vector<std::string> NonFiniteSearch::describe_inputs(const Searched& searched) const {
  std::vector<std::string> lines;
  for (const auto& input : searched.inputs) {
    const Owned* owned = owners_.find(input.tensor);
    const bool overwritten = std::any_of(searched.written.begin(), searched.written.end(),
                                         [&](const auto& one) { return one.tensor.is_same(input.tensor); });
    lines.push_back(input.name + (owned == nullptr ? "" : " (" + owned->name + ")") + ": " +
                    statistics(input.tensor) + (overwritten ? ", overwritten" : ""));
  }
  return lines;
}

void NonFiniteSearch::after(operations::Event& event, Searched& searched, const Where& where) {
  const bool unset = makes_unset(event.name());
  std::vector<Output> outputs;
  for (const auto& written : searched.written) {
    if (unset) {
      make_unset(written.tensor);
    } else if (has_values(written.tensor)) {
      outputs.push_back({written.tensor, written.filled, {}});
    }
  }
  for (const c10::IValue& result : event.results()) {
    operations::for_each_tensor(result, [&](const at::Tensor& tensor) {
      const bool is_written = std::any_of(searched.written.begin(), searched.written.end(),
                                          [&](const auto& one) { return one.tensor.is_same(tensor); });
      if (is_written) return;
      const auto* storage = watch::memory_of(tensor);
      const bool view = storage != nullptr &&
                        std::any_of(searched.inputs.begin(), searched.inputs.end(),
                                    [&](const auto& one) { return watch::memory_of(one.tensor) == storage; });
      if (view) return;
      if (unset) return make_unset(tensor);
      if (has_values(tensor)) outputs.push_back({tensor, true, {}});
    });
  }
  if (outputs.empty()) return;
  if (searched.views) {  // it made a copy, and nothing was written
    for (const auto& input : searched.inputs) {
      const Memory* memory = memory_.find(input.tensor);
      if (memory == nullptr || !memory->unset) read(searched, input.tensor, where);
    }
  }
  Scan made;
  for (Output& output : outputs) {
    look_at_output(output, searched);
    made.nan = made.nan || output.found.nan;
    made.inf = made.inf || output.found.inf;
  }
  if (!searched.unset.empty()) {
    const bool copied =
        is_one_of(copying, event.name()) &&
        std::all_of(searched.unset.begin(), searched.unset.end(), [&](const at::Tensor& tensor) {
          return has_values(tensor) && !memory_.get(tensor).explains(watch::Region(tensor));
        });
    if (copied) {
      for (const Output& output : outputs) make_unset(output.tensor);
      return;
    }
    read_unset(searched, made, where);
  }
  if (!made.finite() || searched.in.any()) judge(event, searched, outputs, made, where);
}

/// Says which role the operation has.
void NonFiniteSearch::judge(operations::Event& event, const Searched& searched,
                            const std::vector<Output>& outputs, const Scan& made, const Where& where) {
  const Kinds& in = searched.in;
  Kinds out;
  out.nan = made.nan;
  out.intended = made.inf && !in.inf && (in.intended || searched.infinite);
  out.inf = made.inf && !out.intended;
  NonFinite counts;
  for (const Output& output : outputs) {
    if (output.found.finite()) continue;
    const Kinds kinds{output.found.nan, output.found.inf && out.inf, output.found.inf && out.intended};
    if (output.tensor.has_storage()) {
      Memory& memory = memory_.get(output.tensor);
      memory.explain(watch::Region(output.tensor), kinds);
    }
    counts += count(output.tensor, kinds);
  }
  Occurrence finding;
  finding.function = event.name();
  finding.module = where.module;
  finding.call = where.call;
  finding.backward = where.backward;
  const auto note = [&](Kind kind, Role role, const NonFinite& values) {
    Occurrence one = finding;
    one.role = role;
    one.values = values;
    if (role == Role::producer || (role == Role::propagator && kind == of_nan && !in.nan)) {
      one.inputs = describe_inputs(searched);
    }
    if (role == Role::producer && first.empty()) {
      first = c10::str(event.name(), " in \"", where.module, "\" made ", values.nan, " NaN and ", values.inf,
                       " infinite values of ",
                       in.intended ? "infinities that were written on purpose" : "finite ones");
      for (const std::string& input : one.inputs) first += "; " + input;
    }
    add(std::move(one), kind);
  };
  const Role of_nans = in.nan || in.inf ? Role::propagator : Role::producer;
  const Role of_infinities = in.inf ? Role::propagator : Role::producer;
  became_nan_ = became_nan_ || (out.nan && in.inf && !in.nan);
  if (out.nan && out.inf && of_nans == of_infinities) {
    note(of_nan, of_nans, {counts.nan, counts.inf, 0});
  } else {
    if (out.nan) note(of_nan, of_nans, {counts.nan, 0, 0});
    if (out.inf) note(of_inf, of_infinities, {0, counts.inf, 0});
  }
  if (out.intended) {
    note(of_intended, searched.infinite ? Role::origin : Role::propagator, {0, 0, counts.intended_inf});
  }
  if (in.nan && !out.nan) note(of_nan, Role::absorber, {searched.counts.nan, 0, 0});
  if (out.nan) return;  // what it took in went into that
  if (in.inf && !out.inf) note(of_inf, Role::absorber, {0, searched.counts.inf, 0});
  if (in.intended && !made.inf) note(of_intended, Role::absorber, {0, 0, searched.counts.intended_inf});
}

}  // namespace torchtap::views::report::detail
