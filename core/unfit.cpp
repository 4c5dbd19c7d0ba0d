#include <torchtap/core/unfit.hpp>

namespace torchtap::core {

Unfit::~Unfit() = default;

}  // namespace torchtap::core
