// Follows tensors through the operations and calls of a forward.
#include <ATen/core/Tensor.h>
#include <ATen/core/function_schema.h>

#include <algorithm>
#include <iterator>

#include <torchtap/views/explorer/detail/data_flow.hpp>

namespace torchtap::views::explorer::detail {
namespace {

constexpr std::size_t most_sources = 4;

/// "add" of "aten::add_".
std::string short_name(const std::string& name) {
  const std::size_t begin = name.rfind(':') + 1;
  const bool in_place = name.size() > begin + 1 && name.back() == '_' && name[name.size() - 2] != '_';
  return name.substr(begin, name.size() - begin - (in_place ? 1 : 0));
}

}  // namespace

void Flow::add(Writes& to, Write write) {
  to.erase(std::remove_if(to.begin(), to.end(),
                          [&](const Write& one) {
                            return one.caller == write.caller && write.region.covers(one.region);
                          }),
           to.end());
  to.push_back(std::move(write));
}

Flow::Flow(const Tensors& held, MakeCall make_call) : make_call_(std::move(make_call)) {
  for (const at::Tensor& tensor : held) {
    if (tensor.defined()) define(tensor, 0, {});
  }
}

void Flow::add(Sources& to, const Sources& more) {
  if (more.empty()) return;
  Sources all;
  std::set_union(to.begin(), to.end(), more.begin(), more.end(), std::back_inserter(all));
  to = std::move(all);
}

bool Flow::is_around(std::int32_t call, std::int32_t inner) const {
  for (;;) {
    if (inner == call) return true;
    const auto parent = parents_.find(inner);
    if (parent == parents_.end()) return false;
    inner = parent->second;
  }
}

/// The entry of the innermost caller that knows the tensor.
const Flow::Fact* Flow::visible(const Known& known) const {
  for (auto outer = stack_.rbegin(); outer != stack_.rend(); ++outer) {
    const auto fact = std::find_if(known.facts.begin(), known.facts.end(),
                                   [&](const Fact& one) { return one.caller == *outer; });
    if (fact != known.facts.end()) return &*fact;
  }
  return nullptr;
}

/// The time from which `own_sources` holds.
std::int64_t Flow::since(const at::Tensor& tensor) const {
  const Known* const known = tensors_.find(tensor);
  if (known == nullptr) return -1;
  const Fact* const fact = visible(*known);
  return fact != nullptr ? fact->at : known->made;
}

/// Whether an operation reads a tensor that was there before the forward: a member that is neither parameter
/// nor buffer, say. Numbers become tensors where they are used.
bool Flow::is_old(const at::Tensor& tensor) const {
  return tensor.defined() && !tensor.unsafeGetTensorImpl()->is_wrapped_number() &&
         tensors_.find(tensor) == nullptr && memories_.find(tensor) == nullptr;
}

/// Notes that the origin of a tensor is unknown, because no operation was seen making it.
void Flow::settle(const at::Tensor& tensor) {
  const Known& one = known(tensor);
  if (one.maker < 0 && visible(one) == nullptr) define(tensor, caller(), {{caller(), Port::unknown}});
}

/// Sources in a caller around, as the running caller sees them: it and the callers between were not given the
/// tensor, so each captures it.
Flow::Sources Flow::carried(const Sources& sources, std::int32_t from) {
  if (from == caller() || sources.empty()) return sources;
  auto inner = std::find(stack_.begin(), stack_.end(), from);
  if (inner == stack_.end()) return {};
  Sources here = sources;
  for (std::int32_t outer = from; ++inner != stack_.end(); outer = *inner) {
    for (const Port& source : here) edges_.insert({outer, source, {*inner, Port::extra}});
    here = {{*inner, Port::extra}};
  }
  return here;
}

/// The sources of a tensor that was made inside of a call and not returned by it.
Flow::Sources Flow::of_returned_call(const Known& known) {
  std::int32_t call = known.maker;
  for (;;) {
    const auto parent = parents_.find(call);
    if (parent == parents_.end()) return {};
    if (is_around(parent->second, caller())) return carried({{call, Port::extra}}, parent->second);
    call = parent->second;
  }
}

/// The sources of the tensor as it was when it was defined; later writes come on top.
Flow::Sources Flow::own_sources(const at::Tensor& tensor) {
  const Known* const known = tensors_.find(tensor);
  if (known == nullptr) return {};
  const Fact* const innermost = visible(*known);
  if (innermost != nullptr) return carried(innermost->sources, innermost->caller);
  return known->maker >= 0 ? of_returned_call(*known) : Sources();
}

Flow::Sources Flow::sources_of(const at::Tensor& tensor) {
  const std::int64_t from = since(tensor);
  const Writes* const writes = memories_.find(tensor);
  if (writes == nullptr || writes->empty() || writes->back().at <= from) return own_sources(tensor);
  Sources sources;
  watch::Remainder rest{watch::Region(tensor)};
  const bool has_bytes = !rest.empty();
  for (auto write = writes->rbegin(); !rest.empty() && write != writes->rend() && write->at > from; ++write) {
    if (is_around(write->caller, caller()) && rest.take(write->region)) {
      add(sources, carried(write->sources, write->caller));
    }
  }
  if (!rest.empty() || !has_bytes) add(sources, own_sources(tensor));
  return sources;
}

Flow::Known& Flow::known(const at::Tensor& tensor) {
  if (Known* const known = tensors_.find(tensor)) return *known;
  if (tensor.has_storage()) memories_.get(tensor);
  return tensors_.get(tensor);
}

void Flow::define(const at::Tensor& tensor, Fact fact) {
  auto& facts = known(tensor).facts;
  const auto same =
      std::find_if(facts.begin(), facts.end(), [&](const Fact& one) { return one.caller == fact.caller; });
  if (same != facts.end()) {
    *same = std::move(fact);
  } else {
    facts.push_back(std::move(fact));
  }
}

void Flow::write(const at::Tensor& tensor, std::int32_t caller, const Sources& sources) {
  if (!tensor.has_storage()) return;
  add(memories_.get(tensor), {caller, ++events_, sources, watch::Region(tensor)});
  written_in_[caller].insert(watch::memory_of(tensor));
}

/// The ports of a call at which a tensor is, of which there may be several: attention(x, x, x).
Flow::Sources Flow::ports_of(std::int32_t call, const Tensors& tensors, const at::Tensor& tensor) {
  Sources ports;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (tensors[i].is_same(tensor)) ports.push_back({call, static_cast<std::int32_t>(i)});
  }
  return ports;
}

void Flow::enter(std::int32_t id, const Tensors& inputs) {
  const std::lock_guard lock(mutex_);
  const std::int32_t outer = caller();
  const bool outermost = stack_.empty();
  for (std::size_t i = 0; i < inputs.size() && !outermost; ++i) {
    if (!inputs[i].defined()) continue;
    settle(inputs[i]);
    for (const Port& source : sources_of(inputs[i])) {
      edges_.insert({outer, source, {id, static_cast<std::int32_t>(i)}});
    }
  }
  if (!outermost) parents_[id] = outer;
  calls_.push_back(id);
  stack_.push_back(id);
  for (const at::Tensor& input : inputs) {
    if (input.defined()) define(input, id, ports_of(id, inputs, input));
  }
}

void Flow::leave(const Tensors& outputs) {
  const std::lock_guard lock(mutex_);
  if (stack_.empty()) return;
  const std::int32_t call = caller();
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    if (!outputs[i].defined()) continue;
    settle(outputs[i]);
    for (const Port& source : sources_of(outputs[i])) {
      edges_.insert({call, source, {call, static_cast<std::int32_t>(i)}});
    }
  }
  stack_.pop_back();
  if (stack_.empty()) return;
  tell_writes(call, outputs);
  for (const at::Tensor& output : outputs) {
    if (output.defined()) define(output, caller(), ports_of(call, outputs, output));
  }
}

/// A tensor that a call changed in place counts, for the call around it, as changed by that call. If it
/// returned the bytes, they are at that port.
void Flow::tell_writes(std::int32_t call, const Tensors& outputs) {
  const auto written = written_in_.find(call);
  if (written == written_in_.end()) return;
  const std::set<const void*> memories = std::move(written->second);
  written_in_.erase(written);
  for (const void* const at : memories) {
    Writes& all = *memories_.find(at);
    const auto inside =
        std::stable_partition(all.begin(), all.end(), [&](const Write& one) { return one.caller != call; });
    const Writes writes(std::make_move_iterator(inside), std::make_move_iterator(all.end()));
    all.erase(inside, all.end());
    for (const Write& write : writes) {
      add(all, {caller(), ++events_, {{call, Port::extra}}, write.region});
      for (std::size_t i = outputs.size(); i-- > 0;) {
        const watch::Region shown(outputs[i]);
        if (!shown.overlaps(write.region)) continue;
        const Port port{call, static_cast<std::int32_t>(i)};
        add(all, {caller(), ++events_, {port}, write.region.covers(shown) ? shown : write.region});
      }
    }
    written_in_[caller()].insert(at);
  }
}

void Flow::run(operations::Event& event) {
  using Clock = std::chrono::steady_clock;
  if (stopped_) return event.run();
  Running running;
  const auto began = Clock::now();
  {
    const std::lock_guard lock(mutex_);
    before(event, running);
  }
  const auto runs = Clock::now();
  event.run();
  const auto ran = Clock::now();
  {
    const std::lock_guard lock(mutex_);
    after(event, running);
  }
  own_time_ += ((runs - began) + (Clock::now() - ran)) / std::chrono::nanoseconds(1);
}

void Flow::before(operations::Event& event, Running& running) {
  const auto& reads = reads_.of(event, [&] { return watch::reads_of(event.schema()); });
  const operations::Values arguments = event.arguments();
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    // Uses the schema, not event.writes(): the running statistics of norms are no data flow.
    const auto* const alias = event.schema().arguments()[i].alias_info();
    const bool written = alias != nullptr && alias->isWrite();
    operations::for_each_tensor(arguments[i], [&](const at::Tensor& tensor) {
      if (reads[i] && is_old(tensor)) settle(tensor);
      if (reads[i]) running.read.push_back(tensor);
      if (written) running.written.push_back(tensor);
    });
  }
  if (running.written.empty()) return;  // what it returns says what it read
  for (const at::Tensor& tensor : running.read) add(running.sources, sources_of(tensor));
}

/// The sources of an operation's result, or the operation, if it added to too many of them. An operation that
/// brings the outputs of many calls together, as a concatenation does, leaves each its edge.
Flow::Sources Flow::drawable(Sources sources, operations::Event& event, Running& running,
                             const at::Tensor& result) {
  if (sources.size() <= most_sources) return sources;
  if (running.call < 0) {
    const auto is_added_to = [&](const at::Tensor& tensor) {
      const std::size_t before = sources_of(tensor).size();
      return before >= most_sources && before < sources.size();
    };
    if (std::none_of(running.read.begin(), running.read.end(), is_added_to)) return sources;
    const std::string name = short_name(event.name());
    running.call = make_call_(caller(), name, operations_[{caller(), name}]++, result);
    if (running.call < 0) return sources;
    calls_.push_back(running.call);
    for (const Port& source : sources) edges_.insert({caller(), source, {running.call, 0}});
    edges_.insert({running.call, {running.call, 0}, {running.call, 0}});
  }
  return {{running.call, 0}};
}

/// The result of an operation that wrote to no argument. A view has its tensor's sources; writes that reach
/// its bytes come on top, also earlier ones.
Flow::Fact Flow::computed(const at::Tensor& result, const Running& running) {
  Fact fact{caller(), ++events_, {}};
  const void* const memory = watch::memory_of(result);
  for (const at::Tensor& tensor : running.read) {
    if (memory != nullptr && watch::memory_of(tensor) == memory) {
      fact.at = std::min(fact.at, since(tensor));
      add(fact.sources, own_sources(tensor));
    } else {
      add(fact.sources, sources_of(tensor));
    }
  }
  return fact;
}

void Flow::after(operations::Event& event, Running& running) {
  if (!running.written.empty())
    running.sources = drawable(std::move(running.sources), event, running, running.written.front());
  for (const at::Tensor& tensor : running.written) {
    write(tensor, caller(), running.sources);
    define(tensor, caller(), running.sources);
  }
  bool returns = false;
  for (const c10::IValue& result : event.results()) {
    operations::for_each_tensor(result, [&](const at::Tensor& tensor) {
      returns = true;
      const auto same = [&](const at::Tensor& written) { return written.is_same(tensor); };
      if (std::any_of(running.written.begin(), running.written.end(), same)) return;
      Fact fact =
          running.written.empty() ? computed(tensor, running) : Fact{caller(), ++events_, running.sources};
      fact.sources = drawable(std::move(fact.sources), event, running, tensor);
      Known& one = known(tensor);
      if (one.facts.empty()) {
        one.maker = caller();
        one.made = events_;
      }
      define(tensor, std::move(fact));
    });
  }
  if (returns || !running.written.empty()) return;
  for (const at::Tensor& tensor : running.read) sources_of(tensor);  // by the program: they may be captured
}

}  // namespace torchtap::views::explorer::detail
