// Compares two runs.
#include "compare_prints.hpp"

#include <algorithm>
#include <array>
#include <optional>

#include "compared_program.hpp"
#include "prints_report.hpp"
#include "temporary_folder.hpp"

namespace torchtap::tools {

namespace {

namespace prints = views::compare;
using Kind = prints::Finding::Kind;

/// The first suspect that was not tried or is no amplified rounding.
PrintsAnswer answer_of(const prints::Verdict& verdict, const SecondPass* pass) {
  PrintsAnswer answer;
  std::size_t next = 0;
  if (pass != nullptr) answer.own_is_a = pass->own_is_a;
  for (const prints::Finding& finding : verdict.suspects) {
    const bool module = finding.kind == Kind::module || finding.kind == Kind::between;
    std::optional<SecondPass::Tried> tried;
    if (pass != nullptr && module) tried = pass->tried.at(next++);
    // Tensors made inside of a module may differ although its output, which the trial is about, does not.
    constexpr double kFar = 16;
    const bool inside = finding.kind == Kind::between && !(finding.error <= kFar * finding.allowed) &&
                        tried && tried->unseen.empty();
    if (tried && tried->proved == false && inside) {
      tried->proved.reset();
      tried->reason = "the output of the module around agrees";
    }
    if (tried && tried->proved == false) {
      ++answer.innocent;
      continue;
    }
    answer.first = finding;
    answer.tried = tried;
    if (pass != nullptr && finding.kind == Kind::input) answer.input_cause = pass->input_cause;
    return answer;
  }
  constexpr std::size_t kMost = 5;  // suspects of a thread
  answer.exhausted = answer.innocent >= kMost;
  return answer;
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
    for (std::size_t side = 0; side < 2; ++side) (*programs)[side].run(files[side], {});
  }
  const prints::Run a = prints::Run::read(files[0]), b = prints::Run::read(files[1]);
  const prints::Pairs pairs = prints::pair_up(a, b, options.map);
  const prints::Verdict verdict = prints::judge(a, b, pairs, thresholds);
  std::optional<SecondPass> pass;
  const bool tried = std::any_of(verdict.suspects.begin(), verdict.suspects.end(),
                                 [](const prints::Finding& finding) { return finding.kind != Kind::weight; });
  if (programs && tried && ((*programs)[0].python() || (*programs)[1].python())) {
    pass = second_pass(*programs, folder->path(), a, b, pairs, verdict, thresholds);
  }
  const PrintsAnswer answer = answer_of(verdict, pass ? &*pass : nullptr);
  (options.json ? print_json : print_text)({a, b, pairs, verdict, answer, options});
  return answer.first ? 1 : 0;
}

}  // namespace torchtap::tools
