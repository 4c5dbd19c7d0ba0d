#pragma once

// Prints the comparison of two prints files, as text or as JSON.

#include <optional>
#include <string>
#include <vector>

#include <torchtap/views/compare/pairs.hpp>
#include <torchtap/views/compare/run.hpp>
#include <torchtap/views/compare/verdict.hpp>

#include "compare_prints.hpp"
#include "second_pass.hpp"
#include "terminal/outcome.hpp"

namespace torchtap::tools {

/// The last lines.
struct PrintsAnswer {
  std::optional<views::compare::Divergence> first;
  std::optional<SecondPass::Tried> tried;  // the first, if it is a module
  std::size_t innocent = 0;                // suspects before it that amplified rounding
  std::size_t judged = 0;                  // modules that only values can judge, and did
  Outcome outcome;                         // whether there is one, and what agreement leaves open
  std::string input_cause, input_search;
  bool own_is_a = true;
};

/// Two runs that were compared.
struct PrintsReport {
  const views::compare::Run &a, &b;
  const views::compare::Pairs& pairs;
  const views::compare::Verdict& verdict;
  const PrintsAnswer& answer;
  const PrintsOptions& options;
};

void print_text(const PrintsReport& report);
void print_json(const PrintsReport& report);

}  // namespace torchtap::tools
