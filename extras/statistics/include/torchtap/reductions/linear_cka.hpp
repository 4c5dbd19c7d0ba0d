#pragma once

/// Measures the similarity of two representations by linear centered kernel alignment (CKA).

#include <torchtap/statistics/linear_cka.hpp>
