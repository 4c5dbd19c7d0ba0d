// What is written in place reaches the tensors that show these bytes, and no others.
#include <boost/test/unit_test.hpp>

#include <map>
#include <random>

#include "support.hpp"

BOOST_AUTO_TEST_SUITE(writes)

using namespace support;

/// The cell of a recurrent net as people write it: its gates are parts of one tensor, and change in place.
struct CellImpl : nn::Module {
  nn::Linear gates{4, 12}, left{4, 4}, right{4, 4}, a{4, 4}, b{4, 4}, c{4, 4}, all{12, 4};
  CellImpl() {
    register_module("gates", gates);
    register_module("left", left);
    register_module("right", right);
    register_module("a", a);
    register_module("b", b);
    register_module("c", c);
    register_module("all", all);
  }
  std::vector<at::Tensor> forward(const at::Tensor& x) {
    const at::Tensor together = gates(x);
    const auto parts = together.chunk(3, 1);
    parts[0].sigmoid_().mul_(left(x));
    parts[1].copy_(right(x));
    const auto again = together.chunk(3, 1);
    return {a(parts[0]), b(again[1].t().t()), c(again[2]), all(together)};
  }
};
TORCH_MODULE(Cell);

BOOST_AUTO_TEST_CASE(through_one_chunk_do_not_reach_the_others) {
  Cell net;
  net->eval();
  explorer::Explorer watched;
  watched.attach(*net);
  const torch::NoGradGuard no_grad;
  net->forward(torch::randn({2, 4}));
  std::set<std::string> expected{"net: In0 -> gates.0",   "net: In0 -> left.0",   "net: In0 -> right.0",
                                 "net: gates.0 -> a.0",   "net: left.0 -> a.0",   "net: right.0 -> b.0",
                                 "net: gates.0 -> c.0",   "net: left.0 -> all.0", "net: right.0 -> all.0",
                                 "net: gates.0 -> all.0", "net: a.0 -> Out0",     "net: b.0 -> Out1",
                                 "net: c.0 -> Out2",      "net: all.0 -> Out3"};
  for (const char* const name : {"gates", "left", "right", "a", "b", "c", "all"}) {
    expected.insert(std::string(name) + ": In0 -> Out0");
  }
  check_same(edges_of(watched, Mode::eval), expected);
  check_no_errors(watched);
}

/// What is written before a call makes a view is the view's, but the call made it. What the program reads of
/// a tensor was used.
struct KeepsImpl : nn::Module {
  struct KeeperImpl : nn::Module {
    at::Tensor kept;
    at::Tensor forward(const at::Tensor& x) {
      kept = x.view(-1);
      return x.sum();
    }
  };
  TORCH_MODULE(Keeper);
  struct AsksImpl : nn::Module {
    const at::Tensor* flag = nullptr;
    at::Tensor forward(const at::Tensor& x) { return flag->item<float>() > 0 ? x * 2 : x * 3; }
  };
  TORCH_MODULE(Asks);
  nn::Linear a{4, 4}, b{4, 4};
  Keeper keeper;
  Asks asks;
  KeepsImpl() {
    register_module("a", a);
    register_module("b", b);
    register_module("keeper", keeper);
    register_module("asks", asks);
  }
  std::vector<at::Tensor> forward(const at::Tensor& x) {
    const at::Tensor memory = torch::zeros({4});
    memory.copy_(a(x));
    const at::Tensor sum = keeper(memory);
    asks->flag = &sum;
    return {b(keeper->kept), asks(x)};
  }
};
TORCH_MODULE(Keeps);

BOOST_AUTO_TEST_CASE(before_a_call_do_not_hide_that_it_made_a_view) {
  Keeps net;
  net->eval();
  explorer::Explorer watched;
  watched.attach(*net);
  const torch::NoGradGuard no_grad;
  net->forward(torch::randn({4}));
  check_same(edges_of(watched, Mode::eval),
             {"net: In0 -> a.0", "a: In0 -> Out0", "net: a.0 -> keeper.0", "keeper: In0 -> Out0",
              "net: keeper.hidden -> b.0", "b: In0 -> Out0", "net: b.0 -> Out0", "net: In0 -> asks.0",
              "net: keeper.0 -> asks.captured", "asks: In0 -> Out0", "net: asks.0 -> Out1"});
  check_no_errors(watched);
}

namespace {

/// Random programs of views and writes in place. What each tensor comes from is found a second time, byte by
/// byte: from the last write to the byte, or from where the tensor came from if it is younger.
struct ProgramImpl : nn::Module {
  struct MakeImpl : nn::Module {
    at::Tensor forward(const at::Tensor&) { return torch::ones({4, 6}, at::kLong); }
  };
  TORCH_MODULE(Make);
  /// Writes to its first input. Returns that, a part of it, another tensor of the same memory, or a new one.
  struct WriterImpl : nn::Module {
    at::Tensor forward(const at::Tensor& to, const at::Tensor& from, const at::Tensor& around, int returns) {
      to.add_(from.sum());
      if (returns == 0) return to;
      if (returns == 1) return to.narrow(0, 0, 1);
      return returns == 2 ? around : torch::ones({2}, at::kLong);
    }
  };
  TORCH_MODULE(Writer);
  struct SinkImpl : nn::Module {
    at::Tensor forward(const at::Tensor& x) { return x.sum(); }
  };
  TORCH_MODULE(Sink);
  using Names = std::set<std::string>;

  /// A tensor, and what it was computed from when it got its name.
  struct Named {
    at::Tensor tensor;
    Names from;
    int since;
  };
  struct Written {
    Names from;
    int at;
  };

  Make make;
  Writer writer;
  Sink sink;
  std::mt19937 dice;
  std::vector<Named> pool;
  std::map<const void*, Written> bytes;
  Names expected;
  std::map<std::string, int> calls;
  int now = 0, told_apart = 0;

  explicit ProgramImpl(unsigned seed) : dice(seed) {
    register_module("make", make);
    register_module("writer", writer);
    register_module("sink", sink);
  }

  int roll(std::int64_t below) { return static_cast<int>(dice() % static_cast<unsigned>(below)); }
  std::string next(const std::string& module) {
    const int number = calls[module]++;
    return number == 0 ? module : module + "#" + std::to_string(number);
  }

  template <class Visit>
  static void for_each_element(const at::Tensor& tensor, Visit&& visit) {
    const at::Tensor flat = tensor.dim() == 0 ? tensor.view({1}) : tensor;
    std::vector<std::int64_t> index(static_cast<std::size_t>(flat.dim()), 0);
    for (std::int64_t n = 0; n < flat.numel(); ++n) {
      std::int64_t at = 0, rest = n;
      for (std::int64_t i = flat.dim(); i-- > 0; rest /= flat.size(i))
        at += rest % flat.size(i) * flat.stride(i);
      visit(static_cast<const void*>(flat.data_ptr<std::int64_t>() + at));
    }
  }
  Names from(const Named& one) {
    Names names;
    bool own = false, written = false;
    for_each_element(one.tensor, [&](const void* at) {
      const auto last = bytes.find(at);
      const bool is_later = last != bytes.end() && last->second.at > one.since;
      (is_later ? written : own) = true;
      const Names& more = is_later ? last->second.from : one.from;
      names.insert(more.begin(), more.end());
    });
    told_apart += own && written ? 1 : 0;
    return names;
  }
  void write(const at::Tensor& tensor, const Names& names) {
    for_each_element(tensor, [&](const void* at) { bytes[at] = {names, now}; });
  }
  void expect(const Names& names, const std::string& to) {
    for (const std::string& name : names) expected.insert("net: " + name + " -> " + to);
  }

  Named& any() { return pool[static_cast<std::size_t>(roll(static_cast<std::int64_t>(pool.size())))]; }
  at::Tensor view_of(at::Tensor tensor) {
    for (int n = roll(3); n >= 0; --n) {
      if (tensor.dim() == 0) return tensor.view({1});
      const int dim = roll(tensor.dim());
      const std::int64_t size = tensor.size(dim);
      switch (roll(4)) {
        case 0:
          tensor = tensor.select(dim, roll(size));
          break;
        case 1:
          tensor = tensor.transpose(dim, roll(tensor.dim()));
          break;
        default:
          const int begin = roll(size);
          tensor = tensor.slice(dim, begin, begin + 1 + roll(size - begin));
      }
    }
    return tensor;
  }

  void call_writer(Named& to, const Named& by) {
    // The first tensor of a memory shows all of it.
    const Named& around = *std::find_if(pool.begin(), pool.end(), [&](const Named& one) {
      return one.tensor.storage().data() == to.tensor.storage().data();
    });
    if (around.tensor.is_same(to.tensor) || around.tensor.is_same(by.tensor)) return;
    const std::string call = next("writer");
    expect(from(to), call + ".0");
    expect(from(by), call + ".1");
    expect(from(around), call + ".2");
    const at::Tensor before = to.tensor;
    const at::Tensor given = around.tensor;
    const int returns = roll(to.tensor.dim() == 0 ? 1 : 4);
    const at::Tensor result = writer(before, by.tensor, given, returns);
    ++now;
    write(before, {call + (returns == 0 || returns == 2 ? ".0" : ".hidden")});
    if (returns == 1) write(result, {call + ".0"});
    ++now;
    const auto known =
        std::find_if(pool.begin(), pool.end(), [&](const Named& one) { return one.tensor.is_same(result); });
    if (known != pool.end()) {
      *known = {result, {call + ".0"}, now};
    } else {
      pool.push_back({result, {call + ".0"}, now});
    }
  }

  at::Tensor forward(const at::Tensor& x) {
    pool.reserve(100);
    for (int step = 0; step < 30; ++step) {
      ++now;
      const int what = step < 2 ? 0 : roll(8);
      if (what == 0) {
        const std::string call = next("make");
        pool.push_back({make(x), {call + ".0"}, now});
      } else if (what <= 2) {
        const Named& of = any();
        pool.push_back({view_of(of.tensor), of.from, of.since});
      } else if (what == 3) {
        Named &to = any(), &by = any();
        if (!to.tensor.is_same(by.tensor)) call_writer(to, by);
      } else if (what <= 5) {
        Named &to = any(), &by = any();
        Names names = from(by);
        if (what == 4) {
          const Names before = from(to), more = names;
          names.insert(before.begin(), before.end());
          // An operation that adds to four sources or more is one itself.
          const auto is_added_to = [&](const Names& one) {
            return one.size() >= 4 && one.size() < names.size();
          };
          if (is_added_to(before) || is_added_to(more)) names = {next("add") + ".0"};
          to.tensor.add_(by.tensor.sum());
        } else {
          to.tensor.copy_(by.tensor.sum());
        }
        write(to.tensor, names);
      } else {
        const Named& of = any();
        expect(from(of), next("sink") + ".0");
        sink(of.tensor);
      }
    }
    return x;
  }
};
TORCH_MODULE(Program);

}  // namespace

BOOST_AUTO_TEST_CASE(of_random_programs_reach_what_shows_their_bytes) {
  int edges = 0, told_apart = 0;
  for (unsigned seed = 0; seed < 100; ++seed) {
    Program net(seed);
    net->eval();
    explorer::Explorer watched;
    watched.attach(*net);
    const torch::NoGradGuard no_grad;
    net->forward(torch::ones({1}, at::kLong));
    std::set<std::string> got;
    for (const std::string& edge : edges_of(watched, Mode::eval)) {
      const bool given =
          edge.find("-> sink") != std::string::npos || edge.find("-> writer") != std::string::npos;
      if (edge.compare(0, 5, "net: ") == 0 && given) got.insert(edge);
    }
    BOOST_TEST_CONTEXT("program " << seed) {
      check_same(got, net->expected);
    }
    check_no_errors(watched);
    edges += static_cast<int>(net->expected.size());
    told_apart += net->told_apart;
  }
  BOOST_TEST(edges > 1000);
  BOOST_TEST(told_apart > 100);  // of which a part was written later
}

BOOST_AUTO_TEST_SUITE_END()
