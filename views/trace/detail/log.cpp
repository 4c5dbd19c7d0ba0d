// Notes operations and values while a pass runs.
#include <ATen/core/grad_mode.h>
#include <execinfo.h>
#include <torch/csrc/jit/runtime/interpreter.h>
#include <torch/version.h>

#include <algorithm>
#include <array>
#include <exception>

#include <torchtap/views/trace/detail/generator.hpp>
#include <torchtap/views/trace/detail/log.hpp>

namespace torchtap::views::trace::detail {
namespace {

/// Operations that hand what a tensor holds to the program.
constexpr std::array<std::string_view, 6> readers{"aten::item",     "aten::_local_scalar_dense",
                                                  "aten::equal",    "aten::is_nonzero",
                                                  "aten::allclose", "aten::__contains__"};

constexpr std::size_t most_current = 64;  // a recurrent net's weights may lie in one memory

bool takes_random_numbers(const c10::OperatorHandle& operation) {
  if (operation.hasTag(at::Tag::nondeterministic_seeded)) return true;
  const auto& arguments = operation.schema().arguments();
  return std::any_of(arguments.begin(), arguments.end(),
                     [](const c10::Argument& argument) { return argument.name() == "generator"; });
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
  auto& slot = facts_[&event.schema()];
  // An operation of a library that was unloaded may have left its address to another one.
  if (slot == nullptr || slot->name != event.name()) {
    auto facts = std::make_unique<Facts>();
    facts->name = event.name();
    facts->full = event.overload().empty() ? event.name() : event.name() + "." + event.overload();
    facts->type = type_name(event.name());
    facts->random = takes_random_numbers(event.operation());
    facts->reads_value = std::find(readers.begin(), readers.end(), facts->name) != readers.end();
    if (slot != nullptr) old_facts_.push_back(std::move(slot));
    slot = std::move(facts);
  }
  return *slot;
}

Log::Memory* Log::memory_of(const at::Tensor& tensor) {
  if (!tensor.has_storage()) return nullptr;
  auto& slot = memory_[tensor.storage().unsafeGetStorageImpl()];
  if (slot == nullptr) slot = std::make_unique<Memory>(tensor.storage().getWeakStorageImpl());
  return slot.get();
}

Value& Log::describe(const at::Tensor& tensor) {
  auto& value = values.emplace_back();
  value.requires_grad = tensor.requires_grad();
  value.dtype = tensor.scalar_type();
  value.device = tensor.device();
  value.nested = tensor.is_nested();
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
  Name named{value, memory != nullptr ? memory->writes : 0,
             c10::weak_intrusive_ptr<c10::TensorImpl>(tensor.getIntrusivePtr())};
  names_.insert_or_assign(tensor.unsafeGetTensorImpl(), std::move(named));
  if (memory != nullptr) {
    memory->last = value;
    if (memory->current.size() < most_current) memory->current.push_back(value);
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

std::int64_t Log::add_input(const at::Tensor& tensor, std::int64_t index) {
  const auto known = names_.find(tensor.unsafeGetTensorImpl());
  if (known != names_.end()) return known->second.value;
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

std::int64_t Log::value_of(const at::Tensor& tensor, Memory* memory) {
  const auto known = names_.find(tensor.unsafeGetTensorImpl());
  const bool is_known = known != names_.end();
  if (is_known && (memory == nullptr || known->second.writes == memory->writes)) return known->second.value;
  const std::int64_t of = is_known ? known->second.value : memory != nullptr ? base_in(*memory, tensor) : -1;
  Value& value = describe(tensor);
  value.of = of;
  if (is_known) {
    value.producer = memory->writer;  // through another name
  } else {
    value.origin = Origin::outside;
  }
  const std::int64_t number = name(tensor, memory);
  consider(tensor, number, nullptr, memory);
  return number;
}

/// The value that a tensor of a new name is, or is a view of: the first with the same elements, such as a
/// parameter, or the last that was named.
std::int64_t Log::base_in(const Memory& memory, const at::Tensor& tensor) const {
  for (const std::int64_t current : memory.current) {
    const Value& named = values[current];
    if (!named.nested && !tensor.is_nested() && named.offset == tensor.storage_offset() &&
        tensor.sizes() == c10::IntArrayRef(named.sizes.data(), named.sizes.size())) {
      return current;
    }
  }
  return memory.last;
}

void Log::read_tensor(const at::Tensor& tensor, Read read, Running& running) {
  Memory* memory = memory_of(tensor);
  read.value = value_of(tensor, memory);
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
                                  [&](const at::Tensor& tensor) { running.written.push_back(tensor); });
    }
    ++read.argument;
  }
  // When all arguments are known: one may be a new view of what is written to.
  for (const at::Tensor& tensor : running.written) about_to_write(tensor);
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

void Log::failed(const Running& running, const char* why) {
  const std::lock_guard lock(mutex);
  count_writes(running, -1);
  const std::int64_t context = running.operation.context;
  failure_ = running.operation.facts->full;
  if (context >= 0) failure_ += " in \"" + modules[contexts[context].module].path + "\"";
  failure_ += std::string(": ") + why;
  failed_at_ = operations.size();
}

/// Names of what was written to are older than the write from here on. -1 is an operation that threw.
void Log::count_writes(const Running& running, std::int64_t writer) {
  for (const at::Tensor& tensor : running.written) {
    Memory* memory = memory_of(tensor);
    if (memory == nullptr) continue;
    memory->writes++;
    memory->writer = writer;
    memory->current.clear();
  }
}

void Log::after(operations::Event& event, Running& running) {
  Operation& operation = running.operation;
  const auto me = static_cast<std::int64_t>(operations.size());
  if (generator_ != nullptr) operation.generator = generator_->moved_from();
  count_writes(running, me);
  std::exception_ptr refused;  // a predicate's or the budget's, thrown when the operation is in the log
  const auto add = [&](const at::Tensor& tensor, bool returned) {
    Memory* memory = memory_of(tensor);
    std::int64_t of = -1;
    if (!returned) {
      const auto before = names_.find(tensor.unsafeGetTensorImpl());
      if (before != names_.end()) of = before->second.value;
    }
    Value& value = describe(tensor);
    value.producer = me;
    value.returned = returned;
    value.of = of;
    const std::int64_t number = name(tensor, memory);
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
      const auto wrote = [&](const at::Tensor& one) { return one.is_same(tensor); };
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
  for (const at::Tensor& tensor : running.written) {
    if (std::find(returned.begin(), returned.end(), tensor.unsafeGetTensorImpl()) == returned.end()) {
      operation.written.push_back(add(tensor, false));
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
      // The line of the Python program, if the file tells; else that of the code in the file.
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
  const auto thread = std::this_thread::get_id();
  if (thread_context_ == nullptr || thread != thread_) {
    const auto known = std::find_if(thread_contexts_.begin(), thread_contexts_.end(),
                                    [&](const auto& entry) { return entry.first == thread; });
    if (known == thread_contexts_.end()) {
      thread_contexts_.emplace_back(thread, std::make_unique<std::int64_t>(-1));
      thread_context_ = thread_contexts_.back().second.get();
    } else {
      thread_context_ = known->second.get();
    }
    thread_ = thread;
  }
  return *thread_context_;
}

void Log::enter(std::int64_t module) {
  const std::lock_guard lock(mutex);
  if (!running_) return;
  std::int64_t& current = context_of_thread();
  contexts.push_back({current, module, modules[module].calls++});
  current = static_cast<std::int64_t>(contexts.size()) - 1;
}

/// The innermost call of the module that this thread is in; -1 if it entered none.
std::int64_t Log::open_call(std::int64_t module) {
  std::int64_t context = context_of_thread();
  while (context >= 0 && contexts[context].module != module) context = contexts[context].parent;
  return context;
}

void Log::returned_by(std::int64_t module, const std::vector<at::Tensor>& tensors) {
  const std::lock_guard lock(mutex);
  if (!running_) return;
  // TorchScript may go on in another thread after it waited.
  const std::int64_t context = open_call(module);
  const std::int64_t call =
      context >= 0 ? contexts[context].call : std::max<std::int64_t>(modules[module].calls - 1, 0);
  for (const at::Tensor& tensor : tensors) {
    const std::int64_t value = value_of(tensor);
    returned.push_back({value, module, call});
    keep_returned(tensor, value, module);
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
  for (auto& context : thread_contexts_) *context.second = -1;
}

void Log::close() {
  const std::lock_guard lock(mutex);
  running_ = false;
  names_.clear();
  memory_.clear();
}

}  // namespace torchtap::views::trace::detail
