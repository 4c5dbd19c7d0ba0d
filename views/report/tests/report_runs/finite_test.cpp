// Values that are not finite, planted in one place: that place is named, and nobody else.
#include "support.hpp"

BOOST_AUTO_TEST_SUITE(non_finite)

namespace {

using namespace support;
using report::Occurrence;
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

std::vector<Occurrence> find(nn::Sequential& model, const at::Tensor& x, bool backward = false) {
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
void check_culprit(const std::vector<Occurrence>& findings, Role role, const std::string& function,
                   const std::string& module, bool backward = false) {
  BOOST_REQUIRE(!findings.empty());
  const Occurrence& first = findings.front();
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
  BOOST_TEST((std::find(marks.begin(), marks.end(), "nonfinite") != marks.end()));
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

  Report report(*model, report::ReportOptions().non_finite(OnNonFinite::raise));
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

/// Attention with a mask of -inf, written in each of the ways that programs have.
struct MaskedImpl : nn::Module {
  std::string kind;
  nn::Linear keys{register_module("keys", nn::Linear(4, 4))};
  at::Tensor future = torch::ones({6, 6}).triu(1) > 0;
  at::Tensor mask, loose = torch::zeros({6, 6}).masked_fill(future, -INFINITY);
  explicit MaskedImpl(std::string how) : kind(std::move(how)) {
    mask = register_buffer("mask", loose.clone());
  }
  at::Tensor forward(const at::Tensor& x) {
    auto scores = torch::matmul(x, keys(x).transpose(-2, -1));
    if (kind == "buffer") scores = scores + mask;
    if (kind == "member") scores = scores + loose;
    if (kind == "masked_fill") scores = scores.masked_fill(future, -INFINITY);
    if (kind == "masked_fill_") scores = scores.clone().masked_fill_(future, -INFINITY);
    if (kind == "masked_fill of a tensor") scores = scores.masked_fill(future, torch::tensor(-INFINITY));
    if (kind == "full") scores = scores + torch::full({6, 6}, -INFINITY).triu(1);
    if (kind == "full_like") scores = torch::where(future, torch::full_like(scores, -INFINITY), scores);
    if (kind == "new_full") scores = torch::where(future, scores.new_full({}, -INFINITY), scores);
    if (kind == "where") scores = torch::where(future, -INFINITY, scores);
    if (kind == "fill_") scores = scores + torch::zeros({6, 6}).fill_(-INFINITY).triu(1);
    if (kind == "pad")
      scores = nn::functional::pad(scores, nn::functional::PadFuncOptions({0, 2}).value(-INFINITY))
                   .softmax(-1)
                   .slice(2, 0, 6)
                   .log();
    if (kind == "everywhere") scores = scores.masked_fill(torch::ones({6, 6}) > 0, -INFINITY);
    if (kind == "topk")
      return std::get<0>(torch::cat({scores, torch::full({2, 6, 3}, -INFINITY)}, -1).topk(2));
    if (kind == "running maximum") {
      auto best = torch::full({2, 6}, -INFINITY);
      for (int i = 0; i < 6; ++i) best = torch::maximum(best, scores.select(2, i));
      return best;
    }
    if (kind == "logsumexp") return scores.masked_fill(future, -INFINITY).logsumexp(-1);
    return torch::matmul(scores.softmax(-1), x);
  }
};

BOOST_AUTO_TEST_CASE(masks_are_no_culprits) {
  for (const char* kind :
       {"buffer", "member", "masked_fill", "masked_fill_", "masked_fill of a tensor", "full", "full_like",
        "new_full", "where", "fill_", "pad", "topk", "running maximum", "logsumexp"}) {
    BOOST_TEST_CONTEXT(kind) {
      MaskedImpl model(kind);
      Report report(model, report::ReportOptions().non_finite(OnNonFinite::raise));
      {
        auto recording = report.record();
        const auto y = model.forward(torch::randn({2, 6, 4})).sum();
        BOOST_TEST(std::isfinite(y.item<float>()));
        recording.phase(Phase::backward);
        y.backward();
      }
      const auto results = report.results();
      for (const Occurrence& found : results.findings) {
        BOOST_TEST((found.role != Role::source && found.role != Role::producer), found.function);
        BOOST_TEST(found.values.nan + found.values.inf == 0, found.function);
        BOOST_TEST(found.values.intended_inf > 0, found.function);
      }
      BOOST_REQUIRE(!results.findings.empty());
      BOOST_TEST((results.findings.front().role == Role::origin), results.findings.front().function);
      for_each_row(results.root,
                   [](const report::ModuleRow& row) { BOOST_TEST(row.marks.empty(), row.path); });
    }
  }
}

BOOST_AUTO_TEST_CASE(a_mask_of_everything_makes_nan) {
  MaskedImpl model("everywhere");
  Report report(model);
  {
    const auto recording = report.record();
    model.forward(torch::randn({2, 6, 4}));
  }
  const auto findings = report.results().findings;
  check_culprit(findings, Role::producer, "aten::softmax", "");
  BOOST_TEST(findings[0].values.nan == 2 * 36);
  Report raising(model, report::ReportOptions().non_finite(OnNonFinite::raise));
  const auto recording = raising.record();
  BOOST_CHECK_EXCEPTION(model.forward(torch::randn({2, 6, 4})), c10::Error,
                        torchtap_test::says({"aten::softmax", "72 NaN", "on purpose"}));
}

BOOST_AUTO_TEST_CASE(one_nan_stands_before_all_masks) {
  nn::Sequential model;
  for (int i = 0; i < 6; ++i) model->push_back("block" + std::to_string(i), MaskedImpl("masked_fill"));
  model->push_back("log", nn::Functional([](const at::Tensor& x) { return (x - 1000).log(); }));
  model->push_back("last", nn::Linear(4, 2));
  Report report(*model, report::ReportOptions().memory(false));
  for (int i = 0; i < 2; ++i) {
    const auto recording = report.record();
    model->forward(torch::randn({2, 6, 4}));
  }
  const auto results = report.results();
  check_culprit(results.findings, Role::producer, "aten::log", "log");
  BOOST_TEST(results.findings[0].values.nan == 48);
  BOOST_TEST(results.findings[0].repeat == 0);
  // Each block has its mask, and a softmax that absorbs it.
  std::int64_t origins = 0, absorbed = 0;
  for (const Occurrence& found : results.findings) {
    origins += found.role == Role::origin ? found.values.intended_inf : 0;
    absorbed += found.role == Role::absorber ? found.values.intended_inf : 0;
  }
  BOOST_TEST(origins == 6 * 2 * 15);
  BOOST_TEST(absorbed == 6 * 2 * 15);
  std::ostringstream text;
  report::print(text, results, report::PrintOptions().width(200));
  BOOST_TEST(text.str().find("the first NaN: aten::log in log") < text.str().find("(root)"));
  BOOST_TEST(text.str().find("aten::masked_fill in block0 and 5 more modules") != std::string::npos);
  BOOST_TEST(text.str().find("absorbed by aten::softmax in block0 and 5 more modules") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(findings_beyond_the_most_are_counted) {
  nn::Sequential model(nn::Functional([](const at::Tensor& x) { return (x - 1000).log(); }));
  const std::vector<std::string> further{"", "1 further finding was left out.",
                                         "2 further findings were left out."};
  for (std::size_t i = 0; i < further.size(); ++i) {
    Report report(*model, report::ReportOptions().memory(false));
    {
      const auto recording = report.record();
      for (std::size_t call = 0; call < 1000 + i; ++call) model->forward(torch::zeros(1));
    }
    const auto results = report.results();
    BOOST_TEST(results.findings.size() == 1000);
    std::string said;
    for (const std::string& note : results.notes) {
      if (note.find("left out") != std::string::npos) said += note;
    }
    BOOST_TEST(said == further[i]);
  }
}

BOOST_AUTO_TEST_CASE(infinities_that_are_made_come_first) {
  // Of zero: -inf, which becomes NaN. The culprit is the one that made it.
  nn::Sequential model;
  model->push_back("mask", MaskedImpl("masked_fill"));
  model->push_back("log", nn::Functional([](const at::Tensor& x) { return (x - x).log(); }));
  model->push_back("difference", nn::Functional([](const at::Tensor& x) { return x - x; }));
  const auto findings = find(model, torch::randn({2, 6, 4}));
  BOOST_REQUIRE(findings.size() >= 2U);
  BOOST_TEST(findings[0].function == "aten::log");
  BOOST_TEST((findings[0].role == Role::producer));
  BOOST_TEST(findings[0].values.inf == 48);
  BOOST_TEST(findings[1].function == "aten::sub");
  BOOST_TEST((findings[1].role == Role::propagator));
  BOOST_TEST(findings[1].values.nan == 48);
  Report report(*model, report::ReportOptions().non_finite(OnNonFinite::raise));
  const auto recording = report.record();
  BOOST_CHECK_EXCEPTION(model->forward(torch::randn({2, 6, 4})), c10::Error,
                        torchtap_test::says({"aten::log", "48 infinite"}));
}

BOOST_AUTO_TEST_CASE(the_repeat_is_named) {
  int calls = 0;
  nn::Sequential model(nn::Functional([&](const at::Tensor& x) { return x / (++calls == 5 ? 0 : 1); }));
  Report report(*model, report::ReportOptions().warmup(2));
  for (int i = 0; i < 8; ++i) {
    const auto recording = report.record();
    model->forward(torch::ones({3}).masked_fill(torch::ones({3}) > 2, -INFINITY));
  }
  const auto findings = report.results().findings;
  check_culprit(findings, Role::producer, "aten::div", "0");
  BOOST_TEST(findings[0].repeat == 4);
}

BOOST_AUTO_TEST_CASE(inputs_that_share_a_memory_are_told_apart) {
  struct TwoImpl : nn::Module {
    nn::Sequential a{register_module("a", nn::Sequential(nn::Linear(4, 4)))};
    nn::Sequential b{register_module("b", nn::Sequential(nn::Linear(4, 4)))};
  };
  for (const int bad : {0, 1}) {
    for (const bool before : {false, true}) {
      TwoImpl model;
      auto batch = torch::randn({2, 3, 4});
      batch[bad][1][1] = NAN;
      Report report(model);
      {
        const torch::NoGradGuard no_grad;
        const auto recording = report.record();
        if (before) model.b->forward(batch[1]);
        model.a->forward(batch[0]);
        if (!before) model.b->forward(batch[1]);
      }
      const auto results = report.results();
      BOOST_REQUIRE(!results.findings.empty());
      BOOST_TEST((results.findings[0].role == Role::source));
      BOOST_TEST(results.findings[0].function == "input 0");
      BOOST_TEST(results.findings[0].values.nan == 1);
      const std::string path = bad == 0 ? "a" : "b", other = bad == 0 ? "b" : "a";
      BOOST_TEST(results.findings[0].module.substr(0, 1) == path);
      BOOST_TEST(row(results, path).forward.in.nan == 1);
      BOOST_TEST(row(results, other).forward.in.nan + row(results, other).forward.out.nan == 0);
      for (const Occurrence& found : results.findings) BOOST_TEST(found.module.substr(0, 1) == path);
    }
  }
}

BOOST_AUTO_TEST_CASE(memory_that_is_filled_in_parts_is_no_culprit) {
  nn::Sequential model;
  model->push_back("log", nn::Functional([](const at::Tensor& x) {
                     auto out = torch::empty({3, 4});
                     for (int i = 0; i < 3; ++i) out[i] = torch::log(x[i] - (i == 1 ? 100 : -100));
                     return out;
                   }));
  model->push_back("after", nn::Functional([](const at::Tensor& x) { return x * 2 + 1; }));
  const torch::NoGradGuard no_grad;
  const auto findings = find(model, torch::randn({3, 4}));
  check_culprit(findings, Role::producer, "aten::log", "log");
  BOOST_TEST(findings[0].values.nan == 4);
  // What nobody filled is a source of its own, if it is read.
  nn::Sequential unfilled(nn::Functional([](const at::Tensor& x) {
    auto out = torch::empty({3, 4});
    std::fill_n(out.data_ptr<float>(), 12, NAN);
    at::Tensor ignored = torch::empty({3, 3});
    std::fill_n(ignored.data_ptr<float>(), 9, NAN);
    return out[0] + at::addmm(ignored, x, x.t(), 0).sum() + x;
  }));
  const auto found = find(unfilled, torch::randn({3, 4}));
  check_culprit(found, Role::source, "memory that no operation filled", "0");
  BOOST_TEST(found[0].values.nan == 4);
}

BOOST_AUTO_TEST_CASE(weights_that_are_read_without_a_call) {
  struct AttentionImpl : nn::Module {
    nn::Linear in{register_module("in", nn::Linear(4, 4))}, out{register_module("out", nn::Linear(4, 4))},
        unused{register_module("unused", nn::Linear(4, 4))};
    nn::Sequential inside{register_module("inside", nn::Sequential(nn::Linear(4, 4)))};
    at::Tensor forward(const at::Tensor& x) {
      return torch::linear(torch::linear(in(x), out->weight, out->bias), inside[0]->as<nn::Linear>()->weight);
    }
  };
  for (const auto how : {OnNonFinite::ignore, OnNonFinite::note}) {
    nn::Sequential model;
    model->push_back("attention", AttentionImpl());
    Report report(*model, report::ReportOptions().non_finite(how));
    {
      const auto recording = report.record();
      model->forward(torch::randn({3, 4}));
    }
    const auto results = report.results();
    const auto never_ran = [&](const std::string& path) {
      const auto& marks = row(results, path).marks;
      return std::find(marks.begin(), marks.end(), "never_ran") != marks.end();
    };
    for (const char* path : {"attention.out", "attention.inside.0"}) {
      if (!row(results, path).reachable) continue;
      BOOST_TEST(row(results, path).used_without_call, path);
      BOOST_TEST(!never_ran(path), path);
    }
    BOOST_TEST(!never_ran("attention.inside"));
    BOOST_TEST(!row(results, "attention.unused").used_without_call);
    if (row(results, "attention.unused").reachable) BOOST_TEST(never_ran("attention.unused"));
    BOOST_TEST(!row(results, "attention").used_without_call);
  }
}

BOOST_AUTO_TEST_CASE(raised_at_once) {
  nn::Sequential model;
  bool reached = false;
  model->push_back("divides", DividesImpl());
  model->push_back("after", nn::Functional([&reached](const at::Tensor& x) {
                     reached = true;
                     return x + 1;
                   }));
  Report report(*model, report::ReportOptions().non_finite(OnNonFinite::raise));
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
    BOOST_TEST(std::abs(*row(results, "0").zero_fraction - 1500. / 3001) < 1e-12, type);
    BOOST_TEST(std::abs(*row(results, "1").zero_fraction - 1000. / 2501) < 1e-12, type);
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
