#pragma once

/// The models of an explorer, for a program that finds them as they are called.

#include <torchtap/views/explorer/detail/watched_models.hpp>

namespace torchtap::views::explorer::extend {

using detail::models_of;
using detail::WatchedModel;

}  // namespace torchtap::views::explorer::extend
