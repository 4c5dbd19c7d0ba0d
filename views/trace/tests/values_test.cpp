// Values and not tensors: who read what, and what was kept, where operations write in place and through
// views.
#include <boost/test/unit_test.hpp>
#include <torch/version.h>

#include "support.hpp"

BOOST_AUTO_TEST_SUITE(values)

namespace {

using namespace support;
using torchtap_test::says;
using Names = std::vector<std::string>;

BOOST_AUTO_TEST_CASE(a_write_through_a_view_is_a_parent_of_what_reads_the_base) {
  const auto history = logged([] {
    auto z = torch::zeros({4});
    z.select(0, 1).fill_(2);
    z.add(1);
  });
  BOOST_TEST(history.labels() == (Names{"zeros_1_0", "select_1_1", "fill_1_2", "add_1_3"}),
             boost::test_tools::per_element());
  BOOST_TEST(labels(history["add_1"].parents()) == (Names{"zeros_1_0", "fill_1_2"}),
             boost::test_tools::per_element());
  BOOST_TEST(labels(history["fill_1"].parents()) == (Names{"select_1_1"}), boost::test_tools::per_element());
  BOOST_TEST(history["zeros_1"].tensor().equal(torch::zeros({4})));  // as it was
  BOOST_TEST(history["select_1"].tensor().equal(torch::tensor(0.F)));
  BOOST_TEST(history["fill_1"].tensor().equal(torch::tensor(2.F)));
  BOOST_TEST(history["add_1"].tensor().equal(torch::tensor({1.F, 3.F, 1.F, 1.F})));
  BOOST_TEST(history["zeros_1"].created_inside());
  BOOST_TEST(history["select_1"].view());
  BOOST_TEST(history["fill_1"].in_place());
  BOOST_TEST(bool(history.validate()), text(history.validate()));
}

BOOST_AUTO_TEST_CASE(what_is_overwritten_is_copied_and_nothing_else) {
  const auto x = torch::rand({1000});
  const auto history = logged([&] {
    auto y = x.exp();
    y.mul_(2);
    auto z = y.sin();
    z.cos();
  });
  BOOST_TEST(history.copied() == 1);
  BOOST_TEST(history["exp_1"].tensor().equal(x.exp()));
  BOOST_TEST(history["mul_1"].tensor().equal(x.exp() * 2));
  BOOST_TEST(history["sin_1"].tensor().equal((x.exp() * 2).sin()));
  BOOST_TEST(history["outside_1"].tensor().data_ptr() == x.data_ptr());
}

BOOST_AUTO_TEST_CASE(what_the_program_drops_stays_what_it_was_although_its_memory_is_used_again) {
  const auto x = torch::rand({64, 1024});
  const auto expected = x.exp();
  for (const bool again : {false, true}) {  // only the first pass of a process leaves everything where it is
    const void* dropped = nullptr;
    at::Tensor held;
    const auto history = logged([&] {
      auto y = x.exp();
      dropped = y.data_ptr();
      auto line = y.view({-1});
      y = y.sin();
      held = y;
      line = at::Tensor();
      y = y.cos();
      y.zero_();
      y.neg();
    });
    BOOST_TEST(history["exp_1"].tensor().equal(expected));
    BOOST_TEST(history["view_1"].tensor().equal(expected.view({-1})));
    BOOST_TEST(history["view_1"].tensor().data_ptr() == history["exp_1"].tensor().data_ptr());
    if (again) BOOST_TEST(history["exp_1"].tensor().data_ptr() != dropped);
    BOOST_TEST(history["sin_1"].tensor().data_ptr() == held.data_ptr());
    BOOST_TEST(history["cos_1"].tensor().equal(expected.sin().cos()));
    BOOST_TEST(history.copied() == 1);
    BOOST_TEST(bool(history.validate()), text(history.validate()));
    held.zero_();
    BOOST_CHECK_EXCEPTION(history["sin_1"].tensor(), c10::ValueError, says({"sin_1", "changed in place"}));
  }
}

BOOST_AUTO_TEST_CASE(a_tensor_that_a_transform_has_kept_stays_where_it_is) {
  const auto x = torch::rand({64, 1024});
  for (int pass = 0; pass < 2; ++pass) {
    std::vector<at::Tensor> seen;
    std::vector<const void*> where;
    trace::Tracer tracer(
        trace::TraceOptions().save(trace::Save::all).transform([&](const at::Tensor& tensor) {
          seen.push_back(tensor);
          where.push_back(tensor.data_ptr());
          return tensor;
        }));
    tracer.run([&] { x.exp().sin().cos().mul_(2).neg(); });
    const auto history = tracer.finish();
    BOOST_TEST(history["exp_1"].tensor().equal(x.exp()));
    BOOST_TEST(history["cos_1"].tensor().equal(x.exp().sin().cos()));
    for (std::size_t i = 0; i < seen.size(); ++i) BOOST_TEST(seen[i].data_ptr() == where[i]);
  }
}

BOOST_AUTO_TEST_CASE(an_output_that_is_its_input_is_a_value_of_its_own) {
  const auto x = torch::rand({3});
  const auto history = logged([&] {
    auto y = x.exp();
    torch::dropout(y, 0.5, false).sin();
  });
  BOOST_TEST(labels(history["sin_1"].parents()) == (Names{"dropout_1_2"}), boost::test_tools::per_element());
  BOOST_TEST(labels(history["dropout_1"].parents()) == (Names{"exp_1_1"}), boost::test_tools::per_element());
  BOOST_TEST(bool(history.validate()), text(history.validate()));
}

BOOST_AUTO_TEST_CASE(tensors_that_no_operation_made_are_views_parameters_or_from_outside) {
  nn::Linear model(3, 2);
  const auto constant = torch::ones({2});
  trace::Tracer tracer(*model, trace::TraceOptions().save(trace::Save::all));
  const auto x = torch::rand({4, 3});
  tracer.input(x, "x");
  at::Tensor y;
  tracer.run([&] {
    y = model->forward(x).data().add(constant);
    y = y + model->weight.data().sum();
    tracer.output(y, "y");
  });
  const auto history = tracer.finish();
  BOOST_TEST(history.labels() == (Names{"input_1_0", "linear_1_1", "outside_1_2", "add_1_3", "sum_1_4",
                                        "add_2_5", "output_1_6"}),
             boost::test_tools::per_element());
  BOOST_TEST(labels(history["add_1"].parents()) == (Names{"linear_1_1", "outside_1_2"}),
             boost::test_tools::per_element());
  BOOST_TEST(history["sum_1"].parents().empty());
  BOOST_TEST(history["sum_1"].parameters().at(0).path == "weight");
  BOOST_TEST(history["x"].label() == "input_1_0");
  BOOST_TEST(history["y"].tensor().equal(y));
  BOOST_TEST(bool(history.validate()), text(history.validate()));
}

BOOST_AUTO_TEST_CASE(several_results_are_several_nodes) {
  const auto x = torch::rand({2, 6});
  const auto history = logged([&] {
    auto parts = x.split(2, 1);
    torch::max(parts[1] + parts[2], 1);
    x.unbind(0);
  });
  BOOST_TEST(history.labels() == (Names{"outside_1_0", "split_1_1", "split_2_2", "split_3_3", "add_1_4",
                                        "max_1_5", "max_2_6", "unbind_1_7", "unbind_2_8"}),
             boost::test_tools::per_element());
  BOOST_TEST(history["split_2"].result() == 1);
  BOOST_TEST(history["split_2"].results() == 3);
  BOOST_TEST(labels(history["add_1"].parents()) == (Names{"split_2_2", "split_3_3"}),
             boost::test_tools::per_element());
  BOOST_TEST(labels(history["split_2"].spouses()) == (Names{"split_3_3"}), boost::test_tools::per_element());
  BOOST_TEST(history["max_2"].dtype() == at::kLong);
  BOOST_TEST(bool(history.validate()), text(history.validate()));
}

BOOST_AUTO_TEST_CASE(lists_with_gaps_are_arguments) {
  const auto x = torch::rand({3, 4});
  const auto history = logged([&] {
    at::index(x, {c10::nullopt, torch::arange(2)});
    auto y = x.clone();
    y.index_put_({torch::arange(1)}, torch::zeros({1}));
    torch::cat({x, y, at::Tensor(y)});
  });
  BOOST_TEST(history["index_1"].parents().size() == 2U);
  BOOST_TEST(labels(history["cat_1"].parents()).size() == 2U);
  BOOST_TEST(bool(history.validate()), text(history.validate()));
}

BOOST_AUTO_TEST_CASE(what_is_written_to_and_not_returned_is_a_value) {
  nn::BatchNorm1d norm(3);
  norm->train();
  trace::Tracer tracer(*norm, trace::TraceOptions().save(trace::Save::all));
  const auto x = torch::rand({4, 3});
  tracer.input(x);
  tracer.run([&] {
    norm->forward(x);
    norm->running_mean.sum();
    auto out = torch::zeros({3});
    at::sum_out(out, x, std::vector<std::int64_t>{0});
    out.exp();
  });
  const auto history = tracer.finish();
  const auto sum = history["sum_1"];
  BOOST_TEST(labels(sum.parents()) == (Names{history["batchnorm"].label()}),
             boost::test_tools::per_element());
  BOOST_TEST(sum.parameters().at(0).path == "running_mean");
  BOOST_TEST(sum.parameters().at(0).buffer);
  BOOST_TEST(sum.tensor().equal(norm->running_mean.sum()));
  BOOST_TEST(
      labels(history["exp_1"].parents()) == (Names{"sum_2_" + std::to_string(history["sum_2"].position())}),
      boost::test_tools::per_element());
  BOOST_TEST(bool(history.validate()), text(history.validate()));
}

BOOST_AUTO_TEST_CASE(values_that_the_program_reads_are_marked) {
  const auto history = logged([] {
    auto x = torch::ones({3});
    if (x.sum().item<float>() > 2) x.exp();
    static_cast<void>(x.size(0));
  });
  BOOST_TEST(history["sum_1"].read_by_program());
  BOOST_TEST(!history["ones_1"].read_by_program());
  BOOST_TEST(history.operations() == 3);  // item makes no tensor
  BOOST_TEST(text(history).find("read values:  sum_1_1") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(random_operations_are_marked) {
  const auto history = logged([] {
    auto x = torch::rand({3});
    torch::dropout(x, 0.5, true);
    torch::dropout(x, 0.5, false);
    x.exp();
  });
  BOOST_TEST(history["rand_1"].random());
  BOOST_TEST(history["dropout_1"].random());
  BOOST_TEST(!history["exp_1"].random());
}

BOOST_AUTO_TEST_CASE(kinds_of_tensors_that_are_not_plain) {
  const auto x = torch::rand({2, 3});
  const auto history = logged([&] {
    x.to_sparse().mul(2).to_dense();
    torch::quantize_per_tensor(x, 0.1, 0, torch::kQInt8).dequantize();
    x.to_mkldnn().to_dense();
    torch::view_as_complex(torch::ones({2, 2})).conj().add(1);
    auto y = torch::empty({0});
    y.set_(x.storage());
#if TORCH_VERSION_MAJOR * 100 + TORCH_VERSION_MINOR < 213  // later versions have no names of dimensions
    const auto n = x.refine_names({at::Dimname::fromSymbol(at::Symbol::dimname("N")),
                                   at::Dimname::fromSymbol(at::Symbol::dimname("C"))});
    n.sum(at::Dimname::fromSymbol(at::Symbol::dimname("C")));
#endif
    torch::rand({2}, at::make_generator<at::CPUGeneratorImpl>(1));
    {
      const c10::InferenceMode mode;
      auto z = x + 1;
      z.relu_();
      z.view({3, 2}).add_(1);
    }
    at::_nested_tensor_from_tensor_list({x, x});
  });
  BOOST_TEST(history["tosparse_1"].tensor().is_sparse());
  BOOST_TEST(history["dequantize_1"].saved());
  const auto nested = history["nestedtensor"];
  BOOST_TEST(nested.shape().empty());
  const auto validation = history.validate();
  BOOST_TEST_MESSAGE(validation);
  BOOST_TEST(bool(validation), text(validation));
  torchtap_test::TemporaryDirectory directory;
  history.save(directory / "kinds", torchtap::storage::SaveOptions().mkdir(true));
  BOOST_TEST(
      trace::History::load(directory / "kinds")["todense_1"].tensor().equal(history["todense_1"].tensor()));
}

BOOST_AUTO_TEST_CASE(the_memory_of_a_dead_tensor_is_not_taken_for_a_new_one) {
  const auto history = logged(
      [] {
        for (int i = 0; i < 50; ++i) torch::ones({4}).exp();
      },
      trace::TraceOptions());
  for (int i = 1; i <= 50; ++i) {
    const auto exp = history["exp_1:" + std::to_string(i)];
    BOOST_TEST(labels(exp.parents()) == (Names{"ones_1_0:" + std::to_string(i)}),
               boost::test_tools::per_element());
  }
  BOOST_TEST(history.layers() == 2);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
