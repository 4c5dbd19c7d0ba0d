#include <ATen/Functions.h>

#include <boost/test/unit_test.hpp>
#include <sstream>
#include <string>
#include <torchtap/core/sink.hpp>

#include "../support.hpp"

using namespace std::string_literals;
using namespace torchtap::core;
using torchtap_test::says;
namespace core = torchtap::core;  // some versions of LibTorch have a ::detail, too

BOOST_AUTO_TEST_SUITE(value)

BOOST_AUTO_TEST_CASE(state_keeps_order_and_names_what_is_missing) {
  Results state{{"mean", at::ones({2})}};
  state.set("variance", at::zeros({2}));
  state.set("mean", at::full({2}, 3.0));
  BOOST_TEST(state.names() == (std::vector<std::string>{"mean", "variance"}),
             boost::test_tools::per_element());
  BOOST_TEST(state.at("mean").sum().item<double>() == 6.0);
  BOOST_CHECK_EXCEPTION(state.at("median"), c10::IndexError, [](const c10::Error& error) {
    const std::string text = error.what_without_backtrace();
    return text.find("median") != std::string::npos &&
           text.find("\"mean\" and \"variance\"") != std::string::npos;
  });
}

BOOST_AUTO_TEST_CASE(a_value_is_what_it_was_made_of) {
  const at::Tensor tensor = at::ones({2});
  const Value text("words"s), list(Value::List{Value(tensor), text}),
      dict(Value::Dict{{"a", list}, {"b", {}}});
  BOOST_TEST(Value().is_none());
  BOOST_TEST(Value(tensor).tensor().is_same(tensor));
  BOOST_TEST(text.text() == "words");
  BOOST_TEST(list.list().size() == 2u);
  BOOST_TEST(list.at(1).text() == "words");
  BOOST_TEST(dict.dict().front().first == "a");
  BOOST_TEST(dict.at("a").at(0).tensor().is_same(tensor));
  BOOST_TEST(dict.at("b").is_none());
  BOOST_TEST(Value(std::vector<at::Tensor>{tensor, tensor}).tensors().size() == 2u);
  BOOST_TEST(Value(tensor).tensors().front().is_same(tensor));
}

BOOST_AUTO_TEST_CASE(a_wrong_access_says_what_the_value_is) {
  const Value none, tensor(at::ones({2, 3})), text("words"s), list(Value::List{tensor, text}),
      dict(Value::Dict{{"a", none}, {"b", none}});
  BOOST_CHECK_EXCEPTION(none.tensor(), c10::TypeError, says({"expected a tensor", "this is nothing"}));
  BOOST_CHECK_EXCEPTION(tensor.list(), c10::TypeError, says({"expected a list", "a tensor of shape [2, 3]"}));
  BOOST_CHECK_EXCEPTION(Value(at::Tensor()).text(), c10::TypeError, says({"an undefined tensor"}));
  BOOST_CHECK_EXCEPTION(text.dict(), c10::TypeError, says({"expected a dict", "this is a text"}));
  BOOST_CHECK_EXCEPTION(list.text(), c10::TypeError, says({"expected a text", "a list of 2"}));
  BOOST_CHECK_EXCEPTION(dict.tensor(), c10::TypeError, says({"a dict with the keys \"a\" and \"b\""}));
  BOOST_CHECK_EXCEPTION(dict.at("c"), c10::IndexError, says({"\"c\"", "\"a\" and \"b\""}));
  BOOST_CHECK_EXCEPTION(list.at("c"), c10::TypeError, says({"expected a dict"}));
  BOOST_CHECK_EXCEPTION(list.at(2), c10::IndexError, says({"index 2", "a list of 2"}));
  BOOST_CHECK_EXCEPTION(list.at(-1), c10::IndexError, says({"index -1"}));
  BOOST_CHECK_EXCEPTION(list.tensors(), c10::TypeError, says({"expected a tensor", "a text"}));
  BOOST_CHECK_EXCEPTION(dict.tensors(), c10::TypeError, says({"expected a list"}));
}

BOOST_AUTO_TEST_CASE(results_become_the_smallest_value) {
  BOOST_TEST(to_value(Results{}).is_none());
  BOOST_TEST(to_value(Results{{"mean", at::ones({2})}}).is_tensor());
  const Value two = to_value(Results{{"mean", at::ones({2})}, {"variance", at::zeros({2})}});
  BOOST_TEST(two.is_dict());
  BOOST_TEST(two.at("variance").tensor().equal(at::zeros({2})));
}

BOOST_AUTO_TEST_CASE(tensors_survive_an_archive) {
  for (const auto dtype :
       {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16, at::kLong, at::kBool, at::kComplexFloat}) {
    for (const auto& shape : std::vector<std::vector<int64_t>>{{}, {0, 3}, {4, 5}}) {
      const at::Tensor tensor = at::randn(shape).mul(3).to(dtype);
      std::stringstream stream;
      {
        OutputArchive archive(stream);
        archive(tensor.dim() == 2 ? tensor.t() : tensor, at::Tensor());
      }
      at::Tensor loaded, undefined = at::ones({1});
      InputArchive archive(stream);
      archive(loaded, undefined);
      BOOST_TEST((loaded.dim() == 2 ? loaded.t() : loaded).equal(tensor));
      BOOST_CHECK(loaded.scalar_type() == dtype);
      BOOST_TEST(!undefined.defined());
    }
  }
}

BOOST_AUTO_TEST_CASE(a_damaged_archive_is_an_error) {
  core::detail::PackedTensor packed = core::detail::pack(at::ones({2, 3}));
  packed.sizes = {int64_t{1} << 62, 4};
  BOOST_CHECK_THROW(core::detail::unpack(packed), c10::ValueError);
  packed.sizes = {-2, -3};
  BOOST_CHECK_THROW(core::detail::unpack(packed), c10::ValueError);
  packed.sizes = {2, 3};
  packed.dtype = 1000;
  BOOST_CHECK_THROW(core::detail::unpack(packed), c10::ValueError);
}

BOOST_AUTO_TEST_CASE(a_callable_is_a_reduction) {
  auto sink = make_sink([](const at::Tensor& a, const at::Tensor& b) { return at::max(a, b); });
  at::Tensor sample = at::tensor({1.0, 5.0});
  sink->update(sample);
  sample.zero_();  // the first sample was copied
  sink->update(at::tensor({2.0, 3.0}));
  BOOST_TEST(sink->count() == 2);
  BOOST_TEST(sink->results().at("value").equal(at::tensor({2.0, 5.0})));
  auto other = sink->fresh();
  BOOST_TEST(other->count() == 0);
  BOOST_TEST(other->results().empty());
  other->update(at::tensor({9.0, 0.0}));
  sink->merge(*other);
  BOOST_TEST(sink->count() == 3);
  BOOST_TEST(sink->results().at("value").equal(at::tensor({9.0, 5.0})));
  BOOST_CHECK_THROW(sink->merge(*make_sink([](const at::Tensor& a, const at::Tensor&) { return a; })),
                    c10::TypeError);
}

BOOST_AUTO_TEST_SUITE_END()
