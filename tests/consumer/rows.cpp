#include <ATen/Functions.h>
#include <torch/nn/modules/linear.h>

#include <cstdio>

#include <torchtap/core/context.hpp>
#include <torchtap/hooks/nn.hpp>
#include <torchtap/recorders/recorders.hpp>
#include <torchtap/rows/rows.hpp>

namespace tap = torchtap;

int main() {
  tap::nn::Linear net(3, 2);
  {
    tap::recorders::ForwardOutput dump(tap::recorders::RecorderOptions().rows({0}).beside({"id"}).spool(
        "rows_consumer_dump", tap::storage::SpoolOptions().mkdir(true).overwrite(true)));
    dump.attach(*net);
    const tap::core::Context named("id", at::arange(4, at::kLong));
    net->forward(at::ones({4, 3}));
  }
  const tap::rows::Rows rows = tap::storage::load("rows_consumer_dump").at("").rows();
  return rows.size() == 4 && rows.beside("id").equal(at::arange(4, at::kLong)) ? 0 : 1;
}
