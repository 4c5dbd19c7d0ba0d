#pragma once

#include <torch/torch.h>

#include <memory>
#include <set>
#include <string>
#include <vector>

#include <torchtap/views/explorer/detail/watched_models.hpp>
#include <torchtap/views/explorer/explorer.hpp>

#include "tests/support.hpp"

/// Models of the explorer's tests, and graphs as text.
namespace support {

namespace nn = torch::nn;
namespace explorer = torchtap::views::explorer;
using explorer::detail::Mode;

inline nn::Conv2d conv(int in, int out, int kernel) {
  return nn::Conv2d(nn::Conv2dOptions(in, out, kernel).padding(kernel / 2));
}

/// A ReLU in place, which the two parts of `Net` share.
struct StemImpl : nn::Module {
  nn::Conv2d c1 = conv(3, 8, 3);
  nn::BatchNorm2d n1{8};
  nn::ReLU relu;

  explicit StemImpl(nn::ReLU shared) : relu(std::move(shared)) {
    register_module("c1", c1);
    register_module("n1", n1);
    register_module("relu", relu);
  }
  at::Tensor forward(at::Tensor x) { return relu(n1(c1(x))); }
};
TORCH_MODULE(Stem);

/// Residual, in place; leaves a tensor behind that it does not return.
struct BlockImpl : nn::Module {
  nn::Conv2d c2 = conv(8, 8, 3), down = conv(8, 8, 1);
  nn::BatchNorm2d n2{8};
  nn::ReLU relu;
  at::Tensor left;

  explicit BlockImpl(nn::ReLU shared) : relu(std::move(shared)) {
    register_module("c2", c2);
    register_module("n2", n2);
    register_module("down", down);
    register_module("relu", relu);
  }
  at::Tensor forward(at::Tensor x) {
    at::Tensor out = n2(c2(x));
    left = out * 2;
    out += down(x);
    return relu(out);
  }
};
TORCH_MODULE(Block);

/// All that makes a graph hard to find: see `expected_edges`.
struct NetImpl : nn::Module {
  nn::ReLU relu{nn::ReLUOptions(true)};
  Stem stem{relu};
  Block block{relu};
  nn::Identity idn;
  nn::Conv2d b1 = conv(8, 4, 3), b2 = conv(8, 4, 1), late = conv(8, 16, 1);
  nn::Linear gate{8, 8}, after{16, 16}, aux{16, 4}, fc{16, 10};
  nn::Embedding emb{16, 10};

  NetImpl() {
    register_module("stem", stem);
    register_module("block", block);
    register_module("idn", idn);
    register_module("b1", b1);
    register_module("b2", b2);
    register_module("late", late);
    register_module("gate", gate);
    register_module("after", after);
    register_module("aux", aux);
    register_module("fc", fc);
    register_module("emb", emb);
  }
  std::tuple<at::Tensor, at::Tensor> forward(at::Tensor x) {
    x = idn(block(stem(x)));
    const at::Tensor cat = at::cat({b1(x), b2(x), x}, 1);
    const at::Tensor z = late(block->left);
    // The values of z play no part in its zeros.
    const at::Tensor pooled = cat.mean({2, 3}) + at::zeros_like(z).mean({2, 3}).narrow(1, 0, 16);
    const at::Tensor g = at::sigmoid(gate(pooled.chunk(2, 1)[1]));
    const at::Tensor y = pooled.clone();
    y.narrow(1, 0, 8).mul_(g);
    const at::Tensor a = after(y);
    const at::Tensor side = aux(a.detach());
    const at::Tensor e = emb(a.argmax(1));
    return {fc(a) + e + side.sum() * 0, z};
  }
};
TORCH_MODULE(Net);

inline std::set<std::string> expected_edges() {
  return {"net: In0 -> stem.0",      "stem: In0 -> c1.0",
          "stem: c1.0 -> n1.0",      "stem: n1.0 -> relu.0",
          "stem: relu.0 -> Out0",    "stem.c1: In0 -> Out0",
          "stem.n1: In0 -> Out0",    "stem.relu: In0 -> Out0",
          "net: stem.0 -> block.0",  "block: In0 -> c2.0",
          "block: c2.0 -> n2.0",     "block: In0 -> down.0",
          "block: n2.0 -> relu#1.0", "block: down.0 -> relu#1.0",
          "block: relu#1.0 -> Out0", "stem.relu#1: In0 -> Out0",
          "block.c2: In0 -> Out0",   "block.n2: In0 -> Out0",
          "block.down: In0 -> Out0", "net: block.0 -> idn.0",
          "idn: In0 -> Out0",        "net: idn.0 -> b1.0",
          "net: idn.0 -> b2.0",      "b1: In0 -> Out0",
          "b2: In0 -> Out0",         "net: block.hidden -> late.0",
          "late: In0 -> Out0",       "net: late.0 -> Out1",
          "net: b1.0 -> gate.0",     "net: b2.0 -> gate.0",
          "net: idn.0 -> gate.0",    "gate: In0 -> Out0",
          "net: b1.0 -> after.0",    "net: b2.0 -> after.0",
          "net: idn.0 -> after.0",   "net: gate.0 -> after.0",
          "after: In0 -> Out0",      "net: after.0 -> aux.0",
          "aux: In0 -> Out0",        "net: after.0 -> emb.0",
          "emb: In0 -> Out0",        "net: after.0 -> fc.0",
          "fc: In0 -> Out0",         "net: fc.0 -> Out0",
          "net: emb.0 -> Out0",      "net: aux.0 -> Out0"};
}

/// "block: n2.0 -> relu#1.0", with the number of forwards behind if it is not that of all.
inline std::set<std::string> edges_of_session(const explorer::detail::WatchedModel& session, Mode mode) {
  return session.run()->with_graph([&](const explorer::detail::Graph& graph) {
    const auto& of = graph.of(mode);
    const auto name = [&](std::int32_t call, bool whole = false) {
      const auto& info = graph.calls[static_cast<std::size_t>(call)];
      const auto& module = graph.modules[static_cast<std::size_t>(info.module)];
      const std::string text = module.path.empty() ? "net" : whole ? module.path : module.name;
      return info.call == 0 ? text : text + "#" + std::to_string(info.call);
    };
    const auto port = [&](const explorer::detail::Port& port, std::int32_t caller, bool from) {
      const std::string number = port.port >= 0                  ? std::to_string(port.port)
                                 : port.port == -2               ? "unknown"
                                 : (port.call == caller) == from ? "captured"
                                                                 : "hidden";
      if (port.call != caller) return name(port.call) + "." + number;
      return std::string(from ? "In" : "Out") + number;
    };
    std::set<std::string> edges;
    for (const auto& [edge, seen] : of.edge_counts()) {
      std::string text = name(edge.caller, true) + ": " + port(edge.from, edge.caller, true) + " -> " +
                         port(edge.to, edge.caller, false);
      if (seen != of.forwards())
        text += " (" + std::to_string(seen) + " of " + std::to_string(of.forwards()) + ")";
      edges.insert(std::move(text));
    }
    return edges;
  });
}

inline std::set<std::string> edges_of(const explorer::Explorer& explorer, Mode mode) {
  return edges_of_session(*explorer::detail::models_of(explorer).first(), mode);
}

/// Fails with what is missing and what is too much.
inline void check_same(const std::set<std::string>& got, const std::set<std::string>& expected) {
  for (const std::string& edge : expected) BOOST_TEST(got.count(edge) == 1, "missing: " << edge);
  for (const std::string& edge : got) BOOST_TEST(expected.count(edge) == 1, "wrong: " << edge);
}

inline void check_no_errors(const explorer::Explorer& explorer) {
  for (const std::string& error : explorer.errors()) BOOST_TEST(error == "");
}

}  // namespace support
