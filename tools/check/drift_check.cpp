#include "drift_check.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <set>
#include <utility>

#include <torchtap/base/error.hpp>
#include <torchtap/storage/recording.hpp>
#include <torchtap/views/monitor/drift.hpp>
#include <torchtap/views/monitor/reference.hpp>

#include "recordings/recorded_facts.hpp"
#include "recordings/recordings.hpp"

namespace torchtap::tools {
namespace {

/// A recording's results for one tensor, if they can be a window.
std::optional<core::Results> window_of_results(const std::vector<Result>& all, const std::string& reduction) {
  const bool blocks = reduction.rfind("Blocks(", 0) == 0;
  if (!blocks && reduction.find("LogHistogram(3, over_all)") == std::string::npos) return std::nullopt;
  // In a series, "log_histogram.counts".
  const std::string member = reduction.rfind("LogHistogram(", 0) == 0 || blocks ? "" : "log_histogram.";
  core::Results results;
  for (const auto& result : all) {
    if (result.list || result.name.compare(0, member.size(), member) != 0) continue;
    results.set(result.name.substr(member.size()), result.tensors.front());
  }
  return results.contains("counts") ? std::optional(results) : std::nullopt;
}

/// The blocks `begin` to `end`.
core::Results run_of_blocks(const core::Results& all, std::int64_t begin, std::int64_t end) {
  core::Results run;
  for (const auto& [name, tensor] : all)
    run.set(name, name == "low" || name == "high" ? tensor : tensor.narrow(0, begin, end - begin));
  return run;
}

/// The first block of each window of at least `rows` rows, and the number of blocks.
std::vector<std::int64_t> window_starts(const core::Results& all, std::int64_t rows) {
  if (!all.contains("rows")) return {0, 1};
  const at::Tensor each = all.at("rows").to(at::kCPU, at::kLong).contiguous();
  std::vector<std::int64_t> starts{0};
  std::int64_t gathered = 0;
  for (std::int64_t i = 0; i < each.numel(); ++i) {
    gathered += each.data_ptr<std::int64_t>()[i];
    if (gathered < rows || i + 1 == each.numel()) continue;
    starts.push_back(i + 1);
    gathered = 0;
  }
  if (gathered < rows && starts.size() > 1) starts.pop_back();  // what is left goes to the last window
  starts.push_back(each.numel());
  return starts;
}

std::string drift_sentence(const views::monitor::Drift& worst, std::int64_t drifted, std::int64_t windows) {
  char text[200];
  std::snprintf(text, sizeof text, "PSI %.2g, mean %+.2g std, zeros %+.2g %%", worst.psi, worst.shift,
                100 * worst.zeros);
  std::string sentence = text;
  if (worst.rows != 0) sentence += c10::str(", ", worst.rows, " rows");
  if (windows > 1) sentence += c10::str(", the worst of ", drifted, " in ", windows, " windows");
  return sentence;
}

/// The outcome for one tensor of a module.
std::optional<rules::Finding> drift_finding(const views::monitor::DriftTest& test,
                                            const core::Results& results, std::int64_t rows, bool& judged) {
  const auto starts = window_starts(results, rows);
  std::optional<views::monitor::Drift> worst;
  std::int64_t drifted = 0, windows = 0, begin = 0;
  for (std::size_t i = 0; i + 1 < starts.size(); ++i) {
    const views::monitor::Drift drift =
        test.compare(results.contains("rows") ? run_of_blocks(results, begin, starts[i + 1]) : results);
    if (!std::isfinite(drift.limit)) continue;  // too few blocks: joins the next window
    begin = starts[i + 1];
    judged = true;
    ++windows;
    if (!drift.drifted) continue;
    ++drifted;
    const auto badness = [](const views::monitor::Drift& one) {
      return std::pair(one.t2 / one.limit, one.psi);
    };
    if (!worst || badness(drift) > badness(*worst)) worst = drift;
  }
  if (!worst) return std::nullopt;
  rules::Finding finding;
  finding.rule = "drift";
  finding.value = worst->t2;
  finding.limit = worst->limit;
  finding.sentence = drift_sentence(*worst, drifted, windows);
  return finding;
}

void add_note(std::vector<std::string>& notes, const std::set<std::string>& paths, const std::string& what) {
  if (paths.empty()) return;
  std::vector<std::string> some(paths.begin(), paths.end());
  if (some.size() > 12) some.resize(12);
  notes.push_back(what + " " + base::quoted(some) +
                  (paths.size() > 12 ? c10::str(" (and ", paths.size() - 12, " more)") : ""));
}

}  // namespace

DriftVerdict judge_drift(const std::string& recording, const std::string& reference,
                         const rules::Rules& rules) {
  const views::monitor::Reference known = views::monitor::Reference::load(reference);
  DriftVerdict verdict;
  std::set<std::string> only_recorded, recorded, other_reduction;
  for (const auto& entry : storage::load(recording)) {
    const std::string& path = entry.path();
    recorded.insert(path);
    if (entry.samples() == 0 || !rules.is_on("drift", path)) continue;
    const core::Value value = entry.value();
    const auto compare = [&](std::int64_t slot, const core::Value& of_slot) {
      const core::Results* const expected = known.find(path, entry.kind(), slot);
      if (expected == nullptr) {
        only_recorded.insert(path);
        return;
      }
      const auto results = window_of_results(results_of(of_slot), entry.reduction());
      if (!results) {
        other_reduction.insert(path);
        return;
      }
      views::monitor::DriftOptions options;
      options.false_alarms = rules.value("drift", "false_alarms", path);
      options.size = rules.value("drift", "size", path);
      const views::monitor::DriftTest test(*expected, options);
      ++verdict.compared;
      if (!test.why_not().empty()) {
        verdict.not_judged.push_back("\"" + path + "\" is not judged: " + test.why_not() + ".");
        return;
      }
      bool judged = false;
      auto finding = drift_finding(test, *results, options.rows, judged);
      if (judged) {
        verdict.judged.emplace(path, entry.kind(), slot);
      } else {
        verdict.not_judged.push_back(
            "\"" + path + "\" is not judged: " + std::to_string(test.least_window()) +
            " or more batches of at least the reference's size are needed to tell drift from a "
            "rare event.");
      }
      if (!finding) return;
      finding->path = path;
      finding->type = entry.type();
      finding->tensor = tensor_of(entry.kind());
      finding->slot = slot;
      verdict.findings.push_back(std::move(*finding));
    };
    const bool slots = !entry.keys().empty() && entry.keys().front() == "0";
    if (!slots) {
      compare(0, value);
    } else {
      for (const auto& [key, of_slot] : value.dict()) compare(std::stol(key), of_slot);
    }
  }
  std::set<std::string> only_known;
  for (const auto& path : known.paths()) {
    if (recorded.count(path) == 0) only_known.insert(path);
  }
  add_note(verdict.not_judged, only_recorded, "not in the reference:");
  add_note(verdict.not_judged, only_known, "in the reference alone:");
  add_note(verdict.not_judged, other_reduction,
           "not compared, because they were recorded without --reduce blocks:");
  return verdict;
}

}  // namespace torchtap::tools
