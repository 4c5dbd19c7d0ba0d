#pragma once

/// `Mean` shares what it is made of with `Sum`.

#include <torchtap/reductions/sum.hpp>
