// Tensors that a program names for what its thread records.
#include <ATen/Functions.h>
#include <boost/test/unit_test.hpp>

#include <optional>
#include <thread>

#include <torchtap/core/context.hpp>

using torchtap::core::Context;

BOOST_AUTO_TEST_SUITE(context)

BOOST_AUTO_TEST_CASE(inner_contexts_hide_names_of_outer_ones_while_they_live) {
  const at::Tensor a = at::ones({2}), b = at::zeros({2});
  BOOST_TEST(!Context::find("a").defined());
  BOOST_TEST(Context::here() == nullptr);
  {
    const Context outer("a", a);
    {
      const Context inner({{"a", b}, {"b", b}});
      BOOST_TEST(Context::find("a").is_same(b));
      BOOST_TEST(Context::find("b").is_same(b));
    }
    BOOST_TEST(Context::find("a").is_same(a));
    BOOST_TEST(!Context::find("b").defined());
  }
  BOOST_TEST(!Context::find("a").defined());
}

BOOST_AUTO_TEST_CASE(names_can_be_added_and_replaced) {
  const at::Tensor a = at::ones({2}), b = at::zeros({2});
  Context named;
  named.set("a", a);
  named.set("b", b);
  named.set("a", b);
  BOOST_TEST(Context::find("a").is_same(b));
  BOOST_TEST(Context::find("b").is_same(b));
  BOOST_CHECK_THROW(named.set("a", at::Tensor()), c10::ValueError);
  BOOST_TEST(Context::find("a").is_same(b));
  BOOST_CHECK_THROW(static_cast<void>(Context("c", at::Tensor())), c10::ValueError);
  BOOST_TEST(!Context::find("c").defined());
  BOOST_TEST(Context::find("a").is_same(b));
}

BOOST_AUTO_TEST_CASE(contexts_that_end_in_another_order) {
  const at::Tensor a = at::ones({2}), b = at::zeros({2});
  std::string ended;
  std::optional<Context> first(std::in_place, "a", a), second(std::in_place, "b", b),
      third(std::in_place, "b", a);
  first->at_end([&] { ended += '1'; });
  second->at_end([&] { ended += '2'; });
  first.reset();
  BOOST_TEST(ended == "1");
  BOOST_TEST(!Context::find("a").defined());
  second.reset();
  BOOST_TEST(Context::find("b").is_same(a));
  third.reset();
  BOOST_TEST(ended == "12");
  BOOST_TEST(Context::together() == nullptr);
}

BOOST_AUTO_TEST_CASE(another_thread_sees_the_names_that_it_is_given_and_no_others) {
  const at::Tensor a = at::ones({2}), b = at::zeros({2});
  Context outer("a", a);
  std::optional<Context> inner(std::in_place, "b", b);
  const auto here = Context::here();
  outer.set("c", a);
  inner.reset();
  bool alone = false, inherits = false;
  std::thread([&] {
    alone = !Context::find("a").defined();
    const Context own("d", a);
    const Context inherited(here);
    inherits = Context::find("a").is_same(a) && Context::find("b").is_same(b) &&
               !Context::find("c").defined() && !Context::find("d").defined();
  }).join();
  BOOST_TEST(alone);
  BOOST_TEST(inherits);
}

BOOST_AUTO_TEST_SUITE_END()
