// Columns beside NumPy, and series of many steps.
#include <boost/test/unit_test.hpp>
#include <malloc.h>
#include <torch/torch.h>

#include <cstdlib>
#include <limits>

#include <torchtap/storage/file.hpp>

#include "support.hpp"

BOOST_AUTO_TEST_SUITE(columns)

using namespace support;
namespace parts = explorer::detail;
namespace watch = torchtap::views::watch;
namespace storage = torchtap::storage;
using torchtap::core::Value;

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();

/// Writes tensors with their columns for columns.py.
class Cases {
 public:
  void add(const at::Tensor& tensor) {
    const watch::Column column = watch::measure(tensor);
    std::vector<std::int64_t> bins, counts;
    for (const auto& [bin, count] : watch::unpack(column.bins, column.n_bins)) {
      bins.push_back(bin);
      counts.push_back(static_cast<std::int64_t>(count));
    }
    const auto whole = [](std::uint64_t number) { return static_cast<std::int64_t>(number); };
    const std::string name = directory_ / std::to_string(count_++);
    storage::save_value(name + ".tensor.pt", Value(tensor.contiguous()));
    storage::save_value(
        name + ".column.pt",
        Value(Value::Dict{
            {"bins", torch::tensor(bins, at::kLong)},
            {"counts", torch::tensor(counts, at::kLong)},
            {"numbers", torch::tensor({whole(column.count), whole(column.nan), whole(column.posinf),
                                       whole(column.neginf), whole(column.zeros)},
                                      at::kLong)},
            {"sums", torch::tensor({column.min, column.max, column.sum, column.sum_squares}, at::kDouble)}}));
  }
  bool agree_with_numpy() const {
    const std::string command =
        std::string(TORCHTAP_TEST_PYTHON) + " " + TORCHTAP_TEST_COLUMNS + " " + directory_.path();
    return std::system(command.c_str()) == 0;
  }

 private:
  torchtap_test::TemporaryDirectory directory_;
  int count_ = 0;
};

at::Tensor random_bits(at::ScalarType type) {
  return torch::randint(-128, 128, {4096}, at::kChar).view(type);
}

/// Bytes that this process holds of the heap: what it has asked for and not given back.
double held() {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return 0;  // sanitizers have allocators of their own
#endif
  const auto heap = ::mallinfo2();
  return static_cast<double>(heap.uordblks + heap.hblkhd);
}

}  // namespace

BOOST_AUTO_TEST_CASE(columns_are_numpys_histograms) {
  torch::manual_seed(0);
  Cases cases;
  for (const auto type : {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16}) {
    cases.add((torch::randn({3, 5, 7}) * 100).to(type));
    cases.add(torch::randn({200000}).to(type));
    cases.add(torch::randn({300, 40}).relu().to(type));
    cases.add(torch::randn({4, 6, 8}).to(type).transpose(0, 2));
    cases.add(torch::randn({40, 60, 8}).to(type).slice(1, 0, 60, 3));
    cases.add(torch::randn({4, 1}).to(type).expand({4, 9}));
    cases.add(torch::randn({}).to(type));
    cases.add(torch::empty({0, 3}).to(type));
    cases.add(torch::tensor({not_a_number, infinity, -infinity, 0.0, -0.0, 1.0, -1.0, 1.125}).to(type));
    cases.add(torch::tensor({not_a_number, not_a_number}).to(type));
    cases.add(torch::zeros({9}).to(type));
    cases.add(torch::exp2(torch::arange(-170, 128).to(at::kDouble)).to(type));  // edges, denormals
    cases.add(random_bits(type));  // all exponents, NaN with payloads
  }
  for (const auto type : {at::kByte, at::kChar, at::kShort, at::kInt, at::kLong}) {
    cases.add(torch::randint(0, 100, {50, 30}).to(type));
    cases.add(torch::randint(0, 100, {5, 3}).to(type).t());
    if (type != at::kByte) cases.add(random_bits(type));
  }
  cases.add(torch::randint(0, 2, {50, 30}).to(at::kBool));
  cases.add(torch::complex(torch::randn({60}), torch::randn({60})));
  cases.add(torch::tensor({1e-40, -1e-42, 1e-45}, at::kFloat));
  cases.add(torch::tensor({1e-300, -1e300, 3e38, 5e-324}, at::kDouble));  // beyond float32
  BOOST_TEST(cases.agree_with_numpy());
}

BOOST_AUTO_TEST_CASE(a_decimated_column_is_the_sum_of_the_full_ones) {
  torch::manual_seed(0);
  parts::Series series({0, parts::What::output, 0, 0}, "", 8);
  std::vector<watch::Column> full;
  for (std::int64_t step = 0; step < 300; ++step) {
    if (step % 7 == 3) continue;  // not all steps are recorded
    watch::Column column = watch::measure(torch::randn({50}) * static_cast<double>(step % 11));
    column.first_step = column.last_step = step;
    series.add(column, 1);
    full.push_back(column);
  }
  BOOST_TEST(series.columns().size() <= 8U);
  std::size_t taken = 0;
  for (const auto& column : series.columns()) {
    std::map<std::uint32_t, std::uint64_t> bins;
    std::uint64_t count = 0, zeros = 0;
    double least = infinity, most = -infinity, sum = 0, squares = 0;
    for (const auto& one : full) {
      if (one.first_step < column.first_step || one.first_step > column.last_step) continue;
      for (const auto& [bin, number] : watch::unpack(one.bins, one.n_bins)) bins[bin] += number;
      count += one.count;
      zeros += one.zeros;
      least = std::min(least, one.min);
      most = std::max(most, one.max);
      sum += one.sum;
      squares += one.sum_squares;
      ++taken;
    }
    BOOST_TEST((watch::unpack(column.bins, column.n_bins) == watch::Bins(bins.begin(), bins.end())));
    BOOST_TEST(column.count == count);
    BOOST_TEST(column.zeros == zeros);
    BOOST_TEST(column.min == least);
    BOOST_TEST(column.max == most);
    BOOST_TEST(std::abs(column.sum - sum) <= 1e-9 * std::sqrt(squares * static_cast<double>(count)));
    BOOST_TEST(std::abs(column.sum_squares - squares) <= 1e-9 * squares);
  }
  BOOST_TEST(taken == full.size());
}

BOOST_AUTO_TEST_CASE(a_million_steps_need_bounded_memory) {
  parts::LiveRun run({}, 64, std::int64_t{1} << 20);
  std::vector<watch::Column> some;
  for (int i = 0; i < 16; ++i) some.push_back(watch::measure(torch::randn({100}) * (1 + i)));
  some.push_back(watch::measure(torch::tensor({not_a_number})));
  const std::int32_t series = run.series({0, parts::What::output, 0, 0}, "");
  constexpr std::int64_t steps = 1'000'000, bad = 345'678;
  double after_some = 0;
  for (std::int64_t step = 0; step < steps; ++step) {
    run.reach(step);
    watch::Column& column = step == bad ? some.back() : some[static_cast<std::size_t>(step % 16)];
    column.first_step = column.last_step = step;
    run.add(series, column);
    run.add_scalar("loss", step, 1.0);
    if (step == steps / 4) after_some = held();
  }
  BOOST_TEST(held() - after_some < 1e6);
  BOOST_TEST(run.scalars(-1).at("loss").size() <= 8192U);
  run.each_series([&](const parts::Series& one) {
    BOOST_TEST(one.columns().size() <= 64U);
    BOOST_TEST(one.columns().size() > 31U);
    BOOST_TEST(one.bytes() < std::size_t{1} << 20);
    BOOST_TEST(one.first_nan.value() == bad);
    std::uint64_t count = 0, nan = 0;
    for (const auto& column : one.columns()) {
      count += column.count;
      nan += column.nan;
    }
    BOOST_TEST(count == 100U * (steps - 1) + 1);
    BOOST_TEST(nan == 1U);
  });
}

BOOST_AUTO_TEST_CASE(a_long_training_needs_bounded_memory) {
  nn::Sequential net(nn::Linear(3, 3), nn::Tanh(), nn::Linear(3, 1));
  explorer::Explorer watched(explorer::ExplorerOptions().every(5).columns(16));
  watched.attach(*net);
  torch::optim::SGD optimizer(net->parameters(), 0.01);
  const at::Tensor x = torch::randn({4, 3});
  double after_some = 0;
  for (int step = 0; step < 12000; ++step) {
    optimizer.zero_grad();
    const at::Tensor loss = net->forward(x).square().mean();
    loss.backward();
    optimizer.step();
    watched.scalar("loss", loss);
    if (step == 6000) after_some = held();
  }
  BOOST_TEST(watched.step() == 11999);
  BOOST_TEST(held() - after_some < 1e6);
  check_no_errors(watched);
}

BOOST_AUTO_TEST_CASE(an_attached_tensor_is_recorded_in_evaluation_and_before_it_is_written_in_place) {
  struct NamedImpl : nn::Module {
    nn::Linear a{4, 4};
    at::Tensor before;
    NamedImpl() { register_module("a", a); }
    at::Tensor forward(const at::Tensor& x) {
      at::Tensor y = explorer::attach(a(x).exp(), "positive");
      before = y.detach().clone();
      y.neg_();
      return explorer::attach(y, "negative") * 2;
    }
  };
  TORCH_MODULE(Named);
  Named net;
  net->eval();
  const at::Tensor x = torch::randn({2, 4});
  const at::Tensor expected = net(x);
  for (const bool inference : {false, true}) {
    const c10::InferenceMode mode(inference);
    const torch::NoGradGuard no_grad;
    explorer::Explorer watched(explorer::ExplorerOptions().every(1));
    watched.attach(*net);
    BOOST_TEST(net(x).equal(expected));
    std::map<std::string, watch::Column> seen;
    for (const auto& [call, name] : parts::models_of(watched).first()->run()->call_names()) {
      parts::models_of(watched).first()->run()->each_series(
          [&, call = call, path = name.path](const parts::Series& one) {
            if (one.key().call == call && one.key().what == parts::What::attach) seen[path] = one.last();
          });
    }
    BOOST_REQUIRE(seen.size() == 2U);
    BOOST_TEST(seen["positive"].bins == watch::measure(net->before).bins);
    BOOST_TEST(seen["negative"].bins == watch::measure(-net->before).bins);
    check_same(edges_of(watched, Mode::eval),
               {"net: In0 -> a.0", "a: In0 -> Out0", "net: a.0 -> positive.0", "positive: In0 -> Out0",
                "net: positive.0 -> negative.0", "negative: In0 -> Out0", "net: negative.0 -> Out0"});
    check_no_errors(watched);
  }
  BOOST_TEST(net(x).equal(expected));  // nobody watches
}

BOOST_AUTO_TEST_SUITE_END()
