#include "message_text.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <string_view>
#include <utility>

#include <torchtap/base/error.hpp>

#include "message.hpp"

namespace torchtap::tools {
namespace {

/// The endings of exception names.
constexpr std::array<std::string_view, 3> kErrors{"Error", "Exception", "Exit"};

using Rule = std::pair<std::string_view, std::string_view>;

/// Parts of the library's messages that name C++ functions, with replacements for a shell.
constexpr std::array kRules{
    Rule{", or pass SaveOptions().overwrite(true)", ", or replace it with --overwrite"},
    Rule{", or pass SpoolOptions().append(true) to go on with it, or overwrite(true) to replace it",
         ", or replace it with --overwrite"},
    Rule{", or pass SaveOptions().mkdir(true)", ""},
    Rule{", as torch.jit.save writes them", ""},
    Rule{"; pass a directory that ExplorerOptions().save() named",
         "; name a directory that torchtap preload --explore --save wrote"},
    Rule{", or pass SpoolOptions().mkdir(true)", ""},
    Rule{" with mkdir(true)", ""},
    Rule{" Use allow_none() if that is fine.", ""},
    Rule{", then call flush() or save(): they try again, and recording continues",
         "; torchtap recover finishes what is there"},
    Rule{"; load it with torch::jit::load, and save tensors with storage::save_value or "
         "torch.save",
         "; torchtap list shows its modules, and torch.save makes files of tensors"},
    Rule{"; load its .pt files one at a time with load or load_value",
         "; its .pt files can be named one at a time"},
    Rule{"torchtap recover, or storage::recover, says", "torchtap recover says"},
    Rule{"load TorchScript with torch::jit::load", "torchtap list shows the modules of TorchScript files"},
    Rule{"; names(\"\") selects the model as a whole", "; --names '' selects the model as a whole"},
    Rule{"with to(at::kFloat)", "to float32"},
    Rule{"such as a LogHistogram(LogHistogramOptions().over_all(true))", "with --reduce log_histogram"},
    Rule{"; record LogHistogram", "; record with --reduce log_histogram"},
    Rule{" or Series(Min, Max)", " or min,max"},
    Rule{". Calibrate with QuantizationOptions().symmetric(true), and all channels as one distribution",
         "; calibrate with --symmetric what was recorded without --over"},
    Rule{"; record over_all(true), or over all dimensions but the channels'",
         "; record without --over, or with all dimensions but the channels' in --over"},
    Rule{". ReportOptions().non_finite(OnNonFinite::note) goes on", "; --non-finite note goes on"},
    Rule{"; raise time_limit, or draw to a .dot file", "; raise --time-limit, or draw to a .dot file"},
};

bool is_name(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == ':';
}

/// Whether `text` is the failed call that begins a library message: "save", "RecordedEntry::value".
bool is_call(std::string_view text) {
  static constexpr std::array<std::string_view, 10> kCalls{
      "load",    "save",      "load_value", "save_value", "spool",
      "recover", "selectors", "torchtap",   "reductions", "filesystem error"};
  if (std::find(kCalls.begin(), kCalls.end(), text) != kCalls.end()) return true;
  text = text.substr(0, text.find('('));  // from RecordedEntry::tensor("mean")
  return text.find("::") != std::string_view::npos && std::all_of(text.begin(), text.end(), is_name);
}

/// Replaces advice on C++ calls by advice on options.
std::string for_shells(std::string message) {
  if (message.rfind("[enforce fail at ", 0) == 0) {  // FILE:LINE] CONDITION. MESSAGE
    const auto end = message.find(". ", message.find("] "));
    if (end != std::string::npos) message.erase(0, end + 2);
  }
  for (auto end = message.find(": "); end != std::string::npos && is_call({message.data(), end});
       end = message.find(": ")) {
    message.erase(0, end + 2);
  }
  for (const auto& [library, shell] : kRules) {
    for (auto at = message.find(library); at != std::string::npos; at = message.find(library, at)) {
      message.replace(at, library.size(), shell);
      at += shell.size();
    }
  }
  return message;
}

}  // namespace

std::string meant(const std::string& word, const std::vector<std::string>& candidates) {
  const std::string* best = nullptr;
  std::size_t least = 2 + word.size() / 3;  // anything further away is a different word
  for (const auto& candidate : candidates) {
    const bool beginning = word.size() > 1 && candidate.compare(0, word.size(), word) == 0;
    const bool in_other_case =
        std::equal(word.begin(), word.end(), candidate.begin(), candidate.end(),
                   [](unsigned char x, unsigned char y) { return std::tolower(x) == std::tolower(y); });
    const std::size_t distance = beginning || in_other_case ? 0 : base::edit_distance(word, candidate);
    if (distance < least && distance < candidate.size()) {
      least = distance;
      best = &candidate;
    }
  }
  return best == nullptr ? "" : *best;
}

std::string did_you_mean(const std::string& word, const std::vector<std::string>& candidates) {
  const std::string one = meant(word, candidates);
  return one.empty() ? "" : "; did you mean \"" + one + "\"?";
}

ScriptError split(const std::string& message) {
  const auto traceback = message.find("Traceback of TorchScript");
  if (traceback == std::string::npos) return {message, ""};
  // "RuntimeError: …" stands on a line after the traceback. The cause may span several lines.
  for (auto line = message.rfind('\n'); line != std::string::npos && line > traceback;
       line = message.rfind('\n', line - 1)) {
    const std::string_view rest = std::string_view(message).substr(line + 1);
    const std::string_view name = rest.substr(0, rest.find(": "));
    const bool error = std::any_of(kErrors.begin(), kErrors.end(), [&](std::string_view end) {
      return name.size() >= end.size() && name.substr(name.size() - end.size()) == end;
    });
    if (!error || !std::all_of(name.begin(), name.end(), [](char c) { return is_name(c) || c == '.'; }))
      continue;
    std::string cause(rest.substr(name.size() + 2));
    cause.erase(cause.find_last_not_of('\n') + 1);
    return {cause, message.substr(traceback, line - traceback)};
  }
  return {message, ""};
}

std::string explain(const std::exception& error) {
  const ScriptError parts = split(message_of(error));
  std::string text = for_shells(parts.cause);
  // If a recorder is at fault, the message has named the module, and the model's code is right.
  const bool of_recorder = parts.cause.find("(while recording ") != std::string::npos;
  if (!parts.traceback.empty() && !of_recorder) text += "\n" + parts.traceback;
  return printable(text, /*keep_lines=*/true);
}

}  // namespace torchtap::tools
