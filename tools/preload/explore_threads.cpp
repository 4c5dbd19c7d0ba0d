// Finds the beginnings and ends of forwards in threads.
#include "explore_threads.hpp"

#include <ATen/core/grad_mode.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <utility>

#include <torchtap/base/thread.hpp>

namespace torchtap::tools::preload {
namespace {

using torch::nn::Module;

}  // namespace

/// Ends the forwards of a thread that ends. A pointer can be used until the very end of the thread.
struct ExploreMode::ThreadEnd {
  static thread_local Thread* thread;
  ~ThreadEnd() {
    if (thread == nullptr) return;
    if (ExploreMode* const owner = thread->owner; owner != nullptr) {
      owner->guarded([&] {
        const Lock lock(owner->mutex_);
        if (!owner->done_) close(*thread, 0);
        owner->threads_.erase(thread);
      });
    }
    delete std::exchange(thread, nullptr);
  }
};
thread_local ExploreMode::Thread* ExploreMode::ThreadEnd::thread = nullptr;

ExploreMode::Thread* ExploreMode::Thread::here() noexcept {
  return ThreadEnd::thread;
}

void ExploreMode::Thread::leave_to_parent() noexcept {
  for (; !running.empty(); running.pop_back()) learn(*running.back());
  in_backward = backward_elsewhere = false;
  owner = nullptr;
}

ExploreMode::Thread& ExploreMode::thread_here() {
  if (ThreadEnd::thread == nullptr) {
    static_cast<void>(base::thread_lives());  // what scopes put back has to be destroyed after them
    ThreadEnd::thread = new Thread();
    thread_local const ThreadEnd end;
    static_cast<void>(end);
  }
  if (ThreadEnd::thread->owner != this) {
    ThreadEnd::thread->owner = this;
    threads_.insert(ThreadEnd::thread);
  }
  return *ThreadEnd::thread;
}

/// A module that can be seen is called in this thread. Before the hooks of the explorer.
void ExploreMode::before(Model& model, const Module& module, const hooks::Event& call) {
  // The watched model's objects of the thread have to be destroyed after the agent's.
  if (Thread::here() == nullptr) model.watched->end_forward();
  Thread& thread = thread_here();
  if (thread.backward_elsewhere.exchange(false)) end_in_backward(thread);
  if (std::exchange(thread.in_backward, false)) close(thread, 0);
  const std::vector<at::Tensor> inputs = inputs_of(call);
  auto& running = thread.running;
  const auto find = [&] {
    return std::find_if(running.begin(), running.end(),
                        [&](const auto& one) { return one->model.get() == &model; });
  };
  auto found = find();
  if (found != running.end() && begins_again(**found, module, inputs)) {
    // A call whose callee is not known counted as several, as long as it was waited for.
    const bool several = (*found)->scope != nullptr && (*found)->pass->expects_others();
    close(thread, static_cast<std::size_t>(found - running.begin()), !several);
    found = running.end();
  }
  if (found == running.end()) {
    open(thread, model, module, inputs);
    found = running.end() - 1;
  }
  (*found)->pass->called(module);
}

bool ExploreMode::begins_again(Running& running, const Module& module,
                               const std::vector<at::Tensor>& inputs) {
  if (&module != running.first) return false;
  ++running.first_calls;
  if (running.scope == nullptr) {
    // A training loop's pass ends by its backward, unless it calls the model as for a validation.
    constexpr std::int64_t kMore = 4;
    Model& model = *running.model;
    std::int64_t& before_backward = model.calls_before_backward[running.trains];
    if (running.first_calls <= kMore * before_backward) return false;
    before_backward = 0;
    return true;
  }
  const operations::Unseen unseen;
  return running.pass->begins_again(inputs);
}

void ExploreMode::open(Thread& thread, Model& model, const Module& first,
                       const std::vector<at::Tensor>& inputs) {
  model.watched->end_forward();
  auto running = std::make_unique<Running>();
  running->model = std::static_pointer_cast<Model>(model.shared_from_this());
  running->watched = model.watched;
  running->first = &first;
  running->trains = first.is_training();  // the model itself may be gone, where no shared pointer owns it
  running->pass->begin(model.expected());
  if (!at::GradMode::is_enabled() || model.calls_before_backward[running->trains] == 0) {
    running->scope = std::make_unique<operations::Scope>(
        [pass = running->pass](operations::Event& event) { pass->follow(event); });
    const operations::Unseen unseen;
    running->pass->begins_again(inputs);
  }
  thread.running.push_back(std::move(running));
}

/// Ends forwards of this thread, the innermost first. Unless the first of them was a `whole` one, it does not
/// count.
void ExploreMode::close(Thread& thread, std::size_t from, bool whole) {
  while (thread.running.size() > from) {
    Running& last = *thread.running.back();
    last.watched->end_forward(whole || thread.running.size() > from + 1);
    last.scope.reset();
    learn(last);
    thread.running.pop_back();
  }
}

/// Learns the modules that a forward calls.
void ExploreMode::learn(const Running& running) {
  for (const Module* module : running.pass->called_modules()) {
    if (running.model->visible.count(module) != 0) running.model->called.insert(module);
  }
}

/// Scopes are closed later: LibTorch restores the state of the thread when a function of a backward returns.
void ExploreMode::end_in_backward(Thread& thread) {
  if (std::exchange(thread.in_backward, true)) return;
  for (auto one = thread.running.rbegin(); one != thread.running.rend(); ++one) {
    Running& running = **one;
    running.model->calls_before_backward[running.trains] = running.first_calls;
    running.watched->backward_follows();
  }
}

void ExploreMode::backward(bool begins) {
  if (!begins || done_) return;
  const Lock lock(mutex_);
  if (Thread* const thread = Thread::here(); thread != nullptr) return end_in_backward(*thread);
  for (Thread* const thread : threads_) thread->backward_elsewhere = true;
}

}  // namespace torchtap::tools::preload
