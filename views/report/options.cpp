// Formulas that the user adds.
#include <c10/util/Exception.h>

#include <utility>

#include <torchtap/views/report/options.hpp>

namespace torchtap::views::report {

ReportOptions& ReportOptions::formula(const std::string& operation, Formula macs) {
  TORCH_CHECK_VALUE(operation.find("::") != std::string::npos, "views::report::ReportOptions::formula: \"",
                    operation, "\" is no operation's name; pass it with its namespace, as \"aten::mm\".");
  TORCH_CHECK_VALUE(macs != nullptr, "views::report::ReportOptions::formula: the formula of ", operation,
                    " is empty; pass a function.");
  formulas_[operation] = std::move(macs);
  return *this;
}

}  // namespace torchtap::views::report
