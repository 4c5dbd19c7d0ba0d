// A history and its nodes as text.
#include <ATen/Functions.h>

#include <algorithm>
#include <map>
#include <ostream>

#include <torchtap/base/error.hpp>
#include <torchtap/base/numbers.hpp>
#include <torchtap/base/recording_mode.hpp>
#include <torchtap/storage/dtype.hpp>
#include <torchtap/views/trace/detail/graph.hpp>
#include <torchtap/views/trace/detail/units.hpp>

namespace torchtap::views::trace {
namespace {

using detail::bytes_text;
using detail::counted;
using detail::shape_text;

std::string time_text(double seconds) {
  return text::duration_text(seconds, /*ascii=*/true);
}

std::string joined(const std::vector<std::string>& texts, const char* none = "none") {
  std::string text;
  for (const std::string& one : texts) text += (text.empty() ? "" : ", ") + one;
  return text.empty() ? none : text;
}

/// The first of some names, and how many more there are.
std::string some_of(const std::vector<std::string>& names) {
  constexpr std::size_t most = 8;
  std::vector<std::string> some(names.begin(),
                                names.begin() + static_cast<std::ptrdiff_t>(std::min(names.size(), most)));
  if (names.size() > most) some.push_back("and " + std::to_string(names.size() - most) + " more");
  return joined(some);
}

std::string labels_of(const std::vector<Node>& nodes) {
  std::vector<std::string> labels;
  labels.reserve(nodes.size());
  for (const Node& node : nodes) labels.push_back(node.label());
  return some_of(labels);
}

/// The number, in at most nine characters.
std::string element_text(double value, bool integral) {
  return integral ? base::fixed_text(value, 0) : base::number_text(value, 4);
}

/// The first rows and columns of a tensor's last two dimensions, at 0 of all others.
std::string corner_of(at::Tensor tensor, const char* indent) {
  constexpr std::int64_t most = 5;
  const base::RecordingMode quiet;
  if (tensor.layout() != at::kStrided || tensor.is_nested() || tensor.numel() == 0) return "";
  if (tensor.is_quantized()) tensor = tensor.dequantize();
  tensor = detail::without_names(tensor);
  while (tensor.dim() > 2) tensor = tensor.select(0, 0);
  const bool flat = tensor.dim() < 2;
  if (flat) tensor = tensor.reshape({1, -1});
  const std::int64_t rows = std::min(tensor.size(0), most), columns = std::min(tensor.size(1), most);
  const bool more_rows = tensor.size(0) > rows, more_columns = tensor.size(1) > columns;
  const bool integral = !at::isFloatingType(tensor.scalar_type()) && !tensor.is_complex();
  tensor = tensor.slice(0, 0, rows).slice(1, 0, columns);
  if (tensor.is_complex()) return "";
  tensor = tensor.to(at::kCPU, at::kDouble).contiguous();
  const double* values = tensor.data_ptr<double>();
  std::string text;
  for (std::int64_t row = 0; row < rows; ++row) {
    text += indent;
    for (std::int64_t column = 0; column < columns; ++column) {
      const std::string element = element_text(*values++, integral);
      text += std::string(element.size() < 10 ? 10 - element.size() : 1, ' ') + element;
    }
    text += more_columns ? "  ...\n" : "\n";
  }
  if (more_rows) text += std::string(indent) + "       ...\n";
  return text;
}

std::string call_text(const ModuleCall& call, const detail::Graph& graph) {
  const auto& modules = graph.modules;
  const auto found = std::find_if(modules.begin(), modules.end(),
                                  [&](const ModuleSummary& module) { return module.path == call.path; });
  const bool several = found != modules.end() && found->calls > 1;
  return call.path + (several ? ":" + std::to_string(call.call + 1) : "") + " (" + call.type + ")";
}

std::string distance_text(const std::pair<std::int64_t, std::int64_t>& range) {
  if (range.first < 0) return "";
  const std::string text = std::to_string(range.first);
  return range.first == range.second ? text : text + " to " + std::to_string(range.second);
}

std::string flags_of(const Node& node) {
  std::vector<std::string> flags;
  if (node.in_place()) flags.emplace_back("in place");
  if (node.view()) flags.emplace_back("shares memory with an argument");
  if (node.random()) flags.emplace_back("random");
  if (node.created_inside()) flags.emplace_back("made from no tensor");
  if (node.read_by_program()) flags.emplace_back("read by the program");
  if (node.results() > 1) {
    flags.push_back("result " + std::to_string(node.result()) + " of " + std::to_string(node.results()));
  }
  return joined(flags, "");
}

void print_parameters(std::ostream& out, const Node& node) {
  if (node.parameters().empty()) return;
  std::vector<std::string> texts;
  std::int64_t elements = 0, bytes = 0;
  for (const ParameterUse& use : node.parameters()) {
    texts.push_back(use.path + " " + shape_text(use.shape) + (use.buffer ? " (buffer)" : ""));
    if (use.buffer) continue;
    elements += use.elements;
    bytes += use.bytes;
  }
  out << "  parameters:   " << joined(texts);
  if (elements > 0) out << "; " << counted(elements, "element") << ", " << bytes_text(bytes);
  out << "\n";
}

void print_tensor(std::ostream& out, const Node& node) {
  out << "  tensor:       " << shape_text(node.shape()) << ", " << storage::dtype_name(node.dtype()) << ", "
      << bytes_text(node.bytes());
  if (!node.device().is_cpu()) out << ", " << node.device();
  if (!node.saved()) {
    out << ", not kept\n";
    return;
  }
  out << "\n";
  try {
    out << corner_of(node.tensor(), "              ");
  } catch (const c10::Error&) {
    out << "                (its memory was changed after the pass)\n";
  }
}

void print_function(std::ostream& out, const Node& node) {
  if (node.function().empty()) return;
  std::vector<std::string> texts;
  for (const Argument& argument : node.arguments()) texts.push_back(argument.name + "=" + argument.text);
  out << "  function:     " << node.function() << "(" << joined(texts, "") << ")\n"
      << "  time:         " << time_text(node.seconds()) << "\n";
  const std::string flags = flags_of(node);
  if (!flags.empty()) out << "  which is:     " << flags << "\n";
}

void print_source(std::ostream& out, const Node& node) {
  const std::string source = node.source();
  std::size_t begin = 0;
  for (bool first = true; begin < source.size(); first = false) {
    const std::size_t end = std::min(source.find('\n', begin), source.size());
    out << (first ? "  called at:    " : "                ") << source.substr(begin, end - begin) << "\n";
    begin = end + 1;
  }
}

/// Modules below their callers, as a tree; leaves share lines.
void print_modules(std::ostream& out, const std::vector<ModuleSummary>& modules) {
  constexpr std::size_t most_in_line = 8;
  const auto is_below = [](const ModuleSummary& module, const std::string& path) {
    return path.empty() || module.path.compare(0, path.size() + 1, path + ".") == 0;
  };
  std::vector<std::string> around;  // the modules that the next one may be below
  std::size_t in_line = 0;
  for (std::size_t i = 0; i < modules.size(); ++i) {
    const ModuleSummary& module = modules[i];
    const std::size_t depth = around.size();
    while (!around.empty() && !is_below(module, around.back())) around.pop_back();
    const bool leaf =
        !module.path.empty() && (i + 1 == modules.size() || !is_below(modules[i + 1], module.path));
    const bool together = in_line > 0 && in_line < most_in_line && leaf && around.size() == depth;
    if (!together) out << (i > 0 ? "\n" : "") << "    " << std::string(2 * around.size(), ' ');
    in_line = leaf ? (together ? in_line + 1 : 1) : 0;
    const std::size_t shown = around.empty() || around.back().empty() ? 0 : around.back().size() + 1;
    out << (together ? ", " : "") << (module.path.empty() ? "(root)" : module.path.substr(shown)) << " "
        << module.type;
    if (module.calls > 1) out << " x" << module.calls;
    if (!leaf && !module.path.empty()) around.push_back(module.path);
  }
  out << "\n";
}

/// A line for each tensor, in columns.
void print_nodes(std::ostream& out, const History& history) {
  const auto padded = [](const std::string& text, std::size_t width) {
    return text + std::string(text.size() < width ? width - text.size() : 0, ' ');
  };
  std::size_t label_width = 0, shape_width = 0;
  for (const Node& node : history) {
    label_width = std::max(label_width, node.label().size());
    shape_width = std::max(shape_width, shape_text(node.shape()).size());
  }
  shape_width = std::min<std::size_t>(shape_width, 20);
  for (const Node& node : history) {
    const std::string position = "(" + std::to_string(node.position()) + ")";
    const std::string module = node.modules().empty() ? "" : node.modules().back().path;
    out << std::string(position.size() < 8 ? 8 - position.size() : 1, ' ') << position
        << (node.saved() ? " * " : "   ") << padded(node.label(), label_width) << "  "
        << padded(shape_text(node.shape()), module.empty() ? 0 : shape_width)
        << (module.empty() ? "" : "  " + module) << "\n";
  }
}

}  // namespace

std::ostream& Node::print(std::ostream& out) const {
  const auto size = static_cast<std::int64_t>(graph_->nodes.size());
  out << label() << ", position " << position() << " of 0 to " << size - 1;
  if (passes() > 1) out << ", pass " << pass() << " of " << passes();
  out << "\n";
  if (!data().name.empty()) out << "  name:         " << data().name << "\n";
  print_tensor(out, *this);
  if (has_gradient()) {
    out << "  gradient:     " << shape_text(gradient().sizes().vec()) << "\n"
        << corner_of(gradient(), "              ");
  }
  out << "  parents:      " << labels_of(parents()) << "\n"
      << "  children:     " << labels_of(children()) << "\n"
      << "  siblings:     " << labels_of(siblings()) << "\n"
      << "  spouses:      " << labels_of(spouses()) << "\n"
      << "  from inputs:  " << labels_of(input_ancestors());
  const std::string from = distance_text(distance_from_input()), to = distance_text(distance_to_output());
  const auto steps = [](const std::string& distance) {
    return ", " + distance + (distance == "1" ? " step" : " steps");
  };
  out << (from.empty() || kind() == NodeKind::input ? "" : steps(from)) << "\n"
      << "  to outputs:   " << labels_of(output_descendants())
      << (to.empty() || kind() == NodeKind::output ? "" : steps(to)) << "\n";
  print_parameters(out, *this);
  print_function(out, *this);
  const auto print_calls = [&](const char* title, const std::vector<ModuleCall>& calls) {
    std::vector<std::string> texts;
    texts.reserve(calls.size());
    for (const ModuleCall& call : calls) texts.push_back(call_text(call, *graph_));
    if (!texts.empty()) out << title << joined(texts) << "\n";
  };
  print_calls("  in modules:   ", modules());
  print_calls("  output of:    ", output_of());
  print_source(out, *this);
  return out << "  found as:     " << joined(keys()) << "\n";
}

std::ostream& History::print(std::ostream& out) const {
  std::int64_t elements = 0, parameter_bytes = 0, parameter_tensors = 0, with_parameters = 0, most_passes = 1;
  for (const ParameterUse& use : parameters()) {
    if (use.buffer) continue;
    ++parameter_tensors;
    elements += use.elements;
    parameter_bytes += use.bytes;
  }
  bool branches = false;
  std::vector<Node> read;
  for (const Node& node : *this) {
    const auto& uses = node.parameters();
    const bool any =
        std::any_of(uses.begin(), uses.end(), [](const ParameterUse& use) { return !use.buffer; });
    if (any && node.result() == 0) ++with_parameters;
    most_passes = std::max(most_passes, node.passes());
    branches = branches || node.children().size() > 1;
    if (node.read_by_program()) read.push_back(node);
  }
  out << "Forward pass" << (model().empty() ? "" : " of " + model()) << ": "
      << counted(operations(), "operation") << ", " << counted(size(), "tensor") << ", "
      << bytes_text(bytes()) << "\n";
  if (!error().empty()) out << "  ended early:  " << error() << "\n";
  out << "  time:         " << time_text(seconds()) << ", " << time_text(operation_seconds())
      << " of it in operations\n"
      << "  structure:    "
      << (most_passes > 1 ? "recurrent, a layer has up to " + std::to_string(most_passes) + " passes"
                          : "feed-forward")
      << (branches ? ", with branches" : ", without branches") << "\n";
  if (!read.empty()) out << "  read values:  " << labels_of(read) << "; what follows may depend on them\n";
  out << "  kept:         " << counted(saved(), "tensor") << ", " << bytes_text(saved_bytes());
  if (copied() > 0) {
    out << "; " << copied() << (copied() == 1 ? " was" : " were")
        << " copied before the memory was written to";
  }
  if (dropped() > 0) out << "; " << dropped() << " dropped for the memory budget";
  out << "\n";
  if (parameter_tensors > 0) {
    out << "  parameters:   " << counted(parameter_tensors, "tensor") << " in "
        << counted(with_parameters, "operation") << ", " << counted(elements, "element") << ", "
        << bytes_text(parameter_bytes) << "\n";
  }
  if (!modules().empty()) {
    out << "  modules:\n";
    print_modules(out, modules());
  }
  if (!unreached_modules().empty()) {
    std::vector<std::string> missing = unreached_modules();
    if (missing.front().empty()) missing.front() = "(root)";
    out << "  not hooked:   " << some_of(missing) << "; their operations are below, without them\n";
  }
  out << "  tensors (* kept):\n";
  print_nodes(out, *this);
  return out;
}

}  // namespace torchtap::views::trace
