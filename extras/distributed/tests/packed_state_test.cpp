// States that keep large tensors beside their bytes.
#include <ATen/Functions.h>
#include <boost/test/unit_test.hpp>

#include <sstream>

#include <torchtap/core/sink.hpp>
#include <torchtap/distributed/detail/packed_state.hpp>
#include <torchtap/reductions/reductions.hpp>

#include "tests/support.hpp"

BOOST_AUTO_TEST_SUITE(packed_state)

using torchtap::distributed::detail::StateReader;
using torchtap::distributed::detail::StateWriter;
using torchtap_test::says;

BOOST_AUTO_TEST_CASE(shares_large_tensors_and_copies_small_ones) {
  const at::Tensor large = at::arange(20000, at::kDouble), small = at::arange(5, at::kInt), none;
  std::stringstream bytes;
  StateWriter writer(bytes);
  writer(large, small, none, std::string("text"));
  BOOST_REQUIRE(writer.tensors.size() == 1);
  BOOST_TEST(writer.tensors[0].data_ptr() == large.data_ptr());
  BOOST_TEST(bytes.str().size() < 300);

  StateReader reader(bytes, writer.tensors);
  at::Tensor first, second, third;
  std::string text;
  BOOST_TEST(!reader.finished());
  reader(first, second, third, text);
  BOOST_TEST(reader.finished());
  BOOST_TEST(first.data_ptr() == large.data_ptr());
  BOOST_TEST(second.equal(small));
  BOOST_TEST(!third.defined());
  BOOST_TEST(text == "text");
}

BOOST_AUTO_TEST_CASE(makes_views_contiguous_and_resolves_conjugates) {
  const at::Tensor wide = at::arange(40000, at::kFloat).view({200, 200});
  const at::Tensor conjugate = at::complex(wide, wide).conj();
  std::stringstream bytes;
  StateWriter writer(bytes);
  writer(wide.t(), conjugate, wide.expand({3, 200, 200}));
  for (const at::Tensor& tensor : writer.tensors) BOOST_TEST(tensor.is_contiguous());
  StateReader reader(bytes, writer.tensors);
  at::Tensor a, b, c;
  reader(a, b, c);
  BOOST_TEST(a.equal(wide.t()));
  BOOST_TEST(at::real(b).equal(wide));
  BOOST_TEST(at::imag(b).equal(-wide));
  BOOST_TEST(c.equal(wide.expand({3, 200, 200})));
}

BOOST_AUTO_TEST_CASE(refuses_tensors_of_another_form) {
  const at::Tensor large = at::zeros({20000}, at::kDouble);
  const auto read = [&](std::vector<at::Tensor> tensors) {
    std::stringstream bytes;
    StateWriter writer(bytes);
    writer(large);
    StateReader reader(bytes, std::move(tensors));
    at::Tensor tensor;
    reader(tensor);
  };
  BOOST_CHECK_NO_THROW(read({large}));
  BOOST_CHECK_EXCEPTION(read({}), c10::ValueError, says({"[20000]", "damaged"}));
  BOOST_CHECK_THROW(read({large.to(at::kFloat)}), c10::ValueError);
  BOOST_CHECK_THROW(read({large.view({2, 10000})}), c10::ValueError);
}

BOOST_AUTO_TEST_CASE(tells_versions_and_shapes) {
  using namespace torchtap::reductions;
  Series reduction{Moments(), Sum(SumOptions().over_all(true))};
  reduction.update(at::ones({3, 4}));
  std::stringstream bytes;
  StateWriter writer(bytes);
  torchtap::core::make_sink(reduction)->save(writer);
  std::vector<std::string> versions, shapes;
  for (const auto& fact : writer.facts) {
    if (fact.version != 0) versions.push_back(fact.what);
    if (fact.version == 0) shapes.push_back(c10::str(fact.what, fact.shaped, c10::IntArrayRef(fact.shape)));
  }
  BOOST_TEST(versions == (std::vector<std::string>{"Series", "Moments", "Sum"}),
             boost::test_tools::per_element());
  BOOST_TEST(shapes == (std::vector<std::string>{"Moments1[3, 4]", "Sum1[]"}),
             boost::test_tools::per_element());
}

// The bytes of ordinary archives are those of before.
BOOST_AUTO_TEST_CASE(leaves_other_archives_alone) {
  const at::Tensor large = at::arange(20000, at::kDouble);
  std::stringstream bytes, packed;
  {
    torchtap::core::OutputArchive archive(bytes), other(packed);
    archive(large);
    other(torchtap::core::detail::pack(large));
  }
  BOOST_TEST(bytes.str() == packed.str());
}

BOOST_AUTO_TEST_SUITE_END()
