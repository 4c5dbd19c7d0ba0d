// Modules in the forms that user code has. This program prints the same compiled with and without
// torchtap::transparent.
#include <torch/torch.h>

#include <algorithm>
#include <any>
#include <array>
#include <deque>
#include <functional>
#include <future>
#include <iostream>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <sstream>
#include <string>
#include <thread>
#include <tuple>
#include <type_traits>
#include <typeindex>
#include <typeinfo>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

using T = torch::Tensor;

namespace abstract_bases {
#include "forms/abstract_bases.hpp"
}
namespace arguments {
#include "forms/arguments.hpp"
}
namespace const_holders {
#include "forms/const_holders.hpp"
}
namespace constructors {
#include "forms/constructors.hpp"
}
namespace declared_before {
#include "forms/declared_before.hpp"
}
namespace everyday {
#include "forms/everyday.hpp"
}
namespace final_classes {
#include "forms/final_classes.hpp"
}
namespace final_forward {
#include "forms/final_forward.hpp"
}
namespace forms {
#include "forms/forms.hpp"
}
namespace forwards {
#include "forms/forwards.hpp"
}
namespace hidden {
#include "forms/hidden.hpp"
}
namespace holders {
#include "forms/holders.hpp"
}
namespace local_classes {
#include "forms/local_classes.hpp"
}
namespace maps_of_unique {
#include "forms/maps_of_unique.hpp"
}
namespace nested_classes {
#include "forms/nested_classes.hpp"
}
namespace qualified_forward {
#include "forms/qualified_forward.hpp"
}
namespace seen_types {
#include "forms/seen_types.hpp"
}
namespace static_types {
#include "forms/static_types.hpp"
}
namespace vectors_of_unique {
#include "forms/vectors_of_unique.hpp"
}
namespace virtual_defaults {
#include "forms/virtual_defaults.hpp"
}

int main() {
  const std::pair<const char*, void (*)()> forms[] = {
      {"abstract_bases", abstract_bases::run},
      {"arguments", arguments::run},
      {"const_holders", const_holders::run},
      {"constructors", constructors::run},
      {"declared_before", declared_before::run},
      {"everyday", everyday::run},
      {"final_classes", final_classes::run},
      {"final_forward", final_forward::run},
      {"forms", forms::run},
      {"forwards", forwards::run},
      {"hidden", hidden::run},
      {"holders", holders::run},
      {"local_classes", local_classes::run},
      {"maps_of_unique", maps_of_unique::run},
      {"nested_classes", nested_classes::run},
      {"qualified_forward", qualified_forward::run},
      {"seen_types", seen_types::run},
      {"static_types", static_types::run},
      {"vectors_of_unique", vectors_of_unique::run},
      {"virtual_defaults", virtual_defaults::run},
  };
  std::cout << std::unitbuf;
  for (const auto& [name, run] : forms) {
    std::cout << "== " << name << '\n';
    run();
  }
}
