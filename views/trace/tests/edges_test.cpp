// Parents where views of one memory are written to, compared with a note of the last writer of each byte.
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <deque>
#include <random>
#include <set>

#include <torchtap/operations/scope.hpp>

#include "support.hpp"

BOOST_AUTO_TEST_SUITE(edges)

namespace {

using namespace support;
using Names = std::vector<std::string>;

Names parents(const trace::History& history, const std::string& label) {
  Names names = labels(history[label].parents());
  std::sort(names.begin(), names.end());
  return names;
}

std::string list(const std::set<std::int64_t>& numbers) {
  return c10::str(std::vector<std::int64_t>(numbers.begin(), numbers.end()));
}

/// Runs operations on views of one memory, and knows of each element which node wrote it when.
class Program {
 public:
  explicit Program(unsigned seed) : dice_(seed) {}

  trace::History run(int steps) {
    trace::Tracer tracer(trace::TraceOptions().save(trace::Save::all));
    const auto x = torch::rand({3, 4, 5});
    tracer.input(x, "x");
    tracer.run([&] {
      const auto y = x.clone();
      written_.assign(static_cast<std::size_t>(y.numel()), {});
      add({0});
      pool_.push_back({y, 1, 0});
      for (int i = 0; i < steps; ++i) step();
      tracer.output(y);
      add(sources(pool_[0], {y}));
    });
    return tracer.finish();
  }

  /// Of each node its parents.
  std::vector<std::set<std::int64_t>> expected;

 private:
  struct Named {
    at::Tensor tensor;
    std::int64_t node;  // that made it
    int since;
  };
  struct Written {
    std::int64_t node = -1;
    int at = -1;
  };

  std::size_t roll(std::size_t sides) { return dice_() % sides; }

  /// The elements of the memory that a tensor shows.
  static std::vector<std::size_t> elements(const at::Tensor& tensor) {
    const auto all = torch::arange(60).as_strided(tensor.sizes(), tensor.strides(), tensor.storage_offset());
    const auto flat = all.reshape({-1});
    std::vector<std::size_t> indices;
    for (std::int64_t i = 0; i < flat.numel(); ++i) {
      indices.push_back(static_cast<std::size_t>(flat[i].item<std::int64_t>()));
    }
    return indices;
  }

  /// What an operation depends on that reads these parts of a tensor.
  std::set<std::int64_t> sources(const Named& named, const std::vector<at::Tensor>& parts) {
    const torchtap::operations::Unseen unseen;
    std::set<std::int64_t> nodes;
    for (const at::Tensor& part : parts) {
      for (const std::size_t element : elements(part)) {
        const Written& written = written_[element];
        nodes.insert(written.at >= named.since ? written.node : named.node);
      }
    }
    return nodes;
  }

  void add(std::set<std::int64_t> parents) {
    if (expected.empty()) expected.emplace_back();  // the input
    expected.push_back(std::move(parents));
  }
  std::int64_t next() const { return static_cast<std::int64_t>(expected.size()); }

  void step() {
    Named& named = pool_[roll(pool_.size())];
    const auto size = [&](std::int64_t dim) { return static_cast<std::size_t>(named.tensor.size(dim)); };
    const auto dim = static_cast<std::int64_t>(
        roll(static_cast<std::size_t>(std::max<std::int64_t>(named.tensor.dim(), 1))));
    const bool scalar = named.tensor.dim() == 0;
    switch (roll(6)) {
      case 0:
      case 1: {  // views
        std::vector<at::Tensor> views;
        if (scalar) return;
        if (roll(3) == 0) {
          views = named.tensor.chunk(2, dim);
        } else if (roll(2) == 0) {
          views.push_back(named.tensor.select(dim, static_cast<std::int64_t>(roll(size(dim)))));
        } else {
          views.push_back(named.tensor.slice(dim, static_cast<std::int64_t>(roll(size(dim))), INT64_MAX,
                                             static_cast<std::int64_t>(1 + roll(2))));
        }
        const auto from = sources(named, views);
        for (const at::Tensor& view : views) {
          pool_.push_back({view, next(), clock_});
          add(from);
        }
        return;
      }
      case 2:
      case 3: {  // a write
        auto from = sources(named, {named.tensor});
        named.tensor.sigmoid_();
        write(named, from);
        return;
      }
      case 4: {  // a write of what another view has
        const Named& other = pool_[roll(pool_.size())];
        const auto read = sources(other, {other.tensor});
        const std::int64_t mean = next();
        const auto value = other.tensor.mean();
        add(read);
        auto from = sources(named, {named.tensor});
        from.insert(mean);
        named.tensor.copy_(value);
        write(named, from);
        return;
      }
      default:  // a reader
        add(sources(named, {named.tensor}));
        named.tensor.exp();
    }
  }

  void write(Named& named, const std::set<std::int64_t>& from) {
    const torchtap::operations::Unseen unseen;
    for (const std::size_t element : elements(named.tensor)) written_[element] = {next(), clock_};
    ++clock_;
    named.node = next();
    named.since = clock_;
    add(from);
  }

  std::mt19937 dice_;
  std::deque<Named> pool_;
  std::vector<Written> written_;
  int clock_ = 0;
};

BOOST_AUTO_TEST_CASE(gates_that_are_activated_in_place) {
  const auto x = torch::rand({2, 6});
  trace::Tracer tracer(trace::TraceOptions().save(trace::Save::all));
  tracer.input(x);
  tracer.run([&] {
    const auto gates = (x * 2).chunk(3, 1);
    gates[0].sigmoid_();
    gates[1].tanh_();
    const auto a = gates[2] + 1, b = gates[0] * 3;
    tracer.output(a * b);
  });
  const auto history = tracer.finish();
  BOOST_TEST(parents(history, "sigmoid_1") == (Names{"chunk_1_2"}), boost::test_tools::per_element());
  BOOST_TEST(parents(history, "tanh_1") == (Names{"chunk_2_3"}), boost::test_tools::per_element());
  BOOST_TEST(parents(history, "add_1") == (Names{"chunk_3_4"}), boost::test_tools::per_element());
  BOOST_TEST(parents(history, "mul_2") == (Names{"sigmoid_1_5"}), boost::test_tools::per_element());
  BOOST_TEST(bool(history.validate()), text(history.validate()));
}

BOOST_AUTO_TEST_CASE(a_whole_that_was_written_in_parts) {
  const auto x = torch::rand({2, 3});
  const auto history = logged([&] {
    const auto out = torch::empty({2, 3});
    for (int i = 0; i < 2; ++i) out[i].copy_(x[i].exp());
    out.sum();
    const auto half = torch::zeros({2, 3});
    half[1].fill_(4);
    half.sum();
    half[0].sum();
    half[1].sum();
  });
  BOOST_TEST(parents(history, "sum_1") == (Names{"copy_1_5", "copy_2_9"}), boost::test_tools::per_element());
  BOOST_TEST(parents(history, "sum_2") == (Names{"fill_1_13", "zeros_1_11"}),
             boost::test_tools::per_element());
  const auto& arguments = history["sum_2"].arguments();
  BOOST_TEST(arguments.at(0).text == "fill_1_13+zeros_1_11");
  const auto of_row = [&](const char* sum) { return parents(history, labels(history[sum].parents()).at(0)); };
  BOOST_TEST(of_row("sum_3") == (Names{"zeros_1_11"}), boost::test_tools::per_element());
  BOOST_TEST(of_row("sum_4") == (Names{"fill_1_13"}), boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(inputs_that_lie_in_one_memory_are_apart) {
  const auto batch = torch::rand({2, 3});
  const auto first = batch[0], second = batch[1];
  const auto history = logged([&] {
    first.exp();
    second.sin();
    first.data().cos();  // a name that no operation gave
  });
  BOOST_TEST(parents(history, "exp_1") == (Names{"outside_1_0"}), boost::test_tools::per_element());
  BOOST_TEST(parents(history, "sin_1") == (Names{"outside_2_2"}), boost::test_tools::per_element());
  BOOST_TEST(parents(history, "cos_1") == (Names{"outside_1_0"}), boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(any_writes_through_any_views) {
  std::size_t nodes = 0;
  for (unsigned seed = 0; seed < 60; ++seed) {
    Program program(seed);
    const auto history = program.run(40);
    BOOST_REQUIRE(program.expected.size() == static_cast<std::size_t>(history.size()));
    for (const auto& node : history) {
      std::set<std::int64_t> found;
      for (const auto& parent : node.parents()) found.insert(parent.position());
      const auto& expected = program.expected[static_cast<std::size_t>(node.position())];
      BOOST_TEST(found == expected, "seed " << seed << ", " << node.label() << ": " << list(found)
                                            << " instead of " << list(expected));
    }
    nodes += program.expected.size();
  }
  BOOST_TEST(nodes > 2000U);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
