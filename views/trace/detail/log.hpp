#pragma once

// The log of a running pass: operations in the order in which they returned, and the values that they read
// and wrote.
//
// An operation reads and writes values; a TensorImpl is a name for a value at a time. A write makes new
// values of all names that show bytes which it wrote.

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/util/DimVector.h>
#include <c10/util/SmallVector.h>
#include <c10/util/flat_hash_map.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

#include <torchtap/operations/event.hpp>
#include <torchtap/operations/scope.hpp>
#include <torchtap/views/trace/node.hpp>
#include <torchtap/views/trace/options.hpp>
#include <torchtap/views/watch/calls.hpp>
#include <torchtap/views/watch/facts.hpp>
#include <torchtap/views/watch/identity.hpp>
#include <torchtap/views/watch/region.hpp>

namespace torch::autograd {
struct Node;
}

namespace torchtap::views::trace::detail {

/// The origin of a value that no logged operation made.
enum class Origin : std::uint8_t { operation, parameter, input, outside, constant };

/// A value: the contents of a tensor at a time.
struct Value {
  std::int64_t producer = -1;  // the operation that wrote it; -1 if it is older than the pass
  std::int64_t of = -1;        // index of the parameter, input or constant; or the value before, or around it
  Origin origin = Origin::operation;
  bool returned = false;  // by the producer, and not only written to
  bool requires_grad = false;
  bool mixed = false;  // written, in part or all, through other names: its readers know the writers
  bool own = false;    // `kept` shares its memory with no other tensor
  bool dropped = false;
  at::ScalarType dtype = at::kFloat;
  c10::Device device = c10::kCPU;
  c10::DimVector sizes;
  std::int64_t offset = 0;  // in its memory
  bool nested = false;
  bool of_transform = false;  // around a tensor, by torch.func (vmap, grad): not to be used outside of it
  std::int64_t bytes = 0;
  at::Tensor kept;            // undefined if not kept
  std::uint32_t version = 0;  // of `kept`, if it shares memory
};

/// A tensor among the arguments of an operation.
struct Read {
  enum class Form : std::uint8_t { plain, list, optional_list, inside };  // of a tuple or dict, kept as it is

  std::int64_t value = -1;    // -1 for an undefined or absent tensor in a list
  std::int64_t mixture = -1;  // index into Log::mixtures of the operation's view of a mixed value
  std::uint16_t argument = 0;
  Form form = Form::plain;
  bool written = false;
};

/// Facts that hold for all calls of an operation.
struct Facts {
  std::string name;  // "aten::add_"
  std::string full;  // "aten::add_.Tensor"
  std::string type;  // "add"
  bool random = false;
  bool reads_value = false;  // returns what a tensor holds to the program
};

/// One call of an operation.
struct Operation {
  c10::OperatorHandle handle;
  const Facts* facts = nullptr;
  c10::SmallVector<Read, 4> reads;
  std::vector<c10::IValue> arguments;  // nothing in place of the arguments that `reads` has
  c10::SmallVector<std::int64_t, 2> results;
  c10::SmallVector<std::int64_t, 1> written;  // values of arguments that were written to and not returned
  bool in_place = false;
  bool view = false;
  bool grad_mode = false;
  std::int64_t context = -1;
  std::int64_t nanoseconds = 0;
  c10::impl::LocalDispatchKeySet keys = c10::impl::tls_local_dispatch_key_set();
  at::Tensor generator;  // the state of the CPU's generator before, if the operation moved it
  std::shared_ptr<const std::string> script_source;
  std::vector<void*> frames;

  explicit Operation(const c10::OperatorHandle& operation) : handle(operation) {}
};

/// A call of a module, inside of another one.
struct Context {
  std::int64_t parent = -1;
  std::int64_t module = 0;  // index into Log::modules
  std::int64_t call = 0;
  int depth = 0;  // see watch::CallListener; not saved
};

/// A module of the model.
struct LoggedModule {
  std::string path, type;
  bool reached = false;
  std::int64_t calls = 0;  // that began; where hooks do not see the root they count their own calls
  std::vector<std::int64_t> parameters;  // indices into Log::parameters, submodules included
};

/// A module returned a value.
struct Returned {
  std::int64_t value;
  std::int64_t module;
  std::int64_t call;
};

/// A named input or output.
struct Port {
  std::string name;
  std::int64_t value;
  std::int64_t mixture = -1;
};

/// The values that wrote the bytes of a mixed value, the last first, and the value that shows between them.
using Mixture = std::vector<std::int64_t>;

/// A node of autograd, whose count of references is in a std::shared_ptr or, in newer LibTorchs, in itself.
using GraphNode = std::decay_t<decltype(std::declval<const at::TensorBase&>().grad_fn())>;

/// Gradients by value. Nodes of autograd know it weakly.
struct Gradients {
  std::mutex mutex;
  ska::flat_hash_map<std::int64_t, at::Tensor> of;
};

class Generator;

struct Log final : watch::CallListener {
  Log();
  ~Log() override;
  Log(const Log&) = delete;
  Log& operator=(const Log&) = delete;

  TraceOptions options;
  bool replayable = false;  // everything is kept as it was
  bool scripted = false;    // whose numbers are constants: it makes tensors of them without an operation

  std::vector<Operation> operations;
  std::vector<Value> values;
  std::vector<ParameterUse> parameters;
  std::vector<std::string> constants;
  std::vector<Port> inputs, outputs;
  std::vector<Mixture> mixtures;
  std::int64_t input_values = 0, output_values = 0;  // that were given no name
  std::vector<LoggedModule> modules;
  watch::Nesting nesting;  // of these
  std::vector<Context> contexts;
  std::vector<Returned> returned;
  std::string model, error;
  std::int64_t nanoseconds = 0;
  std::int64_t copied = 0, dropped = 0, held_bytes = 0;
  std::shared_ptr<Gradients> gradients = std::make_shared<Gradients>();

  /// The value of a parameter or buffer, made when the log begins.
  void add_parameter(const at::Tensor& tensor, ParameterUse use);
  /// A tensor that is part of TorchScript's code, or made of a number there or in Python (`x + 1`). Returns
  /// its value.
  std::int64_t add_constant(const at::Tensor& tensor);
  /// The value that a tensor names now; a new one if it was not known.
  std::int64_t value_of(const at::Tensor& tensor);
  /// Names a value that came from nowhere in the log.
  std::int64_t add_input(const at::Tensor& tensor, std::int64_t index);
  /// The tensor leaves the pass.
  void add_output(const std::string& name, const at::Tensor& tensor);
  /// Runs an operation and notes it.
  void run(operations::Event& event);

  /// The next call of a module begins.
  void call_begins(std::size_t module, int depth, hooks::Event& event) override;
  /// The module returned its outputs, and is left.
  void call_ends(std::size_t module, hooks::Event& event) override;
  /// Begins and ends a stretch of the pass.
  void start();
  void stop(const std::string& why);
  /// Forgets addresses; no operation is noted afterwards.
  void close();
  /// Whether this thread runs the predicate or the transform, which are called under the lock: no call of a
  /// module is noted then, as no operation is.
  bool asks_here() const noexcept { return asks_.load() == std::this_thread::get_id(); }

  std::mutex mutex;

 private:
  struct Name {
    std::int64_t value;
    std::int64_t checked;  // how many writes to its memory there had been when that was the value
    std::int64_t base;     // the value that was named first
    std::int64_t since;    // and how many writes there had been then
  };
  /// A write to a part of a memory.
  struct Write {
    watch::Region region;
    std::int64_t number;  // how many were before
    std::int64_t value;   // that it made; -1 if the operation threw
  };
  /// A value that is in a memory since `number` writes; later ones have not covered it.
  struct Named {
    watch::Region region;
    std::int64_t number;
    std::int64_t value;
  };
  struct Memory {
    std::int64_t count = 0;             // of writes
    std::vector<Write> writes;          // uncovered ones, the last at the end
    std::vector<Named> named;           // the first ones
    bool counted = false;               // in held_bytes
    std::vector<std::int64_t> aliases;  // kept values that share it
  };
  /// A name of a mixed value.
  struct Mixed {
    const Memory* memory;
    watch::Region region;
    std::int64_t base, since;  // as in Name
    std::size_t read;          // of the operation that runs
  };
  using Clock = std::chrono::steady_clock;

  /// An operation that runs.
  struct Running {
    Operation operation;
    struct Written {
      at::Tensor tensor;
      std::int64_t write = -1;  // the number of the write
    };
    c10::SmallVector<Written, 1> written;
    c10::SmallVector<Memory*, 4> read;  // where its arguments lie
    std::vector<Mixed> mixed;

    explicit Running(const c10::OperatorHandle& handle) : operation(handle) {}
  };

  const Facts& facts_of(const operations::Event& event);
  Memory* memory_of(const at::Tensor& tensor);
  Value& describe(const at::Tensor& tensor);
  std::int64_t value_of(const at::Tensor& tensor, Memory* memory);
  const Named* base_in(const Memory& memory, const at::Tensor& tensor, const watch::Region& region) const;
  std::int64_t name(const at::Tensor& tensor, Memory* memory);
  Mixed mixed(const at::Tensor& tensor, const Memory* memory, std::size_t read) const;
  static void add_sources(const Mixed& mixed, const watch::Region& region, Mixture& sources);
  void mix_reads(const operations::Values& results, Running& running);
  void before(operations::Event& event, Running& running);
  void read_argument(const c10::IValue& argument, Read read, Running& running);
  void read_tensor(const at::Tensor& tensor, Read read, Running& running);
  void about_to_write(const at::Tensor& tensor);
  void after(operations::Event& event, Running& running);
  void count_writes(Running& running);
  void failed(Running& running, const char* why);
  void note_source(Operation& operation) const;
  std::int64_t& context_of_thread();
  std::int64_t open_call(std::int64_t module);

  /// While it lives, this thread runs the predicate or the transform.
  struct Asks {
    explicit Asks(Log& log) : log(log) { log.asks_ = std::this_thread::get_id(); }
    ~Asks() { log.asks_ = std::thread::id(); }
    Asks(const Asks&) = delete;
    Asks& operator=(const Asks&) = delete;
    Log& log;
  };

  // log_kept_tensors.cpp
  void consider(const at::Tensor& tensor, std::int64_t value, const Facts* facts, Memory* memory);
  bool wanted(const at::Tensor& tensor, const Facts* facts, bool input);
  void keep_returned(const at::Tensor& tensor, std::int64_t value, std::int64_t module);
  void keep(const at::Tensor& tensor, std::int64_t value, Memory* memory);
  bool afford(std::int64_t bytes, const Value& value);
  void copy_aliases(Memory& memory);
  void may_be_dropped(Memory* memory);
  void copy_dropped();
  void follow_gradient(const at::Tensor& tensor, std::int64_t value);

  watch::ByTensor<Name> names_;
  watch::ByMemory<std::unique_ptr<Memory>> memory_;
  std::array<Memory*, 16> recent_{};  // large ones with aliases, which the program may drop soon
  std::size_t next_recent_ = 0;
  std::optional<bool> again_;  // a pass before kept large tensors, too; known with the first one
  watch::PerOperation<Facts> facts_;
  std::unique_ptr<Generator> generator_;
  std::vector<GraphNode> leaves_;  // whose gradients are followed
  std::unordered_map<std::thread::id, std::int64_t> contexts_now_;
  Clock::time_point began_;
  bool running_ = false;
  std::atomic<std::thread::id> asks_{};
  std::string failure_;  // of the operation that threw last
  std::size_t failed_at_ = 0;
};

/// "conv2d" for "aten::conv2d" and for "aten::_conv2d_": the name in labels.
std::string type_name(const std::string& function);

}  // namespace torchtap::views::trace::detail
