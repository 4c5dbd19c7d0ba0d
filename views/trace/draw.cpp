// Pictures of a history.
#include <c10/util/Exception.h>

#include <algorithm>
#include <ostream>

#include <torchtap/base/write_file.hpp>
#include <torchtap/views/trace/detail/graphviz.hpp>
#include <torchtap/views/trace/detail/picture.hpp>
#include <torchtap/views/trace/history.hpp>

namespace torchtap::views::trace {

std::string History::dot(const DrawOptions& options) const {
  return detail::to_dot(detail::make_picture(*this, options));
}

void History::draw(const std::string& file, const DrawOptions& options) const {
  const std::string call = "views::trace::History::draw", where = call + ": ";
  const std::size_t dot = file.rfind('.');
  const bool has_extension = dot != std::string::npos && file.find('/', dot) == std::string::npos;
  std::string extension = has_extension ? file.substr(dot + 1) : "";
  std::transform(extension.begin(), extension.end(), extension.begin(), [](char letter) {
    return 'A' <= letter && letter <= 'Z' ? static_cast<char>(letter - 'A' + 'a') : letter;
  });
  const bool text = extension == "dot" || extension == "gv";
  TORCH_CHECK_VALUE(
      text || extension == "svg" || extension == "png" || extension == "pdf", where, "\"", file,
      "\" should end in .svg, .png or .pdf, which Graphviz draws, or in .dot or .gv for its input.");
  TORCH_CHECK_VALUE(options.time_limit() > 0, where, "time_limit is ", options.time_limit(),
                    "; it should be a positive number of seconds.");
  const auto write = [&](const std::string& picture) {
    base::write_file(call, file, [&](std::ostream& stream) { stream << picture; });
  };
  if (text) return write(this->dot(options));
  DrawOptions less = options;
  for (std::size_t before = 0;;) {
    const detail::Picture picture = detail::make_picture(*this, less);
    const std::size_t boxes = picture.boxes.size();
    TORCH_CHECK(boxes != before, where, "Graphviz took longer than ", options.time_limit(), " s for ", boxes,
                " nodes, and less cannot be drawn; raise time_limit, or draw to a .dot file.");
    const std::string drawn =
        detail::run_graphviz(detail::to_dot(picture), extension, options.time_limit(), where);
    if (!drawn.empty()) return write(drawn);
    before = boxes;
    less.depth({}).max_nodes(std::max<std::int64_t>(1, static_cast<std::int64_t>(boxes / 2)));
  }
}

}  // namespace torchtap::views::trace
