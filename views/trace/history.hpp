#pragma once

/// The log of one forward pass: every tensor that it computed, and how they are connected.

#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include <torchtap/base/api.hpp>
#include <torchtap/storage/entry.hpp>
#include <torchtap/storage/file.hpp>
#include <torchtap/views/trace/draw_options.hpp>
#include <torchtap/views/trace/node.hpp>
#include <torchtap/views/trace/validation.hpp>

namespace torchtap::views::trace {

/// A module that ran in a pass.
struct TORCHTAP_API ModuleSummary {
  std::string path;
  /// The pretty type name.
  std::string type;
  /// How often it was called.
  std::int64_t calls = 0;
  /// How many nodes were made in it, submodules included.
  std::int64_t nodes = 0;
  /// Elements of its parameters, submodules included.
  std::int64_t parameters = 0;
  std::int64_t parameter_bytes = 0;  ///< of the same parameters
};

/// The log of one forward pass. A regular value; copies share the data, and threads may read it at once.
/// Made by `log_forward_pass`, `Tracer::finish` and `History::load`.
///
///     auto history = trace::log_forward_pass(*model, {x}, trace::TraceOptions().save(trace::Save::all));
///     std::cout << history << history["features.6"];
///
/// Its design follows TorchLens's (https://github.com/johnmarktaylor91/torchlens).
class TORCHTAP_API History {
 public:
  class Iterator;

  /// For torchtap: programs get one as is said above.
  explicit History(std::shared_ptr<const detail::Graph> graph) noexcept : graph_(std::move(graph)) {}

  /// The number of nodes: inputs, results of operations, outputs.
  std::int64_t size() const noexcept;
  bool empty() const noexcept { return size() == 0; }
  /// The nodes in the order in which they were computed.
  Iterator begin() const noexcept;
  Iterator end() const noexcept;

  /// The node at `position`, from 0, or from the end, -1 being the last. Throws `c10::IndexError`.
  Node operator[](std::int64_t position) const;
  /// The node called `name`: a label ("conv2d_3_7"), a short one ("conv2d_3"), with a pass ("linear_1:2"),
  /// the path of the module whose output it is ("features.6", "features.6:2" for its second call), a position
  /// ("7", "-17"), or a part of a label or path that only one node has. Upper and lower case differ. Throws
  /// `c10::IndexError`, which lists the nearest names, or the passes if there are several.
  Node operator[](const std::string& name) const;
  /// Finds a node as `operator[]` does.
  Node at(const std::string& name) const { return (*this)[name]; }
  /// Whether `operator[]` finds a node.
  bool contains(const std::string& name) const noexcept;
  /// The nodes whose labels or paths match a glob, or that `operator[]` finds; in order.
  std::vector<Node> find(const std::string& pattern) const;

  /// The inputs of the forward.
  std::vector<Node> inputs() const;
  /// The outputs of the forward.
  std::vector<Node> outputs() const;
  /// The labels of all nodes, in order.
  std::vector<std::string> labels() const;

  /// The number of operations that made a node.
  std::int64_t operations() const noexcept;
  /// The number of layers; each node is a pass of one layer.
  std::int64_t layers() const noexcept;
  /// The passes of a layer, by the index of `Node::layer`. Throws `c10::IndexError`.
  std::vector<Node> passes(std::int64_t layer) const;
  /// Bytes of all tensors.
  std::int64_t bytes() const noexcept;
  /// How many tensors were kept.
  std::int64_t saved() const noexcept;
  /// Bytes of the tensors that were kept.
  std::int64_t saved_bytes() const noexcept;
  /// How many tensors were not kept because of `TraceOptions::memory_budget`.
  std::int64_t dropped() const noexcept;
  /// How many times a kept tensor was copied because an operation was about to write to its memory.
  std::int64_t copied() const noexcept;

  /// The pretty type name of the model; "" if there is none.
  const std::string& model() const& noexcept;
  /// For a temporary: returns by value.
  std::string model() && { return model(); }
  /// The modules that ran and could be hooked, in the order of the walk.
  const std::vector<ModuleSummary>& modules() const& noexcept;
  /// For a temporary: returns by value.
  std::vector<ModuleSummary> modules() && { return modules(); }
  /// The paths of modules that have a forward and could not be hooked.
  const std::vector<std::string>& unreached_modules() const& noexcept;
  /// For a temporary: returns by value.
  std::vector<std::string> unreached_modules() && { return unreached_modules(); }
  /// The parameters and buffers that operations read, each once.
  const std::vector<ParameterUse>& parameters() const& noexcept;
  /// For a temporary: returns by value.
  std::vector<ParameterUse> parameters() && { return parameters(); }
  /// The duration of the pass in seconds: operations, the program's own code, and the trace itself.
  double seconds() const noexcept;
  /// The duration of its operations in seconds.
  double operation_seconds() const noexcept;
  /// The message of the exception that ended the pass early, with the operation that was running. Empty if
  /// nothing did.
  const std::string& error() const& noexcept;
  /// For a temporary: returns by value.
  std::string error() && { return error(); }

  /// Runs every operation again on its kept arguments and compares the bits of its results; then changes one
  /// parent at a time and checks that the result changes. The modes in which the operation ran (gradients,
  /// autocast, inference) are restored, and so is the state of the CPU's generator, afterwards too.
  ///
  /// Throws `c10::ValueError` unless the pass was logged with `Save::all` and without `transform`, `dtype`,
  /// `device` or a memory budget. Not reproducible, and not among the findings: memory that was never
  /// written, or that comes from outside; random numbers of a generator of the program's own. Sparse and
  /// quantized results are compared by shape only, nested ones not at all.
  Validation validate() const;

  /// Writes a recording to `directory`: one `.pt` file for each tensor that was kept, under its label, and
  /// one for the graph (`load`). `torchtap show`, `torchtap trace` and Python read it. Throws as
  /// `storage::save` does.
  void save(const std::string& directory, const storage::SaveOptions& options = {}) const;
  /// The entries that `save` writes: one for each node, and one for the graph.
  std::vector<storage::Entry> entries() const;

  /// Reads a directory that `save` wrote. Tensors stay on the disk until they are asked for. Such a history
  /// cannot be validated. Throws `c10::ValueError` if it is not a saved history, and as `storage::load` does.
  static History load(const std::string& directory, const storage::LoadOptions& options = {});

  /// A table with a row for each node, as CSV (RFC 4180).
  std::string csv() const;
  /// The nodes as a JSON array of objects.
  std::string json() const;

  /// The graph in Graphviz' language.
  std::string dot(const DrawOptions& options = {}) const;
  /// Draws it to `file` by running Graphviz' `dot`; the extension names the format (.svg, .png, .pdf, or .dot
  /// and .gv, which need no Graphviz). Throws `c10::ValueError` for another extension, and `c10::Error` if
  /// `dot` is not installed, fails, or exceeds `DrawOptions::time_limit`; no file is left then.
  void draw(const std::string& file, const DrawOptions& options = {}) const;

  /// Prints a summary: structure, modules, sizes, and a line for each node.
  friend std::ostream& operator<<(std::ostream& out, const History& history) { return history.print(out); }

 private:
  std::ostream& print(std::ostream& out) const;
  storage::Entry entry(std::size_t index) const;

  std::shared_ptr<const detail::Graph> graph_;
};

/// Goes through the nodes of a history.
class TORCHTAP_API History::Iterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = Node;
  using difference_type = std::ptrdiff_t;
  using pointer = const Node*;
  using reference = Node;

  Iterator() = default;
  Iterator(std::shared_ptr<const detail::Graph> graph, std::int64_t position) noexcept
      : graph_(std::move(graph)), position_(position) {}
  Node operator*() const { return {graph_, position_}; }
  Iterator& operator++() noexcept {
    ++position_;
    return *this;
  }
  Iterator operator++(int) noexcept {
    Iterator before = *this;
    ++position_;
    return before;
  }
  friend bool operator==(const Iterator& a, const Iterator& b) noexcept { return a.position_ == b.position_; }
  friend bool operator!=(const Iterator& a, const Iterator& b) noexcept { return !(a == b); }

 private:
  std::shared_ptr<const detail::Graph> graph_;
  std::int64_t position_ = 0;
};

}  // namespace torchtap::views::trace
