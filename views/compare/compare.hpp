#pragma once

/// Includes all public headers of views/compare/.

#include <torchtap/views/compare/answer.hpp>
#include <torchtap/views/compare/difference.hpp>
#include <torchtap/views/compare/fingerprint.hpp>
#include <torchtap/views/compare/fingerprints.hpp>
#include <torchtap/views/compare/operations.hpp>
#include <torchtap/views/compare/pairs.hpp>
#include <torchtap/views/compare/run.hpp>
#include <torchtap/views/compare/verdict.hpp>
