// `by` on a device, beside `by` on the CPU and beside reductions on the device that are given the rows.
#include <torchtap/base/capture.hpp>

#include "rows.hpp"

BOOST_AUTO_TEST_SUITE(by_on_a_device)

using namespace torchtap_test;

namespace {

struct Batch {
  at::Tensor x, key;
};

struct Batches {
  std::string name;
  std::vector<Batch> all;
};

std::vector<Batches> batches() {
  at::manual_seed(2);
  std::vector<Batches> cases;
  const auto add = [&](const char* name, at::IntArrayRef sizes, std::int64_t dims, std::int64_t from,
                       std::int64_t to, at::ScalarType dtype) {
    Batches some{name, {}};
    for (int i = 0; i < 4; ++i) {
      at::Tensor x = at::randn(sizes).mul(2);
      if (i % 2 == 1) x = at::stack({x, x}, -1).select(-1, 0);  // not contiguous
      const at::IntArrayRef leading = sizes.slice(0, static_cast<std::size_t>(dims));
      some.all.push_back({x, at::randint(from, to, leading, at::kLong).to(dtype)});
    }
    cases.push_back(some);
  };
  add("int64, some negative", {17, 3}, 1, -2, 4, at::kLong);
  add("int32", {17, 3}, 1, -1, 3, at::kInt);
  add("uint8", {17, 3}, 1, 0, 3, at::kByte);
  add("bool", {17, 3}, 1, 0, 2, at::kBool);
  add("one key", {5, 3}, 1, 6, 7, at::kLong);
  add("negative ones alone", {5, 3}, 1, -3, 0, at::kLong);
  add("no dimensions", {5, 3}, 0, 0, 2, at::kLong);
  add("batch and token", {6, 5, 3}, 2, -1, 3, at::kLong);
  add("batch of sequences", {6, 5, 3}, 1, -1, 3, at::kLong);
  add("many", {200, 3}, 1, 0, 150, at::kLong);
  add("no rows", {0, 3}, 1, 0, 1, at::kLong);
  for (Batch& batch : cases.back().all) batch = {at::randn({0, 3}), at::empty({0}, at::kLong)};
  Batches large{"large", {}};
  const at::Tensor some = at::tensor({std::int64_t{1} << 40, std::int64_t{3}, std::int64_t{-5}});
  for (int i = 0; i < 3; ++i)
    large.all.push_back({at::randn({9, 3}), some.index_select(0, at::randint(3, {9}, at::kLong))});
  large.all.push_back({at::randn({3, 3}), at::tensor({3, 3, 4}, at::kLong)});  // already side by side
  cases.push_back(large);
  return cases;
}

void feed(Any& by, const at::Tensor& x, const at::Tensor& key) {
  const Context named("key", key);
  by.check(x);
  by.update(x);
}

/// The same, of reductions on the device whose rows the CPU chose.
std::map<std::int64_t, Any> separate(const Any& each, const std::vector<Batch>& all) {
  std::map<std::int64_t, Any> groups;
  for (const auto& [x, key] : all) {
    const at::Tensor keys = key.to(at::kLong).flatten();
    const at::Tensor rows = key.dim() == 0 ? x.unsqueeze(0) : x.flatten(0, key.dim() - 1);
    std::set<std::int64_t> came;
    for (std::int64_t i = 0; i < keys.numel(); ++i) came.insert(keys[i].item<std::int64_t>());
    for (const std::int64_t one : came) {
      if (one < 0) continue;
      const at::Tensor chosen = rows.index_select(0, keys.eq(one).nonzero().flatten());
      groups.emplace(one, each).first->second.update(here(key.dim() == 0 ? chosen[0] : chosen));
    }
  }
  return groups;
}

}  // namespace

BOOST_AUTO_TEST_CASE(groups_are_those_of_the_cpu) {
  for (const Batches& some : batches()) {
    for (const Any& each : several()) {
      for (const bool keys_here : {true, false}) {
        BOOST_TEST_CONTEXT(some.name << ", " << each.describe() << ", keys here: " << keys_here) {
          Any on_cpu = by("key", each), on_device = on_cpu;
          for (const auto& [x, key] : some.all) {
            feed(on_cpu, x, key);
            feed(on_device, here(x), keys_here ? here(key) : key);
          }
          const By &want = *on_cpu.get<By>(), &got = *on_device.get<By>();
          BOOST_TEST(got.keys() == want.keys());
          BOOST_TEST(got.count() == want.count());
          BOOST_TEST(got.left_out() == want.left_out());
          check_same(got.results(), want.results());
          const auto groups = separate(each, some.all);
          BOOST_TEST(groups.size() == got.keys().size());
          for (const auto& [key, group] : groups) {
            BOOST_TEST(got.at(key).count() == group.count());
            BOOST_TEST((got.at(key).results() == group.results()));
          }
        }
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(each_given_key_has_its_row_on_the_device) {
  for (const Any& each : several()) {
    Any on_cpu = by("key", 5, each), on_device = on_cpu;
    const at::Tensor key = at::tensor({3, 0, -1, 3, 0}), x = at::randn({5, 2});
    feed(on_cpu, x, key);
    feed(on_device, here(x), here(key));
    BOOST_TEST_CONTEXT(each.describe()) check_same(on_device.results(), on_cpu.results());
  }
}

/// Where the rows of a group are all rows, in order, the group is given the sample.
BOOST_AUTO_TEST_CASE(rows_of_one_key_are_not_copied) {
  const at::Tensor x = here(at::randn({4, 3, 2}));
  const auto same = [&](const at::Tensor& key) {
    By places = by("key", Places());
    const Context named("key", key);
    places.update(x);
    const auto& all = places.at(7).get<Places>()->places;
    return all.size() == 1 && all[0] == x.data_ptr();
  };
  BOOST_TEST(same(here(at::full({4}, 7))));
  BOOST_TEST(same(here(at::full({4, 3}, 7))));
  BOOST_TEST(same(at::scalar_tensor(7, at::kInt)));
  BOOST_TEST(!same(here(at::tensor({7, 7, -1, 7}))));
}

BOOST_AUTO_TEST_CASE(errors_name_what_is_wrong_and_change_nothing) {
  const at::Tensor x = here(at::randn({5, 2})), keys = at::tensor({0, 1, 2, 3, 4});
  Any one = by("key", 5, Sum(SumOptions().over({0}).non_finite(NonFinite::raise)));
  feed(one, x, here(keys));
  const auto state = state_of(one);
  struct Wrong {
    at::Tensor key, x;
    std::vector<std::string> texts;
  };
  at::Tensor spoiled = at::randn({5, 2});
  spoiled[2][1] = INFINITY;
  const std::vector<Wrong> all{
      {here(at::tensor({0, 1, 2, 3, 5})), x, {"\"key\" has the key 5; expected keys below 5"}},
      {here(keys.to(at::kFloat)), x, {"\"key\" has dtype Float", "to(torch::kLong)"}},
      {here(keys.slice(0, 1)), x, {"\"key\" has shape [4] and the sample [5, 2]"}},
      {fake::on_device(keys, 1), x, {"By::update: \"key\" is on", ":1 and the sample on", "or on the CPU"}},
      {here(keys), x.cpu(), {"\"key\" is on", "the sample on cpu", "on the sample's device"}},
      {keys, fake::on_device(x.cpu(), 1), {"Sum::update: a sample on", ":1", "the state on"}},
      {keys, x.cpu(), {"Sum::update: a sample on cpu"}},
      {here(keys), here(at::randn({5, 3})), {"Sum::update", "shape"}},
      {here(keys), here(spoiled), {"Sum::update", "finite"}}};
  for (const Wrong& wrong : all) {
    const Context named("key", wrong.key);
    const auto error = error_of([&] { one.update(wrong.x); });
    BOOST_TEST_CONTEXT(error) {
      BOOST_TEST(!error.empty());
      for (const auto& text : wrong.texts) BOOST_TEST(contains(error, text), text);
      BOOST_TEST(error_of([&] { one.check(wrong.x); }) == error);
      BOOST_TEST(state_of(one) == state);
    }
  }
}

/// By what members check, and by updates of copies for those that cannot; one is new and comes before.
BOOST_AUTO_TEST_CASE(the_third_of_five_groups_throws_and_all_are_as_before) {
  const Max max(MaxOptions().over({0}).non_finite(NonFinite::raise));
  const Any each[] = {max, window(2, max), AnySeries({Count(CountOptions().over({0})), window(2, max)}),
                      where("mask", AnySeries({max, joint("other", max)})), by("inner", window(3, max))};
  const at::Tensor x = at::randn({10, 3}), key = here(at::arange(10) % 5);
  at::Tensor spoiled = x.clone();
  spoiled[7] = INFINITY;  // of key 2
  for (const Any& one : each) {
    Any grouped = by("key", one);
    const Context named({{"key", key},
                         {"mask", here(at::arange(10).ne(3))},
                         {"inner", here(at::arange(10) % 3)},
                         {"other", here(x)}});
    grouped.update(here(x));
    const auto state = state_of(grouped);
    BOOST_TEST_CONTEXT(grouped.describe()) {
      BOOST_TEST(contains(error_of([&] { grouped.update(here(spoiled)); }), "finite"));
      BOOST_TEST(state_of(grouped) == state);
      const Context more("key", here(at::tensor({9, 1, 0, 3, 4, 0, 8, 2, 3, 5})));
      BOOST_TEST(contains(error_of([&] { grouped.update(here(spoiled)); }), "finite"));
      BOOST_TEST(state_of(grouped) == state);
    }
  }
}

BOOST_AUTO_TEST_CASE(a_copy_that_fails_changes_nothing) {
  Any sums = by("key", Sum(SumOptions().over({0})));
  const at::Tensor x = here(at::randn({4, 2})), key = here(at::tensor({1, 0, 1, 0}));
  feed(sums, x, key);
  const auto state = state_of(sums);
  const Context named("key", key);
  fake::fail(fake::Failing::copies);
  const auto error = error_of([&] { sums.update(x); });
  fake::fail(fake::Failing::nothing);
  BOOST_TEST(contains(error, "copies fail here"), error);
  BOOST_TEST(state_of(sums) == state);
}

/// Waiting would end the capture.
BOOST_AUTO_TEST_CASE(nothing_is_copied_while_a_stream_captures) {
  for (Any one : {Any(by("key", Count(CountOptions().over({0})))),
                  Any(where("mask", Count(CountOptions().over({0}))))}) {
    const at::Tensor x = here(at::randn({4, 2})), key = at::tensor({1, 0, 1, 0}), mask = key.eq(1);
    const auto refused = [&](const at::Tensor& of_by, const at::Tensor& of_where) {
      const Context named({{"key", of_by}, {"mask", of_where}});
      const auto before = fake::counters();
      fake::begin_capture();
      torchtap::base::set_capturing([](const at::Device& asked) {
        return asked.type() == c10::kPrivateUse1 && fake::capture(asked.index()) != 0;
      });
      const auto error = error_of([&] { one.update(x); }), checked = error_of([&] { one.check(x); });
      BOOST_CHECK_THROW(one.update(x), c10::NotImplementedError);
      torchtap::base::set_capturing(nullptr);
      BOOST_TEST(fake::end_capture().jobs.empty());
      BOOST_TEST(fake::counters().synchronizations == before.synchronizations);
      BOOST_TEST(checked == error);
      BOOST_TEST_CONTEXT(error) {
        BOOST_TEST(contains(error, one.get<By>() != nullptr ? "By::update" : "Where::update"));
        BOOST_TEST(contains(error, "captures a graph"));
        BOOST_TEST(contains(error, "outside of the capture"));
      }
      BOOST_TEST(one.count() == 0);
    };
    refused(here(key), here(mask));
    refused(key, mask);
    const Context named({{"key", here(key)}, {"mask", here(mask)}});
    BOOST_CHECK_NO_THROW(one.update(x));
  }
}

BOOST_AUTO_TEST_CASE(states_merge_and_are_restored) {
  const auto data = batches().front().all;
  for (const Any& each : several()) {
    if (each.describe().find("Every") == 0 || each.describe() == "callable") continue;
    BOOST_TEST_CONTEXT(each.describe()) {
      Any whole = by("key", each), first = whole, first_here = whole, second_here = whole;
      for (std::size_t i = 0; i < data.size(); ++i) {
        feed(whole, data[i].x, data[i].key);
        feed(i < 2 ? first_here : second_here, here(data[i].x), here(data[i].key));
        if (i < 2) feed(first, data[i].x, data[i].key);
      }
      Any restored = restore(*torchtap::core::save(*torchtap::core::make_sink(first_here)));
      BOOST_TEST((restored.results() == first_here.results()));
      Any merged = restored;
      merged.merge(second_here);
      check_same(merged.results(), whole.results());
      for (std::size_t i = 2; i < data.size(); ++i) feed(restored, here(data[i].x), here(data[i].key));
      check_same(restored.results(), whole.results());
      first.merge(second_here);  // of which no key is new
      for (const auto& [name, tensor] : first.results())
        BOOST_TEST(close(tensor.cpu(), whole.results().at(name), 1e-6), name);
    }
  }
}

/// Some groups come from the CPU; results are on one device.
BOOST_AUTO_TEST_CASE(groups_of_several_devices_have_one_result) {
  By mixed = by("key", Mean(MeanOptions().over({0}))), on_cpu = mixed;
  const at::Tensor x = at::randn({2, 3});
  {
    const Context named("key", at::tensor({0, 2}));
    mixed.update(here(x));
  }
  {
    const Context named("key", at::tensor({1, 1}));
    on_cpu.update(x);
  }
  mixed.merge(on_cpu);
  const at::Tensor means = mixed.results().at("value");
  BOOST_TEST(means.device() == fake::device());
  BOOST_TEST(close(means.cpu(), at::stack({x[0], x.mean(0), x[1]}), 1e-6));
}

BOOST_AUTO_TEST_SUITE_END()
