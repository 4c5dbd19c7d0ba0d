// Checks tensors beside a sample, and the names of results that come of them.

#include <algorithm>

#include <torchtap/base/error.hpp>
#include <torchtap/base/strided.hpp>
#include <torchtap/core/unfit.hpp>
#include <torchtap/statistics/extend/companions.hpp>

namespace torchtap::reductions::extend {

void expect_plain(const char* what, const at::Tensor& sample) {
  TORCH_CHECK_TYPE(sample.defined(), "reductions::", what,
                   "::update: expected a tensor, got an undefined one.");
  if (!base::is_strided(sample)) {
    core::unfit<c10::TypeError>(c10::str("reductions::", what,
                                         "::update: expected a plain strided tensor, got ",
                                         base::instead_of_strided(sample), "."));
  }
  TORCH_CHECK_TYPE(!sample.is_quantized(), "reductions::", what,
                   "::update: expected a plain strided tensor, got ", sample.toString(),
                   "; convert it with dequantize() first.");
}

Beginning::Beginning(const char* what, std::string own, const Any& inner)
    : what_(what), own_(std::move(own)) {
  if (inner.count() == 0) before_ = inner;
}

void Beginning::check(Any& inner) const {
  if (!before_ || inner.count() == 0 || !inner.results().contains(own_)) return;
  inner = *before_;
  TORCH_CHECK_VALUE(false, "reductions::", what_, "::update: \"", own_, "\" is a result of ",
                    inner.describe(), ", too; use another name.");
}

void expect_other_names(const char* what, const std::string& name, const Any& inner) {
  const auto names = inner.companions();
  TORCH_CHECK_VALUE(name.empty() || std::find(names.begin(), names.end(), name) == names.end(), what, ": ",
                    inner.describe(), " uses \"", name, "\", too; results need different names.");
}

}  // namespace torchtap::reductions::extend
