#pragma once

// Prints the comparison of two prints files, as text or as JSON.

#include <torchtap/views/compare/answer.hpp>
#include <torchtap/views/compare/pairs.hpp>
#include <torchtap/views/compare/run.hpp>
#include <torchtap/views/compare/verdict.hpp>

#include "compare_prints.hpp"
#include "terminal/outcome.hpp"

namespace torchtap::tools {

/// What differs first, and what agreement leaves open.
struct PrintsAnswer : views::compare::Answer {
  Outcome outcome;
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
