// Notes operations and values while a pass runs.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/item.h>
#include <execinfo.h>
#include <torch/csrc/jit/runtime/interpreter.h>
#include <torch/version.h>

#include <algorithm>
#include <array>
#include <exception>

#include <torchtap/views/trace/detail/generator.hpp>
#include <torchtap/views/trace/detail/graph.hpp>
#include <torchtap/views/trace/detail/log.hpp>

namespace torchtap::views::trace::detail {
namespace {

/// Operations that hand what a tensor holds to the program.
constexpr std::array<std::string_view, 6> readers{"aten::item",     "aten::_local_scalar_dense",
                                                  "aten::equal",    "aten::is_nonzero",
                                                  "aten::allclose", "aten::__contains__"};

constexpr std::size_t most_named = 256;  // a recurrent net's weights may lie in one memory

bool takes_random_numbers(const c10::OperatorHandle& operation) {
  if (operation.hasTag(at::Tag::nondeterministic_seeded)) return true;
  const auto& arguments = operation.schema().arguments();
  return std::any_of(arguments.begin(), arguments.end(),
                     [](const c10::Argument& argument) { return argument.name() == "generator"; });
}

bool is_number(const at::Tensor& tensor) {
  return tensor.layout() == at::kStrided && !tensor.key_set().has(c10::DispatchKey::Python) &&
         !tensor.is_nested() && tensor.device().is_cpu() && !tensor.is_quantized() &&
         !tensor.requires_grad() && tensor.dim() == 0;
}

bool is_tensor_list(const c10::IValue& value) {
  if (!value.isList()) return false;
  const auto elements = value.toListRef();
  return std::any_of(elements.begin(), elements.end(),
                     [](const auto& element) { return element.isTensor(); });
}

}  // namespace

Log::Log() = default;
Log::~Log() = default;

std::string type_name(const std::string& function) {
  std::string type = function.substr(function.rfind(':') + 1);  // npos + 1 == 0: the whole name
  type.erase(std::remove(type.begin(), type.end(), '_'), type.end());
  return type;
}

const Facts& Log::facts_of(const operations::Event& event) {
  return facts_.of(event, [&] {
    Facts facts;
    facts.name = event.name();
    facts.full = event.overload().empty() ? event.name() : event.name() + "." + event.overload();
    facts.type = type_name(event.name());
    facts.random = takes_random_numbers(event.operation());
    facts.reads_value = std::find(readers.begin(), readers.end(), facts.name) != readers.end();
    return facts;
  });
}

Log::Memory* Log::memory_of(const at::Tensor& tensor) {
  if (!tensor.has_storage()) return nullptr;
  auto& memory = memory_.get(tensor);
  if (memory == nullptr) memory = std::make_unique<Memory>();
  return memory.get();
}

Value& Log::describe(const at::Tensor& tensor) {
  auto& value = values.emplace_back();
  value.requires_grad = tensor.requires_grad();
  value.dtype = tensor.scalar_type();
  value.device = tensor.device();
  value.nested = tensor.is_nested();
  value.of_transform = tensor.key_set().has_any(
      c10::DispatchKeySet({c10::DispatchKey::FuncTorchBatched, c10::DispatchKey::FuncTorchGradWrapper}));
  if (!value.nested) {  // whose sizes throw
    value.offset = tensor.has_storage() ? tensor.storage_offset() : 0;
    value.sizes.assign(tensor.sizes().begin(), tensor.sizes().end());
    value.bytes = tensor.numel() * static_cast<std::int64_t>(tensor.element_size());
  }
  return value;
}

/// Makes the tensor a name of the value that was described last.
std::int64_t Log::name(const at::Tensor& tensor, Memory* memory) {
  const auto value = static_cast<std::int64_t>(values.size()) - 1;
  const std::int64_t count = memory != nullptr ? memory->count : 0;
  names_.set(tensor, {value, count, value, count});
  if (memory != nullptr && memory->named.size() < most_named) {
    memory->named.push_back({watch::Region(tensor), count, value});
  }
  return value;
}

void Log::add_parameter(const at::Tensor& tensor, ParameterUse use) {
  Value& value = describe(tensor);
  value.origin = Origin::parameter;
  value.of = static_cast<std::int64_t>(parameters.size());
  use.shape.assign(value.sizes.begin(), value.sizes.end());
  use.dtype = value.dtype;
  use.elements = tensor.is_nested() ? 0 : tensor.numel();
  use.bytes = value.bytes;
  use.trainable = tensor.requires_grad();
  parameters.push_back(std::move(use));
  Memory* memory = memory_of(tensor);
  const std::int64_t index = name(tensor, memory);
  if (replayable) keep(tensor, index, memory);
}

std::int64_t Log::add_constant(const at::Tensor& tensor) {
  if (const Name* const known = names_.find(tensor)) return known->value;
  Value& value = describe(tensor);
  value.origin = Origin::constant;
  value.of = static_cast<std::int64_t>(constants.size());
  const c10::impl::ExcludeDispatchKeyGuard no_mode_of_python(c10::python_ks);
  constants.push_back(is_number(tensor) ? text_of(c10::IValue(tensor.item())) : "a constant");
  Memory* memory = memory_of(tensor);
  const std::int64_t number = name(tensor, memory);
  if (replayable) keep(tensor, number, memory);
  return number;
}

std::int64_t Log::add_input(const at::Tensor& tensor, std::int64_t index) {
  if (const Name* const known = names_.find(tensor)) return known->value;
  Value& value = describe(tensor);
  value.origin = Origin::input;
  value.of = index;
  Memory* memory = memory_of(tensor);
  const std::int64_t number = name(tensor, memory);
  consider(tensor, number, nullptr, memory);
  return number;
}

std::int64_t Log::value_of(const at::Tensor& tensor) {
  return value_of(tensor, memory_of(tensor));
}

/// A name of bytes that were written through another name has a new value.
std::int64_t Log::value_of(const at::Tensor& tensor, Memory* memory) {
  Name* const known = names_.find(tensor);
  const bool is_known = known != nullptr;
  if (is_known && (memory == nullptr || known->checked == memory->count)) return known->value;
  std::int64_t of = -1, base = -1, since = 0, checked = 0;
  const Write* last = nullptr;
  if (memory != nullptr) {
    const watch::Region region(tensor);
    if (is_known) {
      of = known->value;
      base = known->base;
      since = known->since;
      checked = known->checked;
    } else if (const Named* named = base_in(*memory, tensor, region); named != nullptr) {
      of = base = named->value;
      since = checked = named->region.covers(region) ? named->number : 0;
    }
    for (auto write = memory->writes.rbegin();
         last == nullptr && write != memory->writes.rend() && write->number >= checked; ++write) {
      if (write->region.overlaps(region)) last = &*write;
    }
    if (is_known && last == nullptr) {
      known->checked = memory->count;
      return of;
    }
  }
  const bool of_code = scripted || tensor.unsafeGetTensorImpl()->is_wrapped_number();
  if (of_code && !is_known && of < 0 && last == nullptr && is_number(tensor)) return add_constant(tensor);
  Value& value = describe(tensor);
  value.of = of;
  value.mixed = last != nullptr;
  if (last != nullptr && last->value >= 0) value.producer = values[last->value].producer;
  if (!is_known) value.origin = Origin::outside;
  const std::int64_t number = name(tensor, memory);
  if (last != nullptr) {
    Name& named = *names_.find(tensor);
    named.base = base >= 0 ? base : number;
    named.since = since;
  }
  consider(tensor, number, nullptr, memory);
  return number;
}

/// The value that a tensor of a new name is, or is a view of: the first with the same elements, such as a
/// parameter, or the last that has them among others.
const Log::Named* Log::base_in(const Memory& memory, const at::Tensor& tensor,
                               const watch::Region& region) const {
  const Named* base = nullptr;
  for (const Named& named : memory.named) {
    const Value& value = values[named.value];
    if (!value.nested && !tensor.is_nested() && value.offset == tensor.storage_offset() &&
        tensor.sizes() == c10::IntArrayRef(value.sizes.data(), value.sizes.size())) {
      return &named;
    }
    const bool covers = named.region.covers(region);
    if (covers || (named.region.overlaps(region) && (base == nullptr || !base->region.covers(region)))) {
      base = &named;
    }
  }
  return base;
}

Log::Mixed Log::mixed(const at::Tensor& tensor, const Memory* memory, std::size_t read) const {
  const Name& name = *names_.find(tensor);
  return {memory, watch::Region(tensor), name.base, name.since, read};
}

/// Adds the writers of the bytes of a part of a mixed value.
void Log::add_sources(const Mixed& mixed, const watch::Region& region, Mixture& sources) {
  const auto add = [&](std::int64_t value) {
    if (std::find(sources.begin(), sources.end(), value) == sources.end()) sources.push_back(value);
  };
  watch::Remainder rest(region);
  const auto& writes = mixed.memory->writes;
  for (auto write = writes.rbegin(); !rest.empty() && write != writes.rend() && write->number >= mixed.since;
       ++write) {
    if (write->value >= 0 && rest.take(write->region)) add(write->value);
  }
  if (!rest.empty()) add(mixed.base);
}

/// The bytes that an operation saw of mixed values: for an argument whose views it returned, the views'
/// bytes.
void Log::mix_reads(const operations::Values& results, Running& running) {
  for (const Mixed& mixed : running.mixed) {
    std::vector<watch::Region> shown;
    bool views = running.written.empty();
    for (const c10::IValue& result : results) {
      operations::for_each_tensor(result, [&](const at::Tensor& tensor) {
        shown.emplace_back(tensor);
        views = views && shown.back().memory() == mixed.region.memory();
      });
    }
    if (!views || shown.empty()) shown.assign(1, mixed.region);
    Mixture sources;
    for (const watch::Region& region : shown) add_sources(mixed, region, sources);
    if (sources.empty()) sources.push_back(mixed.base);  // a view without elements
    running.operation.reads[mixed.read].mixture = static_cast<std::int64_t>(mixtures.size());
    mixtures.push_back(std::move(sources));
  }
}

void Log::add_output(const std::string& name, const at::Tensor& tensor) {
  const Memory* memory = memory_of(tensor);
  Port port{name, value_of(tensor)};
  if (values[port.value].mixed) {
    port.mixture = static_cast<std::int64_t>(mixtures.size());
    const Mixed output = mixed(tensor, memory, 0);
    add_sources(output, output.region, mixtures.emplace_back());
  }
  outputs.push_back(std::move(port));
}

void Log::read_tensor(const at::Tensor& tensor, Read read, Running& running) {
  Memory* memory = memory_of(tensor);
  read.value = value_of(tensor, memory);
  if (values[read.value].mixed) {
    running.mixed.push_back(mixed(tensor, memory, running.operation.reads.size()));
  }
  running.operation.reads.push_back(read);
  if (memory != nullptr) running.read.push_back(memory);
}

void Log::read_argument(const c10::IValue& argument, Read read, Running& running) {
  Operation& operation = running.operation;
  if (argument.isTensor() && argument.toTensor().defined()) {
    operation.arguments.emplace_back();
    read_tensor(argument.toTensor(), read, running);
  } else if (is_tensor_list(argument)) {
    operation.arguments.emplace_back();
    read.form = argument.isTensorList() ? Read::Form::list : Read::Form::optional_list;
    for (const c10::IValue& element : argument.toListRef()) {
      if (element.isTensor() && element.toTensor().defined()) {
        read_tensor(element.toTensor(), read, running);
      } else {
        operation.reads.push_back(read);
      }
    }
  } else {
    operation.arguments.push_back(argument);
    read.form = Read::Form::inside;
    if (argument.isTuple() || argument.isGenericDict()) {
      operations::for_each_tensor(argument, [&](const at::Tensor& one) { read_tensor(one, read, running); });
    }
  }
}

void Log::about_to_write(const at::Tensor& tensor) {
  Memory* memory = memory_of(tensor);
  if (memory != nullptr && !memory->aliases.empty()) copy_aliases(*memory);
}

void Log::before(operations::Event& event, Running& running) {
  Operation& operation = running.operation;
  const auto arguments = event.arguments();
  operation.facts = &facts_of(event);
  operation.context = context_of_thread();
  operation.grad_mode = at::GradMode::is_enabled();
  operation.arguments.reserve(arguments.size());
  Read read;
  for (const c10::IValue& argument : arguments) {
    read.written = event.writes(read.argument);
    read_argument(argument, read, running);
    if (read.written) {
      operations::for_each_tensor(argument,
                                  [&](const at::Tensor& tensor) { running.written.push_back({tensor}); });
    }
    ++read.argument;
  }
  copy_dropped();
  // All arguments are known now: one may be a new view of a tensor that is written to.
  for (const auto& written : running.written) about_to_write(written.tensor);
  if (options.source()) note_source(operation);
  if (generator_ != nullptr) generator_->moved_from();  // the program may have moved it itself
}

void Log::run(operations::Event& event) {
  Running running(event.operation());
  {
    const std::lock_guard lock(mutex);
    before(event, running);
  }
  const auto started = Clock::now();
  try {
    event.run();
  } catch (const c10::Error& error) {
    failed(running, error.what_without_backtrace());
    throw;
  } catch (const std::exception& error) {
    failed(running, error.what());
    throw;
  }
  running.operation.nanoseconds = (Clock::now() - started) / std::chrono::nanoseconds(1);
  const std::lock_guard lock(mutex);
  after(event, running);
}

void Log::failed(Running& running, const char* why) {
  const std::lock_guard lock(mutex);
  count_writes(running);
  const std::int64_t context = running.operation.context;
  failure_ = running.operation.facts->full;
  if (context >= 0) failure_ += " in \"" + modules[contexts[context].module].path + "\"";
  failure_ += std::string(": ") + why;
  failed_at_ = operations.size();
}

/// Names of the written tensors are older than the write from here on.
void Log::count_writes(Running& running) {
  for (auto& written : running.written) {
    Memory* memory = memory_of(written.tensor);
    if (memory == nullptr) continue;
    written.write = memory->count++;
    const watch::Region region(written.tensor);
    const auto forget = [&](auto& all) {
      all.erase(
          std::remove_if(all.begin(), all.end(), [&](const auto& one) { return region.covers(one.region); }),
          all.end());
    };
    forget(memory->named);
    forget(memory->writes);
    memory->writes.push_back({region, written.write, -1});
  }
}

void Log::after(operations::Event& event, Running& running) {
  Operation& operation = running.operation;
  const auto me = static_cast<std::int64_t>(operations.size());
  if (generator_ != nullptr) operation.generator = generator_->moved_from();
  if (!running.mixed.empty()) mix_reads(event.results(), running);
  count_writes(running);
  std::exception_ptr refused;  // a predicate's or the budget's, thrown when the operation is in the log
  const auto add = [&](const at::Tensor& tensor, bool returned) {
    Memory* memory = memory_of(tensor);
    std::int64_t of = -1;
    if (!returned) {
      if (const Name* const before = names_.find(tensor)) of = before->value;
    }
    Value& value = describe(tensor);
    value.producer = me;
    value.returned = returned;
    value.of = of;
    const std::int64_t number = name(tensor, memory);
    for (const auto& written : running.written) {
      if (written.write < 0 || !written.tensor.is_same(tensor)) continue;
      auto& writes = memory->writes;
      const auto write = std::find_if(writes.rbegin(), writes.rend(),
                                      [&](const Write& one) { return one.number == written.write; });
      if (write != writes.rend()) write->value = number;
    }
    try {
      if (returned) {
        consider(tensor, number, operation.facts, memory);
      } else if (replayable) {
        keep(tensor, number, memory);
      }
    } catch (...) {
      if (refused == nullptr) refused = std::current_exception();
    }
    return number;
  };
  c10::SmallVector<const at::TensorImpl*, 4> returned;
  for (const c10::IValue& result : event.results()) {
    operations::for_each_tensor(result, [&](const at::Tensor& tensor) {
      const auto wrote = [&](const auto& one) { return one.tensor.is_same(tensor); };
      if (std::any_of(running.written.begin(), running.written.end(), wrote)) {
        operation.in_place = true;
      } else if (Memory* memory = memory_of(tensor); memory != nullptr) {
        const auto lies = std::find(running.read.begin(), running.read.end(), memory);
        operation.view = operation.view || lies != running.read.end();
      }
      operation.results.push_back(add(tensor, true));
      returned.push_back(tensor.unsafeGetTensorImpl());
    });
  }
  for (const auto& written : running.written) {
    const at::TensorImpl* const tensor = written.tensor.unsafeGetTensorImpl();
    if (std::find(returned.begin(), returned.end(), tensor) == returned.end()) {
      operation.written.push_back(add(written.tensor, false));
    }
  }
  operations.push_back(std::move(operation));
  if (refused != nullptr) std::rethrow_exception(refused);
}

void Log::note_source(Operation& operation) const {
  const auto stack = torch::jit::currentCallstack();
  if (!stack.empty()) {
    std::string text;
    for (const auto& frame : stack) {
      // The line of the Python program if the file has it; else the line of the code in the file.
      const auto line = frame.range.findSourceRangeThatGenerated().value_or(frame.range).file_line_col();
      if (!line) continue;
      text += std::get<0>(*line) + ":" + std::to_string(std::get<1>(*line)) + " (" + frame.filename + ")\n";
    }
    operation.script_source = std::make_shared<const std::string>(std::move(text));
    return;
  }
  std::array<void*, 48> frames{};
  const int found = ::backtrace(frames.data(), static_cast<int>(frames.size()));
  operation.frames.assign(frames.begin(), frames.begin() + found);
}

std::int64_t& Log::context_of_thread() {
  return contexts_now_.try_emplace(std::this_thread::get_id(), -1).first->second;
}

void Log::call_begins(std::size_t module, int depth, hooks::Event&) {
  if (asks_here()) return;
  const std::lock_guard lock(mutex);
  if (!running_) return;
  std::int64_t& current = context_of_thread();
  while (current >= 0 && nesting.ended(static_cast<std::size_t>(contexts[current].module),
                                       contexts[current].depth, module, depth)) {
    current = contexts[current].parent;
  }
  contexts.push_back({current, static_cast<std::int64_t>(module), modules[module].calls++, depth});
  current = static_cast<std::int64_t>(contexts.size()) - 1;
}

/// The innermost call of the module that this thread is in; -1 if it is in no call.
std::int64_t Log::open_call(std::int64_t module) {
  std::int64_t context = context_of_thread();
  while (context >= 0 && contexts[context].module != module) context = contexts[context].parent;
  return context;
}

void Log::call_ends(std::size_t index, hooks::Event& event) {
  if (asks_here()) return;
  const operations::Unseen unseen;
  const hooks::Tensors& tensors = event.outputs();
  const auto module = static_cast<std::int64_t>(index);
  const std::lock_guard lock(mutex);
  if (!running_) return;
  // TorchScript may continue in another thread after it waited.
  const std::int64_t context = open_call(module);
  const std::int64_t call =
      context >= 0 ? contexts[context].call : std::max<std::int64_t>(modules[module].calls - 1, 0);
  for (std::int64_t i = 0; i < tensors.size(); ++i) {
    if (!tensors[i].defined()) continue;
    const std::int64_t value = value_of(tensors[i]);
    returned.push_back({value, module, call});
    keep_returned(tensors[i], value, module);
  }
  // Calls inside of it that threw have not been left.
  if (context >= 0) context_of_thread() = contexts[context].parent;
}

void Log::start() {
  const std::lock_guard lock(mutex);
  if (replayable && generator_ == nullptr) generator_ = std::make_unique<Generator>();
  // Most passes are shorter.
  operations.reserve(1024);
  values.reserve(2048);
  names_.reserve(2048);
  memory_.reserve(1024);
  began_ = Clock::now();
  running_ = true;
}

void Log::stop(const std::string& why) {
  const std::lock_guard lock(mutex);
  if (!running_) return;
  running_ = false;
  nanoseconds += (Clock::now() - began_) / std::chrono::nanoseconds(1);
  if (!why.empty()) error = !failure_.empty() && failed_at_ == operations.size() ? failure_ : why;
  contexts_now_.clear();
}

void Log::close() {
  const std::lock_guard lock(mutex);
  running_ = false;
  names_.clear();
  memory_.clear();
  recent_.fill(nullptr);
  leaves_.clear();
}

}  // namespace torchtap::views::trace::detail
