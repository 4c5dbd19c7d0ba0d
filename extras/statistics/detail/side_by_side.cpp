// Looks up the other tensor, checks that it has as many rows, and puts each row behind that of the sample.

#include <ATen/Functions.h>

#include <torchtap/base/error.hpp>
#include <torchtap/base/recording_mode.hpp>
#include <torchtap/core/unfit.hpp>
#include <torchtap/statistics/detail/side_by_side.hpp>
#include <torchtap/statistics/extend/companions.hpp>

namespace torchtap::statistics::detail {
namespace {

at::Tensor as_matrix(const at::Tensor& tensor) {
  return tensor.dim() == 1 ? tensor.unsqueeze(1) : tensor.flatten(1);
}

}  // namespace

at::Tensor side_by_side(const char* what, const std::string& name, const at::Tensor& sample,
                        std::int64_t& start) {
  reductions::extend::expect_plain(what, sample);
  const at::Tensor other = reductions::extend::any_companion(what, name);
  reductions::extend::expect_plain(what, other);
  TORCH_CHECK_VALUE(sample.dim() > 0 && other.dim() > 0 && sample.size(0) == other.size(0),
                    "reductions::", what, "::update: \"", name, "\" has shape ", other.sizes(),
                    " and the sample ", sample.sizes(),
                    "; each needs a row for each row of the other, along dimension 0.");
  TORCH_CHECK_VALUE(sample.device() == other.device(), "reductions::", what, "::update: \"", name,
                    "\" is on ", other.device(), " and the sample on ", sample.device(),
                    "; bring both to one device.");
  const base::RecordingMode quiet;
  const at::Tensor x = as_matrix(sample), y = as_matrix(other);
  if (start != 0 && x.size(1) != start) {
    core::unfit<c10::ValueError>(c10::str("reductions::", what, "::update: expected ", start,
                                          " numbers in each row of the sample, as before, got ", x.size(1),
                                          ", of shape ", sample.sizes(), "."));
  }
  const auto dtype = c10::promoteTypes(x.scalar_type(), y.scalar_type());
  at::Tensor both = at::cat({x.to(dtype), y.to(dtype)}, 1);
  start = x.size(1);
  return both;
}

}  // namespace torchtap::statistics::detail
