#pragma once

/// One tensor of a logged forward pass, and where it came from.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <iosfwd>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <torchtap/base/api.hpp>

namespace torchtap::views::trace {

namespace detail {
struct Graph;
struct NodeData;
}  // namespace detail

/// The origin of a tensor.
enum class NodeKind {
  /// An argument of the forward.
  input,
  /// An operation; if it has several results there is a node for each.
  operation,
  /// Nothing that was logged: a tensor that was there before, and is no input, parameter or buffer.
  outside,
  /// Nothing: the node repeats a tensor that the forward returned.
  output,
};

/// One call of a module.
struct TORCHTAP_API ModuleCall {
  std::string path;
  /// The pretty type name.
  std::string type;
  /// The number of this call of the module in this forward, from 0.
  std::int64_t call = 0;

  friend bool operator==(const ModuleCall& a, const ModuleCall& b) {
    return a.path == b.path && a.call == b.call;
  }
  friend bool operator!=(const ModuleCall& a, const ModuleCall& b) { return !(a == b); }
};

/// A parameter or buffer of the model that an operation read.
struct TORCHTAP_API ParameterUse {
  /// "features.6.weight".
  std::string path;
  std::vector<std::int64_t> shape;
  at::ScalarType dtype = at::kFloat;
  std::int64_t elements = 0;
  std::int64_t bytes = 0;
  /// Whether it is a buffer.
  bool buffer = false;
  /// Whether it requires gradients.
  bool trainable = false;
};

/// One argument of an operation.
struct TORCHTAP_API Argument {
  /// Its name in the schema: "stride".
  std::string name;
  /// Its value in short; of tensors the label, or the path of a parameter. If a tensor was written in parts,
  /// through views of its memory, the labels of all writers, the last first: "fill_2_5+zeros_1_2".
  std::string text;
  /// The positions of the nodes that it refers to, in order, the last that wrote; -1 for tensors that are not
  /// nodes.
  std::vector<std::int64_t> nodes;
};

/// One tensor that a forward pass computed: an operation with its result, an input or an output. A regular
/// value, cheap to copy, which keeps the history's data alive.
class TORCHTAP_API Node {
 public:
  /// For torchtap: programs get one from a `History`.
  Node(std::shared_ptr<const detail::Graph> graph, std::int64_t position) noexcept
      : graph_(std::move(graph)), position_(position) {}

  /// The kind of the node: an operation, an input or another origin of its tensor.
  NodeKind kind() const noexcept;
  /// Its place in the history, from 0; inputs count.
  std::int64_t position() const noexcept { return position_; }
  /// "conv2d_3_7": the third layer of type conv2d, and the layer 7 of all (from 0); of a layer with several
  /// passes "linear_1_1:2".
  const std::string& label() const& noexcept;
  /// For a temporary: returns by value.
  std::string label() && { return label(); }
  /// The label of the layer, without the pass.
  std::string layer_label() const;
  /// "conv2d_3", or "linear_1:2".
  std::string short_label() const;
  /// The name of the function without underscores, as in labels: "conv2d", "add" for `add_`, "input",
  /// "output", "outside".
  const std::string& type() const& noexcept;
  /// For a temporary: returns by value.
  std::string type() && { return type(); }
  /// The name of an input or output: "input.0", "x.key"; empty for other nodes.
  const std::string& name() const& noexcept;
  /// For a temporary: returns by value.
  std::string name() && { return name(); }
  /// The name and overload of the operation: "aten::add_.Tensor"; empty for other nodes.
  const std::string& function() const& noexcept;
  /// For a temporary: returns by value.
  std::string function() && { return function(); }
  /// The index of the layer among all layers; nodes with the same one are passes of one layer.
  std::int64_t layer() const noexcept;
  /// The number of its pass among the layer's, from 1.
  std::int64_t pass() const noexcept;
  /// How many passes its layer has.
  std::int64_t passes() const noexcept;

  /// Its shape; empty for nested tensors, too.
  const std::vector<std::int64_t>& shape() const& noexcept;
  /// For a temporary: returns by value.
  std::vector<std::int64_t> shape() && { return shape(); }
  /// Its dtype.
  at::ScalarType dtype() const noexcept;
  /// Its device.
  at::Device device() const noexcept;
  /// The bytes of its elements.
  std::int64_t bytes() const noexcept;
  /// Whether its tensor required gradients.
  bool requires_grad() const noexcept;

  /// Whether its tensor was kept.
  bool saved() const noexcept;
  /// The tensor, as it was when the operation returned. Throws `c10::ValueError` if it was not kept, or if
  /// the program has changed its memory in place after the pass.
  at::Tensor tensor() const;
  /// Whether a gradient arrived (`TraceOptions::gradients`).
  bool has_gradient() const noexcept;
  /// The sum of all gradients that arrived. Throws `c10::ValueError` if there are none.
  at::Tensor gradient() const;

  /// The nodes that its operation read, each once, by position.
  std::vector<Node> parents() const;
  /// The nodes whose operations read it.
  std::vector<Node> children() const;
  /// Other nodes with a common parent.
  std::vector<Node> siblings() const;
  /// Other nodes with a common child.
  std::vector<Node> spouses() const;
  /// All nodes from which there is a path to this one.
  std::vector<Node> ancestors() const;
  /// All nodes to which there is a path from this one.
  std::vector<Node> descendants() const;
  /// The inputs it depends on.
  std::vector<Node> input_ancestors() const;
  /// The outputs that depend on it.
  std::vector<Node> output_descendants() const;
  /// The lengths of the shortest and the longest path from an input; -1 if there is none.
  std::pair<std::int64_t, std::int64_t> distance_from_input() const;
  /// The same to an output.
  std::pair<std::int64_t, std::int64_t> distance_to_output() const;

  /// The arguments of the operation.
  std::vector<Argument> arguments() const;
  /// The parameters and buffers that the operation read, each once.
  const std::vector<ParameterUse>& parameters() const& noexcept;
  /// For a temporary: returns by value.
  std::vector<ParameterUse> parameters() && { return parameters(); }
  /// The calls of modules that the operation ran in, outermost first; the root's is left out.
  const std::vector<ModuleCall>& modules() const& noexcept;
  /// For a temporary: returns by value.
  std::vector<ModuleCall> modules() && { return modules(); }
  /// The calls of modules that returned this tensor, innermost first.
  const std::vector<ModuleCall>& output_of() const& noexcept;
  /// For a temporary: returns by value.
  std::vector<ModuleCall> output_of() && { return output_of(); }

  /// Whether the operation wrote to an argument that it returned.
  bool in_place() const noexcept;
  /// Whether the tensor shares memory with an argument that the operation did not write to.
  bool view() const noexcept;
  /// Whether the operation took random numbers: the generator moved (with `Save::all`), or the operation is
  /// known to take some.
  bool random() const noexcept;
  /// Whether it was made during the pass from no tensor at all, such as by `zeros`.
  bool created_inside() const noexcept;
  /// Whether the program read its value (`item`), so that what happens next may depend on it.
  bool read_by_program() const noexcept;
  /// Its index among the operation's results, from 0.
  std::int64_t result() const noexcept;
  /// How many results the operation has.
  std::int64_t results() const noexcept;
  /// The duration of the operation in seconds, without the trace's own time.
  double seconds() const noexcept;
  /// The place of the call (`TraceOptions::source`), one line a frame, innermost first: lines of TorchScript,
  /// or C++ functions outside of LibTorch, which have names where the program exports them (`-rdynamic`).
  /// Empty if not noted.
  std::string source() const;
  /// All names by which `History::operator[]` finds it.
  std::vector<std::string> keys() const;

  friend bool operator==(const Node& a, const Node& b) noexcept {
    return a.graph_ == b.graph_ && a.position_ == b.position_;
  }
  friend bool operator!=(const Node& a, const Node& b) noexcept { return !(a == b); }
  /// Prints all of that, with a corner of the tensor's values if it was kept; waits for its device then.
  friend std::ostream& operator<<(std::ostream& out, const Node& node) { return node.print(out); }

 private:
  const detail::NodeData& data() const noexcept;
  std::ostream& print(std::ostream& out) const;

  std::shared_ptr<const detail::Graph> graph_;
  std::int64_t position_;
};

}  // namespace torchtap::views::trace
