#include <ATen/Functions.h>
#include <boost/test/unit_test.hpp>

#include <limits>
#include <sstream>
#include <string>

#include <torchtap/core/sink.hpp>

#include "../support.hpp"

BOOST_AUTO_TEST_SUITE(value)

using namespace std::string_literals;
using namespace torchtap::core;
using torchtap_test::says;
namespace core = torchtap::core;  // some versions of LibTorch have a ::detail, too

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
  BOOST_CHECK_EXCEPTION(none.tensor(), c10::TypeError, says({"expected a tensor", "got nothing"}));
  BOOST_CHECK_EXCEPTION(tensor.list(), c10::TypeError, says({"expected a list", "a tensor of shape [2, 3]"}));
  BOOST_CHECK_EXCEPTION(Value(at::Tensor()).text(), c10::TypeError, says({"an undefined tensor"}));
  BOOST_CHECK_EXCEPTION(text.dict(), c10::TypeError, says({"expected a dict", "got a text"}));
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

BOOST_AUTO_TEST_CASE(values_are_equal_if_their_bytes_are) {
  const auto nan = at::full({2}, std::numeric_limits<double>::quiet_NaN());
  const at::Tensor matrix = at::arange(6).reshape({2, 3}).to(at::kFloat);
  const std::vector<Value> different{
      Value(),
      Value(at::Tensor()),
      Value(nan),
      Value(at::zeros({2}, at::kDouble)),
      Value(-at::zeros({2}, at::kDouble)),
      Value(at::zeros({2})),
      Value(at::zeros({1, 2})),
      Value(at::zeros({0})),
      Value(at::zeros({0, 2})),
      Value(at::zeros({2}).to_sparse()),
      Value(at::ones({2}).to_sparse()),
      Value(at::zeros({2}, at::TensorOptions().device(at::kMeta))),
      Value(at::quantize_per_tensor(at::ones({2}), 0.5, 0, at::kQInt8)),
      Value(at::quantize_per_tensor(at::ones({2}), 0.25, 0, at::kQInt8)),
      Value(matrix),
      Value(matrix.reshape({3, 2}).t()),
      Value(at::complex(at::ones({2}), at::ones({2}))),
      Value(at::complex(at::ones({2}), -at::ones({2}))),
      Value(std::string("text")),
      Value(std::string("")),
      Value(std::vector<at::Tensor>{}),
      Value(std::vector<at::Tensor>{nan}),
      Value(Value::Dict{}),
      Value(Value::Dict{{"a", Value()}, {"b", Value()}}),
      Value(Value::Dict{{"b", Value()}, {"a", Value()}}),
      Value(Value::Dict{{"text", Value()}}),
  };
  for (std::size_t i = 0; i < different.size(); ++i) {
    for (std::size_t j = 0; j < different.size(); ++j) {
      BOOST_TEST_CONTEXT(i << ": " << different[i] << ", " << j << ": " << different[j]) {
        BOOST_TEST((different[i] == different[j]) == (i == j));
        BOOST_TEST((different[i] != different[j]) == (i != j));
      }
    }
  }
  // Neither strides nor requires_grad count.
  BOOST_TEST(Value(nan) == Value(nan.clone()));
  BOOST_TEST(Value(matrix.t()) == Value(matrix.t().contiguous()));
  BOOST_TEST(Value(at::ones({4}).expand({3, 4})) == Value(at::ones({3, 4})));
  BOOST_TEST(Value(at::ones({2}).requires_grad_()) == Value(at::ones({2})));
  const at::Tensor complex = at::complex(at::ones({2}), at::ones({2}));
  BOOST_TEST(Value(complex.conj()) == Value(at::complex(at::ones({2}), -at::ones({2}))));
  BOOST_TEST(Value(at::ones({2}).to_sparse()) == Value(at::ones({2}).to_sparse()));
  BOOST_TEST(Value(at::quantize_per_tensor(at::ones({2}), 0.5, 0, at::kQInt8)) ==
             Value(at::quantize_per_tensor(at::ones({2}), 0.5, 0, at::kQInt8)));

  const Results results{{"mean", nan}, {"count", matrix}};
  BOOST_TEST(results == (Results{{"mean", nan.clone()}, {"count", matrix.clone()}}));
  BOOST_TEST(results != (Results{{"count", matrix}, {"mean", nan}}));
  BOOST_TEST(results != (Results{{"mean", nan}}));
  BOOST_TEST(results != (Results{{"mean", nan}, {"count", matrix.add(1)}}));
  BOOST_TEST(Results() == Results());
}

BOOST_AUTO_TEST_CASE(values_print_in_short) {
  const auto printed = [](const auto& value) {
    std::ostringstream out;
    out << value;
    return out.str();
  };
  BOOST_TEST(printed(Value()) == "None");
  BOOST_TEST(printed(Value(at::Tensor())) == "None");
  BOOST_TEST(printed(Value(at::tensor({1.0, -2.5, 1e10, 0.1}).to(at::kFloat))) ==
             "tensor([1, -2.5, 1e+10, 0.1], float32)");
  BOOST_TEST(printed(Value(at::scalar_tensor(0.5, at::kDouble))) == "tensor(0.5, float64)");
  BOOST_TEST(printed(Value(at::arange(6).reshape({2, 3}).t())) == "tensor([[0, 3], [1, 4], [2, 5]], int64)");
  BOOST_TEST(printed(Value(at::tensor({1, 255}).to(at::kByte))) == "tensor([1, 255], uint8)");
  BOOST_TEST(printed(Value(at::tensor({1, 0}).to(at::kBool))) == "tensor([True, False], bool)");
  BOOST_TEST(printed(Value(at::complex(at::ones({1}), -at::ones({1})))) == "tensor([1-1j], complex64)");
  BOOST_TEST(printed(Value(at::ones({1}).to(at::kBFloat16))) == "tensor([1], bfloat16)");
  BOOST_TEST(printed(Value(at::ones({1}).to(at::kHalf))) == "tensor([1], float16)");
  BOOST_TEST(printed(Value(at::ones({64, 3, 7, 7}))) == "tensor(shape=[64, 3, 7, 7], float32)");
  BOOST_TEST(printed(Value(at::ones({0, 3}))) == "tensor(shape=[0, 3], float32)");
  BOOST_TEST(printed(Value(at::ones({2}).to_sparse())) == "tensor(shape=[2], float32, layout=Sparse)");
  BOOST_TEST(printed(Value(at::ones({2}, at::TensorOptions().device(at::kMeta)))) ==
             "tensor(shape=[2], float32, device=meta)");
  BOOST_TEST(printed(Value(at::quantize_per_tensor(at::ones({2}), 0.5, 0, at::kQInt8))) ==
             "tensor(shape=[2], qint8)");
  BOOST_TEST(printed(Value(std::string("it's\n\\"))) == "'it\\'s\\n\\\\'");
  BOOST_TEST(printed(Value(std::string(100, 'x'))) == "'" + std::string(80, 'x') + "'... (100 bytes)");
  BOOST_TEST(printed(Value(std::vector<at::Tensor>{at::ones({1}), {}})) == "[tensor([1], float32), None]");
  BOOST_TEST(printed(Value(Value::List(10))) ==
             "[None, None, None, None, None, None, None, None, ... (2 more)]");
  BOOST_TEST(printed(Value(Value::Dict{{"a", Value()}, {"b", Value(Value::List{})}})) ==
             "{'a': None, 'b': []}");
  BOOST_TEST(printed(Results{{"mean", at::ones({1})}, {"count", at::Tensor()}}) ==
             "{'mean': tensor([1], float32), 'count': None}");
  BOOST_TEST(printed(Results()) == "{}");
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

// In C++17 a range-for keeps what its expression returns, and not the value that it was asked of.
BOOST_AUTO_TEST_CASE(parts_of_a_temporary_outlive_it) {
  static_assert(std::is_same_v<decltype(std::declval<Value>().list()), Value::List>);
  static_assert(std::is_same_v<decltype(std::declval<Value>().dict()), Value::Dict>);
  static_assert(std::is_same_v<decltype(std::declval<Value>().at(0)), Value>);
  static_assert(std::is_same_v<decltype(std::declval<Value>().at("a")), Value>);
  static_assert(std::is_same_v<decltype(std::declval<Value>().text()), std::string>);
  static_assert(std::is_same_v<decltype(std::declval<Value>().tensor()), at::Tensor>);
  static_assert(std::is_same_v<decltype(std::declval<Results>().at("a")), at::Tensor>);
  static_assert(std::is_same_v<decltype(std::declval<Value&>().list()), const Value::List&>);
  const auto make = [] {
    return Value(
        Value::Dict{{"a", Value::List{Value("long enough to be on the heap"s), Value(at::ones({2}))}}});
  };
  std::vector<std::string> seen;
  for (const auto& item : make().at("a").list()) seen.push_back(item.describe());
  for (const auto& [key, item] : make().dict()) seen.push_back(key + item.at(0).text());
  for (const char letter : make().at("a").at(0).text()) seen.push_back(std::string(1, letter));
  BOOST_TEST(seen.size() == 32u);
  BOOST_TEST(seen[0] == "a text");
  BOOST_TEST(seen[2] == "along enough to be on the heap");
  const auto& kept = make().at("a").at(1).tensor();
  BOOST_TEST(kept.sum().item<double>() == 2);
  // What is asked of a value that stays, is not taken out of it.
  const Value whole = make();
  BOOST_TEST((whole.at("a").list().data() == whole.at("a").list().data()));
  BOOST_CHECK_EXCEPTION(make().list(), c10::TypeError, says({"Value::list", "a dict"}));
}

BOOST_AUTO_TEST_SUITE_END()
