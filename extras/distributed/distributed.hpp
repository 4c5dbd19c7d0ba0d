#pragma once

/// Includes all public headers of distributed/.

#include <torchtap/distributed/environment.hpp>
#include <torchtap/distributed/group.hpp>
#include <torchtap/distributed/merge.hpp>
#include <torchtap/distributed/options.hpp>
