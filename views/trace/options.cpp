// The tensors a trace keeps: the last call of `save` counts.
#include <c10/util/Exception.h>

#include <utility>

#include <torchtap/views/trace/options.hpp>

namespace torchtap::views::trace {

TraceOptions& TraceOptions::save(Save what) {
  save_ = what;
  names_.clear();
  predicate_ = nullptr;
  return *this;
}

TraceOptions& TraceOptions::save(std::vector<std::string> names) {
  save_ = Save::none;
  names_ = std::move(names);
  predicate_ = nullptr;
  return *this;
}

TraceOptions& TraceOptions::save(Predicate predicate) {
  TORCH_CHECK_VALUE(predicate != nullptr,
                    "views::trace::TraceOptions::save: the predicate is empty; pass a function.");
  save_ = Save::none;
  names_.clear();
  predicate_ = std::move(predicate);
  return *this;
}

TraceOptions& TraceOptions::memory_budget(std::int64_t bytes, OverBudget policy) {
  TORCH_CHECK_VALUE(bytes >= 0, "views::trace::TraceOptions::memory_budget: ", bytes,
                    " is negative; pass a number of bytes, or leave it out for no budget.");
  memory_budget_ = bytes;
  over_budget_ = policy;
  return *this;
}

}  // namespace torchtap::views::trace
