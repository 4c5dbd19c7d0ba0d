#pragma once

// Exposes private members of LibTorch's classes, where it offers no other access.

namespace torchtap::base {

/// Reads a private member of a class that is not ours, legally: the arguments of an explicit instantiation
/// may name private members (ISO C++ [temp.explicit]/12), and the friend that the instantiation defines
/// returns the pointer.
///
///     struct Content { friend auto exposed(Content); };
///     template struct Expose<Content, &torch::nn::AnyModule::content_>;
///     any_module.*exposed(Content{})
///
/// LibTorch offers no other access to the holder inside an `AnyModule`.
template <class Tag, auto Member>
struct Expose {
  friend auto exposed(Tag) { return Member; }
};

}  // namespace torchtap::base
