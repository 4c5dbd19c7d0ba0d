#pragma once

// The calls of a model, and the calls and data flow of each mode.

#include <c10/core/ScalarType.h>

#include <array>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <torchtap/views/explorer/detail/edge.hpp>

namespace torchtap::views::explorer::detail {

enum class Mode : std::uint8_t { train, eval };
constexpr std::size_t modes = 2;
/// "train" or "eval".
const char* name_of(Mode mode) noexcept;

/// A tensor as it was seen at a port.
struct PortInfo {
  bool defined = false;
  c10::ScalarType dtype = c10::ScalarType::Float;
  std::vector<std::int64_t> shape;  // -1: varied

  /// Adds another tensor at the same port.
  void merge(const PortInfo& other);
};

struct ParameterInfo {
  std::string name;
  c10::ScalarType dtype = c10::ScalarType::Float;
  std::vector<std::int64_t> shape;
  bool learnable = false;
  std::int32_t owner = 0, position = 0;  // the first module that has it, and where
};

struct ModuleInfo {
  std::string path, type, name, attributes;
  std::vector<ParameterInfo> parameters;
};

/// A call of a module: the `nth` of this module inside of the call `parent`. A tensor that the program names
/// by `attach` is a module, too.
struct CallInfo {
  std::int32_t parent = -1;
  std::int32_t module = 0;
  std::int32_t nth = 0;
  std::int64_t call = 0;  // of this module in one forward
};

/// The calls and edges of one forward.
struct CallSequence {
  std::uint64_t hash = 0;  // of the calls that began and ended, in order
  std::vector<std::int32_t> calls;
  std::set<Edge> edges;
};

/// The graph of one mode (train or eval).
class ModeGraph {
 public:
  /// A forward that is known only by its hash. False if its calls and edges are not known.
  bool count(std::uint64_t hash);
  /// A forward that was looked at.
  void add(const CallSequence& pass);

  std::int64_t forwards() const noexcept { return forwards_; }
  std::int64_t traced() const noexcept { return traced_; }
  /// Changes with all visible parts of the graph, numbers aside.
  std::int64_t version() const noexcept { return version_; }
  /// In the order of execution.
  const std::vector<std::int32_t>& calls() const noexcept { return order_; }
  /// In how many forwards each call and each edge was.
  std::map<std::int32_t, std::int64_t> call_counts() const;
  std::map<Edge, std::int64_t> edge_counts() const;

  /// The tensors at the ports of a call.
  struct Ports {
    std::vector<PortInfo> inputs, outputs;
  };
  void see(std::int32_t call, bool output, const std::vector<PortInfo>& tensors);
  const Ports& ports(std::int32_t call) const;

 private:
  /// Forwards with the same calls.
  struct Shape {
    std::vector<std::int32_t> calls;
    std::set<Edge> edges;
    std::int64_t forwards = 0;
    bool known = false;  // calls and edges
  };

  void order(const std::vector<std::int32_t>& calls);
  Shape& shape(std::uint64_t hash);

  std::map<std::uint64_t, Shape> shapes_;
  // The counts of forgotten shapes, so that a model whose shapes never repeat needs bounded memory.
  std::map<std::int32_t, std::int64_t> forgotten_calls_;
  std::map<Edge, std::int64_t> forgotten_edges_;
  std::vector<std::int32_t> order_;
  std::set<std::int32_t> ordered_;
  std::map<std::int32_t, Ports> ports_;
  std::int64_t forwards_ = 0, traced_ = 0, version_ = 0;
};

/// All calls of a run, and the graphs of its modes. Not for several threads at once.
class Graph {
 public:
  std::vector<ModuleInfo> modules;
  std::vector<CallInfo> calls;
  std::array<ModeGraph, modes> by_mode;

  /// The index of a call, which is made if it is new.
  std::int32_t call(const CallInfo& info);
  /// The first call of a module that was seen; -1 if there was none.
  std::int32_t first_call(std::int32_t module) const;
  ModeGraph& of(Mode mode) { return by_mode[static_cast<std::size_t>(mode)]; }
  const ModeGraph& of(Mode mode) const { return by_mode[static_cast<std::size_t>(mode)]; }

 private:
  std::map<std::array<std::int32_t, 3>, std::int32_t> index_;
  std::map<std::int32_t, std::int32_t> first_calls_;
};

}  // namespace torchtap::views::explorer::detail
