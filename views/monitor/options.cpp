// The modules that are watched by default.
#include <string>

#include <torchtap/views/monitor/options.hpp>

namespace torchtap::views::monitor {

selectors::Selector default_selection() {
  const auto tells = [](const model::ModuleRef& module) {
    const std::string& type = module.type();
    return type.find("Norm") == std::string::npos && type.find("Dropout") == std::string::npos &&
           type != "Identity";
  };
  return (selectors::leaves() && selectors::Selector(tells, "default_selection()")).allow_none();
}

}  // namespace torchtap::views::monitor
