// Sinks: what a recorder may rely on, whatever the reduction or callable behind it is.
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <boost/test/unit_test.hpp>

#include <sstream>

#include <torchtap/core/sink.hpp>

#include "../support.hpp"

BOOST_AUTO_TEST_SUITE(sink)

using namespace torchtap::core;
using torchtap_test::says;

namespace {

/// As little as a reduction can be: the sum of all elements.
class Least {
 public:
  void update(const at::Tensor& sample) {
    TORCH_CHECK_VALUE(sample.numel() > 0, "Least: an empty sample.");
    sum_ += sample.sum().item<double>();
    ++count_;
  }
  void merge(const Least& other) {
    sum_ += other.sum_;
    count_ += other.count_;
  }
  std::int64_t count() const { return count_; }
  Results results() const { return count_ == 0 ? Results{} : Results{{"sum", at::scalar_tensor(sum_)}}; }

 protected:
  double sum_ = 0;
  std::int64_t count_ = 0;
};

/// All that a reduction may have besides.
class Most : public Least {
 public:
  explicit Most(double factor = 1) : factor_(factor) {}
  void update(const at::Tensor& sample) { Least::update(sample * factor_); }
  void merge(const Most& other) {
    TORCH_CHECK_VALUE(factor_ == other.factor_, "Most: factors differ.");
    Least::merge(other);
  }
  void check(const at::Tensor& sample) const {
    TORCH_CHECK_VALUE(sample.numel() > 0, "Most: an empty sample.");
  }
  void assign(const at::Tensor& value) { sum_ = value.item<double>(); }
  Most fresh() const { return Most(factor_); }
  bool commutative() const { return true; }
  std::string describe() const { return c10::str("Most(", factor_, ")"); }
  template <class Archive>
  void serialize(Archive& archive) {
    archive(factor_, sum_, count_);
  }

 private:
  double factor_;
};

double sum(const Sink& sink) {
  return sink.results().at("sum").item<double>();
}

}  // namespace

BOOST_AUTO_TEST_CASE(the_least_reduction) {
  const auto sink = make_sink(Least{});
  BOOST_TEST(sink->count() == 0);
  BOOST_TEST(sink->results().empty());
  sink->update(at::ones({3}));
  BOOST_TEST(sum(*sink) == 3.0);
  BOOST_CHECK_EXCEPTION(sink->update(at::empty({0})), c10::ValueError, says({"an empty sample"}));
  BOOST_TEST(sink->count() == 1);
  BOOST_TEST(!sink->check(at::empty({0})));  // only an update can tell
  BOOST_TEST(!sink->assign(at::ones({})));
  BOOST_TEST(!sink->commutative());
  BOOST_TEST(sink->recipe() == "");
  BOOST_TEST(!save(*sink).has_value());
  BOOST_TEST(sink->describe().find("Least") != std::string::npos);
  std::stringstream stream;
  {
    OutputArchive archive(stream);
    BOOST_CHECK_EXCEPTION(sink->save(archive), c10::NotImplementedError, says({"cannot be saved", "Least"}));
  }
  stream.str("anything");
  InputArchive archive(stream);
  BOOST_CHECK_EXCEPTION(sink->load(archive), c10::NotImplementedError, says({"cannot be loaded", "Least"}));
  BOOST_TEST(sum(*sink) == 3.0);
}

BOOST_AUTO_TEST_CASE(the_whole_reduction) {
  const auto sink = make_sink(Most{2});
  BOOST_TEST(sink->check(at::ones({1})));
  BOOST_CHECK_THROW(sink->check(at::empty({0})), c10::ValueError);
  BOOST_TEST(sink->commutative());
  BOOST_TEST(sink->describe() == "Most(2)");
  sink->update(at::ones({3}));
  BOOST_TEST(sum(*sink) == 6.0);
  BOOST_TEST(sink->assign(at::scalar_tensor(100.0)));
  BOOST_TEST(sum(*sink) == 100.0);
  std::stringstream stream;
  {
    OutputArchive archive(stream);
    sink->save(archive);
  }
  const auto loaded = make_sink(Most{7});
  InputArchive archive(stream);
  loaded->load(archive);
  BOOST_TEST(loaded->describe() == "Most(2)");
  BOOST_TEST(sum(*loaded) == 100.0);
  BOOST_TEST(loaded->count() == 1);
}

BOOST_AUTO_TEST_CASE(fresh_keeps_the_configuration_and_clone_the_samples) {
  for (const bool whole : {false, true}) {
    Least least;
    least.update(at::ones({5}));  // handed over with a sample: without fresh(), that is how it begins
    const auto sink = whole ? make_sink(Most{3}) : make_sink(least);
    const std::int64_t before = sink->count();
    sink->update(at::ones({2}));
    const auto fresh = sink->fresh();
    BOOST_TEST(fresh->count() == before);
    BOOST_TEST(fresh->describe() == sink->describe());
    const auto clone = sink->clone();
    BOOST_TEST(sum(*clone) == sum(*sink));
    clone->update(at::ones({1}));
    BOOST_TEST(clone->count() == before + 2);
    BOOST_TEST(sink->count() == before + 1);  // shares nothing
    BOOST_TEST(fresh->fresh()->count() == before);
  }
}

BOOST_AUTO_TEST_CASE(sinks_merge_with_their_like_alone) {
  const auto sink = make_sink(Most{2});
  sink->update(at::ones({1}));
  BOOST_CHECK_EXCEPTION(sink->merge(*make_sink(Least{})), c10::TypeError,
                        says({"cannot merge", "Least", "Most(2)"}));
  const auto other = make_sink(Most{5});
  other->update(at::ones({1}));
  BOOST_CHECK_THROW(sink->merge(*other), c10::ValueError);
  BOOST_TEST(sum(*sink) == 2.0);
  sink->merge(*sink->clone());
  BOOST_TEST(sum(*sink) == 4.0);
  BOOST_TEST(sink->count() == 2);
}

BOOST_AUTO_TEST_CASE(a_load_that_fails_changes_nothing) {
  const auto sink = make_sink(Most{2});
  sink->update(at::ones({1}));
  std::stringstream stream;
  {
    OutputArchive archive(stream);
    sink->save(archive);
  }
  for (std::size_t size = 0; size < stream.str().size(); ++size) {
    std::stringstream cut(stream.str().substr(0, size));
    BOOST_CHECK_THROW(
        {
          InputArchive archive(cut);
          sink->load(archive);
        },
        std::exception);
    BOOST_TEST(sum(*sink) == 2.0);
    BOOST_TEST(sink->count() == 1);
  }
}

// Hooks run inside of the model: what a reduction computes must not depend on the modes there.
BOOST_AUTO_TEST_CASE(updates_build_no_graph_and_make_plain_tensors) {
  const auto sink = make_sink([](const at::Tensor& a, const at::Tensor& b) { return a + b; });
  const auto sample = at::ones({2}).requires_grad_();
  sink->update(sample * 1);
  sink->update(sample * 2);
  BOOST_TEST(!sink->results().at("value").requires_grad());
  {
    const c10::InferenceMode inference;
    sink->update(at::ones({2}));
  }
  const at::Tensor value = sink->results().at("value");
  BOOST_TEST(!value.is_inference());
  BOOST_TEST(value.equal(at::full({2}, 4.0)));
}

BOOST_AUTO_TEST_CASE(a_callable_that_returns_nothing_is_an_error_and_keeps_the_value) {
  bool broken = false;
  const auto sink =
      make_sink([&](const at::Tensor& a, const at::Tensor& b) { return broken ? at::Tensor() : a + b; });
  sink->update(at::ones({2}));
  broken = true;
  BOOST_CHECK_EXCEPTION(sink->update(at::ones({2})), c10::ValueError, says({"undefined tensor", "[2]"}));
  BOOST_TEST(sink->count() == 1);
  BOOST_TEST(sink->results().at("value").equal(at::ones({2})));
}

BOOST_AUTO_TEST_CASE(a_callable_gets_samples_of_one_shape_unless_it_takes_any) {
  const auto sum = make_sink([](const at::Tensor& a, const at::Tensor& b) { return a + b; });
  sum->update(at::ones({4, 3}));
  for (const auto& sizes : {std::vector<std::int64_t>{1, 3}, {3}, {5, 3}}) {
    BOOST_CHECK_EXCEPTION(sum->update(at::ones(sizes)), c10::ValueError,
                          says({"first sample of shape [4, 3]", "any_shape"}));
    BOOST_CHECK_THROW(sum->update(at::ones(sizes)), torchtap::core::Unfit);
  }
  auto other = sum->fresh();
  other->update(at::ones({1, 3}));  // the first of its own
  BOOST_CHECK_THROW(sum->merge(*other), torchtap::core::Unfit);
  BOOST_TEST(sum->count() == 1);
  BOOST_TEST(sum->results().at("value").equal(at::ones({4, 3})));
  sum->fresh()->merge(*other);

  const auto rows = make_sink(torchtap::core::any_shape([](const at::Tensor& a, const at::Tensor& b) {
    return at::cat({a, b});
  }));
  for (const std::int64_t batch : {4, 1, 5}) rows->update(at::ones({batch, 3}));
  BOOST_TEST(rows->count() == 3);
  BOOST_TEST(rows->results().at("value").equal(at::ones({10, 3})));
}

namespace {

/// The state of a callable as it was before it had the shape of its first sample.
struct FirstState {
  std::int64_t count = 2;
  at::Tensor value = at::full({3}, 2.0);

  template <class Archive>
  void serialize(Archive& archive) {
    torchtap::core::state_version(archive, "callable", 1);
    archive(cereal::make_nvp("count", count), cereal::make_nvp("value", value));
  }
};

}  // namespace

BOOST_AUTO_TEST_CASE(a_used_callable_that_is_loaded_goes_on_as_a_fresh_one) {
  const auto sum = make_sink([](const at::Tensor& a, const at::Tensor& b) { return a + b; });
  const auto used = sum->fresh(), other = sum->fresh();
  used->update(at::ones({4}));
  other->update(at::ones({3}));
  const auto load = [&](torchtap::core::Sink& sink, auto& state) {
    std::stringstream stream;
    {
      torchtap::core::OutputArchive archive(stream);
      archive(state);
    }
    torchtap::core::InputArchive archive(stream);
    sink.load(archive);
  };
  FirstState first;
  for (const auto& sink : {sum->fresh(), used->clone()}) {
    load(*sink, first);
    sink->update(at::ones({3}));  // of no shape that is known
    BOOST_TEST(sink->count() == 3);
    BOOST_TEST(sink->results().at("value").equal(at::full({3}, 3.0)));
  }
  for (const auto& sink : {sum->fresh(), used->clone()}) {
    std::stringstream stream;
    {
      torchtap::core::OutputArchive archive(stream);
      other->save(archive);
    }
    torchtap::core::InputArchive archive(stream);
    sink->load(archive);
    BOOST_CHECK_THROW(sink->update(at::ones({4})), torchtap::core::Unfit);
    sink->update(at::ones({3}));
    BOOST_TEST(sink->results().at("value").equal(at::full({3}, 2.0)));
  }
}

BOOST_AUTO_TEST_CASE(a_callable_that_returns_its_argument_or_a_view_of_it_keeps_a_copy) {
  const auto last = [](const at::Tensor&, const at::Tensor& b) { return b; };
  const auto view = [](const at::Tensor&, const at::Tensor& b) { return b.view({2}); };
  for (const auto& sink : {make_sink(last), make_sink(view)}) {
    at::Tensor sample = at::ones({2});
    sink->update(sample);
    sink->update(sample);
    sample.zero_();
    BOOST_TEST(sink->results().at("value").equal(at::ones({2})));
  }
  const auto sparse = make_sink(last);  // without memory of its own
  const at::Tensor sample = at::eye(2).to_sparse();
  sparse->update(sample);
  sparse->update(sample);
  BOOST_TEST(sparse->results().at("value").to_dense().equal(at::eye(2)));
}

BOOST_AUTO_TEST_SUITE_END()
