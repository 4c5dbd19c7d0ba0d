#pragma once

// The fields of results and their names in files, in one place for all writers and readers.
//
// `Fields<T>::visit(visitor, value)` calls the visitor for each field: with a name and the field; `derived`
// for a field that follows from others and is not read back; `added` for a field that documents of an earlier
// format lack; `tensors` for a list of tensors, which are columns in files. The docs have the names
// (views/report/README.md): a change of them is a new format.

#include <cstdint>
#include <type_traits>

#include <torchtap/views/report/detail/non_finite_sentence.hpp>
#include <torchtap/views/report/measurements.hpp>

namespace torchtap::views::report::detail {

constexpr std::int64_t kFormat = 3;

template <class T>
struct Fields;
template <class T, class = void>
struct HasFields : std::false_type {};
template <class T>
struct HasFields<T, std::void_t<decltype(sizeof(Fields<T>))>> : std::true_type {};

template <>
struct Fields<Times> {
  template <class Visitor, class Self>
  static void visit(Visitor& visitor, Self& self) {
    visitor("calls", self.calls);
    visitor("first_seconds", self.first);
    visitor("min_seconds", self.min);
    visitor("median_seconds", self.median);
    visitor("p90_seconds", self.p90);
    visitor("total_seconds", self.total);
  }
};

template <>
struct Fields<Memory> {
  template <class Visitor, class Self>
  static void visit(Visitor& visitor, Self& self) {
    visitor("kept_bytes", self.kept);
    visitor("peak_bytes", self.peak);
    visitor("allocations", self.allocations);
  }
};

template <>
struct Fields<Work> {
  template <class Visitor, class Self>
  static void visit(Visitor& visitor, Self& self) {
    visitor("macs", self.macs);
    visitor.derived("flops", 2 * self.macs);
    visitor("bytes", self.bytes);
    visitor("operations", self.operations);
  }
};

template <>
struct Fields<NonFinite> {
  template <class Visitor, class Self>
  static void visit(Visitor& visitor, Self& self) {
    visitor("nan", self.nan);
    visitor("inf", self.inf);
    visitor.added("intended_inf", self.intended_inf);
  }
};

template <>
struct Fields<Direction> {
  template <class Visitor, class Self>
  static void visit(Visitor& visitor, Self& self) {
    visitor("inclusive", self.inclusive);
    visitor("self", self.self);
    visitor("memory", self.memory);
    visitor("work", self.work);
    visitor("self_work", self.self_work);
    visitor("non_finite_in", self.in);
    visitor("non_finite_out", self.out);
  }
};

/// Whether a value is not finite and was not written on purpose.
inline bool any(const NonFinite& values) {
  return values.nan != 0 || values.inf != 0;
}

/// The facts under "info"; `name` and `children` are the document's structure.
template <>
struct Fields<ModuleRow> {
  template <class Visitor, class Self>
  static void visit(Visitor& visitor, Self& self) {
    visitor("path", self.path);
    visitor("type", self.type);
    visitor("aliases", self.aliases);
    visitor("has_forward", self.has_forward);
    visitor("reachable", self.reachable);
    visitor.added("summed", self.summed);
    visitor.added("used_without_call", self.used_without_call);
    visitor("marks", self.marks);
    visitor.added("mark_sentences", self.mark_sentences);
    visitor.tensors("input", self.inputs);
    visitor.tensors("output", self.outputs);
    visitor.tensors("grad_in", self.input_gradients);
    visitor.tensors("grad_out", self.output_gradients);
    visitor("num_parameters", self.parameters);
    visitor("num_learnable_parameters", self.learnable_parameters);
    visitor("parameter_bytes", self.parameter_bytes);
    visitor("gradient_bytes", self.gradient_bytes);
    visitor("buffer_bytes", self.buffer_bytes);
    visitor.derived("forward_latency_seconds", self.forward.inclusive.median);
    visitor.derived("backward_latency_seconds", self.backward.inclusive.median);
    visitor.derived("forward_nan", self.forward.out.nan != 0);
    visitor.derived("forward_inf", self.forward.out.inf != 0);
    visitor.derived("grad_in_nan", self.backward.in.nan != 0);
    visitor.derived("grad_in_inf", self.backward.in.inf != 0);
    visitor.derived("grad_out_nan", self.backward.out.nan != 0);
    visitor.derived("grad_out_inf", self.backward.out.inf != 0);
    visitor("non_finite_parameters", self.parameter_values);
    visitor("zero_fraction", self.zero_fraction);
    visitor("gradient_norm", self.gradient_norm);
    visitor("gradient_ratio", self.gradient_ratio);
    visitor("forward", self.forward);
    visitor("backward", self.backward);
  }
};

template <>
struct Fields<Occurrence> {
  template <class Visitor, class Self>
  static void visit(Visitor& visitor, Self& self) {
    visitor("role", self.role);
    visitor("function", self.function);
    visitor("module", self.module);
    visitor("call", self.call);
    visitor("backward", self.backward);
    visitor("values", self.values);
    visitor("inputs", self.inputs);
    visitor.added("repeat", self.repeat);
  }
};

template <>
struct Fields<NotCounted> {
  template <class Visitor, class Self>
  static void visit(Visitor& visitor, Self& self) {
    visitor("function", self.function);
    visitor("module", self.module);
    visitor("calls", self.calls);
  }
};

/// The facts under "report", after the format; `root` is the document's structure.
template <>
struct Fields<Measurements> {
  template <class Visitor, class Self>
  static void visit(Visitor& visitor, Self& self) {
    visitor("repeats", self.repeats);
    visitor("warmup", self.warmup);
    visitor("seconds", self.seconds);
    visitor("own_seconds", self.own_seconds);
    visitor("forward_memory", self.forward_memory);
    visitor("backward_memory", self.backward_memory);
    visitor("outside_forward", self.outside_forward);
    visitor("outside_forward_seconds", self.outside_forward_seconds);
    visitor("outside_backward", self.outside_backward);
    visitor("outside_backward_seconds", self.outside_backward_seconds);
    visitor.derived("first_non_finite", first_non_finite(self));
    visitor.derived("intended_infinities", intended_infinities(self));
    visitor("findings", self.findings);
    visitor("not_counted", self.not_counted);
    visitor("notes", self.notes);
  }
};

}  // namespace torchtap::views::report::detail
