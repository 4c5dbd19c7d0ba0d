// The edges of the zoo's networks, beside lists written by hand, in each mode.
#include "zoo.hpp"

#include <boost/test/unit_test.hpp>
#include <torch/torch.h>

BOOST_AUTO_TEST_SUITE(zoo_graphs)

using namespace support;

namespace {

/// Edges written by hand: `chain` for calls that hand on one tensor, `edge` for the others.
struct Edges {
  std::set<std::string> all;

  void edge(const std::string& caller, const std::string& from, const std::string& to) {
    all.insert(caller + ": " + from + " -> " + to);
  }
  void chain(const std::string& caller, const std::vector<std::string>& calls) {
    for (std::size_t i = 0; i <= calls.size(); ++i)
      edge(caller, i == 0 ? "In0" : calls[i - 1] + ".0", i == calls.size() ? "Out0" : calls[i] + ".0");
  }
  /// Calls without others inside: the output depends on the input.
  void leaves(const std::string& prefix, const std::vector<std::string>& calls) {
    for (const auto& call : calls) edge(prefix + call, "In0", "Out0");
  }
};

/// In training, in evaluation, without gradients and in inference mode.
void check_in_all_modes(const Network& network, const std::set<std::string>& training,
                        const std::set<std::string>& evaluation) {
  explorer::Explorer watched;
  watched.attach(*network.model);
  network.forward();
  check_same(edges_of(watched, Mode::train), training);
  network.model->eval();
  network.forward();
  check_same(edges_of(watched, Mode::eval), evaluation);
  check_no_errors(watched);
  for (const bool inference : {false, true}) {
    explorer::Explorer again;
    again.attach(*network.model);
    const c10::InferenceMode mode(inference);
    const torch::NoGradGuard no_grad;
    network.forward();
    check_same(edges_of(again, Mode::eval), evaluation);
    check_no_errors(again);
  }
}

void double_conv(Edges& edges, const std::string& path) {
  const std::vector<std::string> calls{"0", "1", "2", "3", "4", "5"};
  edges.chain(path, {"double_conv"});
  edges.chain(path + ".double_conv", calls);
  edges.leaves(path + ".double_conv.", calls);
}

}  // namespace

BOOST_AUTO_TEST_CASE(of_a_unet) {
  Edges edges;
  // A ModuleList is never called: its entries are calls inside of the net.
  double_conv(edges, "inc");
  edges.chain("net", {"inc", "0", "1"});
  edges.all.erase("net: 1.0 -> Out0");
  for (const std::string i : {"0", "1"}) {
    const std::string down = "downs." + i, up = "ups." + i;
    edges.chain(down, {"maxpool_conv"});
    edges.chain(down + ".maxpool_conv", {"0", "1"});
    edges.leaves(down + ".maxpool_conv.", {"0"});
    double_conv(edges, down + ".maxpool_conv.1");
    edges.chain(up, {"up", "conv"});
    edges.edge(up, "In1", "conv.0");
    edges.leaves(up + ".", {"up"});
    double_conv(edges, up + ".conv");
  }
  // The skips: what went into downs.1 and downs.0. Both lists number their entries from 0.
  edges.edge("net", "1.0", "0.0");    // downs.1 to ups.0
  edges.edge("net", "0.0", "0.1");    // the skip downs.0 to ups.0
  edges.edge("net", "0.0", "1.0");    // ups.0 to ups.1, and downs.0 to downs.1
  edges.edge("net", "inc.0", "1.1");  // the other skip
  edges.edge("net", "1.0", "outc.0");
  edges.edge("net", "outc.0", "Out0");
  edges.leaves("", {"outc"});
  check_in_all_modes(make_unet(), edges.all, edges.all);
}

BOOST_AUTO_TEST_CASE(of_a_gpt) {
  Edges edges;
  edges.edge("net", "In0", "tok_emb.0");
  // Positions depend on no value of the tokens.
  edges.edge("net", "tok_emb.0", "drop.0");
  edges.edge("net", "pos_emb.0", "drop.0");
  edges.chain("net", {"", "drop", "0", "1", "ln_f", "head"});
  edges.all.erase("net: In0 -> .0");
  edges.all.erase("net: .0 -> drop.0");
  edges.leaves("", {"tok_emb", "pos_emb", "drop", "ln_f", "head"});
  for (const std::string i : {"0", "1"}) {
    const std::string block = "blocks." + i;
    edges.chain(block, {"ln1", "attn", "ln2", "mlp"});
    edges.edge(block, "In0", "ln2.0");
    edges.edge(block, "In0", "Out0");
    edges.edge(block, "attn.0", "Out0");
    edges.leaves(block + ".", {"ln1", "ln2"});
    for (const std::string part : {"query", "key", "value"}) edges.edge(block + ".attn", "In0", part + ".0");
    edges.edge(block + ".attn", "query.0", "attn_drop.0");
    edges.edge(block + ".attn", "key.0", "attn_drop.0");
    edges.edge(block + ".attn", "value.0", "proj.0");
    edges.edge(block + ".attn", "attn_drop.0", "proj.0");
    edges.edge(block + ".attn", "proj.0", "resid_drop.0");
    edges.edge(block + ".attn", "resid_drop.0", "Out0");
    edges.leaves(block + ".attn.", {"query", "key", "value", "proj", "attn_drop", "resid_drop"});
    edges.chain(block + ".mlp", {"fc", "gelu", "proj", "drop"});
    edges.leaves(block + ".mlp.", {"fc", "gelu", "proj", "drop"});
  }
  check_in_all_modes(make_gpt(), edges.all, edges.all);
}

BOOST_AUTO_TEST_CASE(of_a_vae_with_a_struct_that_hooks_cannot_read) {
  Edges edges;
  edges.edge("net", "In0", "encoder.0");
  edges.edge("encoder", "In0", "fc.0");
  for (const std::string part : {"mean", "log_variance"}) edges.edge("encoder", "fc.0", part + ".0");
  edges.leaves("encoder.", {"fc", "mean", "log_variance"});
  // The encoder's result is one of those: its tensors are left behind.
  for (const std::string to : {"fc.0", "Out1", "Out2"}) edges.edge("net", "encoder.hidden", to);
  edges.edge("net", "fc.0", "out.0");
  edges.edge("net", "out.0", "Out0");
  edges.leaves("", {"fc", "out"});
  check_in_all_modes(make_vae(), edges.all, edges.all);
}

BOOST_AUTO_TEST_CASE(of_a_tagger_with_packed_sequences) {
  Edges edges;
  edges.chain("net", {"embedding", "lstm", "head"});
  edges.leaves("", {"embedding", "head", "lstm"});
  // A packed sequence is data, batch sizes, sorted and unsorted indices. One operation makes the first two.
  edges.edge("net", "embedding.0", "lstm.1");
  for (const std::string port : {"0", "1", "2", "3"}) edges.edge("net", "In1", "lstm." + port);
  for (const std::string port : {"1", "2", "3"}) edges.edge("lstm", "In" + port, "Out" + port);
  for (const std::string state : {"4", "5"}) {  // they are put back in order
    edges.edge("lstm", "In0", "Out" + state);
    edges.edge("lstm", "In3", "Out" + state);
  }
  edges.edge("net", "lstm.3", "head.0");  // so are the outputs
  check_in_all_modes(make_tagger(), edges.all, edges.all);
}

BOOST_AUTO_TEST_CASE(of_a_detector_with_a_list_and_names) {
  Edges edges;
  edges.chain("net", {"stem", "down"});
  edges.all.erase("net: down.0 -> Out0");
  edges.edge("net", "stem.0", "neck.0");
  edges.edge("net", "down.0", "neck.1");
  edges.edge("neck", "In0", "conv.0");
  edges.edge("neck", "conv.0", "Out0");
  edges.edge("neck", "In1", "Out0");
  edges.edge("net", "neck.0", "scores.0");
  edges.edge("net", "neck.0", "boxes.0");
  edges.edge("net", "boxes.0", "Out0");  // a map is sorted by name
  edges.edge("net", "scores.0", "Out1");
  edges.leaves("", {"stem", "down", "scores", "boxes"});
  edges.leaves("neck.", {"conv"});
  check_in_all_modes(make_detector(), edges.all, edges.all);
}

BOOST_AUTO_TEST_CASE(of_a_mobilenet) {
  Edges edges;
  edges.chain("net", {"stem", "0", "1", "head"});
  edges.leaves("", {"stem", "head"});
  for (const std::string i : {"0", "1"}) {
    edges.chain("blocks." + i, {"depthwise", "bn1", "relu", "pointwise", "bn2", "relu#1"});
    edges.leaves("blocks." + i + ".", {"depthwise", "bn1", "relu", "pointwise", "bn2", "relu#1"});
  }
  check_in_all_modes(make_mobilenet(), edges.all, edges.all);
}

/// Embedding and head share one weight; a module is registered in two places; inputs and outputs may be
/// undefined.
struct TiedImpl : nn::Module {
  struct ScaleImpl : nn::Module {
    std::vector<at::Tensor> forward(const at::Tensor& x, const at::Tensor& mask, const at::Tensor& by) {
      return {x * by, mask.defined() ? mask * 2 : mask, by};
    }
  };
  TORCH_MODULE(Scale);
  struct HeadImpl : nn::Module {
    at::Tensor weight;
    at::Tensor forward(const at::Tensor& x) { return torch::matmul(x, weight.t()); }
  };
  TORCH_MODULE(Head);

  nn::Embedding embed{7, 4};
  nn::Linear shared{4, 4};
  Scale scale;
  Head head;
  TiedImpl() {
    register_module("embed", embed);
    register_module("first", shared);
    register_module("second", shared);
    register_module("scale", scale);
    register_module("head", head);
    head->weight = head->register_parameter("weight", embed->weight);
  }
  at::Tensor forward(const at::Tensor& tokens, const at::Tensor& mask) {
    const at::Tensor x = shared(embed(tokens));
    const auto parts = scale->forward(x, at::Tensor(), mask);
    const auto more = scale->forward(shared(parts[0]), parts[2], x);
    return head(more[0] + more[1]);
  }
};
TORCH_MODULE(Tied);

BOOST_AUTO_TEST_CASE(of_shared_parts_and_undefined_tensors) {
  Tied net;
  explorer::Explorer watched(explorer::ExplorerOptions().every(1));
  watched.attach(*net);
  net->forward(torch::randint(7, {2, 4}), torch::randn({2, 4, 4})).sum().backward();
  check_same(edges_of(watched, Mode::train),
             {"net: In0 -> embed.0",       "embed: In0 -> Out0",        "net: embed.0 -> first.0",
              "first: In0 -> Out0",        "net: first.0 -> scale.0",   "net: In1 -> scale.2",
              "scale: In0 -> Out0",        "scale: In2 -> Out0",        "scale: In2 -> Out2",
              "net: scale.0 -> first#1.0", "first#1: In0 -> Out0",      "net: first#1.0 -> scale#1.0",
              "net: scale.2 -> scale#1.1", "net: first.0 -> scale#1.2", "scale#1: In0 -> Out0",
              "scale#1: In2 -> Out0",      "scale#1: In1 -> Out1",      "scale#1: In2 -> Out2",
              "net: scale#1.0 -> head.0",  "net: scale#1.1 -> head.0",  "head: In0 -> Out0",
              "net: head.0 -> Out0"});
  // The weight has one series, at the module that has it first.
  std::int64_t parameters = 0;
  explorer::detail::models_of(watched).first()->run()->each_series(
      [&](const explorer::detail::Series& series) {
        parameters += series.key().what == explorer::detail::What::parameter ? 1 : 0;
      });
  BOOST_TEST(parameters == 3);
  check_no_errors(watched);
}

BOOST_AUTO_TEST_SUITE_END()
