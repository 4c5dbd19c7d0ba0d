// AlexNet: the numbers, labels and look-ups of TorchLens's own document.
#include <boost/test/unit_test.hpp>

#include "support.hpp"

BOOST_AUTO_TEST_SUITE(alexnet_in_cpp)

namespace {

using namespace support;
using torchtap_test::says;
using Names = std::vector<std::string>;

const trace::History& alexnet() {
  static const trace::History history = [] {
    torch::manual_seed(0);
    AlexNet model;
    model->eval();
    const torch::NoGradGuard no_grad;
    return trace::log_forward_pass(*model, {torch::rand({1, 3, 224, 224})},
                                   trace::TraceOptions().save(trace::Save::all));
  }();
  return history;
}

BOOST_AUTO_TEST_CASE(has_the_numbers_of_the_document) {
  const trace::History& history = alexnet();
  BOOST_TEST(history.size() == 24);
  BOOST_TEST(history.operations() == 22);
  BOOST_TEST(history.saved() == 24);
  BOOST_TEST(history.parameters().size() == 16U);
  std::int64_t elements = 0, bytes = 0, with_parameters = 0;
  for (const trace::ParameterUse& use : history.parameters()) {
    elements += use.elements;
    bytes += use.bytes;
  }
  for (const trace::Node& node : history) with_parameters += node.parameters().empty() ? 0 : 1;
  BOOST_TEST(elements == 61100840);
  BOOST_TEST(bytes == 4 * 61100840LL);
  BOOST_TEST(with_parameters == 8);
  const std::string printed = text(history);
  for (const char* part :
       {"22 operations, 24 tensors, 5.0 MB", "feed-forward, without branches",
        "16 tensors in 8 operations, 61,100,840 elements, 244.4 MB", "conv2d_3_7", "features.6"}) {
    BOOST_TEST(printed.find(part) != std::string::npos, part << " in\n" << printed);
  }
}

BOOST_AUTO_TEST_CASE(has_its_labels) {
  const Names expected{
      "input_1_0",    "conv2d_1_1",    "relu_1_2",    "maxpool2d_1_3",  "conv2d_2_4",
      "relu_2_5",     "maxpool2d_2_6", "conv2d_3_7",  "relu_3_8",       "conv2d_4_9",
      "relu_4_10",    "conv2d_5_11",   "relu_5_12",   "maxpool2d_3_13", "adaptiveavgpool2d_1_14",
      "flatten_1_15", "dropout_1_16",  "linear_1_17", "relu_6_18",      "dropout_2_19",
      "linear_2_20",  "relu_7_21",     "linear_3_22", "output_1_23"};
  BOOST_TEST(alexnet().labels() == expected, boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(finds_a_layer_by_all_its_names) {
  const trace::History& history = alexnet();
  const trace::Node layer = history["conv2d_3_7"];
  for (const char* name :
       {"conv2d_3", "conv2d_3:1", "conv2d_3_7:1", "features.6", "features.6:1", "7", "-17"}) {
    BOOST_TEST(history[name].label() == "conv2d_3_7", name);
    BOOST_TEST(history.contains(name));
  }
  BOOST_TEST((history[7] == layer));
  BOOST_TEST((history[-17] == layer));
  BOOST_TEST((history[-1] == history["output_1_23"]));
  BOOST_TEST(history["adaptive"].label() == "adaptiveavgpool2d_1_14");  // a part of one label only
  const auto keys = layer.keys();
  for (const char* name : {"conv2d_3_7", "conv2d_3", "features.6", "7", "-17"}) {
    BOOST_TEST((std::find(keys.begin(), keys.end(), name) != keys.end()), name);
  }
}

BOOST_AUTO_TEST_CASE(finds_by_a_part_of_one_name_only) {
  const trace::History& history = alexnet();
  BOOST_TEST(history["flat"].label() == "flatten_1_15");
  BOOST_TEST(history.find("conv2d_?_*").size() == 5U);
  BOOST_TEST(history.find("conv2d_[2-4]_*").size() == 3U);
  BOOST_TEST(history.find("features.*").size() == 13U);
  BOOST_CHECK_EXCEPTION(history["conv"], c10::IndexError,
                        says({"\"conv\" finds 5 nodes", "conv2d_1_1", "by label"}));
  BOOST_CHECK_EXCEPTION(history["Features.6"], c10::IndexError, says({"Features.6", "features.6"}));
  BOOST_CHECK_EXCEPTION(history[24], c10::IndexError, says({"24", "24 nodes"}));
  BOOST_CHECK_EXCEPTION(history[-25], c10::IndexError, says({"-25"}));
  // Names in the shell are texts: of a position that is not there no name is near.
  for (const char* beyond : {"24", "99", "-25"}) {
    BOOST_CHECK_EXCEPTION(history[beyond], c10::IndexError,
                          says({beyond, "there are 24 nodes, from 0 or from -1 back"}));
  }
}

BOOST_AUTO_TEST_CASE(knows_the_neighbours_of_a_layer) {
  const trace::Node layer = alexnet()["conv2d_3_7"];
  BOOST_TEST(labels(layer.parents()) == (Names{"maxpool2d_2_6"}), boost::test_tools::per_element());
  BOOST_TEST(labels(layer.children()) == (Names{"relu_3_8"}), boost::test_tools::per_element());
  BOOST_TEST(layer.siblings().empty());
  BOOST_TEST(layer.spouses().empty());
  BOOST_TEST(labels(layer.input_ancestors()) == (Names{"input_1_0"}), boost::test_tools::per_element());
  BOOST_TEST(labels(layer.output_descendants()) == (Names{"output_1_23"}), boost::test_tools::per_element());
  BOOST_TEST(layer.ancestors().size() == 7U);
  BOOST_TEST(layer.descendants().size() == 16U);
  BOOST_TEST((layer.distance_from_input() == std::pair<std::int64_t, std::int64_t>(7, 7)));
  BOOST_TEST((layer.distance_to_output() == std::pair<std::int64_t, std::int64_t>(16, 16)));
}

BOOST_AUTO_TEST_CASE(describes_a_layer) {
  const trace::Node layer = alexnet()["features.6"];
  BOOST_TEST(layer.function() == "aten::conv2d");
  BOOST_TEST(layer.shape() == (std::vector<std::int64_t>{1, 384, 13, 13}), boost::test_tools::per_element());
  BOOST_TEST(layer.bytes() == 384 * 13 * 13 * 4);
  BOOST_REQUIRE(layer.parameters().size() == 2U);
  BOOST_TEST(layer.parameters()[0].path == "features.6.weight");
  BOOST_TEST(layer.parameters()[1].path == "features.6.bias");
  BOOST_REQUIRE(layer.output_of().size() == 1U);
  BOOST_TEST(layer.output_of()[0].path == "features.6");
  BOOST_TEST(layer.output_of()[0].type == "Conv2d");
  BOOST_REQUIRE(layer.modules().size() >= 1U);
  BOOST_TEST(layer.modules().back().path == "features.6");
  BOOST_TEST(layer.seconds() > 0);
  BOOST_TEST(!layer.in_place());
  BOOST_TEST(alexnet()["relu_1_2"].in_place());
  BOOST_TEST(alexnet()["flatten_1_15"].view());
  const std::string printed = text(layer);
  BOOST_TEST_MESSAGE(printed);
  for (const char* part :
       {"conv2d_3_7, position 7 of 0 to 23", "1x384x13x13, float32, 259.6 kB", "maxpool2d_2_6", "relu_3_8",
        "features.6.weight 384x192x3x3", "663,936 elements, 2.7 MB", "aten::conv2d", "stride=[1, 1]",
        "features.6 (Conv2d)", "conv2d_3, "}) {
    BOOST_TEST(printed.find(part) != std::string::npos, part << " in\n" << printed);
  }
}

BOOST_AUTO_TEST_CASE(logs_linear_as_called_on_request) {
  torch::manual_seed(0);
  nn::Sequential model(nn::Linear(4, 5), nn::ReLU(), nn::Linear(nn::LinearOptions(5, 3).bias(false)));
  const at::Tensor flat = torch::rand({2, 4}), deep = torch::rand({3, 2, 4});
  for (const at::Tensor& x : {flat, deep}) {
    const auto history = trace::log_forward_pass(*model, {x}, trace::TraceOptions().save(trace::Save::all));
    BOOST_TEST(history.labels() == (Names{"input_1_0", "linear_1_1", "relu_1_2", "linear_2_3", "output_1_4"}),
               boost::test_tools::per_element());
    const trace::Node first = history["linear_1"];
    BOOST_TEST(first.tensor().equal(
        torch::linear(x, model->named_parameters()["0.weight"], model->named_parameters()["0.bias"])));
    BOOST_TEST(first.function() == "aten::linear");
    BOOST_TEST(first.parameters().size() == 2U);
    BOOST_TEST(labels(first.parents()) == (Names{"input_1_0"}), boost::test_tools::per_element());
    BOOST_TEST(first.output_of().at(0).path == "0");
    BOOST_TEST(bool(history.validate()), text(history.validate()));
  }
  const auto history = trace::log_forward_pass(*model, {flat}, trace::TraceOptions().as_called(true));
  std::vector<std::string> functions;
  for (const trace::Node& node : history) functions.push_back(node.function());
  BOOST_TEST(functions == (Names{"", "aten::t", "aten::addmm", "aten::relu", "aten::t", "aten::matmul", ""}),
             boost::test_tools::per_element());
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
