// How hooks behave around calls: order, handles, call indices, containers, user-defined types, errors.
#include <boost/test/unit_test.hpp>
#include <torch/script.h>
#include <torch/torch.h>

#include <cstdlib>
#include <sstream>
#include <string>
#include <tuple>

#include <torchtap/hooks/hooks.hpp>
#include <torchtap/hooks/nn.hpp>
#include <torchtap/model/extend/any_module_content.hpp>
#include <torchtap/model/extend/has_forward.hpp>
#include <torchtap/model/walk.hpp>

#include "support.hpp"

namespace hooks = torchtap::hooks;
namespace nn = torchtap::nn;
using hooks::Event;
using hooks::Handle;
using hooks::Kind;
using support::contains;
using support::identical;
using support::message_of;
using Ints = std::vector<std::int64_t>;

namespace own {

struct Boxes {
  at::Tensor boxes;
  std::vector<at::Tensor> scores;
};
struct Unknown {
  at::Tensor tensor;
};
using Nested = std::tuple<at::Tensor, std::vector<at::Tensor>>;

/// A plain user-defined type that returns a struct.
struct DetectorImpl : torch::nn::Cloneable<DetectorImpl> {
  explicit DetectorImpl(std::int64_t n) : n(n) { reset(); }
  void reset() override { fc = register_module("fc", torch::nn::Linear(n, n)); }
  Boxes forward(const at::Tensor& x, const at::Tensor& y) { return {fc(x), {x + y, x - y}}; }
  std::int64_t n;
  torch::nn::Linear fc{nullptr};
};
TORCH_MODULE(Detector);

/// Takes the struct.
struct ScorerImpl : torch::nn::Module {
  at::Tensor forward(Boxes boxes) { return boxes.boxes + boxes.scores[0] * boxes.scores[1]; }
};
TORCH_MODULE(Scorer);

struct MysteryImpl : torch::nn::Module {
  Unknown forward(const at::Tensor& x) { return {x}; }
};
TORCH_MODULE(Mystery);

struct SplitImpl : torch::nn::Module {
  Nested forward(const at::Tensor& x) { return {x, x.chunk(2)}; }
};
TORCH_MODULE(Split);

/// Has default arguments.
struct ScaleImpl : torch::nn::Cloneable<ScaleImpl> {
  void reset() override {}
  at::Tensor forward(const at::Tensor& x, double factor = 2, const at::Tensor& shift = {}) {
    return shift.defined() ? x * factor + shift : x * factor;
  }

 protected:
  FORWARD_HAS_DEFAULT_ARGS({1, torch::nn::AnyValue(2.)}, {2, torch::nn::AnyValue(at::Tensor())})
};

/// The same impl, plain and opted in.
TORCH_MODULE_IMPL(Scale, ScaleImpl);
TORCHTAP_MODULE_IMPL(HookedScale, ScaleImpl);

/// Does everything that a forward may do to its arguments.
struct OddImpl : torch::nn::Module {
  at::Tensor forward(at::Tensor& state, std::vector<int>& log, const torch::nn::Module& other,
                     std::unique_ptr<int> moved) noexcept {
    log.push_back(*moved);
    state = state + 1;
    return dynamic_cast<const OddImpl*>(&other) != nullptr ? state * 2 : state;
  }
};
TORCHTAP_MODULE(Odd);

struct SilentImpl : torch::nn::Module {
  void forward(const at::Tensor& x) { last = x; }
  at::Tensor last;
};
TORCHTAP_MODULE(Silent);

/// Has members with the names that ours had.
struct RouterImpl : torch::nn::Module {
  using Short = int;
  at::Tensor forward(const at::Tensor& x) { return gate->forward(x) + site; }
  void set_name(const std::string& name) { named_ = name; }
  int listen(int more) const { return more + 1; }

  torch::nn::Linear gate = register_module("gate", torch::nn::Linear(2, 2));
  double site = 0;
  std::string named_;
};
TORCHTAP_MODULE(Router);

/// Uses one module `times` times and throws midway if told to.
struct LoopImpl : torch::nn::Module {
  LoopImpl() { step = register_module("step", nn::Linear(2, 2)); }
  at::Tensor forward(at::Tensor x) {
    for (int i = 0; i < times; ++i) {
      x = step(x);
      TORCH_CHECK(i != throw_after, "on the way");
    }
    return x;
  }
  int times = 2;
  int throw_after = -1;
  nn::Linear step{nullptr};
};
TORCHTAP_MODULE_IMPL(Loop, LoopImpl);
TORCH_MODULE_IMPL(PlainLoop, LoopImpl);

/// A user-defined Sequential, usable as an entry.
struct StageImpl : torch::nn::SequentialImpl {
  using SequentialImpl::SequentialImpl;
  at::Tensor forward(const at::Tensor& x) { return SequentialImpl::forward(x); }
};
TORCH_MODULE(Stage);

/// Its result is not that of its entries.
struct DoubledImpl : torch::nn::SequentialImpl {
  using SequentialImpl::SequentialImpl;
  at::Tensor forward(const at::Tensor& x) { return SequentialImpl::forward(x) * 2; }
};
TORCH_MODULE(Doubled);
TORCHTAP_MODULE_IMPL(HookedDoubled, DoubledImpl);

/// Has the forward of its base.
struct RenamedImpl : torch::nn::SequentialImpl {
  using SequentialImpl::SequentialImpl;
};
TORCH_MODULE(Renamed);

struct PlainImpl : torch::nn::Module {
  PlainImpl() {
    fc = register_module("fc", torch::nn::Linear(2, 2));
    list = register_module("list", torch::nn::ModuleList(torch::nn::Linear(2, 2)));
    empty = register_module("empty", torch::nn::Sequential());
  }
  at::Tensor forward(const at::Tensor& x) { return fc(x); }
  torch::nn::Linear fc{nullptr};
  torch::nn::ModuleList list{nullptr};
  torch::nn::Sequential empty;
};
TORCH_MODULE(Plain);

}  // namespace own

template <>
struct torchtap::hooks::Visit<own::Boxes> {
  template <class Visitor>
  static void apply(own::Boxes& value, Visitor&& visit) {
    visit(value.boxes);
    visit(value.scores);
  }
};

namespace {

at::Tensor ones() {
  return at::ones({2, 2});
}

/// Attaches a hook that counts its calls.
Handle count(torch::nn::Module& root, const std::string& path, int& calls, Kind kind = Kind::forward) {
  return hooks::attach(torchtap::model::find(root, path), kind, [&calls](Event&) { ++calls; });
}

Handle collect_indices(torch::nn::Module& root, const std::string& path, Ints& indices) {
  return hooks::attach(torchtap::model::find(root, path), Kind::forward,
                       [&indices](Event& event) { indices.push_back(event.call_index()); });
}

torch::nn::Sequential adder(int entries) {
  torch::nn::Sequential model;
  for (int i = 0; i < entries; ++i) {
    model->push_back(torch::nn::Functional([](const at::Tensor& x) { return x + 1; }));
  }
  return model;
}

const void* table_of(torch::nn::AnyModule& any) {
  const void* table;
  std::memcpy(&table, static_cast<const void*>(torchtap::model::extend::holder_of(any)), sizeof(table));
  return table;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(order_and_replacement)

BOOST_AUTO_TEST_CASE(hooks_run_in_order_of_attachment) {
  auto model = adder(1);
  std::string log;
  std::vector<Handle> handles;
  const auto module = torchtap::model::find(*model, "0");
  for (const char c : {'a', 'b', 'c'}) {
    handles.push_back(hooks::attach(module, Kind::forward, [&log, c](Event&) { log += c; }));
    handles.push_back(
        hooks::attach(module, Kind::forward_pre, [&log, c](Event&) { log += std::toupper(c); }));
    handles.push_back(hooks::attach(module, Kind::forward_output, [&log, c](Event&) { log += char(c + 3); }));
  }
  model->forward(ones());
  BOOST_TEST(log == "ABCadbecf");
  handles.erase(handles.begin() + 3, handles.begin() + 6);
  log.clear();
  model->forward(ones());
  BOOST_TEST(log == "ACadcf");
}

// As with PyTorch's `prepend`: of several, the last one comes first.
BOOST_AUTO_TEST_CASE(prepended_hooks_run_first) {
  const auto in_order = [](const char* run, auto&& attach, auto&& call) {
    std::string order;
    std::vector<Handle> handles;
    const auto add = [&](Kind kind, char name, hooks::Place place) {
      handles.push_back(attach(
          kind, [&order, name](Event&) { order += name; }, place));
    };
    for (const auto& [kind, offset] : {std::pair(Kind::forward_pre, 'a'), std::pair(Kind::forward, 'e'),
                                       std::pair(Kind::backward_output, 'i')}) {
      add(kind, static_cast<char>(offset + 2), hooks::Place::last);
      add(kind, static_cast<char>(offset + 1), hooks::Place::first);
      add(kind, static_cast<char>(offset + 3), hooks::Place::last);
      // Kinds that run at the same time share one order.
      add(kind == Kind::forward ? Kind::forward_output : kind, offset, hooks::Place::first);
    }
    call();
    BOOST_TEST(order == "abcdefghijkl", run << ": " << order);
  };
  const at::Tensor x = at::ones({1, 2}).requires_grad_();
  {
    nn::Linear module(2, 2);
    in_order(
        "a hook point",
        [&](Kind kind, auto hook, hooks::Place place) { return hooks::attach(*module, kind, hook, place); },
        [&] { module(x).sum().backward(); });
  }
  {
    torch::nn::Sequential model(torch::nn::Linear(2, 2));  // its scope counts beside the hooks
    const auto entry = torchtap::model::find(*model, "0");
    in_order(
        "an entry",
        [&](Kind kind, auto hook, hooks::Place place) { return hooks::attach(entry, kind, hook, place); },
        [&] { model->forward(x).sum().backward(); });
    in_order(
        "a Sequential",
        [&](Kind kind, auto hook, hooks::Place place) { return hooks::attach(*model, kind, hook, place); },
        [&] { model->forward(x).sum().backward(); });
  }
#ifdef TORCHTAP_TEST_TORCHSCRIPT
  {
    torch::jit::Module script("Script");
    script.define("def forward(self, x):\n  return x * 2\n");
    in_order(
        "a script",
        [&](Kind kind, auto hook, hooks::Place place) { return hooks::attach(script, kind, hook, place); },
        [&] { script.forward({x}).toTensor().sum().backward(); });
  }
#endif
}

BOOST_AUTO_TEST_CASE(a_module_has_its_own_names) {
  own::Router router;
  int calls = 0;
  const auto handle = count(*router, "", calls);
  router->site = 2;
  router->set_name("here");
  const own::RouterImpl::Short heard = router->listen(1);
  const at::Tensor x = at::ones({1, 2});
  BOOST_TEST(at::equal(router->forward(x), router->gate->forward(x) + 2));
  BOOST_TEST(heard == 2);
  BOOST_TEST(router->named_ == "here");
  BOOST_TEST(calls == 1);
}

BOOST_AUTO_TEST_CASE(inputs_and_outputs_can_be_replaced) {
  const auto check = [](torch::nn::Module& root, const std::string& path, const auto& call) {
    const auto module = torchtap::model::find(root, path);
    const auto pre =
        hooks::attach(module, Kind::forward_pre, [](Event& e) { e.inputs()[0] = e.inputs()[0] * 10; });
    at::Tensor seen_in, seen_out;
    const auto look = hooks::attach(module, Kind::forward, [&](Event& e) {
      seen_in = e.inputs()[0];
      seen_out = e.outputs()[0];
      e.outputs()[0] = e.outputs()[0] * 100;
    });
    const auto later = hooks::attach(module, Kind::forward_output, [](Event& e) { e.outputs()[0] += 0.5; });
    const at::Tensor given = ones();
    BOOST_TEST(at::equal(call(given), at::full({2, 2}, 1100.5)));
    BOOST_TEST(at::equal(given, ones()), "the caller's tensor is as it was");
    BOOST_TEST(at::equal(seen_in, at::full({2, 2}, 10.)));
    BOOST_TEST(at::equal(seen_out, at::full({2, 2}, 11.)));
  };
  auto model = adder(1);
  check(*model, "0", [&](const at::Tensor& x) { return model->forward(x); });
  check(*model, "", [&](const at::Tensor& x) { return model->forward(x); });
  nn::Functional direct([](const at::Tensor& x) { return x + 1; });
  check(*direct, "", [&](const at::Tensor& x) { return direct(x); });
}

BOOST_AUTO_TEST_CASE(what_an_event_does_not_have_is_an_error) {
  auto model = adder(1);
  std::vector<Handle> handles;
  const auto module = torchtap::model::find(*model, "0");
  int checked = 0;
  handles.push_back(hooks::attach(module, Kind::forward_pre, [&](Event& e) {
    BOOST_CHECK_THROW(e.outputs(), c10::ValueError);
    BOOST_CHECK_THROW(e.gradient(), c10::ValueError);
    BOOST_CHECK_THROW(e.inputs()[1], c10::IndexError);
    BOOST_CHECK_THROW(e.inputs()[-1], c10::IndexError);
    ++checked;
  }));
  handles.push_back(hooks::attach(module, Kind::forward_output, [&](Event& e) {
    BOOST_CHECK_THROW(e.inputs(), c10::ValueError);
    ++checked;
  }));
  handles.push_back(hooks::attach(module, Kind::backward_output, [&](Event& e) {
    BOOST_CHECK_THROW(e.inputs(), c10::ValueError);
    BOOST_CHECK_THROW(e.outputs(), c10::ValueError);
    ++checked;
  }));
  model->forward(ones().requires_grad_()).sum().backward();
  BOOST_TEST(checked == 3);
}

BOOST_AUTO_TEST_CASE(an_empty_optional_keeps_its_place_and_cannot_be_filled) {
  nn::LSTM lstm(4, 3);
  std::int64_t slots = 0;
  {
    const auto handle = hooks::attach(*lstm, Kind::forward_pre, [&](Event& e) { slots = e.inputs().size(); });
    lstm(at::ones({5, 2, 4}));
    BOOST_TEST(slots == 3);
    lstm(at::ones({5, 2, 4}), std::make_tuple(at::zeros({1, 2, 3}), at::zeros({1, 2, 3})));
    BOOST_TEST(slots == 3);
  }
  const auto handle =
      hooks::attach(*lstm, Kind::forward_pre, [](Event& e) { e.inputs()[1] = at::ones({1}); });
  BOOST_CHECK_THROW(lstm(at::ones({5, 2, 4})), c10::ValueError);
}

BOOST_AUTO_TEST_CASE(a_hook_that_throws_leaves_the_model_usable) {
  own::Loop direct;
  auto entries = adder(3);
  const auto check = [](torch::nn::Module& root, const std::string& path, const auto& call) {
    for (const auto kind : {Kind::forward_pre, Kind::forward, Kind::forward_output}) {
      int before = 0, after = 0;
      bool angry = true;
      const auto first = count(root, path, before, kind);
      const auto thrower = hooks::attach(torchtap::model::find(root, path), kind,
                                         [&](Event&) { TORCH_CHECK_VALUE(!angry, "enough"); });
      const auto last = count(root, path, after, kind);
      Ints indices;
      const auto collector = collect_indices(root, path, indices);
      BOOST_CHECK_THROW(call(), c10::ValueError);
      BOOST_TEST(before == 1);
      BOOST_TEST(after == 0);
      angry = false;
      BOOST_CHECK_NO_THROW(call());
      BOOST_CHECK_NO_THROW(call());
      BOOST_TEST(before >= 3);
      BOOST_TEST(after == before - 1);
      for (std::size_t i = 0; i < indices.size(); ++i) BOOST_TEST(indices[i] <= 1);
    }
  };
  check(*entries, "", [&] { entries->forward(ones()); });
  check(*entries, "0", [&] { entries->forward(ones()); });
  check(*entries, "2", [&] { entries->forward(ones()); });
  check(*direct, "", [&] { direct(ones()); });
  check(*direct, "step", [&] { direct(ones()); });
}

BOOST_AUTO_TEST_CASE(hooks_may_change_the_hooks_while_they_run) {
  auto model = adder(2);
  const auto module = torchtap::model::find(*model, "0");
  std::string log;
  Handle self, other, added;
  self = hooks::attach(module, Kind::forward, [&](Event&) {
    log += "self ";
    self.remove();
    other.remove();
    added = hooks::attach(module, Kind::forward, [&](Event&) { log += "added "; });
  });
  other = hooks::attach(module, Kind::forward, [&](Event&) { log += "other "; });
  const auto last = hooks::attach(module, Kind::forward, [&](Event&) { log += "last "; });
  model->forward(ones());
  BOOST_TEST(log == "self last ");
  log.clear();
  model->forward(ones());
  BOOST_TEST(log == "last added ");
}

BOOST_AUTO_TEST_CASE(a_hook_may_take_the_last_hook_off) {
  // On an entry, on the Sequential and on a module that runs its own hooks; before and after the call.
  for (const auto kind : {Kind::forward_pre, Kind::forward}) {
    auto model = adder(2);
    nn::Linear direct(2, 2);
    Handle entry, whole, own;
    int fired = 0;
    entry = hooks::attach(torchtap::model::find(*model, "0"), kind, [&](Event&) { entry.remove(), ++fired; });
    whole = hooks::attach(torchtap::model::find(*model, ""), kind, [&](Event&) { whole.remove(), ++fired; });
    own = hooks::attach(*direct, kind, [&](Event&) { own.remove(), ++fired; });
    for (int i = 0; i < 2; ++i) {
      BOOST_TEST(at::equal(model->forward(ones()), ones() + 2));
      direct(ones());
    }
    BOOST_TEST(fired == 3);
  }
}

BOOST_AUTO_TEST_CASE(a_hook_may_call_the_model) {
  auto model = adder(2);
  for (const auto kind : {Kind::forward_pre, Kind::forward}) {
    for (const char* path : {"", "0", "1"}) {
      BOOST_TEST_CONTEXT("\"" << path << "\"") {
        int fired = 0;
        at::Tensor inner;
        const auto handle = hooks::attach(torchtap::model::find(*model, path), kind, [&](Event&) {
          if (++fired == 1) inner = model->forward(ones() * 10);
        });
        BOOST_TEST(at::equal(model->forward(ones()), ones() + 2));
        BOOST_TEST(at::equal(inner, ones() * 10 + 2));
        BOOST_TEST(fired == 2);
        BOOST_TEST(at::equal(model->forward(ones()), ones() + 2));
        BOOST_TEST(fired == 3);
      }
    }
  }
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(handles)

BOOST_AUTO_TEST_CASE(moving_and_removing) {
  auto model = adder(1);
  int calls = 0;
  Handle a;
  BOOST_TEST(!a.attached());
  a.remove();
  a = count(*model, "0", calls);
  Handle b = std::move(a);
  BOOST_TEST(!a.attached());
  BOOST_TEST(b.attached());
  a.remove();
  model->forward(ones());
  BOOST_TEST(calls == 1);
  b = Handle();
  model->forward(ones());
  BOOST_TEST(calls == 1);
  b.remove();
  b.remove();
  { const auto scoped = count(*model, "0", calls); }
  model->forward(ones());
  BOOST_TEST(calls == 1);
}

BOOST_AUTO_TEST_CASE(outliving_the_module) {
  int calls = 0;
  std::vector<Handle> handles;
  {
    auto model = adder(2);
    nn::Linear direct(2, 2);
    handles.push_back(count(*model, "", calls));
    handles.push_back(count(*model, "1", calls));
    handles.push_back(count(*direct, "", calls));
    for (const auto& handle : handles) BOOST_TEST(handle.attached());
    model->forward(ones());
    direct(ones());
  }
  for (const auto& handle : handles) BOOST_TEST(!handle.attached());
  handles.clear();
  BOOST_TEST(calls == 3);
}

BOOST_AUTO_TEST_CASE(what_a_hook_held_is_freed) {
  auto model = adder(2);
  nn::Linear direct(2, 2);
  for (auto* root :
       {static_cast<torch::nn::Module*>(model.get()), static_cast<torch::nn::Module*>(direct.get())}) {
    for (const auto& module : torchtap::model::walk_modules(*root)) {
      auto state = std::make_shared<int>(0);
      const std::weak_ptr<int> alive = state;
      auto handle = hooks::attach(module, Kind::forward, [state](Event&) { ++*state; });
      state.reset();
      model->forward(ones());
      direct(ones());
      BOOST_TEST(*alive.lock() == 1);
      handle.remove();
      BOOST_TEST(alive.expired());
    }
  }
}

BOOST_AUTO_TEST_CASE(a_released_hook_stays_as_long_as_its_module) {
  std::vector<std::weak_ptr<int>> alive;
  const auto counter = [&] {
    auto state = std::make_shared<int>(0);
    alive.push_back(state);
    return [state](Event& event) { *state += 1 + event.call_index(); };
  };
  {
    auto model = adder(2);
    nn::Linear direct(2, 2);
    for (auto* root :
         {static_cast<torch::nn::Module*>(model.get()), static_cast<torch::nn::Module*>(direct.get())}) {
      for (const auto& module : torchtap::model::walk_modules(*root)) {
        Handle handle = hooks::attach(module, Kind::forward, counter());
        handle.release();
        BOOST_TEST(!handle.attached());
        handle.remove();
        handle.release();
      }
    }
    for (int i = 0; i < 3; ++i) {
      model->forward(ones());
      direct(ones());
    }
    BOOST_TEST(alive.size() == 4);
    for (const auto& one : alive) BOOST_TEST(*one.lock() == 3);  // the first call of each forward of the root
  }
  for (const auto& one : alive) BOOST_TEST(one.expired());
}

// The hook on a part keeps the one that counts the root's forwards, whose root it may outlive.
BOOST_AUTO_TEST_CASE(a_released_hook_outlives_its_root) {
  auto state = std::make_shared<int>(0);
  const std::weak_ptr<int> alive = state;
  {
    nn::Linear part(2, 2);
    {
      torch::nn::Sequential root(part, torch::nn::ReLU());
      auto handle = hooks::attach(torchtap::model::find(*root, "0"), Kind::forward,
                                  [state](Event& event) { *state += 1 + event.call_index(); });
      handle.release();
      for (int i = 0; i < 2; ++i) root->forward(ones());
      BOOST_TEST(*state == 2);
    }
    torch::nn::Sequential other{torch::nn::ReLU()};  // may lie where the root lay
    hooks::attach(torchtap::model::find(*other, "0"), Kind::forward, [](Event&) {}).release();
    other->forward(ones());
    part(ones());
    BOOST_TEST(*state > 2);
    state.reset();
    BOOST_TEST(!alive.expired());
  }
  BOOST_TEST(alive.expired());
}

BOOST_AUTO_TEST_CASE(nothing_is_left_on_the_model) {
  own::Detector user(2);
  torch::nn::Linear linear(2, 2);
  torch::nn::Sequential model(user, own::Scorer(), linear);
  const auto tables = [&] {
    std::vector<const void*> all;
    for (auto& any : *model) all.push_back(table_of(any));
    return all;
  };
  const auto before = tables();
  const auto uses = linear.ptr().use_count();
  const auto keys = model->named_parameters().keys();
  {
    int calls = 0;
    std::vector<Handle> handles;
    for (const char* path : {"", "0", "1", "2"}) handles.push_back(count(*model, path, calls));
    BOOST_TEST((tables() != before));
    for (auto& any : *model) {
      const auto& module = *any.ptr();
      BOOST_TEST((any.type_info() == typeid(module)));
    }
    model->forward(ones(), ones());
    BOOST_TEST(calls == 4);
    BOOST_TEST(linear.ptr().use_count() == uses);
  }
  BOOST_TEST((tables() == before));
  BOOST_TEST(linear.ptr().use_count() == uses);
  BOOST_TEST(model->named_parameters().keys() == keys);
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(call_indices)

BOOST_AUTO_TEST_CASE(count_within_one_forward_of_the_root) {
  own::Loop model;
  Ints root, step;
  const auto a = collect_indices(*model, "", root), b = collect_indices(*model, "step", step);
  model(ones());
  model(ones());
  BOOST_TEST(root == Ints({0, 0}));
  BOOST_TEST(step == Ints({0, 1, 0, 1}));
}

BOOST_AUTO_TEST_CASE(without_a_hook_on_the_root) {
  own::Loop model;
  Ints step;
  const auto handle = collect_indices(*model, "step", step);
  model(ones());
  model(ones());
  BOOST_TEST(step == Ints({0, 1, 0, 1}));
}

BOOST_AUTO_TEST_CASE(a_sequential_root) {
  own::PlainLoop loop;
  torch::nn::Linear shared(2, 2);
  torch::nn::Sequential model(shared, loop, shared);
  Ints step, entry, whole;
  const auto a = collect_indices(*model, "1.step", step), b = collect_indices(*model, "0", entry);
  for (int i = 0; i < 2; ++i) model->forward(ones());
  BOOST_TEST(step == Ints({0, 1, 0, 1}));
  BOOST_TEST(entry == Ints({0, 1, 0, 1}));
  const auto c = collect_indices(*model, "", whole);
  for (int i = 0; i < 2; ++i) model->forward(ones());
  BOOST_TEST(step == Ints({0, 1, 0, 1, 0, 1, 0, 1}));
  BOOST_TEST(whole == Ints({0, 0}));
}

BOOST_AUTO_TEST_CASE(an_exception_on_the_way_starts_anew) {
  own::Loop model;
  torch::nn::Sequential around(own::PlainLoop{});
  for (auto* loop : {static_cast<own::LoopImpl*>(model.get()), &around->at<own::LoopImpl>(0)}) {
    const bool direct = loop == model.get();
    auto& root = direct ? static_cast<torch::nn::Module&>(*model) : *around;
    Ints step;
    const auto handle = collect_indices(root, direct ? "step" : "0.step", step);
    const auto call = [&] { direct ? model(ones()) : around->forward(ones()); };
    loop->times = 3;
    loop->throw_after = 1;
    BOOST_CHECK_THROW(call(), c10::Error);
    loop->throw_after = -1;
    call();
    BOOST_TEST(step == Ints({0, 1, 0, 1, 2}));
  }
}

// The root cannot be hooked: the outermost hooked module tells the forwards apart.
BOOST_AUTO_TEST_CASE(a_root_that_cannot_be_hooked) {
  own::PlainLoop model;
  Ints step;
  const auto handle = collect_indices(*model, "step", step);
  model(ones());
  BOOST_TEST(step == Ints({0, 0}));
}

BOOST_AUTO_TEST_CASE(the_same_module_through_two_roots) {
  own::Loop loop;
  torch::nn::Sequential inner(loop, loop);
  Ints of_loop, of_inner;
  const auto a = collect_indices(*loop, "step", of_loop), b = collect_indices(*inner, "0.step", of_inner);
  inner->forward(ones());
  BOOST_TEST(of_loop == Ints({0, 1, 0, 1}));
  BOOST_TEST(of_inner == Ints({0, 1, 2, 3}));
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(sequential)

BOOST_AUTO_TEST_CASE(entries_of_the_users_own_types_stay_what_they_are) {
  at::manual_seed(0);
  hooks::register_value<own::Boxes>();
  torch::nn::Sequential model(own::Detector(2), own::Scorer());
  const auto want = model->forward(ones(), ones() * 3);
  std::int64_t in = 0, out = 0, next = 0;
  const auto a = hooks::attach(torchtap::model::find(*model, "0"), Kind::forward, [&](Event& e) {
    in = e.inputs().size();
    out = e.outputs().size();
  });
  const auto b = hooks::attach(torchtap::model::find(*model, "1"), Kind::forward_pre, [&](Event& e) {
    next = e.inputs().size();
    BOOST_TEST(at::equal(e.inputs()[2], ones() * -2));
  });
  int whole_calls = 0;
  const auto whole = count(*model, "", whole_calls);
  BOOST_TEST(identical(model->forward(ones(), ones() * 3), want));
  BOOST_TEST(in == 2);
  BOOST_TEST(out == 3);
  BOOST_TEST(next == 3);

  BOOST_TEST(model->at<own::DetectorImpl>(0).n == 2);
  BOOST_TEST(model->ptr<own::DetectorImpl>(0) == model->ptr(0));
  BOOST_CHECK_THROW(model->at<own::ScorerImpl>(0), c10::Error);
  BOOST_TEST(&model->begin()->get<own::Detector>()->fc->weight != nullptr);

  // A copy of the AnyModule calls the same module; a clone is another one, without hooks.
  in = 0;
  torch::nn::AnyModule copy = *model->begin();
  copy.any_forward(ones(), ones());
  BOOST_TEST(in == 2);
  BOOST_TEST(whole_calls == 1);
  in = 0;
  torch::nn::Sequential detectors(own::Detector(2));
  const auto hooked =
      hooks::attach(torchtap::model::find(*detectors, "0"), Kind::forward, [&](Event&) { ++in; });
  const auto cloned = std::dynamic_pointer_cast<torch::nn::SequentialImpl>(detectors->clone());
  BOOST_TEST(cloned->at<own::DetectorImpl>(0).n == 2);
  cloned->forward<own::Boxes>(ones(), ones());
  BOOST_TEST(in == 0);
  detectors->forward<own::Boxes>(ones(), ones());
  BOOST_TEST(in == 1);
}

BOOST_AUTO_TEST_CASE(values_of_unknown_types_are_noted) {
  torch::nn::Sequential model{own::Mystery()};
  bool noted = false;
  const auto handle = hooks::attach(torchtap::model::find(*model, "0"), Kind::forward, [&](Event& e) {
    BOOST_TEST(e.outputs().empty());
    noted = e.outputs().unknown().size() == 1 && *e.outputs().unknown()[0] == typeid(own::Unknown);
  });
  BOOST_TEST(model->forward<own::Unknown>(ones()).tensor.defined());
  BOOST_TEST(noted);
}

BOOST_AUTO_TEST_CASE(tensors_in_vectors_in_tuples) {
  torch::nn::Sequential model{own::Split()};
  std::int64_t slots = 0;
  const auto handle = hooks::attach(torchtap::model::find(*model, "0"), Kind::forward,
                                    [&](Event& e) { slots = e.outputs().size(); });
  model->forward<own::Nested>(ones());
  BOOST_TEST(slots == 3);
}

BOOST_AUTO_TEST_CASE(copies_of_a_hooked_entry_are_hooked_and_let_go) {
  torch::nn::Linear linear(2, 2);
  auto model = std::make_unique<torch::nn::Sequential>(linear);
  int calls = 0;
  auto handle = count(**model, "0", calls);
  auto copy = std::make_unique<torch::nn::AnyModule>(*(*model)->begin());
  torch::nn::AnyModule second = *copy;
  copy->any_forward(ones());
  second.any_forward(ones());
  BOOST_TEST(calls == 2);
  model.reset();
  BOOST_TEST(handle.attached(), "the copies still call it");
  copy.reset();
  second.any_forward(ones());
  BOOST_TEST(calls == 3);
  handle.remove();
  second.any_forward(ones());
  BOOST_TEST(calls == 3);
}

BOOST_AUTO_TEST_CASE(a_sequential_that_grows) {
  auto model = adder(2);
  at::Tensor out;
  const auto handle = hooks::attach(torchtap::model::find(*model, ""), Kind::forward,
                                    [&](Event& e) { out = e.outputs()[0].clone(); });
  model->forward(ones());
  BOOST_TEST(at::equal(out, ones() + 2));
  model->push_back(torch::nn::Functional([](const at::Tensor& x) { return x * 10; }));
  for (int i = 0; i < 2; ++i) {
    out = at::Tensor();
    BOOST_TEST(at::equal(model->forward(ones()), ones() * 30));
    BOOST_TEST(at::equal(out, ones() * 30));
  }
}

BOOST_AUTO_TEST_CASE(an_exception_between_entries_ends_the_run) {
  own::PlainLoop loop;
  torch::nn::Sequential model(torch::nn::Identity(), loop, torch::nn::Identity());
  int pre = 0, post = 0;
  Ints indices;
  const auto a = count(*model, "", pre, Kind::forward_pre), b = count(*model, "", post);
  const auto c = collect_indices(*model, "1.step", indices);
  loop->throw_after = 0;
  BOOST_CHECK_THROW(model->forward(ones()), c10::Error);
  loop->throw_after = -1;
  model->forward(ones());
  BOOST_TEST(pre == 2);
  BOOST_TEST(post == 1);
  BOOST_TEST(indices == Ints({0, 0, 1}));
}

BOOST_AUTO_TEST_CASE(entries_called_by_hand) {
  auto model = adder(3);
  int pre = 0, post = 0;
  const auto a = count(*model, "", pre, Kind::forward_pre), b = count(*model, "", post);
  // Abandoned after two entries, then complete; a middle entry alone is no forward of the whole.
  auto entry = model->begin();
  entry->any_forward(ones());
  (++entry)->any_forward(ones());
  model->forward(ones());
  BOOST_TEST(pre == 2);
  BOOST_TEST(post == 1);
  entry->any_forward(ones());
  BOOST_TEST(pre == 2);
  BOOST_TEST(post == 1);
  model->forward(ones());
  BOOST_TEST(pre == 3);
  BOOST_TEST(post == 2);
}

BOOST_AUTO_TEST_CASE(nested_sequentials) {
  const auto stage = [] {
    return own::Stage(torch::nn::Functional([](const at::Tensor& x) { return x + 1; }),
                      torch::nn::Functional([](const at::Tensor& x) { return x * 2; }));
  };
  torch::nn::Sequential model(stage(), stage());
  std::vector<std::string> log;
  std::vector<Handle> handles;
  for (const auto& module : torchtap::model::walk_modules(*model)) {
    BOOST_TEST(module.reachable(), module.path());
    handles.push_back(hooks::attach(module, Kind::forward, [&](Event& e) {
      log.push_back(c10::str(e.path(), "=", e.outputs()[0][0][0].item<int>()));
    }));
  }
  for (int i = 0; i < 2; ++i) {
    log.clear();
    model->forward(ones());
    BOOST_TEST(log == std::vector<std::string>({"0.0=2", "0.1=4", "0=4", "1.0=5", "1.1=10", "1=10", "=10"}),
               boost::test_tools::per_element());
  }
}

// Each level's run is inside the run of the level above.
// The forward of a derived type may do more than its entries: these alone do not tell its result.
BOOST_AUTO_TEST_CASE(types_that_derive_from_sequential) {
  const auto check = [](torch::nn::Module& root, const std::string& path, const auto& call) {
    std::vector<at::Tensor> seen;
    const auto handle = hooks::attach(torchtap::model::find(root, path), Kind::forward_output,
                                      [&](Event& event) { seen.push_back(event.outputs()[0]); });
    const at::Tensor result = call();
    BOOST_TEST_REQUIRE(seen.size() == 1);
    BOOST_TEST(at::equal(seen[0], result));
  };
  const torch::nn::Functional add([](const at::Tensor& x) { return x + 1; });
  own::Doubled doubled(add, add);
  const auto why =
      message_of<c10::ValueError>([&] { hooks::attach(*doubled, Kind::forward, [](Event&) {}).remove(); });
  BOOST_TEST(contains(why, "may have a forward of its own"), why);
  torch::nn::Sequential outer(doubled);
  check(*outer, "0", [&] { return outer->forward(ones()); });
  own::HookedDoubled hooked(add, add);
  check(*hooked, "", [&] { return hooked->forward(ones()); });

  own::Renamed renamed(add, add);
  BOOST_CHECK_THROW(hooks::attach(*renamed, Kind::forward, [](Event&) {}).remove(), c10::ValueError);
  torchtap::model::extend::note_model<own::RenamedImpl>();  // as recorder.attach(renamed) does
  check(*renamed, "", [&] { return renamed->forward(ones()); });
  static_assert(!torchtap::model::extend::is_sequential<own::DoubledImpl>());
}

BOOST_AUTO_TEST_CASE(a_sequential_inside_of_a_users_module_inside_of_a_sequential) {
  struct HolderImpl : torch::nn::Module {
    HolderImpl() { inner = register_module("inner", adder(2)); }
    at::Tensor forward(const at::Tensor& x) { return inner->forward(inner->forward(x)); }
    torch::nn::Sequential inner;
  };
  torch::nn::Sequential model(std::make_shared<HolderImpl>(), torch::nn::Identity());
  Ints inner, whole;
  const auto a = collect_indices(*model, "0.inner", inner), b = collect_indices(*model, "", whole);
  for (int i = 0; i < 2; ++i) BOOST_TEST(at::equal(model->forward(ones()), ones() + 4));
  BOOST_TEST(inner == Ints({0, 1, 0, 1}));
  BOOST_TEST(whole == Ints({0, 0}));
}

BOOST_AUTO_TEST_CASE(one_module_in_two_entries) {
  torch::nn::Linear shared(2, 2);
  torch::nn::Sequential model(shared, torch::nn::ReLU(), shared);
  Ints indices;
  const auto handle = collect_indices(*model, "2", indices);
  model->forward(ones());
  BOOST_TEST(indices == Ints({0, 1}));
}

BOOST_AUTO_TEST_CASE(one_module_in_two_sequentials) {
  torch::nn::Linear shared(2, 2);
  torch::nn::Sequential first(shared), second(torch::nn::ReLU(), shared);
  int by_first = 0, by_second = 0;
  {
    const auto a = count(*first, "0", by_first);
    // The walk from `first` knows nothing of `second`.
    second->forward(ones());
    BOOST_TEST(by_first == 0);
    const auto b = count(*second, "1", by_second);
    first->forward(ones());
    second->forward(ones());
  }
  // Hooks belong to the module: once both ways are known, both fire.
  BOOST_TEST(by_first == 2);
  BOOST_TEST(by_second == 2);
  first->forward(ones());
  second->forward(ones());
  BOOST_TEST(by_first == 2);
}

BOOST_AUTO_TEST_CASE(a_sequential_shrinks_to_nothing_with_its_hooks) {
  int calls = 0;
  auto model = std::make_unique<torch::nn::Sequential>(adder(3));
  auto a = count(**model, "", calls), b = count(**model, "1", calls);
  (*model)->forward(ones());
  model.reset();
  BOOST_TEST(!a.attached());
  BOOST_TEST(!b.attached());
  // Addresses are reused: nothing of the former model may be found.
  auto next = adder(3);
  next->forward(ones());
  BOOST_TEST(calls == 2);
}

BOOST_AUTO_TEST_CASE(on_the_stack) {
  int calls = 0;
  Handle a, b;
  {
    torch::nn::SequentialImpl model(torch::nn::ReLU(), torch::nn::Linear(2, 2));
    a = count(model, "", calls);
    b = count(model, "1", calls);
    model.forward(ones());
    BOOST_TEST(calls == 2);
  }
  BOOST_TEST(!a.attached());
  BOOST_TEST(!b.attached());
}

BOOST_AUTO_TEST_CASE(an_any_module_of_the_users_own) {
  torch::nn::AnyModule any{torch::nn::Linear(2, 2)};
  Ints indices;
  {
    const auto handle =
        hooks::attach(any, Kind::forward, [&](Event& e) { indices.push_back(e.call_index()); });
    any.forward(ones());
    any.any_forward(ones());
    BOOST_TEST(indices == Ints({0, 0}));
    any = torch::nn::AnyModule(torch::nn::ReLU());
    BOOST_TEST(!handle.attached());
  }
  any.forward(ones());
  BOOST_TEST(indices.size() == 2);
  torch::nn::AnyModule nothing;
  BOOST_CHECK_THROW(std::ignore = hooks::attach(nothing, Kind::forward, [](Event&) {}), c10::ValueError);
}

BOOST_AUTO_TEST_CASE(the_model_works_as_ever_while_hooked) {
  at::manual_seed(0);
  torch::nn::Sequential model(torch::nn::Linear(2, 2), torch::nn::BatchNorm1d(2), torch::nn::Dropout());
  int calls = 0;
  std::vector<Handle> handles;
  for (const auto& module : torchtap::model::walk_modules(*model)) {
    for (const auto kind : {Kind::forward_pre, Kind::forward, Kind::backward_input, Kind::backward_output}) {
      handles.push_back(hooks::attach(module, kind, [&](Event&) { ++calls; }));
    }
  }
  model->eval();
  BOOST_TEST(!model->ptr(2)->is_training());
  model->to(at::kDouble);
  BOOST_TEST((model->forward(ones().to(at::kDouble)).scalar_type() == at::kDouble));
  std::stringstream stream;
  torch::save(model, stream);
  torch::nn::Sequential loaded(torch::nn::Linear(2, 2), torch::nn::BatchNorm1d(2), torch::nn::Dropout());
  // Before loading: LibTorch 1.13 reads float64 into float32 parameters as if it were float32.
  loaded->to(at::kDouble);
  torch::load(loaded, stream);
  loaded->eval();
  const int before = calls;
  for (const auto& item : model->named_parameters()) {
    BOOST_TEST(identical(loaded->named_parameters()[item.key()], item.value()), item.key());
  }
  BOOST_TEST(at::equal(loaded->forward(ones().to(at::kDouble)), model->forward(ones().to(at::kDouble))));
  BOOST_TEST(calls > before);
  std::ostringstream text;
  text << model;
  BOOST_TEST(contains(text.str(), "torch::nn::Linear(in_features=2"));
  torch::optim::SGD optimizer(model->parameters(), 0.1);
  model->train();
  model->forward(at::randn({4, 2}, at::kDouble)).sum().backward();
  optimizer.step();
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(opted_in)

BOOST_AUTO_TEST_CASE(default_arguments) {
  own::HookedScale scale;
  int calls = 0;
  const auto handle = count(*scale, "", calls);
  BOOST_TEST(at::equal(scale(ones()), ones() * 2));
  BOOST_TEST(at::equal(scale(ones(), 3), ones() * 3));
  BOOST_TEST(at::equal(scale->forward(ones(), 3, ones()), ones() * 4));
  BOOST_TEST(calls == 3);

  for (torch::nn::Sequential model :
       {torch::nn::Sequential(own::Scale()), torch::nn::Sequential(own::HookedScale())}) {
    int fired = 0;
    const auto hook = count(*model, "0", fired);
    BOOST_TEST(at::equal(model->forward(ones()), ones() * 2));
    BOOST_TEST(at::equal(model->forward(ones(), 3., ones()), ones() * 4));
    BOOST_TEST(fired == 2);
  }
}

BOOST_AUTO_TEST_CASE(default_arguments_of_the_built_ins) {
  std::vector<Handle> handles;
  int calls = 0;
  const auto watched = [&](auto holder) {
    handles.push_back(hooks::attach(*holder, Kind::forward, [&](Event&) { ++calls; }));
    return holder;
  };
  auto lstm = watched(nn::LSTM(2, 3));
  lstm(at::ones({1, 1, 2}));
  lstm(at::ones({1, 1, 2}), std::make_tuple(at::ones({1, 1, 3}), at::ones({1, 1, 3})));
  auto transpose = watched(nn::ConvTranspose2d(1, 1, 2));
  transpose(at::ones({1, 1, 2, 2}));
  transpose(at::ones({1, 1, 2, 2}), at::IntArrayRef({3, 3}));
  auto unpool = watched(nn::MaxUnpool2d(2));
  unpool(at::ones({1, 1, 1, 1}), at::zeros({1, 1, 1, 1}, at::kLong));
  unpool(at::ones({1, 1, 1, 1}), at::zeros({1, 1, 1, 1}, at::kLong), std::vector<std::int64_t>{1, 1, 2, 2});
  auto attention = watched(nn::MultiheadAttention(2, 1));
  attention(at::ones({1, 1, 2}), at::ones({1, 1, 2}), at::ones({1, 1, 2}));
  attention(at::ones({1, 1, 2}), at::ones({1, 1, 2}), at::ones({1, 1, 2}), at::Tensor(), false);
  auto bag = watched(nn::EmbeddingBag(4, 2));
  bag(at::zeros({1, 2}, at::kLong));
  bag(at::zeros({2}, at::kLong), at::zeros({1}, at::kLong));
  auto transformer = watched(nn::Transformer(torch::nn::TransformerOptions(2, 1, 1, 1)));
  transformer(at::ones({1, 1, 2}), at::ones({1, 1, 2}));
  transformer(at::ones({1, 1, 2}), at::ones({1, 1, 2}), at::zeros({1, 1}));
  BOOST_TEST(calls == 12);
}

// Inside a user-defined module, the purpose of drop-ins.
BOOST_AUTO_TEST_CASE(drop_ins_in_a_users_module) {
  struct NetImpl : torch::nn::Cloneable<NetImpl> {
    NetImpl() { reset(); }
    void reset() override {
      lstm = register_module("lstm", nn::LSTM(2, 2));
      norm = register_module("norm", nn::BatchNorm1d(2));
      fc = register_module("fc", nn::Linear(2, 2));
    }
    at::Tensor forward(const at::Tensor& x) { return fc->forward(norm(std::get<0>(lstm(x)).flatten(0, 1))); }
    nn::LSTM lstm{nullptr};
    nn::BatchNorm1d norm{nullptr};
    nn::Linear fc{nullptr};
  };
  using Net = torch::nn::ModuleHolder<hooks::Hooked<NetImpl>>;
  at::manual_seed(0);
  Net net;
  const auto want = net(at::ones({3, 2, 2}));
  std::vector<std::string> log;
  std::vector<Handle> handles;
  for (const auto& module : torchtap::model::walk_modules(*net)) {
    handles.push_back(
        hooks::attach(module, Kind::forward, [&](Event& e) { log.push_back(e.path() + ":" + e.type()); }));
  }
  net->eval();
  net->train();
  BOOST_TEST(identical(net(at::ones({3, 2, 2})), want));
  BOOST_TEST(log == std::vector<std::string>({"lstm:LSTM", "norm:BatchNorm1d", "fc:Linear", ":Net"}),
             boost::test_tools::per_element());

  // A clone can be hooked, is equal, and starts without hooks.
  log.clear();
  const auto clone = std::dynamic_pointer_cast<hooks::Hooked<NetImpl>>(net->clone());
  BOOST_REQUIRE(clone != nullptr);
  BOOST_TEST(identical(clone->forward(at::ones({3, 2, 2})), net(at::ones({3, 2, 2}))));
  BOOST_TEST(log.size() == 4);
  BOOST_TEST(!clone->fc->weight.is_same(net->fc->weight));
  const auto handle = hooks::attach(*clone, Kind::forward, [&](Event&) { log.push_back("clone"); });
  clone->forward(at::ones({3, 2, 2}));
  BOOST_TEST(log.back() == "clone");
  BOOST_TEST(net->name() == NetImpl().name());
}

BOOST_AUTO_TEST_CASE(arguments_that_are_no_values) {
  own::Odd odd;
  const auto call = [&](at::Tensor& state) {
    std::vector<int> log;
    const auto result =
        odd(state, log, static_cast<const torch::nn::Module&>(*odd), std::make_unique<int>(7));
    BOOST_TEST(log == std::vector<int>{7});
    return result;
  };
  auto state = ones();
  BOOST_TEST(at::equal(call(state), ones() * 4));
  std::int64_t slots = 0;
  const auto pre = hooks::attach(*odd, Kind::forward_pre, [&](Event& e) {
    slots = e.inputs().size();
    e.inputs()[0] = e.inputs()[0] * 10;
  });
  const auto backward = hooks::attach(*odd, Kind::backward_input, [](Event&) {});
  auto hooked_state = ones();
  BOOST_TEST(at::equal(call(hooked_state), (ones() * 10 + 1) * 2));
  BOOST_TEST(at::equal(hooked_state, ones() * 11));
  BOOST_TEST(slots == 1);
}

BOOST_AUTO_TEST_CASE(a_forward_without_a_result) {
  own::Silent silent;
  int calls = 0;
  const auto handle = hooks::attach(*silent, Kind::forward, [&](Event& e) {
    ++calls;
    BOOST_TEST(e.outputs().empty());
    BOOST_TEST(e.inputs().size() == 1);
  });
  silent->forward(ones());
  BOOST_TEST(calls == 1);
}

BOOST_AUTO_TEST_CASE(drop_ins_pass_for_the_originals) {
  nn::Linear linear(2, 3);
  BOOST_TEST(linear->name() == torch::nn::Linear(2, 3)->name());
  BOOST_TEST(dynamic_cast<torch::nn::LinearImpl*>(linear.get()) != nullptr);
  torch::nn::Sequential model(linear);
  BOOST_TEST(&model->at<nn::Linear::ContainedType>(0) == linear.get());
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(errors)

BOOST_AUTO_TEST_CASE(a_module_that_cannot_be_reached) {
  own::Plain model;
  const auto message = message_of<c10::ValueError>(
      [&] { (void)hooks::attach(torchtap::model::find(*model, "fc"), Kind::forward, [](Event&) {}); });
  for (const char* part : {"\"fc\"", "(Linear)", "torchtap::nn::Linear", "torch::nn::Sequential"}) {
    BOOST_TEST(contains(message, part), message);
  }
  const auto of_user = message_of<c10::ValueError>(
      [&] { (void)hooks::attach(torchtap::model::find(*model, ""), Kind::forward, [](Event&) {}); });
  BOOST_TEST(contains(of_user, "TORCHTAP_MODULE"), of_user);
  BOOST_TEST(!contains(of_user, "torchtap::nn::Plain"), of_user);
  BOOST_TEST(!torchtap::model::find(*model, "fc").reachable());
}

BOOST_AUTO_TEST_CASE(a_module_without_a_forward) {
  own::Plain model;
  const auto message = message_of<c10::ValueError>(
      [&] { (void)hooks::attach(torchtap::model::find(*model, "list"), Kind::forward, [](Event&) {}); });
  BOOST_TEST(contains(message, "\"list\""), message);
  BOOST_TEST(contains(message, "ModuleList"), message);
  BOOST_TEST(contains(message, "no forward"), message);
}

BOOST_AUTO_TEST_CASE(an_empty_sequential) {
  own::Plain model;
  const auto message = message_of<c10::ValueError>(
      [&] { (void)hooks::attach(torchtap::model::find(*model, "empty"), Kind::forward, [](Event&) {}); });
  BOOST_TEST(contains(message, "\"empty\""), message);
  BOOST_TEST(contains(message, "no entries"), message);
}

BOOST_AUTO_TEST_CASE(an_empty_callback) {
  auto model = adder(1);
  BOOST_CHECK_THROW((void)hooks::attach(torchtap::model::find(*model, "0"), Kind::forward, nullptr),
                    c10::ValueError);
}

BOOST_AUTO_TEST_CASE(a_path_that_is_not_there) {
  own::Plain model;
  const auto message = message_of<c10::IndexError>([&] { torchtap::model::find(*model, "fs"); });
  BOOST_TEST(contains(message, "\"fs\""), message);
  BOOST_TEST(contains(message, "\"fc\""), message);
}

BOOST_AUTO_TEST_CASE(tensors_are_a_range) {
  torch::nn::Sequential model(torch::nn::Bilinear(2, 2, 3));
  const auto double_all = hooks::attach(model, "0", Kind::forward_pre, [](Event& event) {
    for (at::Tensor& input : event.inputs()) input = input * 2;
  });
  std::vector<at::Tensor> seen;
  const auto look = hooks::attach(model, "0", Kind::forward, [&](const Event& event) {
    for (const at::Tensor& input : event.inputs()) seen.push_back(input);
    seen.insert(seen.end(), event.outputs().begin(), event.outputs().end());
  });
  const at::Tensor x = at::ones({1, 2}), y = at::full({1, 2}, 3.);
  const at::Tensor result = model->forward(x, y);
  BOOST_REQUIRE(seen.size() == 3);
  BOOST_TEST(at::equal(seen[0], x * 2));
  BOOST_TEST(at::equal(seen[1], y * 2));
  BOOST_TEST(seen[2].is_same(result));
}

BOOST_AUTO_TEST_CASE(a_tensor_that_a_hook_takes_away_is_an_error) {
  torch::nn::Sequential model(torch::nn::Linear(2, 2));
  const auto message = [&](Kind kind, const std::function<at::Tensor&(Event&)>& tensor) {
    const auto handle = hooks::attach(model, "0", kind, [&](Event& event) { tensor(event) = at::Tensor(); });
    return message_of<c10::ValueError>([&] { model->forward(at::ones({1, 2})).sum().backward(); });
  };
  const auto input = [](Event& event) -> at::Tensor& { return event.inputs()[0]; };
  const auto output = [](Event& event) -> at::Tensor& { return event.outputs()[0]; };
  const auto gradient = [](Event& event) -> at::Tensor& { return event.gradient(); };
  BOOST_TEST(contains(message(Kind::forward_pre, input), "\"0\" (Linear) replaced a tensor of the inputs"));
  BOOST_TEST(contains(message(Kind::forward_output, output), "tensor of the outputs by an undefined one"));
  BOOST_TEST(contains(message(Kind::backward_output, gradient), "replaced the gradient by an undefined"));
  BOOST_TEST(model->forward(at::ones({1, 2})).defined());
}

BOOST_AUTO_TEST_CASE(hooks_take_what_recorders_take) {
  int fired = 0;
  const auto count = [&](Event&) { ++fired; };
  nn::Linear holder(2, 2);
  const auto shared = std::make_shared<hooks::Hooked<torch::nn::LinearImpl>>(2, 2);
  torch::nn::Sequential model(torch::nn::Linear(2, 2), torch::nn::ReLU());
  const auto a = hooks::attach(holder, Kind::forward, count);
  const auto b = hooks::attach(shared, Kind::forward, count, hooks::Place::first);
  const auto c = hooks::attach(model, "1", Kind::forward, count);
  const auto d = hooks::attach(model.ptr(), "0", Kind::forward, count);
  const auto e = hooks::attach(*model, "0", Kind::forward, count, hooks::Place::first);
  const auto f = hooks::attach(holder, "bias", count);
  BOOST_TEST(torchtap::model::find(model, "1").type() == "ReLU");
  BOOST_TEST(torchtap::model::find(shared, "").type() == "Linear");
  model->forward(at::ones({1, 2}));
  BOOST_TEST(fired == 3);
  shared->forward(at::ones({1, 2}));
  holder(at::ones({1, 2})).sum().backward();
  BOOST_TEST(fired == 6);
  const torch::nn::Linear empty{nullptr};
  const std::shared_ptr<torch::nn::LinearImpl> null;
  BOOST_TEST(contains(message_of<c10::ValueError>([&] { (void)hooks::attach(empty, Kind::forward, count); }),
                      "empty"));
  BOOST_TEST(contains(message_of<c10::ValueError>([&] { torchtap::model::find(null, "0"); }), "null"));
}

namespace {

/// Runs its model once more after main has ended, and ends with an error if the hook is not called.
struct Late {
  torch::nn::Sequential model{nullptr};
  Handle handle;
  int fired = 0;

  ~Late() {
    if (model.is_empty()) return;
    const torch::NoGradGuard no_grad;
    model->forward(at::ones({2}));
    if (fired != 2) std::_Exit(4);
  }
};
Late late;  // older than what the library makes when it is first used

}  // namespace

BOOST_AUTO_TEST_CASE(a_model_may_run_in_the_destructor_of_a_static_object) {
  late.model = torch::nn::Sequential(torch::nn::Identity(), torch::nn::Identity());
  late.handle = hooks::attach(late.model, "1", Kind::forward_output, [](Event&) { ++late.fired; });
  late.model->forward(at::ones({2}));
  BOOST_TEST(late.fired == 1);
}

BOOST_AUTO_TEST_SUITE_END()
