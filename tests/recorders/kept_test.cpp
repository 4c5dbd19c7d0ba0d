// What is kept is a copy of what came, whatever that is and however it is copied.
#include <malloc.h>
#include <torch/torch.h>

#include <map>
#include <random>
#include <thread>

#include <torchtap/recorders/recorders.hpp>

#include "../support.hpp"

BOOST_AUTO_TEST_SUITE(kept)

using namespace torchtap_test;
using namespace torchtap::recorders;

namespace {

using Two = std::tuple<at::Tensor, at::Tensor>;

struct PairImpl : torch::nn::Module {
  Two forward(const at::Tensor& first, const at::Tensor& second) { return {first, second}; }
};
TORCH_MODULE(Pair);

/// The i-th of many tensors of one kind.
using Make = std::function<at::Tensor(std::int64_t)>;

at::Tensor numbers(std::int64_t i, at::ScalarType dtype = at::kFloat) {
  return (torch::arange(12) + 12 * (i % 10)).reshape({3, 4}).to(dtype);
}

std::map<std::string, Make> kinds() {
  std::map<std::string, Make> all{
      {"plain", [](std::int64_t i) { return numbers(i); }},
      {"requires grad", [](std::int64_t i) { return numbers(i).requires_grad_(); }},
      {"has a graph", [](std::int64_t i) { return numbers(i).requires_grad_() * 2; }},
      {"transposed", [](std::int64_t i) { return numbers(i).t(); }},
      {"a view with an offset", [](std::int64_t i) { return numbers(i).slice(0, 1); }},
      {"every other", [](std::int64_t i) { return numbers(i).slice(1, 0, 4, 2); }},
      {"expanded",
       [](std::int64_t i) {
         return numbers(i).slice(0, 0, 1).expand({5, 4});
       }},
      {"channels last",
       [](std::int64_t i) {
         return torch::rand({2, 3, 2, 2}).add(i).contiguous(at::MemoryFormat::ChannelsLast);
       }},
      {"a number", [](std::int64_t i) { return torch::scalar_tensor(i); }},
      {"empty",
       [](std::int64_t) {
         return torch::empty({0, 3});
       }},
      {"large", [](std::int64_t i) { return torch::full({30000}, i); }},
      {"of many sizes",
       [](std::int64_t i) {
         return torch::full({i % 5, 2}, i);
       }},
      {"of two dtypes", [](std::int64_t i) { return numbers(i, i % 7 < 4 ? at::kInt : at::kFloat); }},
      {"conjugate", [](std::int64_t i) { return torch::complex(numbers(i), numbers(i + 1)).conj(); }},
      {"negative",
       [](std::int64_t i) { return torch::imag(torch::complex(numbers(i), numbers(i + 1)).conj()); }},
      {"zero", [](std::int64_t) { return torch::_efficientzerotensor({3}); }},
      {"now and then conjugate",
       [](std::int64_t i) {
         const auto z = torch::complex(numbers(i), numbers(i + 1));
         return i % 3 == 0 ? z.conj() : z;
       }},
      {"now and then transposed",
       [](std::int64_t i) {
         return i % 3 == 0 ? numbers(i).reshape({4, 3}).t() : numbers(i);
       }},
      {"sparse", [](std::int64_t i) { return numbers(i).to_sparse(); }},
      {"now and then none", [](std::int64_t i) { return i % 4 == 1 ? at::Tensor() : numbers(i); }},
      {"an inference tensor",
       [](std::int64_t i) {
         const c10::InferenceMode inference;
         return numbers(i) + 1;
       }},
  };
  for (const auto dtype :
       {at::kDouble, at::kHalf, at::kBFloat16, at::kLong, at::kBool, at::kByte, at::kComplexDouble}) {
    all[c10::toString(dtype)] = [dtype](std::int64_t i) { return numbers(i, dtype); };
  }
  return all;
}

/// The elements of any tensor, by other ways than the recorder's.
at::Tensor dense(const at::Tensor& tensor) {
  const c10::NoGradGuard no_grad;
  const at::Tensor plain = tensor.detach();
  if (plain.is_sparse()) return plain.to_dense();
  return plain._is_zerotensor() ? torch::zeros(plain.sizes())
                                : plain.resolve_conj().resolve_neg().contiguous();
}

bool same_elements(const at::Tensor& a, const at::Tensor& b) {
  if (!a.defined() || !b.defined()) return a.defined() == b.defined();
  return a.scalar_type() == b.scalar_type() && a.sizes() == b.sizes() && dense(a).equal(dense(b));
}

/// Whether `samples` are those of `make`, and on their own.
bool are_copies(const std::vector<at::Tensor>& samples, const std::vector<at::Tensor>& came,
                const Make& make) {
  for (std::size_t i = 0; i < samples.size(); ++i) {
    const at::Tensor& sample = samples[i];
    if (!same_elements(sample, make(static_cast<std::int64_t>(i)))) return false;
    if (!sample.defined()) continue;
    if (sample.requires_grad() || sample.is_inference()) return false;
    if (sample.has_storage() && came[i].has_storage() && sample.numel() > 0 &&
        sample.storage().is_alias_of(came[i].storage())) {
      return false;
    }
  }
  return true;
}

template <class Body>
void in_mode(const std::string& mode, const Body& body) {
  if (mode == "inference") {
    const c10::InferenceMode inference;
    return body();
  }
  const c10::NoGradGuard guard;
  if (mode != "no grad") torch::GradMode::set_enabled(true);
  return body();
}

}  // namespace

BOOST_AUTO_TEST_CASE(copies_of_all_kinds) {
  constexpr std::int64_t kMany = 150;  // enough for buffers with room, and for several to become one
  torch::manual_seed(0);
  for (const auto& [name, made] : kinds()) {
    std::vector<at::Tensor> originals;  // random ones are made once
    for (std::int64_t i = 0; i < kMany; ++i) originals.push_back(made(i));
    const Make make = [&](std::int64_t i) { return originals[static_cast<std::size_t>(i)]; };
    for (const std::string mode : {"grad", "no grad", "inference"}) {
      BOOST_TEST_CONTEXT(name << ", " << mode) {
        torch::nn::AnyModule module{torch::nn::Identity()};
        ForwardPre recorder;
        recorder.module(module);
        std::vector<at::Tensor> came;
        for (std::int64_t i = 0; i < kMany; ++i) {
          const at::Tensor x = make(i);
          came.push_back(x);
          in_mode(mode, [&] { module.forward(x); });
        }
        const auto samples = recorder[0].tensors();
        BOOST_TEST(recorder.samples() == kMany);
        BOOST_REQUIRE(samples.size() == static_cast<std::size_t>(kMany));
        BOOST_TEST(are_copies(samples, came, make));
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(kinds_that_take_turns) {
  const auto all = kinds();
  std::vector<Make> makes;
  for (const auto& [name, make] : all) makes.push_back(make);
  torch::nn::AnyModule module{torch::nn::Identity()};
  ForwardPre recorder;
  recorder.module(module);
  std::vector<at::Tensor> came;
  for (std::size_t i = 0; i < 40 * makes.size(); ++i) {
    came.push_back(makes[i / 3 % makes.size()](static_cast<std::int64_t>(i)));  // three of a kind
    module.forward(came.back());
  }
  BOOST_TEST(are_copies(recorder[0].tensors(), came,
                        [&](std::int64_t i) { return came[static_cast<std::size_t>(i)]; }));
}

// Readers get views of buffers that are filled further on.
BOOST_AUTO_TEST_CASE(what_was_read_stays) {
  torch::nn::AnyModule module{torch::nn::Identity()};
  ForwardPre recorder;
  recorder.module(module);
  std::vector<std::vector<at::Tensor>> read;
  at::Tensor x = torch::zeros({100});
  for (int i = 0; i < 3000; ++i) {
    module.forward(x.fill_(i));
    if (i % 97 == 0) read.push_back(recorder[0].tensors());
  }
  read.push_back(recorder[0].tensors());
  x.fill_(-1);
  recorder.reset();
  module.forward(x);
  BOOST_TEST(recorder[0].tensors().size() == 1u);
  BOOST_TEST(read.back().size() == 3000u);
  bool same = true;
  for (const auto& samples : read) {
    for (std::size_t i = 0; i < samples.size(); ++i) {
      same = same && samples[i].equal(torch::full({100}, static_cast<float>(i)));
    }
  }
  BOOST_TEST(same);
}

// Merging takes the samples that are there; both go on by themselves.
BOOST_AUTO_TEST_CASE(lists_that_were_merged_go_on_apart) {
  torch::nn::AnyModule module{torch::nn::Identity()};
  ForwardPre one, other;
  one.module(module);
  other.module(module);
  for (int i = 0; i < 200; ++i) module.forward(torch::full({3}, i));
  one.merge(other);
  for (int i = 200; i < 260; ++i) module.forward(torch::full({3}, i));
  const auto merged = one[0].tensors(), alone = other[0].tensors();
  BOOST_REQUIRE(merged.size() == 460u);
  BOOST_REQUIRE(alone.size() == 260u);
  bool same = true;
  for (std::size_t i = 0; i < merged.size(); ++i) {
    same = same && merged[i].equal(torch::full({3}, static_cast<std::int64_t>(i < 200 ? i : i - 200)));
  }
  for (std::size_t i = 0; i < alone.size(); ++i) {
    same = same && alone[i].equal(torch::full({3}, static_cast<std::int64_t>(i)));
  }
  BOOST_TEST(same);
}

// A tensor of a device that nobody knows cannot be copied.
BOOST_AUTO_TEST_CASE(all_tensors_of_an_event_are_kept_or_none) {
  torch::nn::Sequential model{Pair()};
  ForwardOutput outputs(RecorderOptions().all_tensors());
  outputs.modules(*model, torchtap::selectors::names("0"));
  const at::Tensor good = torch::ones({3});
  const at::Tensor bad = at::detail::make_tensor<c10::TensorImpl>(
      c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), caffe2::TypeMeta::Make<float>(),
      c10::Device(c10::kPrivateUse1, 0));
  for (int i = 0; i < 30; ++i) {
    model->forward<Two>(good * i, good * -i);
    BOOST_CHECK_THROW(model->forward<Two>(good, bad), c10::Error);
  }
  BOOST_TEST(outputs[0].samples() == 30);
  for (const std::int64_t slot : {0, 1}) {
    const auto samples = outputs[0].slot(slot).tensors();
    BOOST_REQUIRE(samples.size() == 30u);
    for (int i = 0; i < 30; ++i) {
      BOOST_TEST(samples[static_cast<std::size_t>(i)].equal(good * (slot == 0 ? i : -i)));
    }
  }
}

namespace {

/// Sequences of samples that are not alike, each of some megabytes.
std::map<std::string, std::vector<at::Tensor>> unlike() {
  std::map<std::string, std::vector<at::Tensor>> all;
  std::mt19937 random(1);
  const at::Tensor numbers = torch::arange(64 * 16).to(torch::kFloat), whole = torch::arange(64 * 16);
  const auto first = [&](std::int64_t count) { return numbers.slice(0, 0, count); };
  for (std::int64_t i = 0; i < 12000; ++i) {
    all["one shape"].push_back(first(100));
    all["growing"].push_back(first(1 + i / 12));
    all["shrinking"].push_back(first(1000 - i / 12));
    all["in turns"].push_back(first(i % 2 == 0 ? 100 : 50));
    all["three of four"].push_back(first(i % 4 == 0 ? 50 : 100));
    all["random"].push_back(first(16 * (1 + random() % 64)).reshape({-1, 16}));
    all["dtypes in turns"].push_back((i % 2 == 0 ? whole : numbers).slice(0, 0, 101));
    all["some undefined"].push_back(i % 3 == 0 ? at::Tensor() : first(100));
    if (i % 100 == 0) all["large and small"].push_back(torch::ones({i % 200 == 0 ? 20000 : 1000}));
  }
  return all;
}

std::int64_t bytes_of(const std::vector<at::Tensor>& tensors) {
  std::int64_t bytes = 0;
  for (const auto& tensor : tensors)
    bytes += tensor.defined() ? static_cast<std::int64_t>(tensor.nbytes()) : 0;
  return bytes;
}

/// The memory that tensors are in, each storage once.
std::int64_t memory_of(const std::vector<at::Tensor>& tensors) {
  std::map<const void*, std::size_t> storages;
  for (const auto& tensor : tensors)
    if (tensor.defined()) storages[tensor.storage().unsafeGetStorageImpl()] = tensor.storage().nbytes();
  std::int64_t bytes = 0;
  for (const auto& [storage, size] : storages) bytes += static_cast<std::int64_t>(size);
  return bytes;
}

/// What malloc has given and not got back. Zero where it is not glibc's.
std::int64_t from_malloc() {
#ifdef __GLIBC__
  const auto now = ::mallinfo2();
  return static_cast<std::int64_t>(now.uordblks + now.hblkhd);
#else
  return 0;
#endif
}

struct GiveImpl : torch::nn::Module {
  at::Tensor forward(const at::Tensor&) { return next; }
  at::Tensor next;
};
TORCH_MODULE(Give);

}  // namespace

BOOST_AUTO_TEST_CASE(samples_take_little_more_than_their_bytes_whatever_their_shapes_are) {
  const torch::NoGradGuard no_grad;
  const at::Tensor x = torch::ones({1});
  for (const auto& [name, samples] : unlike()) {
    BOOST_TEST_CONTEXT(name) {
      const std::int64_t data = bytes_of(samples);
      BOOST_TEST(data > (std::int64_t{1} << 20));
      Give give;
      torch::nn::AnyModule module(give);
      ForwardOutput recorder;
      recorder.module(module);
      const std::int64_t before = from_malloc();
      for (const auto& sample : samples) {
        give->next = sample;
        module.forward(x);
      }
      const std::int64_t others =
          from_malloc() - before;  // objects; what is in memory of its own counts below
      const auto kept = recorder[0].tensors();
      BOOST_REQUIRE(kept.size() == samples.size());
      bool same = true;
      for (std::size_t i = 0; i < kept.size(); ++i) {
        same = same && kept[i].defined() == samples[i].defined();
        if (samples[i].defined())
          same = same && kept[i].dtype() == samples[i].dtype() && kept[i].equal(samples[i]);
      }
      BOOST_TEST(same);
      const std::int64_t most = data + data / 20 + (32 << 10);
      BOOST_TEST(memory_of(kept) <= most);
      BOOST_TEST(std::max(others, std::int64_t{0}) + memory_of(kept) <= most);
    }
  }
}

BOOST_AUTO_TEST_CASE(a_memory_budget_is_for_samples_of_all_shapes) {
  constexpr std::int64_t kBudget = 1 << 20;
  const torch::NoGradGuard no_grad;
  for (const auto& [name, samples] : unlike()) {
    BOOST_TEST_CONTEXT(name) {
      Give give;
      torch::nn::AnyModule module(give);
      ForwardOutput recorder(RecorderOptions().memory_budget(kBudget, OverBudget::drop));
      recorder.module(module);
      for (std::size_t i = 0; i < samples.size() && recorder.dropped() == 0; ++i) {
        give->next = samples[i];
        module.forward(torch::ones({1}));
      }
      BOOST_TEST(recorder.dropped() > 0);
      const std::int64_t data = bytes_of(recorder[0].tensors());
      BOOST_TEST(data < kBudget);
      BOOST_TEST(data > kBudget / 10 * 8);  // samples of up to 80 kB, and an eighth of them
    }
  }
}

BOOST_AUTO_TEST_CASE(lists_that_are_set_count_their_items) {
  torch::nn::Sequential model{Pair()};
  ForwardOutput all(RecorderOptions().all_tensors());
  all.modules(*model, torchtap::selectors::names("0"));
  const at::Tensor x = torch::ones({3});
  for (int i = 0; i < 3; ++i) model->forward<Two>(x, x);
  all[0].apply([](const at::Tensor& sample) { return sample * 2; });
  BOOST_TEST(all[0].samples() == 3);
  using torchtap::core::Value;
  const auto lists = [&](std::size_t items) {
    const Value list(Value::List(items, Value(x)));
    return Value(Value::Dict{{"0", list}, {"1", list}});
  };
  all[0].set(lists(1));
  BOOST_TEST(all[0].samples() == 1);
  BOOST_TEST(all.samples() == 1);
  BOOST_TEST(all.entries()[0].samples == 1);
  model->forward<Two>(x, x);
  BOOST_TEST(all[0].samples() == 2);
  all[0].set(lists(5));
  BOOST_TEST(all[0].samples() == 5);
  BOOST_TEST(all[0].slot(1).tensors().size() == 5u);
}

BOOST_AUTO_TEST_CASE(a_real_dtype_of_complex_samples_is_an_error) {
  torch::nn::Sequential model{torch::nn::Identity()};
  ForwardOutput kept(RecorderOptions().dtype(at::kFloat)), wide(RecorderOptions().dtype(at::kComplexDouble));
  kept.attach(model, "0");
  const at::Tensor z = torch::complex(torch::ones({2}), torch::ones({2}));
  BOOST_CHECK_EXCEPTION(model->forward(z), c10::TypeError,
                        says({"ForwardOutput", "complex", "Float", "at::real"}));
  model->forward(torch::ones({2}));
  BOOST_TEST(kept.samples() == 1);
  kept.detach();
  wide.attach(model, "0");
  model->forward(z);
  BOOST_TEST(wide[0].tensors()[0].equal(z.to(at::kComplexDouble)));
}

BOOST_AUTO_TEST_CASE(threads_keep_every_sample_whole) {
  constexpr int kThreads = 4, kEach = 500;
  torch::nn::AnyModule module{torch::nn::Identity()};
  ForwardPre recorder;
  recorder.module(module);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kEach; ++i) {
        module.forward(torch::full({i % 50 == 0 ? 7 : 100}, t));
      }
    });
  }
  for (auto& thread : threads) thread.join();
  BOOST_TEST(recorder.samples() == kThreads * kEach);
  std::map<int, int> seen;
  for (const auto& sample : recorder[0].tensors()) {
    BOOST_REQUIRE((sample == sample[0]).all().item<bool>());
    ++seen[sample[0].item<int>()];
  }
  for (int t = 0; t < kThreads; ++t) BOOST_TEST(seen[t] == kEach);
}

BOOST_AUTO_TEST_SUITE_END()
