// Values that are not finite, planted in one place: that place is named, and nobody else.
#include "support.hpp"

namespace {

using namespace support;
using report::Finding;
using report::OnNonFinite;
using report::Phase;
using report::Report;
using report::Role;

struct DividesImpl : nn::Module {
  at::Tensor forward(const at::Tensor& x) { return (x - x) / (x - x); }
};
struct OverflowsImpl : nn::Module {
  at::Tensor forward(const at::Tensor& x) { return x.to(at::kHalf).mul(60000).to(at::kFloat); }
};
struct RootImpl : nn::Module {
  at::Tensor forward(const at::Tensor& x) { return x.relu().sqrt(); }
};
struct MaskImpl : nn::Module {
  at::Tensor forward(const at::Tensor& x) {
    return torch::where(torch::isfinite(x), x, torch::zeros_like(x));
  }
};

/// Three linear layers with `middle` between the first two.
template <class Middle>
nn::Sequential around(Middle middle) {
  return nn::Sequential(nn::Linear(4, 4), std::move(middle), nn::Linear(4, 4), nn::Linear(4, 2));
}

std::vector<Finding> find(nn::Sequential& model, const at::Tensor& x, bool backward = false) {
  Report report(*model);
  {
    auto recording = report.record();
    const auto y = model->forward(x).sum();
    recording.phase(Phase::backward);
    if (backward) y.backward();
  }
  return report.results().findings;
}

/// Exactly one culprit, in front of all that hand it on.
void check_culprit(const std::vector<Finding>& findings, Role role, const std::string& function,
                   const std::string& module, bool backward = false) {
  BOOST_REQUIRE(!findings.empty());
  const Finding& first = findings.front();
  BOOST_TEST((first.role == role));
  BOOST_TEST(first.function == function);
  BOOST_TEST(first.module == module);
  BOOST_TEST(first.backward == backward);
  BOOST_TEST(first.values.nan + first.values.inf > 0);
  for (std::size_t i = 1; i < findings.size(); ++i) {
    BOOST_TEST((findings[i].role != Role::source && findings[i].role != Role::producer),
               findings[i].function << " in " << findings[i].module);
  }
}

BOOST_AUTO_TEST_SUITE(non_finite)

BOOST_AUTO_TEST_CASE(a_healthy_model_has_no_findings) {
  auto model = around(nn::BatchNorm1d(4));
  BOOST_TEST(find(model, torch::randn({3, 4}), true).empty());
}

BOOST_AUTO_TEST_CASE(in_a_weight) {
  auto model = around(nn::ReLU());
  {
    const torch::NoGradGuard no_grad;
    model[2]->as<nn::Linear>()->weight[1][2] = NAN;
  }
  Report report(*model);
  {
    const auto recording = report.record();
    model->forward(torch::randn({3, 4}));
  }
  const auto results = report.results();
  check_culprit(results.findings, Role::source, "2.weight", "2");
  BOOST_TEST(results.findings[0].values.nan == 1);
  BOOST_TEST(row(results, "2").parameter_values.nan == 1);
  BOOST_TEST(row(results, "0").parameter_values.nan == 0);
  BOOST_TEST(row(results, "1").forward.out.nan == 0);
  BOOST_TEST(row(results, "2").forward.in.nan == 0);
  BOOST_TEST(row(results, "2").forward.out.nan == 3);
  BOOST_TEST(row(results, "3").forward.in.nan == 3);
  const auto& marks = row(results, "2").marks;
  BOOST_TEST((std::find(marks.begin(), marks.end(), report::Mark::non_finite) != marks.end()));
  BOOST_TEST(row(results, "1").marks.empty());
}

BOOST_AUTO_TEST_CASE(in_an_input) {
  auto model = around(nn::ReLU());
  auto x = torch::randn({3, 4});
  x[0][1] = INFINITY;
  const auto findings = find(model, x);
  check_culprit(findings, Role::source, "input 0", "");
  BOOST_TEST(findings[0].values.inf == 1);
}

BOOST_AUTO_TEST_CASE(in_a_slice_of_memory_that_nobody_reads) {
  auto model = around(nn::ReLU());
  auto x = torch::randn({6, 8});
  x[5][7] = NAN;
  x[0][7] = NAN;
  BOOST_TEST(find(model, x.slice(0, 1, 5).slice(1, 0, 8, 2)).empty());
}

BOOST_AUTO_TEST_CASE(by_zero_over_zero) {
  nn::Sequential model;
  model->push_back(nn::Linear(4, 4));
  model->push_back("divides", DividesImpl());
  model->push_back(nn::Linear(4, 2));
  const auto findings = find(model, torch::randn({3, 4}));
  check_culprit(findings, Role::producer, "aten::div", "divides");
  BOOST_TEST(findings[0].values.nan == 12);
  BOOST_REQUIRE(findings[0].inputs.size() == 2U);
  BOOST_TEST(findings[0].inputs[0] == "self: float32 [3, 4], minimum 0, maximum 0, mean 0");
}

BOOST_AUTO_TEST_CASE(by_overflow_in_half) {
  nn::Sequential model;
  model->push_back(nn::Linear(4, 4));
  model->push_back("overflows", OverflowsImpl());
  const auto findings = find(model, torch::full({3, 4}, 100.F));
  check_culprit(findings, Role::producer, "aten::mul", "overflows");
  BOOST_TEST(findings[0].values.nan == 0);
}

BOOST_AUTO_TEST_CASE(in_backward_only) {
  nn::Sequential model;
  model->push_back("linear", nn::Linear(4, 4));
  model->push_back("root", RootImpl());
  model->push_back("last", nn::Linear(4, 2));
  {
    const torch::NoGradGuard no_grad;
    model[0]->as<nn::Linear>()->bias.fill_(-100);  // the root of zero has no finite slope
  }
  const auto x = torch::rand({3, 4});
  const auto findings = find(model, x, true);
  check_culprit(findings, Role::producer, "aten::div", "root", true);
  BOOST_TEST(findings[0].values.inf == 12);

  Report report(*model, report::Options().non_finite(OnNonFinite::raise));
  {
    auto recording = report.record();
    const auto y = model->forward(x).sum();
    BOOST_CHECK_EXCEPTION(y.backward(), c10::Error,
                          torchtap_test::says({"aten::div", "\"root\"", "12 infinite"}));
  }
  BOOST_TEST(report.results().findings.size() == 1U);
}

BOOST_AUTO_TEST_CASE(a_mask_absorbs) {
  nn::Sequential model;
  model->push_back("divides", DividesImpl());
  model->push_back("mask", MaskImpl());
  model->push_back(nn::Linear(4, 2));
  const auto findings = find(model, torch::randn({3, 4}));
  BOOST_REQUIRE(findings.size() == 2U);
  check_culprit(findings, Role::producer, "aten::div", "divides");
  BOOST_TEST((findings[1].role == Role::absorber));
  BOOST_TEST(findings[1].function == "aten::where");
  BOOST_TEST(findings[1].module == "mask");
}

BOOST_AUTO_TEST_CASE(memory_that_was_not_filled_is_no_culprit) {
  const torch::NoGradGuard no_grad;  // which add_out wants
  auto model = around(nn::Functional([](const at::Tensor& x) {
    auto buffer = torch::empty({3, 4});
    std::fill_n(buffer.data_ptr<float>(), 12, NAN);  // as memory may hold
    buffer.copy_(x);
    auto parts = torch::empty({3, 4});
    std::fill_n(parts.data_ptr<float>(), 12, NAN);
    for (int i = 0; i < 3; ++i) parts.select(0, i).copy_(x[i]);
    at::Tensor out = torch::empty({3, 4});
    std::fill_n(out.data_ptr<float>(), 12, NAN);
    at::add_out(out, buffer, parts);
    return out;
  }));
  BOOST_TEST(find(model, torch::randn({3, 4})).empty());
}

BOOST_AUTO_TEST_CASE(raised_at_once) {
  nn::Sequential model;
  bool reached = false;
  model->push_back("divides", DividesImpl());
  model->push_back("after", nn::Functional([&reached](const at::Tensor& x) {
                     reached = true;
                     return x + 1;
                   }));
  Report report(*model, report::Options().non_finite(OnNonFinite::raise));
  {
    const auto recording = report.record();
    BOOST_CHECK_EXCEPTION(
        model->forward(torch::randn({3, 4})), c10::Error,
        torchtap_test::says({"aten::div", "\"divides\"", "12 NaN", "minimum 0", "OnNonFinite"}));
  }
  BOOST_TEST(!reached);
  BOOST_TEST(report.results().findings.size() == 1U);
  BOOST_TEST(model->forward(torch::randn({3, 4})).isnan().all().item<bool>());  // as without a report
}

BOOST_AUTO_TEST_CASE(every_dtype_and_layout_is_looked_through) {
  const auto found = [](at::Tensor x) {
    nn::Sequential model(nn::Functional([](const at::Tensor& y) { return y.mul(1); }));
    return find(model, x).size();
  };
  for (const auto type :
       {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16, at::kComplexFloat, at::kComplexDouble}) {
    for (const std::int64_t position : {0, 1, 8, 15, 16, 38, 40, 41}) {
      auto x = torch::ones({42}, type);
      BOOST_TEST(found(x) == 0U, type);
      x[position] = NAN;
      BOOST_TEST(found(x) > 0U, type << " at " << position);
      x[position] = -INFINITY;
      BOOST_TEST(found(x) > 0U, type << " at " << position);
      BOOST_TEST(found(x.view({6, 7}).t()) > 0U, type);
      BOOST_TEST(found(x.expand({3, 42}).t().slice(0, 1)) == (position == 0 ? 0U : found(x)), type);
    }
  }
}

BOOST_AUTO_TEST_CASE(zeros_are_counted) {
  for (const auto type : {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16}) {
    auto x = torch::ones({37, 3001}, type);
    x.slice(1, 0, 1000).zero_();
    x.slice(1, 1000, 1500).fill_(-0.0);
    nn::Sequential model(nn::Functional([](const at::Tensor& y) { return y.clone(); }),
                         nn::Functional([](const at::Tensor& y) { return y.t().slice(0, 500); }));
    Report report(*model);
    for (int i = 0; i < 2; ++i) {
      const auto recording = report.record();
      model->forward(x);
    }
    const auto results = report.results();
    BOOST_TEST(std::abs(row(results, "0").zero_fraction - 1500. / 3001) < 1e-12, type);
    BOOST_TEST(std::abs(row(results, "1").zero_fraction - 1000. / 2501) < 1e-12, type);
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
