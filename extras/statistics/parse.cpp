// Makes reductions from text, and lists the reductions that text can name.

#include <utility>

#include <torchtap/base/error.hpp>
#include <torchtap/reductions/any_series.hpp>
#include <torchtap/reductions/by.hpp>
#include <torchtap/reductions/every.hpp>
#include <torchtap/reductions/where.hpp>
#include <torchtap/reductions/window.hpp>
#include <torchtap/statistics/cross_covariance.hpp>
#include <torchtap/statistics/detail/catalogue.hpp>
#include <torchtap/statistics/detail/expression.hpp>
#include <torchtap/statistics/joint.hpp>
#include <torchtap/statistics/linear_cka.hpp>

namespace torchtap::reductions {
namespace {

using statistics::detail::Expression;

/// "histogram" of "histogram:BINS[:LOW:HIGH]", "by" of "by(NAME[:N], …)".
std::string word_of(const std::string& usage) {
  return usage.substr(0, usage.find_first_of(":[("));
}

/// A word that applies reductions to parts of the stream: `make(first, inner)`, of its first part and the
/// others.
struct Applying {
  const char* usage;
  std::size_t most;  // arguments of the first part
  Any (*make)(const Expression& first, Any inner);
  bool of_rows = false;  // whether the others are given rows, whatever `over_all` says of one tensor
};

const std::vector<Applying>& all_applying() {
  static const auto& all = *new const std::vector<Applying>{
      // programs may parse when they end
      {"by(NAME[:N], REDUCTION, …)", 1,
       [](const Expression& first, Any inner) {
         auto options = ByOptions(first.word);
         if (!first.arguments.empty())
           options = ByOptions(first.word, extend::whole_number(first.arguments.front()));
         return Any(By(std::move(options), std::move(inner)));
       }},
      {"joint(NAME, REDUCTION, …)", 0,
       [](const Expression& first, Any inner) { return Any(Joint(first.word, std::move(inner))); }, true},
      {"where(NAME, REDUCTION, …)", 0,
       [](const Expression& first, Any inner) { return Any(Where(first.word, std::move(inner))); }},
      {"every(N, REDUCTION, …)", 0,
       [](const Expression& first, Any inner) {
         return Any(Every<Any>(extend::whole_number(first.word), std::move(inner)));
       }},
      {"window(N, REDUCTION, …)", 0,
       [](const Expression& first, Any inner) {
         return Any(Window<Any>(extend::whole_number(first.word), std::move(inner)));
       }},
  };
  return all;
}

/// A word that needs another tensor and no reductions.
struct Beside {
  const char* usage;
  Any (*make)(const std::string& other, CovarianceOptions options);
};

const std::vector<Beside>& all_beside() {
  static const auto& all = *new const std::vector<Beside>{
      {"cka(NAME)", [](const std::string& other,
                       CovarianceOptions options) { return Any(LinearCKA(other, std::move(options))); }},
      {"cross_covariance(NAME)",
       [](const std::string& other, CovarianceOptions options) {
         return Any(CrossCovariance(other, std::move(options)));
       }},
  };
  return all;
}

/// The options for reductions of two tensors: two tensors have rows in common, so `over_all`, which folds the
/// elements of one tensor, does not hold for them.
ParseOptions of_rows(const ParseOptions& options) {
  return options.over_all() ? ParseOptions().over({0}) : options;
}

/// `make()`, whose errors say which part of the text is wrong.
template <class Make>
Any explained(const std::string& text, const std::string& usage, const Make& make) {
  try {
    return make();
  } catch (c10::Error& error) {
    std::string reason = error.msg();
    if (!reason.empty() && reason.back() == '.') reason.pop_back();
    TORCH_CHECK_VALUE(false, "reductions::parse: \"", text, "\": ", reason, "; expected ", usage, ".");
  }
}

Any make(const std::vector<Expression>& expressions, const ParseOptions& options);

Any make(const Expression& expression, const ParseOptions& options) {
  const std::string text = expression.text();
  std::string usages;
  for (const auto& one : statistics::detail::all_named()) {
    usages += (usages.empty() ? "" : " ") + one.entry.usage;
    if (word_of(one.entry.usage) != expression.word) continue;
    const auto& given = expression.arguments;
    TORCH_CHECK_VALUE(expression.parts.empty(), "reductions::parse: \"", text,
                      "\" has parentheses; expected ", one.entry.usage, ".");
    TORCH_CHECK_VALUE(given.size() >= one.least && given.size() <= one.most, "reductions::parse: \"", text,
                      "\" has ", given.size(), " arguments; expected ", one.entry.usage, ".");
    return explained(text, one.entry.usage, [&] { return one.make(given, options); });
  }
  for (const auto& one : all_applying()) {
    usages += std::string(" ") + one.usage;
    if (word_of(one.usage) != expression.word) continue;
    const auto& parts = expression.parts;
    const bool fits = expression.arguments.empty() && parts.size() > 1 && !parts.front().word.empty() &&
                      parts.front().parts.empty() && parts.front().arguments.size() <= one.most;
    TORCH_CHECK_VALUE(fits, "reductions::parse: \"", text, "\" is not complete; expected ", one.usage, ".");
    Any inner = make(std::vector<Expression>(parts.begin() + 1, parts.end()),
                     one.of_rows ? of_rows(options) : options);
    return explained(text, one.usage, [&] { return one.make(parts.front(), std::move(inner)); });
  }
  for (const auto& one : all_beside()) {
    usages += std::string(" ") + one.usage;
    if (word_of(one.usage) != expression.word) continue;
    const bool fits = expression.arguments.empty() && expression.parts.size() == 1 &&
                      text_of(expression.parts) == expression.parts.front().word &&
                      !expression.parts.front().word.empty();
    TORCH_CHECK_VALUE(fits, "reductions::parse: \"", text, "\" is not complete; expected ", one.usage, ".");
    const auto rows = CovarianceOptions().over(of_rows(options).over());
    return explained(text, one.usage, [&] { return one.make(expression.parts.front().word, rows); });
  }
  TORCH_CHECK_VALUE(false, "reductions::parse: \"", expression.word,
                    "\" is not a reduction; expected one or more of ", usages, ", separated by commas.");
}

Any make(const std::vector<Expression>& expressions, const ParseOptions& options) {
  std::vector<Any> members;
  members.reserve(expressions.size());
  for (const auto& one : expressions) members.push_back(make(one, options));
  if (members.size() == 1) return std::move(members.front());
  return AnySeries(std::move(members));
}

}  // namespace

Any parse(const std::string& text, const ParseOptions& options) {
  TORCH_CHECK_VALUE(!text.empty(),
                    "reductions::parse: no reduction was named; expected one or more, such as ",
                    "\"mean,histogram:64\".");
  return make(statistics::detail::read_expressions("reductions::parse", text), options);
}

std::vector<CatalogueEntry> catalogue() {
  std::vector<CatalogueEntry> entries;
  for (const auto& one : statistics::detail::all_named()) entries.push_back(one.entry);
  return entries;
}

}  // namespace torchtap::reductions
