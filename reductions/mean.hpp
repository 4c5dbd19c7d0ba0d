#pragma once

/// `Mean` is declared together with `Sum`, which shares its base.

#include <torchtap/reductions/sum.hpp>
