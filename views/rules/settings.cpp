// The choice of rules and thresholds, and the file that keeps it.

#include <c10/util/Exception.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <fstream>
#include <set>
#include <sstream>
#include <utility>

#include <torchtap/base/disk.hpp>
#include <torchtap/base/error.hpp>
#include <torchtap/base/glob.hpp>
#include <torchtap/base/utf8.hpp>
#include <torchtap/rules/detail/catalogue.hpp>
#include <torchtap/rules/rules.hpp>

namespace torchtap::rules {
namespace {

/// A larger file would make judging slow.
constexpr std::size_t kMostBytes = std::size_t{1} << 20;
/// The name of the model in a section, because its path is empty.
constexpr char kModel[] = "(model)";
constexpr char kBlanks[] = " \t";

std::vector<std::string> names_of_rules() {
  std::vector<std::string> names;
  for (const RuleInfo& rule : catalogue()) names.push_back(rule.name);
  return names;
}

std::string suggestion(const std::string& wanted, const std::vector<std::string>& known) {
  const auto near = base::nearest(wanted, known, 1);
  return near.empty() ? "they are " + base::quoted(known) : "the nearest is " + base::quoted(near);
}

/// Why there is no such rule; empty if there is.
std::string unknown_rule(const std::string& rule) {
  if (detail::keys_of(rule) != nullptr) return "";
  return "there is no rule \"" + rule + "\"; " + suggestion(rule, names_of_rules());
}

const detail::Key* find_key(const std::string& rule, const std::string& key) {
  const auto& keys = *detail::keys_of(rule);
  const auto found = std::find_if(keys.begin(), keys.end(), [&](const auto& one) { return one.name == key; });
  return found == keys.end() ? nullptr : &*found;
}

/// Why the rule, which exists, has no such threshold; empty if it has.
std::string unknown_key(const std::string& rule, const std::string& key) {
  if (find_key(rule, key) != nullptr) return "";
  std::vector<std::string> names;
  for (const auto& one : *detail::keys_of(rule)) names.emplace_back(one.name);
  if (names.empty()) return "the rule \"" + rule + "\" has no thresholds; it is on or off";
  return "the rule \"" + rule + "\" has no threshold \"" + key + "\"; " + suggestion(key, names);
}

std::string number_text_of(double value) {
  std::array<char, 32> text{};
  return {text.data(), std::to_chars(text.data(), text.data() + text.size(), value).ptr};
}

/// Why a threshold, which exists, cannot be `value`; empty if it can.
std::string bad_value(const std::string& rule, const std::string& key, double value) {
  const detail::Key& one = *find_key(rule, key);
  if (value >= one.least && value <= one.most && (!one.whole || value == std::floor(value))) return "";
  const std::string range = std::isinf(one.most)
                                ? "of at least " + number_text_of(one.least)
                                : "from " + number_text_of(one.least) + " to " + number_text_of(one.most);
  return rule + "." + key + (one.whole ? " is a whole number " : " is a number ") + range + ", not " +
         number_text_of(value);
}

/// Why a glob cannot stand in a file; empty if it can.
std::string bad_glob(const std::string& glob) {
  return glob.find_first_of(" \t\r\n#") == std::string::npos
             ? ""
             : "the glob \"" + glob + "\" has a blank or #; \"?\" matches each";
}

bool matches(const std::vector<std::string>& globs, const std::string& path) {
  return globs.empty() || std::any_of(globs.begin(), globs.end(), [&](const std::string& glob) {
           return base::matches_glob(glob, path);
         });
}

/// Reads a text of rules line by line.
class RulesParser {
 public:
  RulesParser(const std::string& text, std::string name) : text_(text), name_(std::move(name)) {}

  Rules parse() {
    if (text_.size() > kMostBytes)
      fail(0, "a file of rules has at most 1 MiB, and this one " + std::to_string(text_.size()) + " bytes");
    if (const std::size_t bad = base::first_not_utf8(text_); bad != std::string::npos) {
      begin_ = bad == 0 ? 0 : text_.rfind('\n', bad - 1) + 1;  // npos + 1 == 0
      number_ = 1 + std::count(text_.begin(), text_.begin() + static_cast<std::ptrdiff_t>(bad), '\n');
      fail(bad, "this is not UTF-8");
    }
    begin_ = text_.compare(0, 3, "\xef\xbb\xbf") == 0 ? 3 : 0;
    for (number_ = 1; begin_ < text_.size(); ++number_) {
      const std::size_t end = std::min(text_.find('\n', begin_), text_.size());
      read_line(begin_, text_.find('#', begin_) < end ? text_.find('#', begin_) : end);
      begin_ = end + 1;
    }
    return std::move(rules_);
  }

 private:
  [[noreturn]] void fail(std::size_t at, const std::string& why) const {
    const auto starts = [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; };
    const auto column =
        std::count_if(text_.begin() + static_cast<std::ptrdiff_t>(begin_),
                      text_.begin() + static_cast<std::ptrdiff_t>(std::max(at, begin_)), starts);
    C10_THROW_ERROR(ValueError,
                    c10::str("rules::Rules: ", name_, ":", number_, ":", column + 1, ": ", why, "."));
  }

  /// The part of the text without blanks around it.
  std::pair<std::size_t, std::size_t> trimmed(std::size_t begin, std::size_t end) const {
    while (begin < end && (text_[begin] == ' ' || text_[begin] == '\t' || text_[begin] == '\r')) ++begin;
    while (end > begin && (text_[end - 1] == ' ' || text_[end - 1] == '\t' || text_[end - 1] == '\r')) --end;
    return {begin, end};
  }

  void read_line(std::size_t from, std::size_t to) {
    const auto [begin, end] = trimmed(from, to);
    if (begin == end) return;
    if (text_[begin] == '[') return read_section(begin, end);
    const std::size_t equals = text_.find('=', begin);
    if (equals >= end || equals == begin)
      fail(begin, "expected RULE = on, RULE = off, RULE.THRESHOLD = NUMBER or [GLOBS]");
    const auto [name_begin, name_end] = trimmed(begin, equals);
    const auto [value_begin, value_end] = trimmed(equals + 1, end);
    const std::string name = text_.substr(name_begin, name_end - name_begin);
    const std::string value = text_.substr(value_begin, value_end - value_begin);
    const std::size_t dot = name.find('.');
    const std::string rule = name.substr(0, dot);
    const std::string key = dot == std::string::npos ? "" : name.substr(dot + 1);
    if (const std::string why = unknown_rule(rule); !why.empty()) fail(name_begin, why);
    if (dot != std::string::npos) {
      if (const std::string why = unknown_key(rule, key); !why.empty()) fail(name_begin + dot + 1, why);
    }
    if (!set_.insert(name).second) fail(name_begin, "\"" + name + "\" is set twice in this section");
    if (dot == std::string::npos) {
      if (value != "on" && value != "off") fail(value_begin, "expected on or off, not \"" + value + "\"");
      rules_.set(rule, value == "on", globs_);
      return;
    }
    double number = 0;
    const char* const last = value.data() + value.size();
    const auto [stop, error] = std::from_chars(value.data(), last, number);
    if (value.empty() || error != std::errc() || stop != last)
      fail(value_begin, "expected a number, not \"" + value + "\"");
    if (const std::string why = bad_value(rule, key, number); !why.empty()) fail(value_begin, why);
    rules_.set(rule, key, number, globs_);
  }

  void read_section(std::size_t begin, std::size_t end) {
    if (text_[end - 1] != ']') fail(end, "expected ]");
    std::istringstream words(text_.substr(begin + 1, end - begin - 2));
    globs_.clear();
    set_.clear();
    for (std::string glob; words >> glob;) globs_.push_back(glob == kModel ? "" : glob);
    if (globs_.empty()) fail(begin + 1, "expected globs of paths; [*] is all modules");
  }

  const std::string& text_;
  const std::string name_;
  std::size_t begin_ = 0;  // of the line
  std::ptrdiff_t number_ = 1;
  std::vector<std::string> globs_;
  std::set<std::string> set_;  // in this section
  Rules rules_;
};

}  // namespace

Rules Rules::load(const std::string& file) {
  std::ifstream stream(file, std::ios::binary);
  // One byte more than the limit shows that there are more.
  std::string text(kMostBytes + 1, '\0');
  if (!stream || !(stream.read(text.data(), static_cast<std::streamsize>(text.size())) || stream.eof()))
    base::io_error("rules::Rules::load", "read", file, errno);
  text.resize(static_cast<std::size_t>(stream.gcount()));
  TORCH_CHECK_VALUE(text.size() <= kMostBytes, "rules::Rules::load: ", file,
                    " has more than 1 MiB, which no file of rules needs.");
  return parse(text, file);
}

Rules Rules::parse(const std::string& text, const std::string& name) {
  return RulesParser(text, name).parse();
}

Rules& Rules::set(const std::string& rule, bool on, std::vector<std::string> globs) {
  const std::string why = unknown_rule(rule);
  TORCH_CHECK_VALUE(why.empty(), "rules::Rules::set: ", why, ".");
  return put({rule, "", on ? 1.0 : 0.0, std::move(globs)});
}

Rules& Rules::set(const std::string& rule, const std::string& key, double value,
                  std::vector<std::string> globs) {
  std::string why = unknown_rule(rule);
  if (why.empty()) why = unknown_key(rule, key);
  if (why.empty()) why = bad_value(rule, key, value);
  TORCH_CHECK_VALUE(why.empty(), "rules::Rules::set: ", why, ".");
  return put({rule, key, value, std::move(globs)});
}

/// Appends a setting. Removes earlier settings that the new one outweighs for all of their modules.
Rules& Rules::put(Setting setting) {
  for (const std::string& glob : setting.globs) {
    const std::string why = bad_glob(glob);
    TORCH_CHECK_VALUE(why.empty(), "rules::Rules::set: ", why, ".");
  }
  settings_.erase(std::remove_if(settings_.begin(), settings_.end(),
                                 [&](const Setting& one) {
                                   return one.rule == setting.rule && one.key == setting.key &&
                                          (setting.globs.empty() || one.globs == setting.globs);
                                 }),
                  settings_.end());
  settings_.push_back(std::move(setting));
  return *this;
}

Rules& Rules::add(std::string name, std::function<std::optional<std::string>(const Facts&)> rule) {
  TORCH_CHECK_VALUE(!name.empty() && detail::keys_of(name) == nullptr, "rules::Rules::add: \"", name,
                    name.empty() ? "\" is no name." : "\" is a rule of the catalogue; take another name.");
  TORCH_CHECK_VALUE(rule != nullptr, "rules::Rules::add: \"", name, "\" has no function.");
  own_.emplace_back(std::move(name), std::move(rule));
  return *this;
}

const Rules::Setting* Rules::find(const std::string& rule, const std::string& key,
                                  const std::string& path) const {
  const auto found = std::find_if(settings_.rbegin(), settings_.rend(), [&](const Setting& one) {
    return one.key == key && one.rule == rule && matches(one.globs, path);
  });
  return found == settings_.rend() ? nullptr : &*found;
}

bool Rules::is_on(const std::string& rule, const std::string& path) const {
  if (const Setting* setting = find(rule, "", path)) return setting->value != 0;
  const auto known = std::find_if(catalogue().begin(), catalogue().end(),
                                  [&](const RuleInfo& info) { return info.name == rule; });
  if (known != catalogue().end()) return known->on;
  const bool own = std::any_of(own_.begin(), own_.end(), [&](const auto& one) { return one.first == rule; });
  TORCH_CHECK_VALUE(own, "rules::Rules::is_on: ", unknown_rule(rule), ".");
  return true;
}

double Rules::value(const std::string& rule, const std::string& key, const std::string& path) const {
  if (const Setting* setting = key.empty() ? nullptr : find(rule, key, path)) return setting->value;
  std::string why = unknown_rule(rule);
  if (why.empty()) why = unknown_key(rule, key);
  TORCH_CHECK_VALUE(why.empty(), "rules::Rules::value: ", why, ".");
  return find_key(rule, key)->standard;
}

std::string Rules::text() const {
  std::string text;
  const std::vector<std::string>* section = nullptr;  // none yet: all modules
  for (const Setting& setting : settings_) {
    const RuleInfo& info = *std::find_if(catalogue().begin(), catalogue().end(),
                                         [&](const RuleInfo& one) { return one.name == setting.rule; });
    const double standard =
        setting.key.empty() ? (info.on ? 1 : 0) : find_key(setting.rule, setting.key)->standard;
    if (setting.globs.empty() && setting.value == standard) continue;  // it outweighed others, which are gone
    if (section == nullptr ? !setting.globs.empty() : *section != setting.globs) {
      text += "[";
      for (const std::string& glob : setting.globs)
        text += (text.back() == '[' ? "" : "  ") + (glob.empty() ? std::string(kModel) : glob);
      text += setting.globs.empty() ? "*]\n" : "]\n";
    }
    section = &setting.globs;
    text += setting.rule;
    text += setting.key.empty() ? (setting.value != 0 ? " = on" : " = off")
                                : "." + setting.key + " = " + number_text_of(setting.value);
    text += "\n";
  }
  return text;
}

}  // namespace torchtap::rules
