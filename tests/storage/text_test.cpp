// Values that are texts.
#include "support.hpp"

BOOST_AUTO_TEST_SUITE(text)

using namespace torchtap_test;
using torchtap::storage::load;
using torchtap::storage::load_value;
using torchtap::storage::Recording;
using torchtap::storage::save_value;

BOOST_AUTO_TEST_CASE(texts_come_back_beside_tensors) {
  const TemporaryDirectory directory;
  const Value written(Value::Dict{{"arch", Value(std::string("resnet18"))},
                                  {"empty", Value(std::string())},
                                  {"zero", Value(std::string("a\0b", 3))},
                                  {"classes", Value(Value::List{Value(std::string("größer")), Value()})},
                                  {"weight", Value(at::ones({2}))}});
  save_value(directory / "checkpoint.pt", written);
  const Value read = load_value(directory / "checkpoint.pt");
  BOOST_TEST(read.at("arch").is_text());
  BOOST_TEST(read.at("arch").text() == "resnet18");
  BOOST_TEST(read.at("empty").text() == "");
  BOOST_TEST(read.at("zero").text() == std::string("a\0b", 3));
  BOOST_TEST(read.at("classes").list()[0].text() == "größer");
  BOOST_TEST(read.at("weight").tensor().equal(at::ones({2})));
  BOOST_TEST(read.at("arch").describe() == "a text");
}

BOOST_AUTO_TEST_CASE(a_text_is_not_a_tensor_list_or_dict) {
  const Value text(std::string("x"));
  BOOST_TEST((!text.is_tensor() && !text.is_list() && !text.is_dict() && !text.is_none()));
  BOOST_CHECK_THROW(text.tensor(), c10::TypeError);
  BOOST_CHECK_THROW(text.list(), c10::TypeError);
  BOOST_CHECK_THROW(text.dict(), c10::TypeError);
  BOOST_CHECK_THROW(text.at("x"), c10::TypeError);
  BOOST_CHECK_THROW(Value(at::ones({1})).text(), c10::TypeError);
  BOOST_CHECK_THROW(Value().text(), c10::TypeError);
}

BOOST_AUTO_TEST_CASE(a_file_holds_only_utf8) {
  const TemporaryDirectory directory;
  BOOST_CHECK_THROW(save_value(directory / "x.pt", Value(std::string("\xff"))), c10::ValueError);
  BOOST_TEST(!fs::exists(directory / "x.pt"));
}

BOOST_AUTO_TEST_CASE(a_recording_of_one_file_may_be_a_text) {
  const TemporaryDirectory directory;
  save_value(directory / "x.pt", Value(std::string("only this")));
  const Recording recording = load(directory / "x.pt");
  BOOST_TEST(recording.at(0).value().text() == "only this");
  BOOST_CHECK_THROW(recording.at(0).tensors(), c10::TypeError);
}

BOOST_AUTO_TEST_SUITE_END()
