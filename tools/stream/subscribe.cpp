#include "subscribe.hpp"

#include <ATen/Functions.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <cmath>
#include <limits>

#include <torchtap/base/error.hpp>

#include "files/dtypes.hpp"
#include "options/option_checks.hpp"
#include "options/recorder_options.hpp"
#include "terminal/terminal.hpp"

namespace torchtap::tools::stream {

using views::stream::Frame;
using views::stream::Kind;

void add_subscription(CLI::App& command, Asked& asked) {
  command
      .add_option("name", asked.name,
                  "The stream: what the publisher calls itself; or -, which reads what torchtap tail NAME "
                  "--frames writes")
      ->required();
  command.add_option("-n,--names", asked.names, "Globs on paths of modules: 'layer1.*'")->delimiter(',');
  command
      .add_option("--what", asked.what,
                  "Kinds: pre, input, output, grad-input, grad-output, grad-parameter, other; by default all")
      ->delimiter(',')
      ->check([] {
        auto words = tools::recorder_names();
        words.emplace_back("other");
        return CLI::IsMember(words);
      }());
  command.add_option("--every", asked.every, "Only every Nth event of a module")
      ->transform(tools::whole_number(1))
      ->capture_default_str();
  command.add_option("--hz", asked.hz, "At most this many frames of a module in a second")
      ->check(CLI::NonNegativeNumber);
  command.add_option("--wait-for", asked.wait, "Seconds to wait for the publisher to appear")
      ->check(CLI::NonNegativeNumber);
  command.add_option("--directory", asked.directory,
                     "Where publishers are; by default in $XDG_RUNTIME_DIR/torchtap, /tmp/torchtap-UID and "
                     "$HOME/.torchtap");
}

views::stream::Reader open(const Asked& asked, const std::string& label, views::stream::WhenFull when_full) {
  views::stream::Subscription subscription;
  subscription.names(asked.names).every(asked.every).hz(asked.hz).when_full(when_full).label(label);
  for (const auto& word : asked.what) {
    Kind kind = Kind::other;
    for (const auto& known : tools::kKindWords) {
      if (word == known.word) kind = views::stream::kind_of(recorders::name_of(known.kind));
    }
    subscription.kinds().push_back(kind);
  }
  views::stream::ReaderOptions options;
  options.directory(asked.directory);
  options.wait(std::chrono::nanoseconds(static_cast<std::int64_t>(std::min(asked.wait, 1e9) * 1e9)));
  return views::stream::Reader(asked.name, subscription, options);
}

void check_end(const views::stream::Reader& reader, const std::string& saved) {
  const std::string why = reader.broken();
  TORCH_CHECK(why.empty(), why, saved.empty() ? "" : "; ", saved, ".");
}

std::string title_of(const Frame& frame) {
  std::string title(frame.path);
  if (frame.slot != 0) title += "#" + std::to_string(frame.slot);
  if (!frame.result.empty()) title += ":" + std::string(frame.result);
  return title;
}

std::string shown_title_of(const Frame& frame) {
  return (frame.path.empty() ? "(root)" : "") + title_of(frame);
}

std::string word_of(const Frame& frame) {
  for (const auto& known : tools::kKindWords) {
    if (name_of(frame.kind) == recorders::name_of(known.kind)) return known.word;
  }
  return frame.kind == Kind::other ? "other" : std::string(name_of(frame.kind));
}

std::string form_of(const Frame& frame) {
  const std::vector<std::int64_t> shape(frame.sizes.begin(), frame.sizes.begin() + frame.dims);
  const bool known = views::stream::element_bytes(frame.dtype) != 0 &&
                     frame.dtype < static_cast<std::uint8_t>(at::ScalarType::NumOptions);
  // A single number would look like a value.
  const std::string text = tools::shape_to_text(shape);
  return (shape.size() == 1 ? "[" + text + "]" : text) + " " +
         (known ? tools::dtype_text(static_cast<at::ScalarType>(frame.dtype)) : "unknown dtype");
}

Statistics statistics_of(const Frame& frame, std::size_t bins) {
  constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
  Statistics found;
  found.mean = found.deviation = found.least = found.most = kNone;
  if (frame.without_data) return found;
  const at::Tensor tensor = views::stream::to_tensor(frame);
  const at::Tensor real = (tensor.is_complex() ? tensor.abs() : tensor).to(at::kDouble).contiguous();
  const double* const values = real.data_ptr<double>();
  found.count = real.numel();
  double sum = 0;
  double least = std::numeric_limits<double>::infinity();
  double most = -least;
  for (std::int64_t i = 0; i < found.count; ++i) {
    if (std::isnan(values[i])) ++found.nan;
    if (std::isinf(values[i])) ++found.infinite;
    if (!std::isfinite(values[i])) continue;
    sum += values[i];
    least = std::min(least, values[i]);
    most = std::max(most, values[i]);
  }
  const std::int64_t finite = found.count - found.nan - found.infinite;
  if (finite == 0) return found;
  found.mean = sum / static_cast<double>(finite);
  found.least = least;
  found.most = most;
  double squares = 0;
  found.bins.assign(bins, 0);
  const double width = most > least ? static_cast<double>(bins) / (most - least) : 0;
  for (std::int64_t i = 0; i < found.count; ++i) {
    if (!std::isfinite(values[i])) continue;
    squares += (values[i] - found.mean) * (values[i] - found.mean);
    if (bins != 0) ++found.bins[std::min(bins - 1, static_cast<std::size_t>((values[i] - least) * width))];
  }
  found.deviation = std::sqrt(squares / static_cast<double>(finite));
  return found;
}

}  // namespace torchtap::tools::stream
