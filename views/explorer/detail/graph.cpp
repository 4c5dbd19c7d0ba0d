// Adds forwards up to a graph.
#include <algorithm>

#include <torchtap/views/explorer/detail/graph.hpp>

namespace torchtap::views::explorer::detail {
namespace {

constexpr std::size_t most_shapes = 256;

}  // namespace

const char* name_of(Mode mode) noexcept {
  return mode == Mode::train ? "train" : "eval";
}

void PortInfo::merge(const PortInfo& other) {
  if (!other.defined) return;
  if (!defined || shape.size() != other.shape.size()) {
    *this = other;
    return;
  }
  dtype = other.dtype;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] != other.shape[i]) shape[i] = -1;
  }
}

bool ModeGraph::count(std::uint64_t hash) {
  ++forwards_;
  Shape& one = shape(hash);
  ++one.forwards;
  return one.known;
}

void ModeGraph::add(const CallSequence& pass) {
  ++forwards_;
  ++traced_;
  Shape& one = shape(pass.hash);
  ++one.forwards;
  const std::size_t before = one.edges.size();
  one.edges.insert(pass.edges.begin(), pass.edges.end());
  if (!one.known || one.edges.size() != before) ++version_;
  if (!one.known) one.calls = pass.calls;
  one.known = true;
  order(pass.calls);
}

/// The shape with this hash. The rarest other one makes room for it.
ModeGraph::Shape& ModeGraph::shape(std::uint64_t hash) {
  const auto found = shapes_.find(hash);
  if (found != shapes_.end()) return found->second;
  if (shapes_.size() >= most_shapes) {
    const auto rarest = std::min_element(shapes_.begin(), shapes_.end(), [](const auto& a, const auto& b) {
      return a.second.forwards < b.second.forwards;
    });
    for (const auto call : rarest->second.calls) forgotten_calls_[call] += rarest->second.forwards;
    for (const auto& edge : rarest->second.edges) forgotten_edges_[edge] += rarest->second.forwards;
    shapes_.erase(rarest);
  }
  return shapes_[hash];
}

/// Puts new calls behind the calls that ran before them in this forward.
void ModeGraph::order(const std::vector<std::int32_t>& calls) {
  auto after = order_.begin();
  for (const auto call : calls) {
    if (ordered_.insert(call).second) {
      after = order_.insert(after, call);
    } else if (after == order_.end() || *after != call) {
      const auto next = std::find(after, order_.end(), call);
      after = next != order_.end() ? next : std::find(order_.begin(), order_.end(), call);
    }
    ++after;
  }
}

std::map<std::int32_t, std::int64_t> ModeGraph::call_counts() const {
  auto counts = forgotten_calls_;
  for (const auto& [hash, shape] : shapes_) {
    for (const auto call : shape.calls) counts[call] += shape.forwards;
  }
  return counts;
}

std::map<Edge, std::int64_t> ModeGraph::edge_counts() const {
  auto counts = forgotten_edges_;
  for (const auto& [hash, shape] : shapes_) {
    for (const Edge& edge : shape.edges) counts[edge] += shape.forwards;
  }
  return counts;
}

void ModeGraph::see(std::int32_t call, bool output, const std::vector<PortInfo>& tensors) {
  Ports& ports = ports_[call];
  auto& known = output ? ports.outputs : ports.inputs;
  if (known.size() < tensors.size()) known.resize(tensors.size());
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const std::vector<std::int64_t> before = known[i].shape;
    known[i].merge(tensors[i]);
    if (known[i].shape != before) ++version_;
  }
}

const ModeGraph::Ports& ModeGraph::ports(std::int32_t call) const {
  static const auto& none = *new const Ports;
  const auto found = ports_.find(call);
  return found == ports_.end() ? none : found->second;
}

std::int32_t Graph::call(const CallInfo& info) {
  const auto [found, is_new] = index_.emplace(std::array<std::int32_t, 3>{info.parent, info.module, info.nth},
                                              static_cast<std::int32_t>(calls.size()));
  if (is_new) {
    calls.push_back(info);
    first_calls_.emplace(info.module, found->second);
  }
  return found->second;
}

std::int32_t Graph::first_call(std::int32_t module) const {
  const auto found = first_calls_.find(module);
  return found == first_calls_.end() ? -1 : found->second;
}

}  // namespace torchtap::views::explorer::detail
