// Which models of a program are known, as far as LibTorch's own calls tell.
#include "preload/models.hpp"

#include <boost/test/unit_test.hpp>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/script.h>

#include <memory>
#include <string>
#include <vector>

namespace nn = torch::nn;
using torchtap::tools::preload::FoundModel;
using torchtap::tools::preload::Models;

namespace {

struct Pair : nn::Module {
  explicit Pair(nn::Linear shared = nn::Linear(2, 2)) : first(std::move(shared)) {
    register_module("first", first);
    register_module("second", second);
  }
  nn::Linear first, second{2, 2};
};
struct Whole : nn::Module {
  explicit Whole(std::shared_ptr<Pair> inner) : pair(std::move(inner)) {
    register_module("pair", pair);
    register_module("last", last);
  }
  std::shared_ptr<Pair> pair;
  nn::Linear last{2, 2};
};

/// Those models whose linear modules can be seen, and what is said of them.
struct Known {
  explicit Known(std::size_t most = 16)
      : models({[] { return std::make_shared<FoundModel>(); },
                [](const torchtap::model::ModuleRef& module) { return module.type() == "Linear"; },
                [this](const std::string& text) { notes.push_back(text); }, "seen",
                [this](const auto&) { return forgets; }, most}) {}
  const std::string& path(const nn::Module& module) {
    static const std::string none = "nowhere";
    const auto* place = models.place_of(module);
    return place == nullptr ? none : place->path();
  }
  Models models;
  std::vector<std::string> notes;
  bool forgets = true;
};

}  // namespace

BOOST_AUTO_TEST_SUITE(preload_models)

BOOST_AUTO_TEST_CASE(a_part_is_no_model_of_its_own) {
  Known known;
  const auto pair = std::make_shared<Pair>();
  const auto part = known.models.found(*pair);
  BOOST_REQUIRE(part != nullptr);
  BOOST_TEST((part->type == "Pair" && part->modules.size() == 3 && part->visible.size() == 2));
  BOOST_TEST(known.path(*pair->second) == "second");
  const auto whole = std::make_shared<Whole>(pair);
  const auto model = known.models.found(*whole);
  BOOST_TEST(known.models.all().size() == 1);
  BOOST_TEST(known.models.of(*pair->second) == model.get());
  BOOST_TEST(known.path(*pair->second) == "pair.second");
  BOOST_TEST(known.models.found(*pair) == nullptr);
  BOOST_TEST(known.path(*pair->second) == "pair.second");
  BOOST_TEST(known.models.found(*whole) != nullptr);  // it may have changed
  BOOST_TEST(known.models.all().size() == 1);
  known.models.all().front()->ran = true;
  BOOST_TEST(known.models.found(*whole) == nullptr);
  BOOST_TEST(known.notes.empty());
  BOOST_TEST(known.models.found(*nn::Sequential()) == nullptr);  // nothing can be seen
}

BOOST_AUTO_TEST_CASE(a_model_that_nobody_owns_is_gone_with_any_of_its_parts) {
  Known known;
  nn::Linear kept(2, 2);
  {
    Pair variable(kept);
    const auto model = known.models.found(variable);
    BOOST_REQUIRE(model != nullptr);
    BOOST_TEST((!model->gone() && known.models.of(*kept) == model.get()));
    model->ran = true;
  }
  BOOST_TEST(known.models.all().front()->gone());  // although its first part lives
  BOOST_TEST(known.models.of(*kept) == nullptr);
  known.models.let_go();
  BOOST_TEST(known.models.of(*kept) == nullptr);
}

BOOST_AUTO_TEST_CASE(a_part_that_ran_stays_what_it_is) {
  Known known;
  const auto pair = std::make_shared<Pair>();
  known.models.found(*pair)->ran = true;
  const Whole whole(pair);
  BOOST_TEST(known.models.found(whole) == nullptr);
  BOOST_TEST(known.path(*pair->first) == "first");
  BOOST_REQUIRE(known.notes.size() == 1);
  BOOST_TEST(known.notes[0] ==
             "the model Whole was seen after a part of it had run, Pair: the part is seen.");
}

BOOST_AUTO_TEST_CASE(a_module_of_two_models_is_found_in_the_larger) {
  Known known;
  nn::Linear shared(2, 2);
  const auto whole = std::make_shared<Whole>(std::make_shared<Pair>(shared));
  const auto pair = std::make_shared<Pair>(shared);
  const auto larger = known.models.found(*whole);
  known.models.found(*pair);
  BOOST_TEST(known.models.all().size() == 2);
  BOOST_TEST(known.models.of(*shared) == larger.get());
  BOOST_TEST(known.path(*pair->second) == "second");
}

BOOST_AUTO_TEST_CASE(models_that_die) {
  Known known;
  auto pair = std::make_shared<Pair>();
  auto other = std::make_shared<Pair>();
  const nn::Linear survivor = pair->first;
  known.models.found(*pair);
  const auto ran = known.models.found(*other);
  ran->ran = true;
  BOOST_TEST(pair.use_count() == 1);
  pair.reset();
  BOOST_TEST(known.models.of(*survivor) == nullptr);
  BOOST_TEST(known.models.strangers() == std::set<std::string>{"Linear"}, boost::test_tools::per_element());
  BOOST_TEST(known.models.about_strangers().find("not seen, as they belong to no model") == 0);
  known.models.let_go();
  BOOST_TEST(known.models.all().size() == 1);
  BOOST_TEST(known.path(*survivor) == "first");  // as long as it lives
  other.reset();
  known.forgets = false;
  known.models.let_go();
  BOOST_TEST((ran->modules.size() == 3 && known.models.all().size() == 1));
  known.forgets = true;
  known.models.let_go();
  BOOST_TEST((known.models.all().empty() && ran->address == nullptr && ran->modules.empty()));
  // A new model at the same address is another one.
  for (int i = 0; i < 100; ++i) {
    known.models.let_go();
    const auto next = std::make_shared<Pair>();
    const auto found = known.models.found(*next);
    BOOST_REQUIRE(found != nullptr);
    BOOST_TEST(known.models.of(*next->first) == found.get());
    BOOST_TEST(known.models.all().size() == 1);
  }
}

BOOST_AUTO_TEST_CASE(methods_and_a_limit) {
  Known known(/*most=*/2);
  torch::jit::Module scripted("Scripted"), others("Others");
  scripted.define("def forward(self, x):\n  return x + 1\ndef encode(self, x):\n  return x\n");
  others.define("def forward(self, x):\n  return x\n");
  FoundModel* const forward = known.models.of(scripted.get_method("forward"));
  BOOST_REQUIRE(forward != nullptr);
  BOOST_TEST((forward->method == "forward" && forward->address == nullptr));
  BOOST_TEST(known.models.of(scripted.get_method("forward")) == forward);
  FoundModel* const encode = known.models.of(scripted.get_method("encode"));
  BOOST_TEST((encode != nullptr && encode != forward));
  for (int i = 0; i < 2; ++i) BOOST_TEST(known.models.of(others.get_method("forward")) == nullptr);
  BOOST_REQUIRE(known.notes.size() == 1);
  BOOST_TEST(known.notes[0].find("more than 2 models at once; further ones (Others) are not seen.") !=
             std::string::npos);
  // One that is gone gives its place back.
  scripted = torch::jit::Module("Scripted");
  FoundModel* const other = known.models.of(others.get_method("forward"));
  BOOST_TEST((other != nullptr && known.models.all().size() == 1));
  torch::jit::Module next("Next");
  next.define("def forward(self, x):\n  return x\n");
  BOOST_TEST(known.models.of(next.get_method("forward")) != nullptr);
}

BOOST_AUTO_TEST_CASE(a_child_knows_what_lives) {
  Known parent, child;
  const auto pair = std::make_shared<Pair>();
  auto dead = std::make_shared<Pair>();
  parent.models.found(*dead);
  const auto found = parent.models.found(*pair);
  found->ran = true;
  found->called.insert(pair->second.get());
  dead.reset();
  child.models.inherit(parent.models);
  BOOST_REQUIRE(child.models.all().size() == 1);
  FoundModel* const inherited = child.models.of(*pair->second);
  BOOST_REQUIRE(inherited != nullptr);
  BOOST_TEST((inherited != found.get() && !inherited->ran && inherited->type == "Pair"));
  BOOST_TEST((inherited->expected() == torchtap::tools::preload::Pass::Modules{pair->second.get()}));
  BOOST_TEST(child.path(*pair->first) == "first");
}

BOOST_AUTO_TEST_SUITE_END()
