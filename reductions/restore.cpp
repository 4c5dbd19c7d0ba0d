#include <algorithm>
#include <functional>
#include <map>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <torchtap/base/error.hpp>
#include <torchtap/reductions/any_series.hpp>
#include <torchtap/reductions/detail/catalogue.hpp>
#include <torchtap/reductions/every.hpp>
#include <torchtap/reductions/over.hpp>
#include <torchtap/reductions/restore.hpp>
#include <torchtap/reductions/window.hpp>

namespace torchtap::reductions {
namespace {

using Combine = std::function<Any(std::vector<Any> parts)>;

/// The combinators by name. Numbers are placeholders; the configuration is read with the state.
const Combine* combinator(const std::string& name) {
  static const std::map<std::string, Combine> all{
      {"Series", [](auto parts) { return Any(AnySeries(std::move(parts))); }},
      {"Every", [](auto parts) { return Any(Every<Any>(1, std::move(parts.at(0)))); }},
      {"Over", [](auto parts) { return Any(Over<Any>({}, std::move(parts.at(0)))); }},
      {"Window", [](auto parts) { return Any(Window<Any>(1, std::move(parts.at(0)))); }},
  };
  const auto found = all.find(name);
  return found == all.end() ? nullptr : &found->second;
}

/// `recipe := name | name "(" recipe { ", " recipe } ")"`.
class Parser {
 public:
  explicit Parser(const std::string& text) : text_(text) {}

  Any parse() {
    Any whole = one(0);
    if (at_ != text_.size()) bad();
    return whole;
  }

 private:
  static constexpr int kDeepest = 32;

  [[noreturn]] void bad() const {
    TORCH_CHECK_VALUE(false, "reductions::restore: \"", text_,
                      "\" is not a recipe of torchtap's reductions.");
  }
  bool take(const char* token) {
    const std::string expected = token;
    if (text_.compare(at_, expected.size(), expected) != 0) return false;
    at_ += expected.size();
    return true;
  }
  Any one(int depth) {
    if (depth > kDeepest) bad();
    const auto end = std::min(text_.find_first_of("(), ", at_), text_.size());
    const std::string name = text_.substr(at_, end - at_);
    at_ = end;
    std::vector<Any> parts;
    if (take("(")) {
      do {
        parts.push_back(one(depth + 1));
      } while (take(", "));
      if (!take(")")) bad();
    }
    if (const Combine* const combine = combinator(name)) {
      if (parts.empty() || (parts.size() > 1 && name != "Series")) bad();
      return (*combine)(std::move(parts));
    }
    for (const auto& known : detail::all_named()) {
      if (known.entry.name == name && parts.empty()) return known.blank();
    }
    bad();
  }

  const std::string& text_;
  std::size_t at_ = 0;
};

}  // namespace

Any restore(const core::SavedSink& saved) {
  Any reduction = Parser(saved.recipe).parse();
  std::istringstream stream(saved.bytes);
  const auto damaged = [&](const std::string& why) {
    TORCH_CHECK_VALUE(false, "reductions::restore: the state of ", saved.recipe, " is damaged: ", why);
  };
  try {
    core::InputArchive archive(stream);
    reduction.load(archive);
  } catch (const c10::Error&) {
    throw;
  } catch (const std::exception&) {  // cereal::Exception
    damaged("it claims more than it holds.");
  }
  if (stream.peek() != std::istringstream::traits_type::eof()) damaged("it has bytes after its end.");
  return reduction;
}

}  // namespace torchtap::reductions
