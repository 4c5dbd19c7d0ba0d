// Writes and reads histories: a recording of the kept tensors, with one more entry for the graph.
#include <ATen/Functions.h>

#include <torchtap/base/error.hpp>
#include <torchtap/base/recording_mode.hpp>
#include <torchtap/storage/recording.hpp>
#include <torchtap/storage/save.hpp>
#include <torchtap/views/trace/detail/columns.hpp>
#include <torchtap/views/trace/detail/graph.hpp>
#include <torchtap/views/trace/history.hpp>

namespace torchtap::views::trace {
namespace {

constexpr const char* kind_of_tensors = "Trace";
constexpr const char* kind_of_graph = "TraceGraph";

/// The tensor as a file can have it.
at::Tensor plain(const at::Tensor& tensor) {
  const base::RecordingMode quiet;
  if (tensor.is_quantized()) return tensor.dequantize();
  return detail::without_names(tensor.layout() == at::kStrided ? tensor : tensor.to_dense());
}

storage::Entry entry_of(const Node& node) {
  storage::Entry entry;
  entry.path = node.label();
  entry.type = node.function().empty() ? node.type() : node.function();
  entry.kind = kind_of_tensors;
  for (const ModuleCall& call : node.output_of()) {
    entry.aliases.push_back(call.call == 0 ? call.path : call.path + ":" + std::to_string(call.call + 1));
  }
  if (!node.saved()) return entry;
  const at::Tensor tensor = node.tensor();
  if (tensor.is_nested()) return entry;
  entry.samples = 1;
  entry.value = plain(tensor);
  return entry;
}

}  // namespace

storage::Entry History::entry(std::size_t index) const {
  if (index < graph_->nodes.size()) return entry_of({graph_, static_cast<std::int64_t>(index)});
  storage::Entry entry;
  entry.type = graph_->model;
  entry.kind = kind_of_graph;
  entry.samples = 1;
  entry.value = to_value(detail::to_columns(*graph_));
  return entry;
}

std::vector<storage::Entry> History::entries() const {
  std::vector<storage::Entry> entries;
  for (std::size_t i = 0; i <= graph_->nodes.size(); ++i) entries.push_back(entry(i));
  return entries;
}

void History::save(const std::string& directory, const storage::SaveOptions& options) const {
  storage::save(
      directory, graph_->nodes.size() + 1, [this](std::size_t index) { return entry(index); }, options);
}

History History::load(const std::string& directory, const storage::LoadOptions& options) {
  const std::string where = "views::trace::History::load: \"" + directory + "\": ";
  const storage::Recording recording = storage::load(directory, options);
  TORCH_CHECK_VALUE(
      !recording.empty() && (recording.end() - 1)->kind() == kind_of_graph, where,
      "is a recording without the graph of a pass; it was not written by trace::History::save.");
  const storage::RecordedEntry& last = *(recording.end() - 1);
  auto graph =
      std::make_shared<detail::Graph>(detail::from_columns(detail::columns_of(last.value(), where), where));
  TORCH_CHECK_VALUE(graph->nodes.size() + 1 == recording.size(), where, "has ", recording.size() - 1,
                    " tensors, and the graph has ", graph->nodes.size(), " nodes.");
  graph->entries.assign(recording.begin(), recording.end() - 1);
  for (std::size_t i = 0; i < graph->nodes.size(); ++i) {
    graph->nodes[i].saved = graph->entries[i].samples() > 0;
  }
  connect(*graph);
  return History(std::move(graph));
}

}  // namespace torchtap::views::trace
