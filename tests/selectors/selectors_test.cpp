// The walk over a model, and selectors on it.
#include <boost/test/unit_test.hpp>
#include <range/v3/algorithm/count_if.hpp>
#include <range/v3/range/conversion.hpp>
#include <range/v3/view/filter.hpp>
#include <range/v3/view/transform.hpp>
#include <torch/script.h>
#include <torch/torch.h>

#include <regex>
#include <sstream>

#include <torchtap/hooks/nn.hpp>
#include <torchtap/model/held.hpp>
#include <torchtap/selectors/selectors.hpp>

namespace selectors = torchtap::selectors;
namespace model = torchtap::model;
using selectors::depth;
using selectors::everything;
using selectors::indices;
using selectors::leaves;
using selectors::names;
using selectors::select;
using selectors::Selector;
using selectors::types;
using Names = std::vector<std::string>;

#define CHECK_SAME(a, b) BOOST_TEST((a) == (b), boost::test_tools::per_element())

namespace deep::inside {

template <class T>
struct BoxImpl : torch::nn::Module {
  at::Tensor forward(at::Tensor x) { return x; }
};

}  // namespace deep::inside

namespace {

struct ConvBlockImpl : torch::nn::Module {
  ConvBlockImpl() {
    conv = register_module("conv", torch::nn::Conv2d(1, 1, 1));
    norm = register_module("norm", torchtap::nn::BatchNorm2d(1));
  }
  at::Tensor forward(const at::Tensor& x) { return norm(conv(x)); }
  torch::nn::Conv2d conv{nullptr};
  torchtap::nn::BatchNorm2d norm{nullptr};
};
TORCH_MODULE(ConvBlock);

struct NetImpl : torch::nn::Module {
  NetImpl() {
    ConvBlock shared;
    stem = register_module("stem", shared);
    layers = register_module("layers", torch::nn::Sequential(ConvBlock(), torchtap::nn::ReLU(), shared));
    list = register_module("list", torch::nn::ModuleList(torch::nn::Linear(2, 2), torch::nn::Linear(2, 2)));
    dict = register_module("dict", torch::nn::ModuleDict());
    dict->update({{"tail", torch::nn::Linear(2, 2).ptr()}});
    parameters = register_module("parameters", torch::nn::ParameterList(at::ones({1})));
    head = register_module("head[0]", torchtap::nn::Linear(2, 2));
  }
  at::Tensor forward(at::Tensor x) { return x; }
  ConvBlock stem{nullptr};
  torch::nn::Sequential layers{nullptr};
  torch::nn::ModuleList list{nullptr};
  torch::nn::ModuleDict dict{nullptr};
  torch::nn::ParameterList parameters{nullptr};
  torchtap::nn::Linear head{nullptr};
};
TORCH_MODULE(Net);

const std::vector<model::ModuleRef>& walk() {
  static Net net;
  static const auto modules = model::walk_modules(*net);
  return modules;
}

Names paths(const std::vector<model::ModuleRef>& modules) {
  Names all;
  for (const auto& module : modules) all.push_back(module.path());
  return all;
}
Names selected(const Selector& selector) {
  return paths(select(walk(), selector));
}

const model::ModuleRef& at_path(const std::string& path) {
  for (const auto& module : walk()) {
    if (module.path() == path) return module;
  }
  BOOST_FAIL("no module at " + path);
  return walk().front();
}

std::string message_of(const Selector& selector) {
  try {
    select(walk(), selector);
  } catch (const c10::ValueError& error) {
    return error.what_without_backtrace();
  }
  return "(nothing was thrown)";
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(walking)

BOOST_AUTO_TEST_CASE(goes_the_way_of_named_modules) {
  Net net;
  const auto ours = model::walk_modules(*net);
  const auto theirs = net->named_modules();
  std::vector<const torch::nn::Module*> met;
  std::map<const torch::nn::Module*, Names> all_paths;
  for (const auto& module : theirs) {
    auto& list = all_paths[module.value().get()];
    if (list.empty()) met.push_back(module.value().get());
    list.push_back(module.key());
  }
  BOOST_REQUIRE(ours.size() == met.size());
  for (std::size_t i = 0; i < ours.size(); ++i) {
    BOOST_TEST(&ours[i].module() == met[i]);
    BOOST_TEST(ours[i].index() == static_cast<std::int64_t>(i));
    Names mine = ours[i].aliases();
    mine.insert(mine.begin(), ours[i].path());
    CHECK_SAME(mine, all_paths.at(met[i]));
    BOOST_TEST(ours[i].root().path() == "");
    BOOST_TEST((ours[i].root() == ours[0]));
  }
}

BOOST_AUTO_TEST_CASE(shared_modules_are_met_once) {
  CHECK_SAME(paths(walk()), Names({"", "stem", "stem.conv", "stem.norm", "layers", "layers.0",
                                   "layers.0.conv", "layers.0.norm", "layers.1", "list", "list.0", "list.1",
                                   "dict", "dict.tail", "parameters", "head[0]"}));
  CHECK_SAME(at_path("stem").aliases(), Names({"layers.2"}));
  CHECK_SAME(at_path("stem.conv").aliases(), Names({"layers.2.conv"}));
  BOOST_TEST(at_path("stem").depth() == 1);
  BOOST_TEST(at_path("layers.0.conv").depth() == 3);
  BOOST_TEST(at_path("").depth() == 0);
  BOOST_TEST(at_path("layers.1").leaf());
  BOOST_TEST(!at_path("layers.0").leaf());
}

BOOST_AUTO_TEST_CASE(children_count_from_zero) {
  Net net;
  torch::nn::Linear twice(2, 2);
  net->register_module("a", twice);
  net->register_module("b", twice);
  const auto children = selectors::children(net);
  CHECK_SAME(paths(children.vector()),
             Names({"stem", "layers", "list", "dict", "parameters", "head[0]", "a"}));
  for (std::int64_t i = 0; i < 7; ++i)
    BOOST_TEST(children.vector()[static_cast<std::size_t>(i)].index() == i);
  CHECK_SAME(children.vector().back().aliases(), Names({"b"}));
  BOOST_TEST(children.vector()[0].root().path() == "");
}

BOOST_AUTO_TEST_CASE(a_model_on_the_stack) {
  NetImpl net;
  BOOST_TEST(model::walk_modules(net).size() == walk().size());
  BOOST_TEST((&model::walk_modules(net)[0].module() == &net));
}

BOOST_AUTO_TEST_CASE(an_empty_holder_leaves_no_module) {
  struct LazyImpl : torch::nn::Module {
    LazyImpl() { register_module("later", std::shared_ptr<torch::nn::Module>()); }
  };
  LazyImpl lazy;
  BOOST_TEST(model::walk_modules(lazy).size() == 1);
}

BOOST_AUTO_TEST_CASE(a_reference_keeps_the_module_alive) {
  std::vector<model::ModuleRef> modules;
  {
    Net net;
    modules = model::walk_modules(*net);
  }
  for (const auto& module : modules) BOOST_TEST(!module.module().name().empty());
  model::ModuleRef copy = modules[3];
  copy = modules[4];
  BOOST_TEST((copy == modules[4]));
  BOOST_TEST((copy != modules[3]));
}

BOOST_AUTO_TEST_CASE(a_view_is_made_of_whatever_a_model_is) {
  torch::nn::Sequential net(torch::nn::Linear(2, 2), torch::nn::ReLU());
  const std::shared_ptr<torch::nn::SequentialImpl> shared = net.ptr();
  torch::nn::Module& base = *net;
  const auto paths = [](const selectors::ModuleView& model) {
    std::vector<std::string> paths;
    for (const auto& module : model) paths.push_back(module.path());
    return paths;
  };
  const std::vector<std::string> all{"", "0", "1"};
  BOOST_TEST(paths(net) == all);
  BOOST_TEST(paths(*net) == all);
  BOOST_TEST(paths(shared) == all);
  BOOST_TEST(paths(base) == all);
  BOOST_TEST(paths(selectors::modules(net)) == all);
  BOOST_TEST(paths(selectors::modules(net).vector()) == all);
  const std::shared_ptr<torch::nn::Module> none;
  BOOST_CHECK_THROW(paths(none), c10::ValueError);

  static_assert(selectors::is_model_v<torch::jit::Module>);
  static_assert(!selectors::is_model_v<const torch::nn::SequentialImpl>);
  static_assert(!selectors::is_model_v<torch::nn::SequentialImpl*>);
  static_assert(!selectors::is_model_v<std::string>);
}

BOOST_AUTO_TEST_CASE(what_can_be_hooked) {
  for (const char* path : {"", "stem.conv", "layers.0.conv", "list", "list.0", "dict.tail", "parameters"}) {
    BOOST_TEST(!at_path(path).reachable(), path);
  }
  for (const char* path : {"stem", "stem.norm", "layers", "layers.0", "layers.1", "head[0]"}) {
    BOOST_TEST(at_path(path).reachable(), path);
  }
  for (const char* path : {"list", "dict", "parameters"}) BOOST_TEST(!at_path(path).has_forward(), path);
}

BOOST_AUTO_TEST_CASE(parameters_and_buffers_are_those_of_the_module_itself) {
  const at::Tensor weight = torch::ones({2}), mean = torch::zeros({2});
  const auto check = [&](const std::vector<model::ModuleRef>& modules) {
    BOOST_REQUIRE(modules.size() == 2U);
    const auto held = model::held_by(modules[0]);
    BOOST_REQUIRE(held.size() == 2U);
    BOOST_TEST((held[0].name == "weight" && held[0].tensor.is_same(weight) && !held[0].buffer));
    BOOST_TEST((held[1].name == "mean" && held[1].tensor.is_same(mean) && held[1].buffer));
    BOOST_TEST(model::held_by(modules[1]).size() == 1U);
  };
  struct Native : torch::nn::Module {
    Native(const at::Tensor& weight, const at::Tensor& mean) {
      register_buffer("mean", mean);
      register_parameter("weight", weight, false);
      register_parameter("bias", {}, false);  // left out
      register_module("inner", torch::nn::Linear(torch::nn::LinearOptions(2, 2).bias(false)));
    }
  };
  Native native(weight, mean);
  check(model::walk_modules(native));
#ifdef TORCHTAP_TEST_TORCHSCRIPT
  torch::jit::Module inner("Inner"), script("Script");
  inner.register_parameter("weight", torch::ones({3}), false);
  script.register_buffer("mean", mean);
  script.register_parameter("weight", weight, false);
  script.register_module("inner", inner);
  check(model::walk_modules(script));
#endif
}

BOOST_AUTO_TEST_CASE(pretty_type_names) {
  struct LocalImpl : torch::nn::Module {
    at::Tensor forward(at::Tensor x) { return x; }
  };
  struct Plain : torch::nn::Module {};
  const auto name = [](const auto& module) { return model::pretty_type_name(module); };
  BOOST_TEST(name(*torch::nn::Linear(1, 1)) == "Linear");
  BOOST_TEST(name(*torchtap::nn::Linear(1, 1)) == "Linear");
  BOOST_TEST(name(*torch::nn::BatchNorm2d(1)) == "BatchNorm2d");
  BOOST_TEST(name(*ConvBlock()) == "ConvBlock");
  BOOST_TEST(name(torchtap::hooks::Hooked<ConvBlockImpl>()) == "ConvBlock");
  BOOST_TEST(name(LocalImpl()) == "Local");
  BOOST_TEST(name(torchtap::hooks::Hooked<LocalImpl>()) == "Local");
  BOOST_TEST(name(Plain()) == "Plain");
  BOOST_TEST(name(torch::nn::Module()) == "Module");
  BOOST_TEST(name(deep::inside::BoxImpl<int>()) == "Box<int>");
  BOOST_TEST(name(deep::inside::BoxImpl<std::pair<int, ConvBlockImpl>>()).rfind("Box<", 0) == 0);
  BOOST_TEST(name(torchtap::hooks::Hooked<deep::inside::BoxImpl<int>>()) == "Box<int>");
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(selecting)

BOOST_AUTO_TEST_CASE(everything_is_what_has_a_forward) {
  const Names all{"",         "stem",          "stem.conv",     "stem.norm", "layers",
                  "layers.0", "layers.0.conv", "layers.0.norm", "layers.1",  "list.0",
                  "list.1",   "dict.tail",     "head[0]"};
  CHECK_SAME(selected(Selector()), all);
  CHECK_SAME(selected(everything()), all);
}

BOOST_AUTO_TEST_CASE(by_type) {
  const Names linear{"list.0", "list.1", "dict.tail", "head[0]"}, norm{"stem.norm", "layers.0.norm"};
  CHECK_SAME(selected(types<torch::nn::Linear>()), linear);
  CHECK_SAME(selected(types<torch::nn::LinearImpl>()), linear);
  CHECK_SAME(selected(types<torchtap::nn::Linear>()), linear);
  CHECK_SAME(selected(types("Linear")), linear);
  CHECK_SAME(selected(types<torch::nn::BatchNorm2d>()), norm);
  CHECK_SAME(selected(types<torchtap::nn::BatchNorm2d>()), norm);
  // A base class, by name only what it is.
  CHECK_SAME(selected(types<torch::nn::BatchNormImplBase<2, torch::nn::BatchNorm2dImpl>>()), norm);
  BOOST_TEST(selected(types<torch::nn::Module>()).size() == 13);
  CHECK_SAME(selected(types<torch::nn::ReLU, ConvBlock>()), Names({"stem", "layers.0", "layers.1"}));
  CHECK_SAME(selected(types("ReLU", "ConvBlock")), Names({"stem", "layers.0", "layers.1"}));
}

BOOST_AUTO_TEST_CASE(by_name) {
  CHECK_SAME(selected(names("stem")), Names({"stem"}));
  CHECK_SAME(selected(names("layers.2.conv")), Names({"stem.conv"}));
  CHECK_SAME(selected(names("")), Names({""}));
  CHECK_SAME(selected(names("*.norm")), Names({"stem.norm", "layers.0.norm"}));
  CHECK_SAME(selected(names("layers.?")), Names({"stem", "layers.0", "layers.1"}));
  CHECK_SAME(selected(names("list.[0-9]", "stem")), Names({"stem", "list.0", "list.1"}));
  CHECK_SAME(selected(names("l*")),
             Names({"stem", "stem.conv", "stem.norm", "layers", "layers.0", "layers.0.conv", "layers.0.norm",
                    "layers.1", "list.0", "list.1"}));
  CHECK_SAME(selected(names(std::regex(R"(l\w+\.\d)"))),
             Names({"stem", "layers.0", "layers.1", "list.0", "list.1"}));
  CHECK_SAME(selected(names(std::string("head[0]"))), Names({"head[0]"}));
  // A string is a selector, also as a part of one.
  CHECK_SAME(selected("layers.?"), selected(names("layers.?")));
  CHECK_SAME(selected(std::string("stem")), Names({"stem"}));
  CHECK_SAME(selected(names("l*") && !Selector("*.norm") && "layers*"),
             selected(names("layers*") && !names("*.norm")));
}

BOOST_AUTO_TEST_CASE(by_place) {
  CHECK_SAME(selected(indices({0, 3})), Names({"", "stem.norm"}));
  CHECK_SAME(selected(depth(0)), Names({""}));
  CHECK_SAME(selected(depth(0, 1)), Names({"", "stem", "layers", "head[0]"}));
  CHECK_SAME(selected(leaves() && depth(3)), Names({"layers.0.conv", "layers.0.norm"}));
  CHECK_SAME(selected(selectors::reachable()),
             Names({"stem", "stem.norm", "layers", "layers.0", "layers.0.norm", "layers.1", "head[0]"}));
}

BOOST_AUTO_TEST_CASE(combined) {
  CHECK_SAME(selected(types<torch::nn::Linear>() && names("list*")), Names({"list.0", "list.1"}));
  CHECK_SAME(selected(types<torch::nn::Linear>() && !names("list*")), Names({"dict.tail", "head[0]"}));
  CHECK_SAME(selected(names("stem") || names("layers")), Names({"stem", "layers"}));
  CHECK_SAME(selected(types("Linear") && [](const model::ModuleRef& module) { return module.depth() == 1; }),
             Names({"head[0]"}));
  CHECK_SAME(selected([](const model::ModuleRef& module) { return module.path() == "stem"; }),
             Names({"stem"}));
  CHECK_SAME(selected(types("Linear") && indices({10, 0})), Names({"list.0"}));
  CHECK_SAME(selected(!(leaves() || depth(0)) && !types("Sequential")), Names({"stem", "layers.0"}));
  BOOST_TEST((types<torch::nn::Linear>() && !(names("a", "b*") || leaves())).describe() ==
             "types(Linear) && !(names(\"a\", \"b*\") || leaves())");
}

BOOST_AUTO_TEST_CASE(what_has_no_forward_is_left_out_unless_it_is_named) {
  CHECK_SAME(selected(depth(1)), Names({"stem", "layers", "head[0]"}));
  CHECK_SAME(selected(names("list*")), Names({"list.0", "list.1"}));
  for (const auto& selector : {names("list"), names("dict"), names("parameters"), indices({9}),
                               names("list") && depth(1), names("list") || names("stem")}) {
    const auto message = message_of(selector);
    BOOST_TEST(contains(message, "no forward"), message);
  }
  BOOST_TEST(contains(message_of(names("list")), "\"list\" (ModuleList)"));
  // Named to be left out, or by a name that another condition takes away again, it is no matter.
  BOOST_TEST(selected(!names("list")).size() == 13);
}

BOOST_AUTO_TEST_CASE(what_does_not_exist_is_an_error) {
  const auto name = message_of(names("layers.0.cnov"));
  BOOST_TEST(contains(name, "\"layers.0.cnov\""), name);
  BOOST_TEST(contains(name, "\"layers.0.conv\""), name);
  BOOST_TEST(contains(message_of(names("stem", "stern")), "\"stern\""));
  for (const auto& selector : {indices({16}), indices({-1}), indices({0, 99})}) {
    BOOST_TEST(contains(message_of(selector), "there is no index"), message_of(selector));
  }
  const auto none = message_of(types("Linear") && names("s*"));
  BOOST_TEST(contains(none, "types(Linear) && names(\"s*\")"), none);
  BOOST_TEST(contains(none, "\"stem\""), none);
  BOOST_TEST(contains(none, "allow_none"), none);

  for (const auto& selector : {types("Conv2d", "Lienar"), types("Lienar"), types("Lienar") || names("stem"),
                               types("Lienar") && leaves()}) {
    const auto type = message_of(selector);
    BOOST_TEST(contains(type, "no module of type \"Lienar\""), type);
    BOOST_TEST(contains(type, "the nearest types are \"Linear\", "), type);
    BOOST_TEST(!contains(type, "stem"), type);
  }
  BOOST_TEST(contains(message_of(types("torch.nn.Linear")), "\"Linear\""));
  // Those that are not there are excused one by one, and where they are to be left out.
  CHECK_SAME(selected(types("ReLU") || types("Lienar").allow_none()), Names({"layers.1"}));
  CHECK_SAME(selected(types("ReLU", "Lienar").allow_none()), Names({"layers.1"}));
  CHECK_SAME(selected(leaves() && !types("Conv2d", "Lienar") && depth(1)), Names({"head[0]"}));
  BOOST_TEST(contains(message_of(types("ModuleList")), "types(ModuleList) matches has a method forward"));

  BOOST_TEST(selected(types("Conv3d").allow_none()).empty());
  BOOST_TEST(selected(names("stern").allow_none()).empty());
  BOOST_TEST(selected(indices({99}).allow_none()).empty());
  BOOST_TEST(selected((types("Conv3d") && names("s*")).allow_none()).empty());
}

BOOST_AUTO_TEST_CASE(one_part_that_may_match_nothing_does_not_excuse_the_others) {
  BOOST_TEST(contains(message_of(names("stern") || types("Conv3d").allow_none()), "\"stern\""));
}

#ifdef TORCHTAP_TEST_TORCHSCRIPT
BOOST_AUTO_TEST_CASE(what_torchscript_lacks_is_said) {
  torch::jit::Module inner("Inner"), script("Script");
  inner.define("def forward(self, x):\n  return x\n");
  script.register_module("inner", inner);
  script.define("def forward(self, x):\n  return self.inner.forward(x)\n");
  const auto message = [&](const Selector& selector, const std::string& method) {
    try {
      select(model::walk_modules(script, method), selector);
    } catch (const c10::ValueError& error) {
      return std::string(error.msg());
    }
    return std::string();
  };
  const auto method = message(everything(), "encode");
  BOOST_TEST(contains(method, "none of the modules that everything matches has a method encode"), method);
  BOOST_TEST(contains(message(depth(1), "encode"), "has a method encode"));
  const auto type = message(types<torch::nn::Linear>(), "forward");
  BOOST_TEST(contains(type, "asks for C++ types"), type);
  BOOST_TEST(contains(type, "types(\"Inner\")"), type);
  BOOST_TEST(message(types<torch::nn::Linear>() || names("inner"), "forward") == "");
}
#endif

BOOST_AUTO_TEST_CASE(names_in_braces) {
  CHECK_SAME(selected(names({"stem", "layers.1"})), Names({"stem", "layers.1"}));
  CHECK_SAME(selected({"stem", "layers.1"}), Names({"stem", "layers.1"}));
  BOOST_TEST(names({"a", "b*"}).describe() == "names(\"a\", \"b*\")");
}

BOOST_AUTO_TEST_CASE(prints_as_it_would_be_written) {
  std::ostringstream out;
  out << (types("Linear") && !names("head*"));
  BOOST_TEST(out.str() == "types(Linear) && !names(\"head*\")");
}

BOOST_AUTO_TEST_CASE(senseless_arguments) {
  BOOST_CHECK_THROW(names(Names{}), c10::ValueError);
  BOOST_CHECK_THROW(types(Names{}), c10::ValueError);
  BOOST_CHECK_THROW(indices({}), c10::ValueError);
  BOOST_CHECK_THROW(depth(2, 1), c10::ValueError);
  BOOST_CHECK_THROW(depth(-1), c10::ValueError);
  BOOST_CHECK_THROW(Selector(std::function<bool(const model::ModuleRef&)>()), c10::ValueError);
}

BOOST_AUTO_TEST_CASE(children_are_selected_by_their_own_indices) {
  Net net;
  CHECK_SAME(paths(select(selectors::children(net).vector(), indices({1}))), Names({"layers"}));
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(ranges_v3)

BOOST_AUTO_TEST_CASE(pipelines_on_what_is_returned) {
  Net net;
  const auto found = selectors::modules(net) | ranges::views::filter(types("Linear") && !names("list*")) |
                     ranges::views::transform([](const model::ModuleRef& module) { return module.path(); }) |
                     ranges::to<std::vector>();
  CHECK_SAME(found, Names({"dict.tail", "head[0]"}));
  BOOST_TEST(ranges::count_if(selectors::children(*net), leaves()) == 2);
  // The view keeps what it shows.
  auto view = [] { return selectors::modules(Net()) | ranges::views::filter(leaves()); }();
  BOOST_TEST(ranges::distance(view) == 10);
  BOOST_TEST(ranges::empty(selectors::ModuleView()));
}

// In C++17 a range-for keeps what its expression returns, and not the view that it was asked of.
BOOST_AUTO_TEST_CASE(vector_of_a_temporary_view_outlives_it) {
  using torchtap::selectors::ModuleView;
  static_assert(!std::is_reference_v<decltype(std::declval<ModuleView>().vector())>);
  static_assert(std::is_reference_v<decltype(std::declval<ModuleView&>().vector())>);
  torch::nn::Sequential model(torch::nn::Linear(2, 3), torch::nn::ReLU());
  std::vector<std::string> paths;
  for (const auto& module : torchtap::selectors::modules(model).vector()) paths.push_back(module.path());
  BOOST_TEST((paths == std::vector<std::string>{"", "0", "1"}));
}

BOOST_AUTO_TEST_CASE(names_of_a_temporary_module_outlive_it) {
  using torchtap::model::ModuleRef;
  static_assert(std::is_same_v<decltype(std::declval<ModuleRef>().aliases()), std::vector<std::string>>);
  static_assert(std::is_same_v<decltype(std::declval<ModuleRef>().path()), std::string>);
  static_assert(std::is_same_v<decltype(std::declval<Selector>().describe()), std::string>);
  torch::nn::Linear shared(2, 3);
  torch::nn::Sequential model(shared);
  model->push_back("the same module once more", shared);
  std::vector<std::string> aliases;
  for (const auto& alias : torchtap::model::find(*model, "0").aliases()) aliases.push_back(alias);
  BOOST_TEST((aliases == std::vector<std::string>{"the same module once more"}));
}

BOOST_AUTO_TEST_SUITE_END()
