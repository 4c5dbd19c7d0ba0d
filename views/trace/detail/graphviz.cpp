#include <c10/util/Exception.h>

#include <cstring>

#include <torchtap/views/program/program.hpp>
#include <torchtap/views/trace/detail/graphviz.hpp>

namespace torchtap::views::trace::detail {

std::string run_graphviz(const std::string& source, const std::string& format, double seconds,
                         const std::string& where) {
  program::Scratch input(where);
  input.put(source);
  const program::Scratch messages(where), picture(where);
  program::Program dot({"dot", "-T" + format}, input.descriptor(), picture.descriptor(),
                       messages.descriptor());
  TORCH_CHECK(dot.error() == 0, where, "Graphviz' program `dot` cannot be run: ", std::strerror(dot.error()),
              ". Install Graphviz (apt install graphviz), or draw to a .dot file, which needs nothing.");
  if (!dot.wait(seconds)) return "";
  const std::string said = messages.first_line();
  const std::string reason = said.empty() ? "" : ": " + said;
  TORCH_CHECK(dot.status() == 0, where, "Graphviz ", dot.ending(), reason, ".");
  std::string drawn = picture.text();
  TORCH_CHECK(!drawn.empty(), where, "Graphviz drew nothing", reason, ".");
  return drawn;
}

}  // namespace torchtap::views::trace::detail
