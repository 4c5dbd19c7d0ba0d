#include <algorithm>
#include <functional>
#include <sstream>
#include <torchtap/core/detail/error.hpp>
#include <torchtap/reductions/count.hpp>
#include <torchtap/reductions/covariance.hpp>
#include <torchtap/reductions/detail/nested.hpp>
#include <torchtap/reductions/detail/scan.hpp>
#include <torchtap/reductions/ema.hpp>
#include <torchtap/reductions/extrema.hpp>
#include <torchtap/reductions/first_last.hpp>
#include <torchtap/reductions/histogram.hpp>
#include <torchtap/reductions/mean.hpp>
#include <torchtap/reductions/moments.hpp>
#include <torchtap/reductions/named.hpp>
#include <torchtap/reductions/norm.hpp>
#include <torchtap/reductions/quantiles.hpp>
#include <torchtap/reductions/reservoir.hpp>
#include <torchtap/reductions/sum.hpp>
#include <torchtap/reductions/topk.hpp>

namespace torchtap::reductions {
namespace {

using Arguments = std::vector<std::string>;

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, separator);) parts.push_back(part);
  if (!text.empty() && text.back() == separator) parts.emplace_back();
  return parts;
}

double number(const std::string& name, const std::string& argument) {
  std::size_t end = 0;
  double value = 0;
  try {
    value = std::stod(argument, &end);
  } catch (const std::exception&) {
    end = 0;
  }
  TORCH_CHECK_VALUE(end == argument.size() && end != 0, "reductions::Named: \"", argument, "\" in \"", name,
                    "\" is not a number.");
  return value;
}

std::int64_t whole_number(const std::string& name, const std::string& argument) {
  const double value = number(name, argument);
  TORCH_CHECK_VALUE(value == static_cast<double>(static_cast<std::int64_t>(value)), "reductions::Named: \"",
                    argument, "\" in \"", name, "\" is not a whole number.");
  return static_cast<std::int64_t>(value);
}

template <class R>
const R& of(const core::Sink& sink) {
  return static_cast<const core::SinkOf<R>&>(sink).reduction();
}

template <class R, class Options>
Named::Member member(const std::string& name, Options options, const NamedOptions& rows) {
  options.over(rows.over()).over_all(rows.over_all());
  constexpr bool kScans = detail::has_scan<R>::value;
  return {name, core::make_sink(R(std::move(options))),
          [](const core::Sink& sink, detail::Scan& scan) {
            if constexpr (kScans) of<R>(sink).ask(scan);
          },
          [](const core::Sink& sink, const detail::Scan& scan) {
            if constexpr (kScans) {
              of<R>(sink).check(scan);
            } else {
              of<R>(sink).check(scan.sample());
            }
          },
          [](core::Sink& sink, const detail::Scan& scan) {
            if constexpr (kScans) {
              static_cast<core::SinkOf<R>&>(sink).reduction().update(scan);
            } else {
              sink.update(scan.sample());
            }
          }};
}

struct Known {
  const char* usage;
  std::size_t least, most;  // arguments
  std::function<Named::Member(const std::string& name, const Arguments&, const NamedOptions&)> make;
};

template <class R, class Options>
Known plain(const char* usage) {
  return {usage, 0, 0, [](const std::string& name, const Arguments&, const NamedOptions& rows) {
            return member<R>(name, Options(), rows);
          }};
}

template <class R, class Options>
Known sized(const char* usage) {
  return {usage, 0, 1, [](const std::string& name, const Arguments& given, const NamedOptions& rows) {
            return member<R>(name, given.empty() ? Options() : Options(whole_number(name, given[0])), rows);
          }};
}

const std::vector<Known>& known() {
  static const std::vector<Known> all{
      plain<Sum, SumOptions>("sum"),
      plain<Mean, MeanOptions>("mean"),
      plain<Moments, MomentsOptions>("moments"),
      plain<Min, MinOptions>("min"),
      plain<Max, MaxOptions>("max"),
      plain<AbsMax, AbsMaxOptions>("abs_max"),
      {"norm[:P]", 0, 1,
       [](const std::string& name, const Arguments& given, const NamedOptions& rows) {
         return member<Norm>(name, given.empty() ? NormOptions() : NormOptions().p(number(name, given[0])),
                             rows);
       }},
      plain<Count, CountOptions>("count"),
      plain<First, FirstOptions>("first"),
      plain<Last, LastOptions>("last"),
      {"ema[:DECAY]", 0, 1,
       [](const std::string& name, const Arguments& given, const NamedOptions& rows) {
         return member<EMA>(name, given.empty() ? EMAOptions() : EMAOptions(number(name, given[0])), rows);
       }},
      {"histogram:BINS[:LOW:HIGH]", 1, 3,
       [](const std::string& name, const Arguments& given, const NamedOptions& rows) {
         const std::int64_t bins = whole_number(name, given[0]);
         TORCH_CHECK_VALUE(given.size() != 2, "reductions::Named: \"histogram:", given[0], ":", given[1],
                           "\" has a low end without a high one; expected histogram:BINS[:LOW:HIGH].");
         return member<Histogram>(
             name,
             given.size() == 1 ? HistogramOptions(bins)
                               : HistogramOptions(bins, number(name, given[1]), number(name, given[2])),
             rows);
       }},
      plain<Quantiles, QuantilesOptions>("quantiles"),
      plain<Covariance, CovarianceOptions>("covariance"),
      plain<Gram, GramOptions>("gram"),
      sized<TopK, TopKOptions>("top_k[:K]"),
      sized<Reservoir, ReservoirOptions>("reservoir[:K]"),
  };
  return all;
}

Named::Member parse(const std::string& text, const NamedOptions& options) {
  Arguments parts = split(text, ':');
  const std::string name = parts.empty() ? "" : parts.front();
  for (const auto& one : known()) {
    if (split(split(one.usage, ':').front(), '[').front() != name) continue;
    parts.erase(parts.begin());
    TORCH_CHECK_VALUE(parts.size() >= one.least && parts.size() <= one.most, "reductions::Named: \"", text,
                      "\" has ", parts.size(), " arguments; expected ", one.usage, ".");
    return one.make(name, parts, options);
  }
  std::string usages;
  for (const auto& one : known()) usages += std::string(usages.empty() ? "" : " ") + one.usage;
  TORCH_CHECK_VALUE(false, "reductions::Named: \"", name, "\" is no reduction; expected some of ", usages,
                    ", separated by commas.");
}

}  // namespace

Named::Named(const std::string& text, const NamedOptions& options) {
  for (const auto& part : split(text, ',')) {
    Member one = parse(part, options);
    const auto same = std::count_if(members_.begin(), members_.end(), [&](const Member& other) {
      return other.name == one.name || other.name.compare(0, one.name.size() + 1, one.name + "_") == 0;
    });
    if (same != 0) one.name += "_" + std::to_string(same + 1);
    members_.push_back(std::move(one));
  }
  TORCH_CHECK_VALUE(!members_.empty(), "reductions::Named: no reduction was named.");
}

Named::Member Named::with(const Member& member, std::unique_ptr<core::Sink> sink) {
  return {member.name, std::move(sink), member.ask, member.check, member.update};
}

Named::Named(const Named& other) {
  for (const auto& one : other.members_) members_.push_back(with(one, one.sink->clone()));
}

Named& Named::operator=(const Named& other) {
  if (this != &other) *this = Named(other);
  return *this;
}

void Named::check(const at::Tensor& sample) const {
  const detail::Scan scan(sample);
  for (const auto& one : members_) one.check(*one.sink, scan);
}

void Named::update(const at::Tensor& sample) {
  if (members_.size() == 1) return members_.front().sink->update(sample);
  const core::detail::RecordingMode quiet;
  detail::Scan scan(sample);
  for (const auto& one : members_) one.ask(*one.sink, scan);
  for (const auto& one : members_) one.check(*one.sink, scan);
  for (auto& one : members_) one.update(*one.sink, scan);
}

void Named::merge(const Named& other) {
  TORCH_CHECK_VALUE(members_.size() == other.members_.size(), "merge: cannot merge ", other.describe(),
                    " into ", describe(), "; both must be the same reduction.");
  Named merged(*this);
  for (std::size_t i = 0; i < members_.size(); ++i) merged.members_[i].sink->merge(*other.members_[i].sink);
  *this = std::move(merged);
}

std::int64_t Named::count() const {
  return members_.front().sink->count();
}

core::Results Named::results() const {
  if (members_.size() == 1) return members_.front().sink->results();
  core::Results result;
  for (const auto& one : members_) {
    const core::Results part = one.sink->results();
    for (const auto& [name, tensor] : part) result.set(one.name + "." + name, tensor);
  }
  return result;
}

std::string Named::describe() const {
  std::string text;
  for (const auto& one : members_) text += (text.empty() ? "" : ", ") + one.sink->describe();
  return members_.size() == 1 ? text : "Series(" + text + ")";
}

std::string Named::recipe() const {
  std::string text;
  for (const auto& one : members_) text += (text.empty() ? "" : ", ") + one.sink->recipe();
  return members_.size() == 1 ? text : detail::recipe_of("Series", text);
}

bool Named::commutative() const {
  return std::all_of(members_.begin(), members_.end(),
                     [](const Member& one) { return one.sink->commutative(); });
}

Named Named::fresh() const {
  Named result;
  for (const auto& one : members_) result.members_.push_back(with(one, one.sink->fresh()));
  return result;
}

void Named::save(core::OutputArchive& archive) const {
  if (members_.size() > 1) core::state_version(archive, "Series", 1);
  for (const auto& one : members_) one.sink->save(archive);
}

void Named::load(core::InputArchive& archive) {
  Named loaded(*this);
  if (members_.size() > 1) core::state_version(archive, "Series", 1);
  for (auto& one : loaded.members_) one.sink->load(archive);
  *this = std::move(loaded);
}

}  // namespace torchtap::reductions
