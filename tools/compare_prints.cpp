#include "compare_prints.hpp"

#include <c10/util/Exception.h>

namespace torchtap::tools {

int compare_prints(const PrintsOptions& /*options*/) {
  TORCH_CHECK_VALUE(false, "this torchtap was built without the comparison of fingerprints.");
}

}  // namespace torchtap::tools
