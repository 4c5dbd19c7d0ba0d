// `where` on a device, alone, around and inside of others, beside the same on the CPU.
#include "rows.hpp"

BOOST_AUTO_TEST_SUITE(where_on_a_device)

using namespace torchtap_test;

BOOST_AUTO_TEST_CASE(rows_are_those_of_the_cpu) {
  struct Case {
    std::vector<std::int64_t> sizes;
    std::int64_t dims;
  };
  at::manual_seed(4);
  for (const Case& one : {Case{{9, 3}, 1}, Case{{4, 5, 3}, 2}, Case{{4, 5, 3}, 1}, Case{{4, 3}, 0}}) {
    for (const double part : {0.0, 0.5, 1.0}) {
      for (const Any& each : several()) {
        for (const bool mask_here : {true, false}) {
          BOOST_TEST_CONTEXT(each.describe() << " of " << at::IntArrayRef(one.sizes) << ", " << part) {
            Any on_cpu = where("mask", each), on_device = on_cpu, rows = each;
            for (int i = 0; i < 4; ++i) {
              at::Tensor x = at::randn(one.sizes);
              if (i % 2 == 1) x = at::stack({x, x}, -1).select(-1, 0);  // not contiguous
              const at::IntArrayRef leading(one.sizes.data(), static_cast<std::size_t>(one.dims));
              const at::Tensor mask = at::rand(leading).lt(part);
              {
                const Context named("mask", mask);
                on_cpu.update(x);
              }
              {
                const Context named("mask", mask_here ? here(mask) : mask);
                on_device.check(here(x));
                on_device.update(here(x));
              }
              if (!mask.any().item<bool>()) continue;
              rows.update(here(one.dims == 0 ? x : x.index({mask})));
            }
            BOOST_TEST(on_device.count() == on_cpu.count());
            BOOST_TEST(on_device.get<Where>()->left_out() == on_cpu.get<Where>()->left_out());
            check_same(on_device.results(), on_cpu.results());
            BOOST_TEST((on_device.get<Where>()->inner().results() == rows.results()));
          }
        }
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(a_mask_that_takes_all_copies_no_row) {
  const at::Tensor x = here(at::randn({4, 3}));
  const auto same = [&](const at::Tensor& mask) {
    Where places = where("mask", Places());
    const Context named("mask", mask);
    places.update(x);
    const auto& all = places.inner().get<Places>()->places;
    return all.size() == 1 && all[0] == x.data_ptr();
  };
  BOOST_TEST(same(here(at::ones({4}, at::kBool))));
  BOOST_TEST(same(here(at::ones({4, 3}, at::kBool))));
  BOOST_TEST(same(here(at::ones({}, at::kBool))));
  BOOST_TEST(!same(here(at::arange(4).ne(2))));
}

BOOST_AUTO_TEST_CASE(errors_name_what_is_wrong_and_change_nothing) {
  const at::Tensor x = here(at::randn({5, 2})), mask = at::arange(5).gt(1);
  Any one = where("mask", Sum(SumOptions().over({0}).non_finite(NonFinite::raise)));
  {
    const Context named("mask", here(mask));
    one.update(x);
  }
  const auto state = state_of(one);
  struct Wrong {
    at::Tensor mask, x;
    std::vector<std::string> texts;
  };
  const std::vector<Wrong> all{
      {here(mask.to(at::kByte)), x, {"\"mask\" has dtype Byte", "to(torch::kBool)"}},
      {here(mask.slice(0, 1)), x, {"\"mask\" has shape [4] and the sample [5, 2]"}},
      {fake::on_device(mask, 1), x, {"Where::update: \"mask\" is on", ":1 and the sample on"}},
      {here(mask), x.cpu(), {"\"mask\" is on", "the sample on cpu", "on the sample's device or on the CPU"}},
      {mask, x.cpu(), {"Sum::update: a sample on cpu"}},
      {here(mask), here(at::randn({5, 3})), {"Sum::update", "shape"}},
      {here(mask), here(at::full({5, 2}, NAN)), {"Sum::update", "finite"}}};
  for (const Wrong& wrong : all) {
    const Context named("mask", wrong.mask);
    const auto error = error_of([&] { one.update(wrong.x); });
    BOOST_TEST_CONTEXT(error) {
      BOOST_TEST(!error.empty());
      for (const auto& text : wrong.texts) BOOST_TEST(contains(error, text), text);
      BOOST_TEST(error_of([&] { one.check(wrong.x); }) == error);
      BOOST_TEST(state_of(one) == state);
    }
  }
}

/// Companions inside are on the device, too, or on the CPU where they choose rows.
BOOST_AUTO_TEST_CASE(by_where_and_reductions_of_two_tensors_are_nested) {
  const CovarianceOptions rows = CovarianceOptions().over({0});
  const auto weighted = map(
      "weight", [](const at::Tensor& x, const at::Tensor& w) { return x * w.unsqueeze(-1); },
      Sum(SumOptions().over({0})));
  const Any all[] = {by("key", where("mask", Moments(MomentsOptions().over({0})))),
                     where("mask", by("key", Moments(MomentsOptions().over({0})))),
                     by("key", where("mask", joint("other", Covariance(rows)))),
                     by("key", 6, Any(CrossCovariance("other"))),
                     where("mask", by("key", Any(LinearCKA("other")))),
                     by("key", where("mask", weighted)),
                     by("one", where("mask", weighted)),
                     by("one", AnySeries({where("mask", Count(CountOptions().over({0}))), weighted})),
                     by("whole", where("mask", joint("other", Covariance(rows)))),
                     every(1, by("key", where("mask", Count(CountOptions().over({0}))))),
                     AnySeries({by("key", weighted), where("mask", Mean(MeanOptions().over({0})))})};
  for (const Any& one : all) {
    for (const bool sequences : {false, true}) {
      for (const bool choosers_here : {true, false}) {
        BOOST_TEST_CONTEXT(one.describe() << ", sequences: " << sequences << ", " << choosers_here) {
          at::manual_seed(6);
          Any on_cpu = one, on_device = one;
          for (int i = 0; i < 3; ++i) {
            const at::Tensor x = sequences ? at::randn({6, 5, 3}) : at::randn({30, 3});
            const std::vector<std::int64_t> sizes(x.sizes().begin(), x.sizes().end() - 1);
            const auto cpu = [](const at::Tensor& tensor) { return tensor; };
            const auto names = [&](auto to, auto chooser) {
              at::manual_seed(7 + i);
              const at::Tensor key = at::randint(-1, 4, sizes, at::kLong), mask = at::rand(sizes).lt(0.8);
              return Context::Names{
                  {"key", chooser(key)},
                  {"one", chooser(at::full(sizes, 3))},
                  {"whole", chooser(at::scalar_tensor(2, at::kLong))},
                  {"mask", chooser(sequences ? mask.select(1, 0) : mask)},  // of whole sequences
                  {"weight", to(at::rand(sizes))},
                  {"other", to(at::randn(sizes).unsqueeze(-1))}};
            };
            const auto fed = [](Any& reduction, const at::Tensor& sample, const Context::Names& names) {
              const Context named(names);
              return error_of([&] { reduction.update(sample); });
            };
            const auto want = fed(on_cpu, x, names(cpu, cpu));
            const auto got = fed(on_device, here(x), choosers_here ? names(&here, &here) : names(&here, cpu));
            BOOST_TEST(got == want);
          }
          BOOST_TEST(on_device.count() == on_cpu.count());
          for (const auto& [name, tensor] : on_cpu.results()) {
            BOOST_TEST_CONTEXT(name) {
              BOOST_REQUIRE(on_device.results().contains(name));
              BOOST_TEST(close(on_device.results().at(name).cpu(), tensor,
                               at::isIntegralType(tensor.scalar_type(), true) ? 0 : 1e-5));
            }
          }
        }
      }
    }
  }
}

BOOST_AUTO_TEST_SUITE_END()
