#include "output_sum.hpp"

#include <ATen/Functions.h>
#include <c10/util/Exception.h>

namespace torchtap::tools {

at::Tensor sum_of_outputs(const c10::IValue& result) {
  at::Tensor sum;
  result.visit([&](const c10::IValue& part) {
    if (part.isTensor() && part.toTensor().defined() && part.toTensor().requires_grad()) {
      const at::Tensor one = part.toTensor().sum();
      sum = sum.defined() ? sum.add(one) : one;
    }
    return false;
  });
  TORCH_CHECK_VALUE(sum.defined(),
                    "no output of the model has a gradient with respect to its parameters or inputs.");
  return sum;
}

}  // namespace torchtap::tools
