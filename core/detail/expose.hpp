#pragma once

namespace torchtap::core::detail {

/// Reads a private member of a foreign class, legally: the arguments of an explicit instantiation may name
/// private members (ISO C++ [temp.explicit]/12), and the friend defined by the instantiation hands the
/// pointer out.
///
///     struct Content { friend auto exposed(Content); };
///     template struct Expose<Content, &torch::nn::AnyModule::content_>;
///     any_module.*exposed(Content{})
///
/// LibTorch offers no other way to the holder inside an `AnyModule`.
template <class Tag, auto Member>
struct Expose {
  friend auto exposed(Tag) { return Member; }
};

}  // namespace torchtap::core::detail
