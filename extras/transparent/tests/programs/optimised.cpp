// One program, compiled without and with optimisation, also at link time: the hooks have to fire in each.
#include <iostream>

#include <torchtap/recorders/recorders.hpp>
#include <torchtap/selectors/selectors.hpp>
#include <torchtap/transparent/transparent.hpp>

#include "../own.hpp"

int main() {
  for (const auto& problem : torchtap::transparent::check()) std::cerr << problem << '\n';
  at::manual_seed(0);
  auto net = std::make_shared<Net>();
  const auto x = at::randn({3, 4});
  net->eval();
  const auto bare = net->forward(x);
  torchtap::recorders::ForwardOutput outputs;
  outputs.modules(*net, torchtap::selectors::reachable());
  const bool same = at::equal(net->forward(x), bare);
  bool all = outputs.size() == 15;
  for (std::int64_t i = 0; i < outputs.size(); ++i) {
    const bool is_gate = outputs[i].name().compare(0, 4, "gate") == 0;
    if (outputs[i].samples() == (is_gate ? 2 : 1)) continue;
    std::cerr << outputs[i].name() << " was recorded " << outputs[i].samples() << " times\n";
    all = false;
  }
  if (outputs.size() != 15) std::cerr << outputs.size() << " modules can be reached\n";
  return same && all && torchtap::transparent::check().empty() ? 0 : 1;
}
