#pragma once

/// The measurements of each module and of the whole run.

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace torchtap::views::report {

/// Facts about a tensor without its values.
struct TensorInfo {
  /// Its place among the arguments or results: "0", "0.key"; the parameter's or buffer's path.
  std::string name;
  std::vector<std::int64_t> shape;
  at::ScalarType dtype = at::kFloat;
  at::Device device = at::kCPU;
  /// Elements times their size.
  std::int64_t bytes = 0;
};

/// Seconds that the calls of a module took. The first call is kept apart: TorchScript compiles in it.
struct Times {
  std::int64_t calls = 0;  ///< how many there were
  double first = 0;        ///< the first call
  /// Over the repeats; one repeat is one `record()`, in which a module may be called several times.
  double min = 0;
  double median = 0;  ///< over the repeats, or, if there are more, 1 000 of them that were chosen at random
  double p90 = 0;     ///< nine of ten of these took no longer
  double total = 0;   ///< of all repeats
};

/// Bytes of LibTorch's own allocations, of the last repeat in which the module ran. Sums over its calls;
/// `peak` is the maximum.
struct Memory {
  /// Bytes that are still in use when the module returns (in backward: when its part of the graph is done).
  /// May be negative.
  std::int64_t kept = 0;
  /// The most that was held inside above what was held at entry.
  std::int64_t peak = 0;
  std::int64_t allocations = 0;  ///< how many there were
};

/// Work and traffic of the operations inside a module, computed from shapes. From the last repeat in which
/// the module ran, like memory.
struct Work {
  /// Multiply-accumulates; a FLOP count is twice as much.
  std::int64_t macs = 0;
  /// Bytes of tensors that operations read and write.
  std::int64_t bytes = 0;
  std::int64_t operations = 0;  ///< how many there were
};

/// Elements that are not finite. Sums over all calls of one direction.
struct NonFinite {
  std::int64_t nan = 0;
  /// Infinities that are not intended.
  std::int64_t inf = 0;
  /// Infinities that the program wrote on purpose, as in masks and paddings, and values computed only from
  /// them.
  std::int64_t intended_inf = 0;
};

/// One direction of a module: its forward or its backward.
struct Direction {
  /// With the modules inside, and without them.
  Times inclusive, self;
  Memory memory;  ///< with the modules inside
  /// With the modules inside, and without them.
  Work work, self_work;
  /// Values of inputs and outputs; in backward, of the gradients.
  NonFinite in, out;
};

/// One module of the tree.
struct ModuleRow {
  /// The last part of the path; "" for the root.
  std::string name;
  std::string path;
  /// Further paths under which the same module is registered; its numbers are counted once, here.
  std::vector<std::string> aliases;
  std::string type;
  /// Whether it has a forward; `ModuleList` and the like do not.
  bool has_forward = true;
  /// Whether its calls can be seen in this program; if not, its own work is charged to its parent.
  bool reachable = true;
  /// Whether its numbers are sums of the modules inside, because no call of its own was seen: it has no
  /// forward, cannot be hooked, or the program calls the modules inside past it. It has no calls then, and
  /// the peak of its memory is the highest peak of these modules.
  bool summed = false;
  /// Whether an operation read parameters or buffers of it, or of a module inside, although none was called.
  bool used_without_call = false;
  /// Shapes of the last call.
  std::vector<TensorInfo> inputs, outputs, input_gradients, output_gradients;
  /// Parameters and buffers of it and of the modules inside, each tensor once.
  std::int64_t parameters = 0, learnable_parameters = 0;
  std::int64_t parameter_bytes = 0, gradient_bytes = 0, buffer_bytes = 0;  ///< of the same tensors
  /// Values of its own parameters and buffers that are not finite.
  NonFinite parameter_values;
  Direction forward, backward;  ///< what each of them took
  /// Share of outputs that are zero, over all samples; norm of the gradient of its own parameters. Nothing if
  /// unknown.
  std::optional<double> zero_fraction, gradient_norm;
  /// The root mean square of that gradient, divided by the same number of the module that ran before it;
  /// modules that have modules inside, or whose gradient is zero or not finite, are passed over. Nothing if
  /// unknown.
  std::optional<double> gradient_ratio;
  /// The rules that hold for it, each once: "dead_relu" (views/rules/README.md); and for each of them why:
  /// "output: 100 % of 32 values are zero". Reports of format 2 do not say why.
  std::vector<std::string> marks, mark_sentences;
  std::vector<ModuleRow> children;  ///< the modules inside
};

/// The role of an operation for values that are not finite. An operation may have one role for NaN and
/// another for infinities.
enum class Role {
  /// A parameter, buffer or input that is not finite itself.
  source,
  /// Makes it of finite values; NaN also of infinities that are intended.
  producer,
  /// Takes it in and hands it on; makes NaN of infinities that are not intended.
  propagator,
  /// It reads such values, and its results are finite.
  absorber,
  /// Writes infinities on purpose: a constant that it is given (`full`, `masked_fill`, `fill_`), a buffer, an
  /// input or another tensor from outside that has no infinities but negative ones.
  origin,
};

/// A place that the search for values that are not finite found.
struct Occurrence {
  Role role = Role::source;  ///< what it has to do with these values
  /// "aten::div"; the name of the parameter, buffer or input for a source.
  std::string function;
  std::string module;  ///< the path of the module that it ran in
  /// The number of the module's call, from 0.
  std::int64_t call = 0;
  bool backward = false;  ///< whether it ran in backward
  /// The values that the operation gave, or, if it is an absorber, took in.
  NonFinite values;
  /// Minimum, maximum and such of inputs and parameters, as text for people.
  std::vector<std::string> inputs;
  /// The number of the repeat, from 0; repeats that warm up count.
  std::int64_t repeat = 0;
};

/// Operations that were seen and whose work has no formula.
struct NotCounted {
  std::string function;    ///< "mylib::scale"
  std::string module;      ///< the path of the module that they ran in
  std::int64_t calls = 0;  ///< how many there were
};

/// The whole report, as data.
struct Measurements {
  /// The type of the model, and its module tree.
  ModuleRow root;
  std::int64_t repeats = 0, warmup = 0;  ///< how often the model ran, and how often before
  /// The worst first: of NaN, of infinities, of intended infinities; each in the order of the run, and of the
  /// first repeat that had any. If infinities became NaN, these two stand together.
  std::vector<Occurrence> findings;
  std::vector<NotCounted> not_counted;  ///< operations whose work is not in the sums
  /// Operations that ran in no module: forward and backward.
  Work outside_forward, outside_backward;
  double outside_forward_seconds = 0, outside_backward_seconds = 0;  ///< of the same operations
  /// Seconds of the repeats without `Phase::other`, and torchtap's own seconds in them, which are taken out.
  double seconds = 0, own_seconds = 0;
  /// The peak and the kept memory of the whole run.
  Memory forward_memory, backward_memory;
  /// Notes about what could not be measured and why ("oneDNN's scratch memory is not LibTorch's").
  std::vector<std::string> notes;
};

}  // namespace torchtap::views::report
