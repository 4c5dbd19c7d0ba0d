// Parses the text of reductions into expressions, and writes expressions as text.

#include <algorithm>

#include <torchtap/base/error.hpp>
#include <torchtap/statistics/detail/expression.hpp>

namespace torchtap::statistics::detail {
namespace {

class ExpressionReader {
 public:
  ExpressionReader(const char* call, const std::string& text) : call_(call), text_(text) {}

  std::vector<Expression> all() {
    auto expressions = list(0);
    if (at_ != text_.size()) bad("nothing more");
    return expressions;
  }

 private:
  static constexpr int kDeepest = 32;

  [[noreturn]] void bad(const char* expected) const {
    TORCH_CHECK_VALUE(false, call_, ": \"", text_, "\" is not understood at character ", at_ + 1,
                      "; expected ", expected, ".");
  }
  void skip_spaces() { at_ = std::min(text_.find_first_not_of(' ', at_), text_.size()); }
  bool take(char mark) {
    skip_spaces();
    if (at_ == text_.size() || text_[at_] != mark) return false;
    ++at_;
    return true;
  }
  std::string word() {
    skip_spaces();
    const auto end = std::min(text_.find_first_of(":(), ", at_), text_.size());
    std::string found = text_.substr(at_, end - at_);
    at_ = end;
    return found;
  }
  Expression one(int depth) {
    Expression expression;
    expression.word = word();
    while (take(':')) expression.arguments.push_back(word());
    if (take('(')) {
      expression.parts = list(depth + 1);
      if (!take(')')) bad("\")\" or \",\"");
    }
    skip_spaces();
    return expression;
  }
  std::vector<Expression> list(int depth) {
    if (depth > kDeepest) bad("fewer parentheses inside one another");
    std::vector<Expression> expressions;
    do {
      expressions.push_back(one(depth));
    } while (take(','));
    return expressions;
  }

  const char* call_;
  const std::string& text_;
  std::size_t at_ = 0;
};

}  // namespace

std::string Expression::text() const {
  std::string all = word;
  for (const auto& argument : arguments) all += ":" + argument;
  return parts.empty() ? all : all + "(" + text_of(parts) + ")";
}

std::vector<Expression> read_expressions(const char* call, const std::string& text) {
  return ExpressionReader(call, text).all();
}

std::string text_of(const std::vector<Expression>& expressions) {
  std::string all;
  for (const auto& one : expressions) all += (all.empty() ? "" : ", ") + one.text();
  return all;
}

}  // namespace torchtap::statistics::detail
