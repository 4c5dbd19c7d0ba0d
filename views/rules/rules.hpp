#pragma once

/// One catalogue of rules that find suspicious tensors of a model from statistics. The report, the explorer,
/// the monitor and the command say what it says (views/rules/README.md).

#include <cstdint>
#include <exception>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <torchtap/base/api.hpp>
#include <torchtap/rules/facts.hpp>

namespace torchtap::rules {

/// A rule that holds for a tensor of a module.
struct TORCHTAP_API Finding {
  std::string rule;  ///< "dead_relu"
  std::string path;
  std::string type;
  Tensor tensor = Tensor::output;  ///< which tensor of the module
  std::int64_t slot = 0;
  double value = 0, limit = 0;  ///< what was measured, and the threshold
  std::string sentence;         ///< "99.7 % of 12,800,000 values are zero"
};

/// A rule of the catalogue.
struct TORCHTAP_API RuleInfo {
  std::string name;                                  ///< "dead_relu"
  std::string of;                                    ///< the tensors and modules it applies to
  std::string holds;                                 ///< when it holds, with its thresholds
  std::string source;                                ///< where rule and thresholds come from
  bool on = true;                                    ///< unless a file or program turns it on or off
  std::vector<std::pair<std::string, double>> keys;  ///< thresholds and their defaults
};
/// All rules, in the order in which findings of one tensor are listed.
TORCHTAP_API const std::vector<RuleInfo>& catalogue();

/// The largest rate that `drift.false_alarms` can be.
inline constexpr double most_false_alarms = 0.01;

/// The rules that are on, for which modules, with which thresholds. Copyable; reading is thread-safe.
class TORCHTAP_API Rules {
 public:
  /// The defaults of the catalogue.
  Rules() = default;
  /// Reads a file of rules. Throws `c10::ValueError` that names file, line and column and the nearest known
  /// name; `c10::Error` if it cannot be read.
  static Rules load(const std::string& file);
  /// Parses a text, which messages call `name`.
  static Rules parse(const std::string& text, const std::string& name = "rules");

  /// Turns a rule on or off; for all modules, or those whose path matches one of `globs` (the path of the
  /// model itself is empty). Later calls win. Throws `c10::ValueError` for an unknown rule or a glob with a
  /// blank or `#` in it.
  Rules& set(const std::string& rule, bool on, std::vector<std::string> globs = {});
  /// Sets a threshold: `set("dead_relu", "zeros", 0.999)`. Throws `c10::ValueError` for an unknown rule or
  /// threshold, and for a number that it cannot be, too.
  Rules& set(const std::string& rule, const std::string& key, double value,
             std::vector<std::string> globs = {});
  /// Adds a rule of the program's own. It gets the facts of one tensor and returns a sentence if the rule
  /// holds. Throws `c10::ValueError` for a name of the catalogue. Files cannot mention it.
  Rules& add(std::string name, std::function<std::optional<std::string>(const Facts&)> rule);

  /// Throws `c10::ValueError` for an unknown rule, and `value` for an unknown threshold.
  bool is_on(const std::string& rule, const std::string& path) const;
  /// The threshold for the module at `path`.
  double value(const std::string& rule, const std::string& key, const std::string& path) const;
  /// The differences from the defaults, as a file that `load` reads.
  std::string text() const;

 private:
  friend std::vector<Finding> check(
      const std::vector<Facts>& all, const Rules& rules,
      const std::function<void(const std::string&, const std::exception_ptr&)>&);
  struct Setting {
    std::string rule, key;  // an empty key: on or off
    double value = 0;
    std::vector<std::string> globs;  // none: all modules
  };
  Rules& put(Setting setting);
  /// The last setting that applies to the module; null if there is none.
  const Setting* find(const std::string& rule, const std::string& key, const std::string& path) const;

  std::vector<Setting> settings_;
  std::vector<std::pair<std::string, std::function<std::optional<std::string>(const Facts&)>>> own_;
};

/// All findings, in the order of `all`. `all` is in the order of execution, because some rules compare a
/// gradient or a scale with the modules before and after. Never throws for any numbers; exceptions of the
/// program's own rules reach the caller.
TORCHTAP_API std::vector<Finding> check(const std::vector<Facts>& all, const Rules& rules = {});
/// As above, but an exception of a rule of the program's own is kept in `threw` with the rule's name, and the
/// other rules are judged.
TORCHTAP_API std::vector<Finding> check(
    const std::vector<Facts>& all, const Rules& rules,
    const std::function<void(const std::string& rule, const std::exception_ptr& error)>& threw);
/// Rules that may hold as well as not, because too little was measured of a tensor that they are about:
/// `saturated` where a threshold lies inside of a bin, `dead_relu.channels` where channels were not counted
/// apart. The sentence says what is known. The tensors without a finding that have too few facts to be
/// judged, in the order of `all`.
TORCHTAP_API std::vector<Finding> undecided(const std::vector<Facts>& all, const Rules& rules = {});

}  // namespace torchtap::rules
