// Reads and writes the state of LibTorch's generator of the CPU.
#include <ATen/CPUGeneratorImpl.h>
#include <torch/version.h>

#include <cstring>
#include <mutex>
#include <tuple>
#include <type_traits>
#include <utility>

#include <torchtap/base/error.hpp>
#include <torchtap/views/monitor/detail/random_state.hpp>

namespace torchtap::views::monitor::detail {
namespace {

using Engine = std::decay_t<decltype(std::declval<at::CPUGeneratorImpl&>().engine().data())>;
static_assert(std::tuple_size_v<decltype(Engine::state_)> == 624);

/// Whether a Mersenne twister with these numbers stays inside of its array.
bool stays_inside(std::int64_t left, std::int64_t next) noexcept {
  return left >= 1 && left <= 624 && next >= 0 && left + next <= 625;
}

at::CPUGeneratorImpl& cpu_of(const at::Generator& generator) {
  return *generator.get<at::CPUGeneratorImpl>();
}

}  // namespace

void take_random_state(RandomState& state) noexcept {
  const at::Generator& generator = at::detail::getDefaultCPUGenerator();
  at::CPUGeneratorImpl& cpu = cpu_of(generator);
  const std::lock_guard lock(cpu.mutex_);
  const Engine engine = cpu.engine().data();
  const auto next_float = cpu.next_float_normal_sample();
  const auto next_double = cpu.next_double_normal_sample();
  state = {};
  state.seed = engine.seed_;
  state.left = engine.left_;
  state.next = engine.next_;
  state.seeded = engine.seeded_ ? 1 : 0;
  state.has_float = next_float.has_value() ? 1 : 0;
  state.has_double = next_double.has_value() ? 1 : 0;
  state.next_float = next_float.value_or(0);
  state.next_double = next_double.value_or(0);
  std::memcpy(state.state, engine.state_.data(), sizeof state.state);
}

at::Tensor state_tensor(const RandomState& state) {
  if (!stays_inside(state.left, state.next)) return {};
  Engine engine{};
  engine.seed_ = state.seed;
  engine.left_ = state.left;
  engine.next_ = state.next;
  engine.seeded_ = state.seeded != 0;
  std::memcpy(engine.state_.data(), state.state, sizeof state.state);
  at::mt19937 twister;
  twister.set_data(engine);
  const at::Generator generator = at::detail::createCPUGenerator();
  at::CPUGeneratorImpl& cpu = cpu_of(generator);
  cpu.set_engine(twister);
  decltype(cpu.next_float_normal_sample()) next_float;
  decltype(cpu.next_double_normal_sample()) next_double;
  if (state.has_float != 0) next_float = state.next_float;
  if (state.has_double != 0) next_double = state.next_double;
  cpu.set_next_float_normal_sample(next_float);
  cpu.set_next_double_normal_sample(next_double);
  return generator.get_state();
}

void set_random_state(const at::Tensor& saved) {
  // A copy at the beginning of its memory: LibTorch 2.11 and newer look for others at the wrong place.
  const at::Tensor state = saved.clone();
  at::Generator trial = at::detail::createCPUGenerator();
  bool good = true;
  try {
    trial.set_state(state);
    const Engine engine = cpu_of(trial).engine().data();
    good = stays_inside(engine.left_, engine.next_);
  } catch (const c10::Error&) {
    good = false;
  }
  TORCH_CHECK_VALUE(good, "views::monitor::replay: ", state.nbytes(),
                    " bytes of the incident are not the state of a generator of LibTorch " TORCH_VERSION ".");
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard lock(generator.mutex());
  generator.set_state(state);
}

}  // namespace torchtap::views::monitor::detail
