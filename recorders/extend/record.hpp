#pragma once

/// Shows the record of a module to takers that handle its events themselves.

#include <torchtap/recorders/detail/record.hpp>

namespace torchtap::recorders::extend {

using detail::Record;

}  // namespace torchtap::recorders::extend
