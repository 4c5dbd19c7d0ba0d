#pragma once

// The graph that a history shows: nodes with their edges, layers and names.

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <torchtap/storage/recording.hpp>
#include <torchtap/views/trace/detail/log.hpp>
#include <torchtap/views/trace/history.hpp>

namespace torchtap::views::trace::detail {

struct NodeData {
  NodeKind kind = NodeKind::operation;
  std::string label, type, function;
  std::string name;  // of an input or output
  std::int64_t layer = 0, pass = 1, passes = 1, layer_of_type = 0;
  std::vector<std::int64_t> shape;
  at::ScalarType dtype = at::kFloat;
  c10::Device device = c10::kCPU;
  std::int64_t bytes = 0;
  bool requires_grad = false;
  std::vector<std::int64_t> parents, children;
  std::vector<Argument> arguments;
  std::vector<ParameterUse> parameters;
  std::vector<ModuleCall> modules, output_of;
  bool in_place = false, view = false, random = false, created_inside = false, read_by_program = false;
  std::int64_t result = 0, results = 1;
  std::int64_t nanoseconds = 0;
  std::string script_source;
  std::vector<void*> frames;
  std::pair<std::int64_t, std::int64_t> from_input{-1, -1}, to_output{-1, -1};
  bool saved = false;
  std::int64_t value = -1;  // in the log
};

struct Graph {
  std::vector<NodeData> nodes;
  std::vector<std::vector<std::int64_t>> layers;  // the nodes of each, by pass
  std::string model, error;
  std::vector<ModuleSummary> modules;
  std::vector<std::string> unreached;
  std::vector<ParameterUse> parameters;
  std::int64_t nanoseconds = 0, operation_nanoseconds = 0, operations = 0;
  std::int64_t dropped = 0, copied = 0;
  /// The nodes that a name finds.
  std::map<std::string, std::vector<std::int64_t>> names;

  /// The log it was made of; null if it was loaded.
  std::shared_ptr<Log> log;
  /// For each operation of the log its first node, or -1.
  std::vector<std::int64_t> node_of_operation;
  /// The files of a loaded one, by node.
  std::vector<storage::RecordedEntry> entries;

  /// Whether its operations can be run again.
  bool replayable() const noexcept { return log != nullptr && log->replayable; }
};

/// Makes the graph of a log, and forgets tensors that `TraceOptions::save` did not mean. Throws
/// `c10::IndexError` if a name in it finds nothing.
std::shared_ptr<const Graph> build_graph(const std::shared_ptr<Log>& log);

/// Fills in children, distances, labels and names, which follow from nodes, parents and layers.
void connect(Graph& graph);
/// The positions that a name finds, as `History::operator[]` takes it: positions with exactly this name, else
/// positions with a name that contains it.
std::vector<std::int64_t> look_up(const Graph& graph, const std::string& name);
/// The positions that a glob matches; for any other name the same as `look_up`.
std::vector<std::int64_t> look_up_all(const Graph& graph, const std::string& name);
/// Suggestions for a name that finds nothing: similar names, or the number of positions.
std::string instead_of(const Graph& graph, const std::string& name);
/// The names under which a node is found, the best first.
std::vector<std::string> keys_of(const NodeData& node);

/// An argument in short: "[2, 2]", "1e-05", "None".
std::string text_of(const c10::IValue& value);
/// The program's own functions among return addresses, a line each: "net::Block::forward() + 0x5a in
/// program".
std::string text_of(const std::vector<void*>& frames);
/// A tensor whose dimensions have no names, with which many operations do not work.
at::Tensor without_names(const at::Tensor& tensor);
/// The kept form of a value. Throws `c10::ValueError` if its memory was changed since.
at::Tensor kept_tensor(const Value& value, const std::string& label);

/// An operation as the program's author wrote it: one of the log, or the calls that LibTorch's C++ `Linear`
/// makes.
struct Step {
  std::vector<std::size_t> operations;  // the last one has the results
  bool linear = false;                  // several of them, logged as one
};
/// The steps of a log, in order.
std::vector<Step> steps_of(const Log& log);

}  // namespace torchtap::views::trace::detail
