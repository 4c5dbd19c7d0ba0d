// Which data flows between the calls of a model, whatever mode it runs in.
#include <boost/test/unit_test.hpp>
#include <torch/script.h>
#include <zoo/resnet.hpp>

#include <thread>

#include "support.hpp"

BOOST_AUTO_TEST_SUITE(graph)

using namespace support;

BOOST_AUTO_TEST_CASE(of_a_net_with_everything_in_training) {
  for (const bool input_needs_gradient : {false, true}) {
    torch::manual_seed(0);
    Net net;
    explorer::Explorer watched;
    watched.attach(*net);
    net->forward(torch::randn({2, 3, 8, 8}).set_requires_grad(input_needs_gradient));
    check_same(edges_of(watched, Mode::train), expected_edges());
    check_no_errors(watched);
  }
}

BOOST_AUTO_TEST_CASE(of_a_net_with_everything_without_gradients) {
  Net net;
  net->eval();
  explorer::Explorer watched;
  watched.attach(*net);
  const torch::NoGradGuard no_grad;
  net->forward(torch::randn({2, 3, 8, 8}));
  check_same(edges_of(watched, Mode::eval), expected_edges());
  check_no_errors(watched);
}

BOOST_AUTO_TEST_CASE(of_a_net_with_everything_in_inference_mode) {
  Net net;
  net->eval();
  explorer::Explorer watched;
  watched.attach(*net);
  const c10::InferenceMode inference;
  net->forward(torch::randn({2, 3, 8, 8}));
  check_same(edges_of(watched, Mode::eval), expected_edges());
  check_no_errors(watched);
}

/// What a ResNet-18 of torchvision's names is made of.
std::set<std::string> resnet_edges() {
  std::set<std::string> edges;
  const auto chain = [&](const std::string& caller, const std::vector<std::string>& calls) {
    for (std::size_t i = 0; i <= calls.size(); ++i) {
      const std::string from = i == 0 ? "In0" : calls[i - 1] + ".0";
      edges.insert(caller + ": " + from + " -> " + (i == calls.size() ? "Out0" : calls[i] + ".0"));
    }
  };
  const auto leaves = [&](const std::string& prefix, const std::vector<std::string>& calls) {
    for (const auto& call : calls) edges.insert(prefix + call + ": In0 -> Out0");
  };
  chain("net", {"conv1", "bn1", "relu", "maxpool", "layer1", "layer2", "layer3", "layer4", "avgpool", "fc"});
  leaves("", {"conv1", "bn1", "relu", "maxpool", "avgpool", "fc"});
  for (int layer = 1; layer <= 4; ++layer) {
    const std::string path = "layer" + std::to_string(layer);
    chain(path, {"0", "1"});
    for (const char* const end : {".0", ".1"}) {
      const std::string block = path + end;
      chain(block, {"conv1", "bn1", "relu", "conv2", "bn2", "relu#1"});
      leaves(block + ".", {"conv1", "bn1", "relu", "conv2", "bn2", "relu#1"});
      if (layer > 1 && block.back() == '0') {
        edges.insert(block + ": In0 -> downsample.0");
        edges.insert(block + ": downsample.0 -> relu#1.0");
        chain(block + ".downsample", {"0", "1"});
        leaves(block + ".downsample.", {"0", "1"});
      } else {
        edges.insert(block + ": In0 -> relu#1.0");
      }
    }
  }
  return edges;
}

BOOST_AUTO_TEST_CASE(of_resnet_18) {
  zoo::ResNet18 net;
  explorer::Explorer watched;
  watched.attach(*net);
  net->forward(torch::randn({2, 3, 32, 32}));
  check_same(edges_of(watched, Mode::train), resnet_edges());
  check_no_errors(watched);
}

BOOST_AUTO_TEST_CASE(of_resnet_18_as_torchscript_also_once_it_is_optimised) {
  for (const std::string kind : {"script", "trace"}) {
    torch::jit::Module net =
        torch::jit::load(std::string(TORCHTAP_TEST_MODELS) + "/resnet18." + kind + ".pt");
    const torch::NoGradGuard no_grad;
    for (const bool warm : {false, true}) {
      const at::Tensor x = torch::randn({1, 3, 32, 32});
      for (int i = 0; i < 3 && warm; ++i) net.forward({x});
      explorer::Explorer watched;
      watched.attach(net);
      net.forward({x});
      const Mode mode = net.is_training() ? Mode::train : Mode::eval;
      check_same(edges_of(watched, mode), resnet_edges());
      check_no_errors(watched);
    }
  }
}

struct BranchesImpl : nn::Module {
  nn::Linear a{4, 4}, b{4, 4};
  bool left = true;
  BranchesImpl() {
    register_module("a", a);
    register_module("b", b);
  }
  at::Tensor forward(const at::Tensor& x) { return left ? a(x) : b(x); }
};
TORCH_MODULE(Branches);

BOOST_AUTO_TEST_CASE(says_in_how_many_forwards_each_branch_ran) {
  Branches net;
  explorer::Explorer watched(explorer::ExplorerOptions().every(1));  // has time to look again
  watched.attach(*net);
  // The first right branch is noticed by its calls, and the second one is looked at.
  for (const bool left : {true, true, false, false, true, false}) {
    net->left = left;
    net->forward(torch::randn({1, 4}));
  }
  check_same(edges_of(watched, Mode::train),
             {"net: In0 -> a.0 (3 of 6)", "a: In0 -> Out0 (3 of 6)", "net: a.0 -> Out0 (3 of 6)",
              "net: In0 -> b.0 (3 of 6)", "b: In0 -> Out0 (3 of 6)", "net: b.0 -> Out0 (3 of 6)"});
  check_no_errors(watched);
}

/// A loop over one module, a tensor that inner modules take without being given it, one from nowhere.
struct LoopImpl : nn::Module {
  struct InnerImpl : nn::Module {
    const at::Tensor* seen = nullptr;
    at::Tensor forward(const at::Tensor& x) { return x + *seen; }
  };
  TORCH_MODULE(Inner);

  nn::Linear cell{4, 4};
  Inner inner;
  at::Tensor memory = torch::ones({1, 4}), given;
  LoopImpl() {
    register_module("cell", cell);
    register_module("inner", inner);
  }
  at::Tensor forward(at::Tensor x) {
    given = x * 2;
    inner->seen = &given;
    for (int i = 0; i < 3; ++i) x = cell(x);
    return inner(x) + cell(memory);
  }
};
TORCH_MODULE(Loop);

BOOST_AUTO_TEST_CASE(of_loops_and_of_tensors_that_no_argument_carries) {
  Loop net;
  explorer::Explorer watched;
  watched.attach(*net);
  net->forward(torch::randn({1, 4}));
  check_same(
      edges_of(watched, Mode::train),
      {"net: In0 -> cell.0", "net: cell.0 -> cell#1.0", "net: cell#1.0 -> cell#2.0",
       "net: cell#2.0 -> inner.0", "net: In0 -> inner.captured", "inner: Incaptured -> Out0",
       "inner: In0 -> Out0", "net: Inunknown -> cell#3.0", "net: inner.0 -> Out0", "net: cell#3.0 -> Out0",
       "cell: In0 -> Out0", "cell#1: In0 -> Out0", "cell#2: In0 -> Out0", "cell#3: In0 -> Out0"});
  check_no_errors(watched);
}

BOOST_AUTO_TEST_CASE(an_attached_tensor_is_a_node) {
  struct NamedImpl : nn::Module {
    nn::Linear a{4, 4}, b{4, 4};
    NamedImpl() {
      register_module("a", a);
      register_module("b", b);
    }
    at::Tensor forward(const at::Tensor& x) {
      const at::Tensor y = a(x) * 2;
      explorer::attach(y, "twice");  // the result need not be used
      return b(y);
    }
  };
  TORCH_MODULE(Named);
  Named net;
  explorer::Explorer watched;
  watched.attach(*net);
  net->forward(torch::randn({1, 4}));
  check_same(edges_of(watched, Mode::train),
             {"net: In0 -> a.0", "net: a.0 -> twice.0", "twice: In0 -> Out0", "net: twice.0 -> b.0",
              "net: b.0 -> Out0", "a: In0 -> Out0", "b: In0 -> Out0"});
  check_no_errors(watched);
}

BOOST_AUTO_TEST_CASE(of_two_models_in_two_threads) {
  struct Seen {
    std::set<std::string> edges;
    std::vector<std::string> errors;
  };
  const auto train = [] {  // checked in one thread: Boost.Test knows no others
    Net net;
    explorer::Explorer watched;
    watched.attach(*net);
    for (int i = 0; i < 5; ++i) {
      const at::Tensor y = std::get<0>(net->forward(torch::randn({2, 3, 8, 8})));
      y.sum().backward();
    }
    return Seen{edges_of(watched, Mode::train), watched.errors()};
  };
  Seen other;
  std::thread thread([&] { other = train(); });
  const Seen mine = train();
  thread.join();
  for (const Seen* const seen : {&mine, static_cast<const Seen*>(&other)}) {
    check_same(seen->edges, expected_edges());
    BOOST_TEST(seen->errors.empty());
  }
}

BOOST_AUTO_TEST_CASE(a_forward_that_throws_leaves_no_trace) {
  struct FailsImpl : nn::Module {
    nn::Linear a{4, 4};
    bool fails = true;
    FailsImpl() { register_module("a", a); }
    at::Tensor forward(const at::Tensor& x) {
      const at::Tensor y = a(x);
      TORCH_CHECK(!fails, "no");
      return y;
    }
  };
  TORCH_MODULE(Fails);
  Fails net;
  explorer::Explorer watched;
  watched.attach(*net);
  const std::set<std::string> expected{"net: In0 -> a.0", "a: In0 -> Out0", "net: a.0 -> Out0"};
  for (int i = 0; i < 3; ++i) BOOST_CHECK_THROW(net->forward(torch::randn({1, 4})), c10::Error);
  BOOST_TEST(edges_of(watched, Mode::train).empty());
  net->fails = false;
  net->forward(torch::randn({1, 4}));  // is looked at, however little time there is
  check_same(edges_of(watched, Mode::train), expected);
  net->fails = true;
  BOOST_CHECK_THROW(net->forward(torch::randn({1, 4})), c10::Error);
  net->fails = false;
  net->forward(torch::randn({1, 4}));
  check_same(edges_of(watched, Mode::train), expected);
  check_no_errors(watched);
}

BOOST_AUTO_TEST_CASE(an_operation_reads_a_tensor_that_was_there_before) {
  struct KeepsImpl : nn::Module {
    nn::Linear a{4, 4}, b{4, 4};
    at::Tensor state = torch::ones({4});
    KeepsImpl() {
      register_module("a", a);
      register_module("b", b);
    }
    at::Tensor forward(const at::Tensor& x) {
      const at::Tensor y = b(a(x) * 2 + state);
      state = y.detach().mean(0);
      return y + torch::zeros({4});
    }
  };
  TORCH_MODULE(Keeps);
  Keeps net;
  explorer::Explorer watched(explorer::ExplorerOptions().every(1));
  watched.attach(*net);
  const std::set<std::string> expected{"net: In0 -> a.0",       "a: In0 -> Out0", "net: a.0 -> b.0",
                                       "net: Inunknown -> b.0", "b: In0 -> Out0", "net: b.0 -> Out0"};
  for (int i = 0; i < 2; ++i) {
    net->forward(torch::randn({2, 4})).sum().backward();
    check_same(edges_of(watched, Mode::train), expected);
  }
}

namespace {

/// The usual residual stream: each block adds to what all before it have added up.
struct StreamImpl : nn::Module {
  explicit StreamImpl(int count, bool in_place) : in_place(in_place) {
    for (int i = 0; i < count; ++i) blocks->push_back(nn::Linear(4, 4));
    register_module("blocks", blocks);
  }
  at::Tensor forward(at::Tensor x) {
    x = x * 1;
    for (const auto& block : *blocks) {
      if (in_place) {
        x += block->as<nn::Linear>()->forward(x);
      } else {
        x = x + block->as<nn::Linear>()->forward(x);
      }
    }
    return x;
  }
  bool in_place;
  nn::ModuleList blocks;
};
TORCH_MODULE(Stream);

}  // namespace

// Without a node for some of the sums each block would have an edge to each later one.
BOOST_AUTO_TEST_CASE(a_residual_stream_has_as_many_edges_as_blocks) {
  const torch::NoGradGuard no_grad;
  for (const bool in_place : {false, true}) {
    Stream small(6, in_place);
    explorer::Explorer watched;
    watched.attach(*small);
    for (int i = 0; i < 2; ++i) small->forward(torch::randn({2, 4}));
    std::set<std::string> expected{
        "net: In0 -> 0.0",   "net: In0 -> 1.0",   "net: In0 -> 2.0",    "net: In0 -> 3.0",
        "net: 0.0 -> 1.0",   "net: 0.0 -> 2.0",   "net: 0.0 -> 3.0",    "net: 1.0 -> 2.0",
        "net: 1.0 -> 3.0",   "net: 2.0 -> 3.0",   "net: In0 -> add.0",  "net: 0.0 -> add.0",
        "net: 1.0 -> add.0", "net: 2.0 -> add.0", "net: 3.0 -> add.0",  "net: add.0 -> 4.0",
        "net: add.0 -> 5.0", "net: 4.0 -> 5.0",   "net: add.0 -> Out0", "net: 4.0 -> Out0",
        "net: 5.0 -> Out0",  "add: In0 -> Out0"};
    for (int i = 0; i < 6; ++i) expected.insert(c10::str("blocks.", i, ": In0 -> Out0"));
    check_same(edges_of(watched, Mode::train), expected);
    Stream large(100, in_place);
    watched.attach(*large);
    large->forward(torch::randn({2, 4}));
    const auto& session = *explorer::detail::models_of(watched).all_watched().back();
    BOOST_TEST(edges_of_session(session, Mode::train).size() < 6U * 100U);
    check_no_errors(watched);
  }
}

BOOST_AUTO_TEST_SUITE_END()
