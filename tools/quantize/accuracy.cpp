#include "accuracy.hpp"

#include <ATen/Functions.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <tuple>

#include <torchtap/core/value.hpp>

namespace torchtap::tools {

at::Tensor ranking_of(const c10::IValue& result) {
  at::Tensor scores;
  result.visit([&](const c10::IValue& part) {
    if (!scores.defined() && part.isTensor() && part.toTensor().defined()) scores = part.toTensor();
    return scores.defined();
  });
  TORCH_CHECK_VALUE(scores.defined(), "the model returned no tensor of scores, but ", result.tagKind(), ".");
  if (scores.is_quantized()) scores = scores.dequantize();
  TORCH_CHECK_VALUE(scores.dim() >= 2 && scores.size(1) > 1 &&
                        scores.numel() == scores.size(0) * scores.size(1) && !scores.is_complex(),
                    "the model returned ", core::Value(scores).describe(),
                    "; expected scores of the shape [images, classes].");
  return std::get<1>(scores.flatten(1).sort(/*stable=*/true, 1, /*descending=*/true));
}

void Accuracy::add(const at::Tensor& ranking, const at::Tensor& labels) {
  const bool whole = at::isIntegralType(labels.scalar_type(), /*includeBool=*/false);
  TORCH_CHECK_VALUE(
      whole && labels.dim() >= 1 && labels.size(0) == ranking.size(0) && labels.numel() == ranking.size(0),
      "--labels: expected the number of a class for each of ", ranking.size(0), " images, found ",
      core::Value(labels).describe(), ".");
  const at::Tensor numbers = labels.flatten().to(at::kLong);
  const at::Tensor wrong = numbers.masked_select(numbers.lt(0).logical_or_(numbers.ge(ranking.size(1))));
  TORCH_CHECK_VALUE(wrong.numel() == 0, "--labels: there is the label ", wrong[0].item<std::int64_t>(),
                    ", but the model's classes are 0 to ", ranking.size(1) - 1, ".");
  const at::Tensor right = ranking.eq(numbers.unsqueeze(1));
  images += ranking.size(0);
  classes = ranking.size(1);
  first += right.select(1, 0).sum().item<std::int64_t>();
  among_five += right.narrow(1, 0, std::min<std::int64_t>(5, classes)).sum().item<std::int64_t>();
}

}  // namespace torchtap::tools
