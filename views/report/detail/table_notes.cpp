#include <algorithm>
#include <map>

#include <torchtap/base/dtypes.hpp>
#include <torchtap/base/numbers.hpp>
#include <torchtap/rules/rules.hpp>
#include <torchtap/views/report/detail/fields.hpp>
#include <torchtap/views/report/detail/names.hpp>
#include <torchtap/views/report/detail/non_finite_sentence.hpp>
#include <torchtap/views/report/detail/table_notes.hpp>
#include <torchtap/views/report/detail/table_rows.hpp>
#include <torchtap/views/text/units.hpp>

namespace torchtap::views::report::detail {
namespace {

using text::amount_text;
using text::bytes_text;
using text::count_text;
using text::counted;
using text::duration_text;

constexpr std::size_t kMost = 8;  // names in a list, or lines of one kind

std::string listed(const std::vector<std::string>& names) {
  std::string text;
  for (std::size_t i = 0; i < std::min(names.size(), kMost); ++i) text += (i == 0 ? "" : ", ") + names[i];
  return names.size() > kMost ? text + " and " + std::to_string(names.size() - kMost) + " more" : text;
}

std::string time_sentence(const ModuleRow& row, const Times& times, std::int64_t repeats, bool ascii) {
  const auto text = [&](double seconds) { return duration_text(seconds, ascii); };
  if (!has_times(row, times)) return "not measured";
  if (row.summed) {
    return text(times.median) + ", the sum of the modules inside" +
           (repeats > 1 ? ", the median of " + counted(repeats, "repeat") : "");
  }
  if (repeats <= 1) return text(times.median);
  return text(times.median) + ", the median of " + counted(repeats, "repeat") + " (at least " +
         text(times.min) + (repeats >= 10 ? ", nine of ten within " + text(times.p90) : "") +
         "; the first call took " + text(times.first) + ")";
}

/// The share of the run outside of modules and of torchtap, if it is a tenth or more.
double other_seconds(const Measurements& results) {
  double rest = results.seconds - results.own_seconds - results.outside_forward_seconds -
                results.outside_backward_seconds;
  for (const Direction* one : {&results.root.forward, &results.root.backward}) rest -= one->inclusive.total;
  return rest > 0.1 * results.seconds ? rest : 0;
}

std::string work_sentence(const Work& work) {
  const std::string intensity = base::number_text(
      2 * static_cast<double>(work.macs) / static_cast<double>(std::max<std::int64_t>(work.bytes, 1)), 3);
  return amount_text(work.macs) + " MACs (" + amount_text(2 * work.macs) + " FLOPs), " +
         bytes_text(work.bytes) + " moved, " + intensity + " FLOPs a byte";
}

void add_direction(const char* name, const Direction& direction, const Memory& memory,
                   const Measurements& results, bool ascii, std::vector<std::string>& lines) {
  const bool any_memory = memory.allocations != 0 || memory.peak != 0 || memory.kept != 0;
  const Times& times = direction.inclusive;
  if (!has_times(results.root, times) && direction.work.operations == 0 && !any_memory) return;
  std::string text;
  const auto add = [&](const std::string& part) { text += (text.empty() ? "" : "; ") + part; };
  if (results.seconds > 0) add(time_sentence(results.root, times, results.repeats, ascii));
  if (direction.work.operations > 0) add(work_sentence(direction.work));
  if (any_memory) {
    add("memory: " + bytes_text(memory.peak) + " at the peak, " +
        (memory.kept < 0 ? bytes_text(-memory.kept) + " more freed than kept, "
                         : bytes_text(memory.kept) + " kept, ") +
        counted(memory.allocations, "allocation"));
  }
  if (!text.empty()) lines.push_back(std::string(name) + ": " + text);
}

void add_sums(const Measurements& results, bool ascii, std::vector<std::string>& lines) {
  const ModuleRow& root = results.root;
  lines.push_back("parameters: " + count_text(root.parameters) +
                  (root.parameters == 0 ? ""
                   : root.learnable_parameters == root.parameters
                       ? ", all learnable"
                       : ", " + count_text(root.learnable_parameters) + " learnable") +
                  ", " + bytes_text(root.parameter_bytes) + "; gradients " + bytes_text(root.gradient_bytes) +
                  "; buffers " + bytes_text(root.buffer_bytes));
  add_direction("forward", root.forward, results.forward_memory, results, ascii, lines);
  add_direction("backward", root.backward, results.backward_memory, results, ascii, lines);
  std::string outside;
  const auto add = [&](const char* name, const Work& work, double seconds) {
    if (work.operations == 0) return;
    outside += (outside.empty() ? "" : "; ") + std::string(name) + " " +
               counted(work.operations, "operation") +
               (results.seconds > 0 ? ", " + duration_text(seconds, ascii) : "");
    if (work.macs != 0) outside += ", " + amount_text(work.macs) + " MACs";
  };
  add("forward", results.outside_forward, results.outside_forward_seconds);
  add("backward", results.outside_backward, results.outside_backward_seconds);
  if (!outside.empty()) lines.push_back("outside of modules: " + outside);
  if (results.seconds > 0) {
    std::string text = "run: " + duration_text(results.seconds, ascii) + "; " +
                       duration_text(results.own_seconds, ascii) +
                       " were torchtap's own, and are in no time above";
    if (const double rest = other_seconds(results); rest > 0) {
      text += "; " + duration_text(rest, ascii) +
              " passed outside of the modules: in the rest of the program, or while TorchScript compiled the "
              "model";
    }
    lines.push_back(text);
  }
}

void add_findings(const Measurements& results, std::vector<std::string>& lines) {
  std::size_t number = 0, left = 0;
  for (const Occurrence& finding : results.findings) {
    if (finding.values.intended_inf > 0) continue;  // one sentence covers all of them
    if (number == kMost) {
      ++left;
      continue;
    }
    std::string text = "not finite " + std::to_string(++number) + ": " + name_of(finding.role) + " " +
                       finding.function + " in " + place(finding.module) + moment_of(finding, results);
    if (any(finding.values)) text += ": " + values_text(finding.values);
    for (const std::string& input : finding.inputs) text += "; " + input;
    lines.push_back(text);
  }
  if (left > 0) lines.push_back("not finite: " + std::to_string(left) + " more; the files have all");
  const std::string intended = intended_infinities(results);
  if (!intended.empty()) lines.push_back("infinities on purpose: " + intended);
}

void add_marks(const Measurements& results, std::vector<std::string>& lines) {
  std::map<std::string, std::vector<std::string>> marked;
  each_module(results.root, [&](const ModuleRow& module) {
    for (std::size_t i = 0; i < module.marks.size(); ++i) {
      const std::string& why = i < module.mark_sentences.size() ? module.mark_sentences[i] : "";
      const bool says = !why.empty() && module.marks[i] != "never_ran";
      marked[module.marks[i]].push_back(place(module.path) + (says ? " (" + why + ")" : ""));
    }
  });
  const auto add = [&](const std::string& rule) {
    if (const auto found = marked.extract(rule)) lines.push_back(rule + ": " + listed(found.mapped()));
  };
  for (const rules::RuleInfo& rule : rules::catalogue()) add(rule.name);
  while (!marked.empty()) add(marked.begin()->first);  // rules of the program's own
}

void add_relations(const Measurements& results, std::vector<std::string>& lines) {
  std::vector<std::string> shared, unreachable, summed, used;
  each_module(results.root, [&](const ModuleRow& module) {
    if (module.has_forward && !module.reachable && !module.path.empty()) unreachable.push_back(module.path);
    if (module.summed) summed.push_back(place(module.path));
    if (module.used_without_call) used.push_back(place(module.path));
    if (!module.aliases.empty()) shared.push_back(place(module.path) + " = " + listed(module.aliases));
  });
  if (!shared.empty()) lines.push_back("the same module: " + listed(shared));
  if (!summed.empty()) lines.push_back("sums of the modules inside, as no call was seen: " + listed(summed));
  if (!used.empty()) {
    lines.push_back("used without a call (an operation read their parameters): " + listed(used));
  }
  if (!unreachable.empty()) {
    lines.push_back("calls cannot be seen, so that what they do is said of the module around: " +
                    listed(unreachable));
  }
}

}  // namespace

std::string title_of(const Measurements& results) {
  std::string text = results.root.type.empty() ? "Model" : results.root.type;
  std::size_t number = 0;
  for (const TensorInfo& input : results.root.inputs) {
    if (number++ == 3) {
      text += " and " + std::to_string(results.root.inputs.size() - 3) + " more";
      break;
    }
    text += (number == 1 ? ", input " : ", ") + text::shape_text(input.shape, "scalar") + " " +
            base::dtype_text(input.dtype) + " on " + input.device.str();
  }
  if (results.repeats > 0 && (results.seconds > 0 || results.repeats > 1)) {
    text += "; " + counted(results.repeats, "repeat");
    if (results.warmup > 0) text += " after " + std::to_string(results.warmup) + " to warm up";
  }
  return text;
}

std::string alarm_of(const Measurements& results) {
  const std::string text = first_non_finite(results);
  return text.empty() ? text : text + ".";
}

std::vector<std::string> sentences_of(const Measurements& results, bool ascii) {
  std::vector<std::string> lines;
  add_sums(results, ascii, lines);
  add_findings(results, lines);
  add_marks(results, lines);
  add_relations(results, lines);
  std::size_t number = 0;
  for (const NotCounted& one : results.not_counted) {
    if (number++ == kMost) {
      lines.push_back("not counted: " + std::to_string(results.not_counted.size() - kMost) +
                      " more operations");
      break;
    }
    lines.push_back("not counted: " + one.function + " in " + place(one.module) + " (" +
                    counted(one.calls, "call") + ")");
  }
  for (const std::string& note : results.notes) lines.push_back("note: " + note);
  return lines;
}

}  // namespace torchtap::views::report::detail
