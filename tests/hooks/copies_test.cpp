// Two copies of torchtap in one process, as two plug-ins have them that each link it statically. Here the
// second one is the library itself, loaded once more from a copy of its file.
#include <boost/test/unit_test.hpp>
#include <torch/torch.h>

#if defined(__linux__)
#include <dlfcn.h>
#endif
#if defined(RTLD_DEEPBIND) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#include <filesystem>

#include <torchtap/hooks/hooks.hpp>
#include <torchtap/hooks/nn.hpp>
#include <torchtap/model/walk.hpp>

#include "../support.hpp"
#include "support.hpp"

BOOST_AUTO_TEST_SUITE(copies)

namespace hooks = torchtap::hooks;
namespace nn = torchtap::nn;
using support::contains;
using support::message_of;

namespace {

struct Copy {
  using Attach = hooks::Handle (*)(torch::nn::Module&, hooks::Kind, hooks::Callback, hooks::Place);
  Attach attach;
  void (*remove)(hooks::Handle*);

  explicit Copy(const std::filesystem::path& folder) {
    Dl_info ours;
    BOOST_TEST_REQUIRE(::dladdr(::dlsym(RTLD_DEFAULT, kAttach), &ours) != 0);
    const auto file = folder / "another_torchtap.so";
    std::filesystem::copy_file(ours.dli_fname, file);
    void* library = ::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
    BOOST_TEST_REQUIRE(library != nullptr, ::dlerror());
    attach = reinterpret_cast<Attach>(::dlsym(library, kAttach));
    remove =
        reinterpret_cast<void (*)(hooks::Handle*)>(::dlsym(library, "_ZN8torchtap5hooks6Handle6removeEv"));
    BOOST_TEST_REQUIRE((attach != nullptr && remove != nullptr));
    BOOST_TEST_REQUIRE(reinterpret_cast<void*>(attach) != ::dlsym(RTLD_DEFAULT, kAttach));
  }

 private:
  static constexpr const char* kAttach =
      "_ZN8torchtap5hooks6attachERN5torch2nn6ModuleENS0_4KindESt8functionIFvRNS0_5EventEEENS0_5PlaceE";
};

}  // namespace

BOOST_AUTO_TEST_CASE(a_module_has_hooks_of_one_copy) {
  const torchtap_test::TemporaryDirectory folder;
  const Copy copy(folder.path());
  int ours = 0, theirs = 0;
  const auto count = [](int& calls) { return [&calls](hooks::Event&) { ++calls; }; };
  const auto check = [&](torch::nn::Module& module, const auto& call) {
    ours = theirs = 0;
    auto handle = hooks::attach(module, hooks::Kind::forward, count(ours));
    const auto why = message_of<c10::ValueError>(
        [&] { copy.attach(module, hooks::Kind::forward, count(theirs), hooks::Place::last).remove(); });
    BOOST_TEST(contains(why, "another copy of torchtap in this process has hooks on \"\""), why);
    call();
    handle.remove();
    handle = copy.attach(module, hooks::Kind::forward, count(theirs), hooks::Place::last);
    BOOST_CHECK_THROW(hooks::attach(module, hooks::Kind::forward, count(ours)).remove(), c10::ValueError);
    call();
    copy.remove(&handle);
    handle = hooks::attach(module, hooks::Kind::forward, count(ours));
    call();
    BOOST_TEST(ours == 2);
    BOOST_TEST(theirs == 1);
  };
  torch::nn::Sequential model(torch::nn::Linear(2, 2), torch::nn::ReLU());
  check(*model, [&] { model->forward(at::ones({1, 2})); });
  nn::Linear opted_in(2, 2);
  check(*opted_in, [&] { opted_in(at::ones({1, 2})); });
}

BOOST_AUTO_TEST_SUITE_END()

#endif
