#include <ATen/Functions.h>

#include <torchtap/reductions/parse.hpp>
#include <torchtap/reductions/quantiles.hpp>
#include <torchtap/reductions/restore.hpp>

namespace reductions = torchtap::reductions;

int main() {
  reductions::Any named = reductions::parse("quantiles", reductions::ParseOptions().over_all(true));
  named.update(at::arange(101.0));
  const reductions::Any again = reductions::restore(torchtap::core::save(named).value());
  return again.get<reductions::Quantiles>()->median().item<double>() == 50 ? 0 : 1;
}
