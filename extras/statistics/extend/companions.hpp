#pragma once

/// What reductions that look up tensors beside a sample have in common.

#include <ATen/core/Tensor.h>

#include <optional>
#include <string>

#include <torchtap/base/api.hpp>
#include <torchtap/reductions/any.hpp>
#include <torchtap/reductions/extend/own_reduction.hpp>
#include <torchtap/statistics/detail/chosen_rows.hpp>

namespace torchtap::reductions::extend {

using statistics::detail::any_companion;

/// Throws `c10::TypeError` unless the tensor is a plain strided one; `what` is the class that asks.
TORCHTAP_API void expect_plain(const char* what, const at::Tensor& sample);

/// A reduction before its first sample, which shows the names of its results.
class TORCHTAP_API Beginning {
 public:
  /// `own`: the name of a result that class `what` adds to the results of `inner`.
  Beginning(const char* what, std::string own, const Any& inner);
  /// After an update. Throws `c10::ValueError`, and makes `inner` what it was, if it has a result of that
  /// name.
  void check(Any& inner) const;

 private:
  const char* what_;
  std::string own_;
  std::optional<Any> before_;  // nothing once there were samples
};

/// Throws `c10::ValueError` if `inner` uses a companion called `name`, too.
TORCHTAP_API void expect_other_names(const char* what, const std::string& name, const Any& inner);

}  // namespace torchtap::reductions::extend
