#include <algorithm>
#include <array>
#include <functional>
#include <sstream>
#include <torchtap/core/detail/error.hpp>
#include <torchtap/reductions/reductions.hpp>

namespace torchtap::reductions {
namespace {

/// A reduction whose type is not known before the program runs; what the combinators hold here.
class Any {
 public:
  explicit Any(std::unique_ptr<core::Sink> sink) : sink_(std::move(sink)) {}
  Any(const Any& other) : sink_(other.sink_->clone()) {}
  Any(Any&&) noexcept = default;
  Any& operator=(Any other) noexcept {
    sink_ = std::move(other.sink_);
    return *this;
  }
  ~Any() = default;

  void update(const at::Tensor& sample) { sink_->update(sample); }
  void merge(const Any& other) { sink_->merge(*other.sink_); }
  std::int64_t count() const { return sink_->count(); }
  core::Results results() const { return sink_->results(); }
  std::string describe() const { return sink_->describe(); }
  std::string recipe() const { return sink_->recipe(); }
  Any fresh() const { return Any(sink_->fresh()); }
  void save(core::OutputArchive& archive) const { sink_->save(archive); }
  void load(core::InputArchive& archive) { sink_->load(archive); }

 private:
  std::unique_ptr<core::Sink> sink_;
};

/// `Series`, with as many members as the recipe has.
class AnySeries {
 public:
  explicit AnySeries(std::vector<Any> members) : members_(std::move(members)) {}

  void update(const at::Tensor& sample) {
    std::vector<Any> next = members_;
    for (auto& member : next) member.update(sample);
    members_ = std::move(next);
  }
  void merge(const AnySeries& other) {
    TORCH_CHECK_VALUE(members_.size() == other.members_.size(), "merge: cannot merge ", other.describe(),
                      " into ", describe(), "; both must be the same reduction.");
    std::vector<Any> merged = members_;
    for (std::size_t i = 0; i < members_.size(); ++i) merged[i].merge(other.members_[i]);
    members_ = std::move(merged);
  }
  std::int64_t count() const { return members_.front().count(); }
  core::Results results() const {
    core::Results result;
    std::vector<std::string> names;
    for (const auto& member : members_) {
      const std::string name = detail::snake_case(member.describe());
      const auto same = std::count(names.begin(), names.end(), name);
      names.push_back(name);
      const std::string prefix = same == 0 ? name : name + "_" + std::to_string(same + 1);
      const core::Results part = member.results();
      for (const auto& [key, tensor] : part) result.set(prefix + "." + key, tensor);
    }
    return result;
  }
  std::string describe() const { return text(&Any::describe); }
  std::string recipe() const { return text(&Any::recipe); }
  AnySeries fresh() const {
    std::vector<Any> members;
    for (const auto& member : members_) members.push_back(member.fresh());
    return AnySeries(std::move(members));
  }
  void save(core::OutputArchive& archive) const {
    core::state_version(archive, "Series", 1);
    for (const auto& member : members_) member.save(archive);
  }
  void load(core::InputArchive& archive) {
    core::state_version(archive, "Series", 1);
    for (auto& member : members_) member.load(archive);
  }

 private:
  std::string text(std::string (Any::*of)() const) const {
    std::string result;
    for (const auto& member : members_) result += (result.empty() ? "" : ", ") + (member.*of)();
    return "Series(" + result + ")";
  }

  std::vector<Any> members_;
};

using Sink = std::unique_ptr<core::Sink>;

/// What each name stands for, given what stands in its brackets. Numbers and options are placeholders: the
/// configuration is read with the state.
struct Known {
  const char* name;
  bool combines;
  std::function<Sink(std::vector<Any> parts)> make;
};

template <class R>
Known plain(const char* name) {
  return {name, false, [](std::vector<Any>) { return core::make_sink(R()); }};
}

const std::vector<Known>& known() {
  static const std::vector<Known> all{
      plain<Sum>("Sum"),
      plain<Mean>("Mean"),
      plain<Moments>("Moments"),
      plain<Min>("Min"),
      plain<Max>("Max"),
      plain<AbsMax>("AbsMax"),
      plain<Norm>("Norm"),
      plain<Count>("Count"),
      plain<First>("First"),
      plain<Last>("Last"),
      plain<EMA>("EMA"),
      {"Histogram", false, [](auto) { return core::make_sink(Histogram(HistogramOptions(2))); }},
      plain<Quantiles>("Quantiles"),
      plain<Covariance>("Covariance"),
      plain<Gram>("Gram"),
      plain<TopK>("TopK"),
      plain<Reservoir>("Reservoir"),
      {"Series", true, [](auto parts) { return core::make_sink(AnySeries(std::move(parts))); }},
      {"Every", true, [](auto parts) { return core::make_sink(Every<Any>(1, std::move(parts.at(0)))); }},
      {"Over", true, [](auto parts) { return core::make_sink(Over<Any>({}, std::move(parts.at(0)))); }},
      {"Window", true, [](auto parts) { return core::make_sink(Window<Any>(1, std::move(parts.at(0)))); }},
  };
  return all;
}

/// `recipe := name | name "(" recipe { ", " recipe } ")"`.
class Parser {
 public:
  explicit Parser(const std::string& text) : text_(text) {}

  Sink parse() {
    Sink sink = one(0);
    if (at_ != text_.size()) bad();
    return sink;
  }

 private:
  static constexpr int kDeepest = 32;

  [[noreturn]] void bad() const {
    TORCH_CHECK_VALUE(false, "reductions::restore: \"", text_, "\" is no recipe of torchtap's reductions.");
  }
  bool take(const char* token) {
    const std::string expected = token;
    if (text_.compare(at_, expected.size(), expected) != 0) return false;
    at_ += expected.size();
    return true;
  }
  Sink one(int depth) {
    if (depth > kDeepest) bad();
    const auto end = std::min(text_.find_first_of("(), ", at_), text_.size());
    const std::string name = text_.substr(at_, end - at_);
    at_ = end;
    std::vector<Any> parts;
    if (take("(")) {
      do {
        parts.emplace_back(one(depth + 1));
      } while (take(", "));
      if (!take(")")) bad();
    }
    for (const auto& entry : known()) {
      if (name != entry.name) continue;
      if (entry.combines == parts.empty() || (parts.size() > 1 && name != "Series")) bad();
      return entry.make(std::move(parts));
    }
    bad();
  }

  const std::string& text_;
  std::size_t at_ = 0;
};

}  // namespace

std::unique_ptr<core::Sink> restore(const core::SavedSink& saved) {
  Sink sink = Parser(saved.recipe).parse();
  std::istringstream stream(saved.bytes);
  const auto damaged = [&](const std::string& why) {
    TORCH_CHECK_VALUE(false, "reductions::restore: the state of ", saved.recipe, " is damaged: ", why);
  };
  try {
    core::InputArchive archive(stream);
    sink->load(archive);
  } catch (const c10::Error&) {
    throw;
  } catch (const std::exception& error) {  // cereal::Exception, std::length_error, std::bad_alloc
    damaged(error.what());
  }
  if (stream.peek() != std::istringstream::traits_type::eof()) damaged("it goes on after its end.");
  return sink;
}

}  // namespace torchtap::reductions
