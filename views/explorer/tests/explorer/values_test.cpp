// How values are counted, and which of them are, when.
#include <boost/test/unit_test.hpp>
#include <torch/torch.h>

#include <cmath>
#include <limits>
#include <numeric>

#include <torchtap/base/little_endian.hpp>
#include <torchtap/reductions/log_histogram.hpp>
#include <torchtap/views/explorer/detail/recording_pace.hpp>
#include <torchtap/views/explorer/detail/series.hpp>
#include <torchtap/views/watch/column.hpp>

#include "support.hpp"

BOOST_AUTO_TEST_SUITE(values)

using namespace support;
namespace parts = explorer::detail;
namespace watch = torchtap::views::watch;
namespace reductions = torchtap::reductions;

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();

/// Compares with the reduction, which has another path to the counts, and with ATen.
void check_column(const at::Tensor& tensor) {
  const watch::Column column = watch::measure(tensor);
  const at::Tensor all = tensor.detach().to(at::kDouble).flatten();
  BOOST_TEST(column.count == static_cast<std::uint64_t>(all.numel()));
  BOOST_TEST(column.nan == all.isnan().sum().item<std::uint8_t>());
  BOOST_TEST(column.zeros == static_cast<std::uint64_t>((all == 0).sum().item<std::int64_t>()));
  BOOST_TEST(column.posinf == static_cast<std::uint64_t>((all == infinity).sum().item<std::int64_t>()));
  BOOST_TEST(column.neginf == static_cast<std::uint64_t>((all == -infinity).sum().item<std::int64_t>()));
  const at::Tensor finite = all.index({at::isfinite(all)});
  if (finite.numel() == 0) {
    BOOST_TEST((std::isnan(column.min) && std::isnan(column.max)));
    BOOST_TEST(column.n_bins == 0U);
    return;
  }
  BOOST_TEST(column.min == finite.min().item<double>());
  BOOST_TEST(column.max == finite.max().item<double>());
  const double scale = finite.abs().sum().item<double>(), squares = (finite * finite).sum().item<double>();
  BOOST_TEST(std::abs(column.sum - finite.sum().item<double>()) <= 1e-5 * scale);
  BOOST_TEST((column.sum_squares == squares || std::abs(column.sum_squares - squares) <= 1e-5 * squares));

  reductions::LogHistogram histogram(reductions::LogHistogramOptions(watch::mantissa_bits).over_all(true));
  histogram.update(all);
  const at::Tensor counts = histogram.counts(), low = histogram.low(), high = histogram.high();
  const watch::Bins bins = watch::unpack(column.bins, column.n_bins);
  BOOST_REQUIRE(static_cast<std::int64_t>(bins.size()) == counts.numel());
  std::map<double, std::uint64_t> sorted;  // as the reduction's: ascending by value
  for (const auto& [bin, count] : bins) sorted[watch::middle_of(bin)] = count;
  std::int64_t i = 0;
  for (const auto& [middle, count] : sorted) {
    BOOST_TEST((low[i].item<double>() < middle && middle < high[i].item<double>()));
    BOOST_TEST(count == static_cast<std::uint64_t>(counts[i].item<std::int64_t>()));
    ++i;
  }
}

watch::Column column_at(std::int64_t step, const at::Tensor& values) {
  watch::Column column = watch::measure(values);
  column.first_step = column.last_step = step;
  return column;
}

/// The series of a call by its path.
const parts::Series* find_series(const explorer::Explorer& watched, const std::string& path, parts::What what,
                                 std::int32_t index, std::int32_t mode) {
  const auto& run = parts::models_of(watched).first()->run();
  const parts::Series* found = nullptr;
  for (const auto& [call, name] : run->call_names()) {
    if (name.path != path || name.call != 0) continue;
    run->each_series([&, call = call](const parts::Series& one) {
      const parts::SeriesKey& key = one.key();
      if (key.call == call && key.what == what && key.index == index && key.mode == mode) found = &one;
    });
  }
  BOOST_REQUIRE_MESSAGE(found != nullptr, "no series of " << path << " " << parts::name_of(what));
  return found;
}

void check_last(const parts::Series* series, const at::Tensor& tensor) {
  const watch::Column expected = watch::measure(tensor);
  BOOST_TEST(series->last().count == expected.count);
  BOOST_TEST(series->last().bins == expected.bins);
  BOOST_TEST(series->last().sum == expected.sum);
}

}  // namespace

BOOST_AUTO_TEST_CASE(every_element_of_every_dtype_is_counted_in_its_bin) {
  torch::manual_seed(0);
  for (const auto type : {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16}) {
    check_column((torch::randn({3, 5, 7}) * 100).to(type));
    check_column(torch::randn({70000}).to(type));
    check_column(torch::randn({300, 400}).relu().to(type));
    check_column(torch::randn({4, 6, 8}).to(type).transpose(0, 2));
    check_column(torch::randn({40, 60, 8}).to(type).slice(1, 0, 60, 3));
    check_column(torch::randn({4, 1}).to(type).expand({4, 9}));
    check_column(torch::randn({}).to(type));
    check_column(torch::empty({0, 3}).to(type));
    check_column(torch::tensor({not_a_number, infinity, -infinity, 0.0, -0.0, 1.0, -1.0}).to(type));
    check_column(torch::tensor({not_a_number}).to(type));
  }
  for (const auto type : {at::kByte, at::kChar, at::kShort, at::kInt, at::kLong, at::kBool}) {
    check_column(torch::randint(0, 100, {50, 30}).to(type));
    check_column(torch::randint(0, 100, {5, 3}).to(type).t());
  }
  check_column(torch::tensor({1e-40, -1e-42, 1e-45}, at::kFloat));           // denormal
  check_column(torch::tensor({1e-300, -1e300, 3e38, 5e-324}, at::kDouble));  // beyond float32
  check_column(torch::tensor(1e300, at::kDouble));
  check_column(torch::tensor(-1e-40, at::kDouble));
}

BOOST_AUTO_TEST_CASE(unusual_tensors_are_counted_too) {
  const at::Tensor complex = torch::complex(torch::randn({6}), torch::randn({6}));
  BOOST_TEST(watch::measure(complex).count == 12U);
  BOOST_TEST(watch::measure(complex.conj()).bins ==
             watch::measure(at::view_as_real(complex.conj().resolve_conj())).bins);
  const at::Tensor dense = torch::tensor({0.0, 2.0, 0.0, 3.0}).reshape({2, 2});
  BOOST_TEST(watch::measure(dense.to_sparse()).count == 2U);
  BOOST_TEST(watch::measure(at::quantize_per_tensor(torch::ones({5}), 0.5, 0, at::kQInt8)).max == 1.0);
  BOOST_TEST(watch::measure(torch::randn({3}).set_requires_grad(true)).count == 3U);
  BOOST_TEST(watch::measure(torch::randn({3}, at::kMeta)).count == 0U);
}

BOOST_AUTO_TEST_CASE(packed_bins_are_read_back_and_damaged_ones_refused) {
  const watch::Bins bins{{0, 1}, {5, 300}, {2048, std::uint64_t{1} << 40U}, {4087, 2}};
  const std::string packed = torchtap::base::packed_counts(bins);
  BOOST_TEST((watch::unpack(packed, 4) == bins));
  BOOST_CHECK_THROW(watch::unpack(packed, 3), c10::ValueError);
  BOOST_CHECK_THROW(watch::unpack(packed, 5), c10::ValueError);
  BOOST_CHECK_THROW(watch::unpack(packed.substr(1), 4), c10::ValueError);
  BOOST_CHECK_THROW(watch::unpack(std::string(40, '\xff'), 4), c10::ValueError);
  BOOST_CHECK_THROW(watch::unpack(torchtap::base::packed_counts(watch::Bins{{4088, 1}}), 1), c10::ValueError);
}

BOOST_AUTO_TEST_CASE(columns_are_merged_exactly_and_their_number_is_bounded) {
  torch::manual_seed(1);
  constexpr std::int64_t steps = 1000;
  parts::Series series({0, parts::What::output, 0, 0}, "", 16);
  watch::Column total = column_at(0, torch::empty({0}));
  std::uint64_t sequence = 0;
  std::size_t most = 0;
  for (std::int64_t step = 0; step < steps; ++step) {
    const at::Tensor values = step == 321 ? torch::tensor({1.0, not_a_number}) : torch::randn({20});
    const watch::Column column = column_at(step, values);
    series.add(column, ++sequence);
    total.merge(column);
    most = std::max(most, series.columns().size());
  }
  BOOST_TEST(most <= 16U);
  BOOST_TEST(most > 8U);
  BOOST_TEST(series.first_nan.value() == 321);
  BOOST_TEST(!series.first_inf.has_value());
  watch::Column sum = column_at(0, torch::empty({0}));
  std::int64_t next = 0;
  for (const auto& column : series.columns()) {
    BOOST_TEST(column.first_step == next);
    next = column.last_step + 1;
    sum.merge(column);
  }
  BOOST_TEST(next == steps);
  BOOST_TEST(sum.count == total.count);
  BOOST_TEST(sum.nan == 1U);
  BOOST_TEST(sum.bins == total.bins);
  BOOST_TEST(sum.min == total.min);
  BOOST_TEST(sum.max == total.max);
  BOOST_TEST(std::abs(sum.sum - total.sum) < 1e-9);
}

BOOST_AUTO_TEST_CASE(several_columns_of_one_step_are_one) {
  parts::Series series({0, parts::What::output, 0, 0}, "", 4);
  for (std::int64_t step = 0; step < 3; ++step) {
    for (int batch = 0; batch < 2; ++batch) series.add(column_at(step, torch::ones({5})), 1);
  }
  BOOST_REQUIRE(series.columns().size() == 3U);
  for (const auto& column : series.columns()) BOOST_TEST(column.count == 10U);
  BOOST_TEST(series.last().count == 10U);
}

BOOST_AUTO_TEST_CASE(training_is_the_same_bits_with_and_without) {
  const auto train = [](bool watch) {
    torch::manual_seed(3);
    Net net;
    explorer::Explorer watched(explorer::ExplorerOptions().every(1));
    if (watch) watched.attach(*net);
    torch::optim::SGD optimizer(net->parameters(), 0.05);
    std::vector<at::Tensor> result;
    for (int step = 0; step < 4; ++step) {
      optimizer.zero_grad();
      const at::Tensor x = torch::randn({2, 3, 8, 8}).set_requires_grad(true);
      const auto [y, z] = net->forward(x);
      (y.pow(2).mean() + z.mean()).backward();
      optimizer.step();
      result.push_back(y.detach());
      result.push_back(x.grad());
    }
    for (const auto& parameter : net->parameters()) result.push_back(parameter.detach());
    for (const auto& buffer : net->buffers()) result.push_back(buffer);
    check_no_errors(watched);
    return result;
  };
  const auto plain = train(false), observed = train(true);
  BOOST_REQUIRE(plain.size() == observed.size());
  for (std::size_t i = 0; i < plain.size(); ++i) BOOST_TEST(plain[i].equal(observed[i]));
}

BOOST_AUTO_TEST_CASE(values_gradients_and_parameters_are_those_of_the_step) {
  torch::manual_seed(4);
  nn::Sequential net(nn::Linear(6, 5), nn::ReLU(nn::ReLUOptions(true)), nn::Linear(5, 3));
  explorer::Explorer watched(explorer::ExplorerOptions().every(1));
  watched.attach(*net);
  torch::optim::SGD optimizer(net->parameters(), 0.1);
  for (int step = 0; step < 3; ++step) {
    optimizer.zero_grad();
    const at::Tensor x = torch::randn({4, 6}).set_requires_grad(true);
    const at::Tensor y = net->forward(x);
    y.retain_grad();
    y.pow(2).sum().backward();
    check_last(find_series(watched, "", parts::What::input, 0, 0), x);
    check_last(find_series(watched, "", parts::What::output, 0, 0), y);
    check_last(find_series(watched, "2", parts::What::output, 0, 0), y);
    check_last(find_series(watched, "2", parts::What::grad_output, 0, 0), y.grad());
    check_last(find_series(watched, "0", parts::What::grad_input, 0, 0), x.grad());
    const auto parameters = net->named_parameters();
    check_last(find_series(watched, "0", parts::What::parameter, 0, -1), parameters["0.weight"]);
    check_last(find_series(watched, "2", parts::What::parameter_grad, 1, -1), parameters["2.bias"].grad());
    optimizer.step();
    BOOST_TEST(watched.step() == step);
  }
  // Before the ReLU changes it in place, and after.
  const auto* const before = find_series(watched, "0", parts::What::output, 0, 0);
  const auto* const after = find_series(watched, "1", parts::What::output, 0, 0);
  BOOST_TEST(before->last().min < 0);
  BOOST_TEST(after->last().min == 0);
  BOOST_TEST(before->columns().size() == 3U);
  check_no_errors(watched);
}

BOOST_AUTO_TEST_CASE(batches_between_two_backwards_are_one_step) {
  nn::Sequential net(nn::Linear(3, 3));
  net->named_parameters()["0.bias"].set_requires_grad(false);
  explorer::Explorer watched(explorer::ExplorerOptions().every(1));
  watched.attach(*net);
  for (int step = 0; step < 2; ++step) {
    at::Tensor loss = torch::zeros({});
    for (int batch = 0; batch < 3; ++batch) loss = loss + net->forward(torch::randn({2, 3})).sum();
    loss.backward({}, /*retain_graph=*/true);
    loss.backward();
  }
  BOOST_TEST(watched.step() == 1);
  BOOST_TEST(find_series(watched, "0", parts::What::input, 0, 0)->last().count == 18U);
  // The frozen bias is a parameter without gradients.
  BOOST_TEST(find_series(watched, "0", parts::What::parameter, 1, -1)->last().count == 3U);  // once a step
  check_no_errors(watched);
}

BOOST_AUTO_TEST_CASE(evaluation_between_two_steps_has_series_of_its_own) {
  nn::Sequential net(nn::Linear(3, 3));
  explorer::Explorer watched(explorer::ExplorerOptions().every(1));
  watched.attach(*net);
  for (int step = 0; step < 3; ++step) {
    net->forward(torch::randn({2, 3})).sum().backward();
    if (step != 1) continue;
    net->eval();
    const torch::NoGradGuard no_grad;
    for (int batch = 0; batch < 4; ++batch) net->forward(torch::randn({2, 3}));
    net->train();
  }
  BOOST_TEST(watched.step() == 2);
  const auto* const evaluated = find_series(watched, "0", parts::What::output, 0, 1);
  BOOST_REQUIRE(evaluated->columns().size() == 1U);
  BOOST_TEST(evaluated->columns()[0].first_step == 1);
  BOOST_TEST(evaluated->columns()[0].count == 24U);
  BOOST_TEST(find_series(watched, "0", parts::What::output, 0, 0)->columns().size() == 3U);
  check_no_errors(watched);
}

BOOST_AUTO_TEST_CASE(steps_may_be_counted_by_the_program_and_some_left_out) {
  nn::Sequential net(nn::Linear(3, 3));
  explorer::Explorer watched(explorer::ExplorerOptions().every(10));
  watched.attach(*net);
  for (std::int64_t step = 5; step <= 35; step += 5) {
    watched.step(step);
    watched.scalar("loss", static_cast<double>(step) / 2);
    net->forward(torch::randn({2, 3})).sum().backward();
  }
  const auto* const input = find_series(watched, "0", parts::What::input, 0, 0);
  BOOST_REQUIRE(input->columns().size() == 3U);
  for (std::size_t i = 0; i < 3; ++i)
    BOOST_TEST(input->columns()[i].first_step == static_cast<std::int64_t>(10 * (i + 1)));
  const auto scalars = parts::models_of(watched).first()->run()->scalars(20);
  BOOST_REQUIRE(scalars.at("loss").size() == 3U);
  BOOST_TEST(scalars.at("loss").front().first == 25);
  BOOST_TEST(scalars.at("loss").front().second == 12.5);
  BOOST_CHECK_EXCEPTION(watched.step(35), c10::ValueError, torchtap_test::says({"steps have to grow", "35"}));
  BOOST_CHECK_EXCEPTION(watched.scalar("loss", torch::randn({2})), c10::ValueError,
                        torchtap_test::says({"one element", "[2]"}));
  check_no_errors(watched);
}

BOOST_AUTO_TEST_CASE(attach_records_and_returns_the_tensor_itself) {
  struct NamedImpl : nn::Module {
    nn::Linear a{4, 4};
    at::Tensor y;
    NamedImpl() { register_module("a", a); }
    at::Tensor forward(const at::Tensor& x) {
      y = a(x) * 2;
      BOOST_TEST(explorer::attach(y, "twice").is_same(y));
      y.retain_grad();
      return y.sin();
    }
  };
  TORCH_MODULE(Named);
  Named net;
  net->forward(torch::randn({2, 4}));  // nobody watches
  explorer::Explorer watched(explorer::ExplorerOptions().every(1));
  watched.attach(*net);
  net->forward(torch::randn({2, 4})).sum().backward();
  check_last(find_series(watched, "twice", parts::What::attach, 0, 0), net->y);
  check_last(find_series(watched, "twice", parts::What::grad_output, 0, 0), net->y.grad());
  check_no_errors(watched);
}

BOOST_AUTO_TEST_CASE(values_that_are_not_finite_are_counted_and_harm_nothing) {
  nn::Sequential net(nn::Linear(3, 3), nn::ReLU());
  explorer::Explorer watched(explorer::ExplorerOptions().every(1));
  watched.attach(*net);
  for (const double value : {1.0, infinity, not_a_number, 2.0}) {
    net->forward(torch::full({2, 3}, value)).sum().backward();
  }
  const auto* const input = find_series(watched, "0", parts::What::input, 0, 0);
  BOOST_TEST(input->first_inf.value() == 1);
  BOOST_TEST(input->first_nan.value() == 2);
  BOOST_TEST(input->columns()[1].posinf == 6U);
  check_no_errors(watched);
}

BOOST_AUTO_TEST_CASE(the_share_of_the_time_is_kept) {
  using Clock = parts::Pace::Clock;
  using std::chrono::milliseconds;
  const parts::Control control(0);
  parts::Pace pace(explorer::ExplorerOptions().overhead(0.02), control);
  Clock::time_point now{};
  Clock::duration spent{};
  int recorded = 0;
  for (std::int64_t step = 0; step < 20000; ++step) {
    now += milliseconds(10);
    if (!pace.allows(step, now)) continue;
    ++recorded;
    const milliseconds cost(step < 100 ? 50 : 5);  // the first ones are dear
    now += cost;
    spent += cost;
    pace.spend(cost);
    pace.end_record();
  }
  const double share =
      static_cast<double>(spent.count()) / static_cast<double>(now.time_since_epoch().count());
  BOOST_TEST(share <= 0.0205);
  BOOST_TEST(share > 0.015);
  BOOST_TEST(recorded > 500);
}

BOOST_AUTO_TEST_CASE(options_are_checked) {
  BOOST_CHECK_THROW(explorer::ExplorerOptions().every(0), c10::ValueError);
  BOOST_CHECK_THROW(explorer::ExplorerOptions().overhead(0), c10::ValueError);
  BOOST_CHECK_THROW(explorer::ExplorerOptions().overhead(2), c10::ValueError);
  BOOST_CHECK_THROW(explorer::ExplorerOptions().columns(1), c10::ValueError);
}

BOOST_AUTO_TEST_SUITE_END()
