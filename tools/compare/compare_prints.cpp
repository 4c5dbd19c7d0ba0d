// Compares two runs.
#include "compare_prints.hpp"

#include <algorithm>
#include <array>
#include <optional>

#include "compared_program.hpp"
#include "prints_report.hpp"
#include "recordings/recordings.hpp"
#include "temporary_folder.hpp"
#include "terminal/message_text.hpp"

namespace torchtap::tools {

namespace {

namespace prints = views::compare;
using Kind = prints::Divergence::Kind;

/// The first suspect that was not tried or is no amplified rounding, or the first module that fingerprints do
/// not judge and that was tried and computes something else.
PrintsAnswer answer_of(const prints::Verdict& verdict, const SecondPass* pass) {
  PrintsAnswer answer;
  if (pass != nullptr) answer.own_is_a = pass->own_is_a;
  const auto asked = asked_of(verdict);
  for (std::size_t i = 0; i < asked.size() && !answer.first; ++i) {
    const prints::Divergence& finding = *asked[i];
    std::optional<SecondPass::Tried> tried;
    if (pass != nullptr) tried = pass->tried.at(i);
    if (finding.unjudged) {
      if (tried && tried->proved.has_value()) {
        ++answer.judged;
        if (*tried->proved) answer.first = finding, answer.tried = tried;
      }
      continue;
    }
    // Tensors made inside of a module may differ although its output, which the trial is about, does not.
    constexpr double kFar = 16;
    const bool inside = finding.kind == Kind::between && !(finding.error <= kFar * finding.allowed) &&
                        tried && tried->unseen.empty();
    if (tried && tried->proved == false && inside) {
      tried->proved.reset();
      tried->reason = "in float64 the module around returns the same from the same inputs";
    }
    if (tried && tried->proved == false && !finding.exact) {
      ++answer.innocent;
      continue;
    }
    answer.first = finding;
    answer.tried = tried;
    if (tried && tried->proved == false) answer.first->certain = true, answer.tried.reset();
    if (pass != nullptr && finding.kind == Kind::input) {
      answer.input_cause = pass->input_cause;
      answer.input_search = pass->input_search;
    }
  }
  if (!answer.first && verdict.weight) answer.first = verdict.weight;
  for (const std::string& gap : verdict.gaps) answer.outcome.leave_out(gap);
  if (answer.first) answer.outcome.differ();
  if (answer.first) return answer;
  constexpr std::size_t kMost = 5;  // suspects of a thread
  if (answer.innocent >= kMost) answer.outcome.leave_out("calls after these 5, which amplified rounding");
  if (answer.innocent != 0 && verdict.repeated != 0)
    answer.outcome.leave_out(
        c10::str(counted(verdict.repeated, "other call"), " of modules that amplified rounding"));
  const auto left = verdict.unjudged_tensors - static_cast<std::int64_t>(answer.judged);
  if (left > 0)
    answer.outcome.leave_out(c10::str(counted(left, "tensor"), " from ", shown_path(verdict.unjudged_from),
                                      " on, where rounding has grown to errors that hide faults"));
  return answer;
}

/// The options of a recorder for these forwards.
std::vector<std::string> window(std::int64_t forwards, std::int64_t skip) {
  return {"--forwards", std::to_string(forwards), "--skip", std::to_string(skip)};
}

/// The largest number of calls of one module.
std::int64_t calls_of(const prints::Run& run) {
  std::int64_t most = 0;
  for (const auto& call : run.calls()) most = std::max<std::int64_t>(most, call.ordinal + 1);
  return most;
}

}  // namespace

int compare_prints(const PrintsOptions& options) {
  prints::Thresholds thresholds;
  if (!options.tolerance.empty()) thresholds = prints::Thresholds::parse(options.tolerance);
  thresholds.bits = options.bits;
  std::optional<TemporaryFolder> folder;
  std::vector<std::string> files = options.sides;
  std::optional<std::array<ComparedProgram, 2>> programs;
  if (!options.runs.empty()) {
    folder.emplace();
    programs.emplace(
        std::array<ComparedProgram, 2>{ComparedProgram(options.runs[0]), ComparedProgram(options.runs[1])});
    files = {folder->path() + "/a.prints", folder->path() + "/b.prints"};
    for (std::size_t side = 0; side < 2; ++side)
      (*programs)[side].run(files[side], window(options.forwards, options.skip));
  }
  std::array<prints::Run, 2> runs{prints::Run::read(files[0]), prints::Run::read(files[1])};
  std::array<std::int64_t, 2> forwards{options.forwards, options.forwards};
  for (std::size_t side = 0; programs && side < 2; ++side) {
    // On a side where no model was seen, a module that is called again is taken for the next forward. The
    // other side knows how often one forward calls it.
    const std::int64_t calls = calls_of(runs[1 - side]);
    if (!runs[side].model_is_unseen() || runs[1 - side].model_is_unseen() || options.forwards != 1 ||
        calls < 2)
      continue;
    forwards[side] = calls;
    files[side] += ".again";  // a file that is there is another process's
    (*programs)[side].run(files[side], window(calls, options.skip));
    runs[side] = prints::Run::read(files[side]);
  }
  const prints::Run &a = runs[0], &b = runs[1];
  const prints::Pairs pairs = prints::pair_up(a, b, options.map);
  const prints::Verdict verdict = prints::judge(a, b, pairs, thresholds);
  std::optional<SecondPass> pass;
  const auto asked = asked_of(verdict);
  const bool tried = std::any_of(asked.begin(), asked.end(), [](const prints::Divergence* finding) {
    return finding->kind != Kind::weight && !finding->certain;
  });
  if (programs && tried && ((*programs)[0].python() || (*programs)[1].python())) {
    const std::array<std::vector<std::string>, 2> windows{window(forwards[0], options.skip),
                                                          window(forwards[1], options.skip)};
    pass = second_pass(*programs, windows, folder->path(), a, b, pairs, verdict, thresholds);
  }
  const PrintsAnswer answer = answer_of(verdict, pass ? &*pass : nullptr);
  (options.json ? print_json : print_text)({a, b, pairs, verdict, answer, options});
  return answer.outcome.status();
}

}  // namespace torchtap::tools
