#pragma once

/// Includes all public headers of exported/.

#include <torchtap/exported/model.hpp>
