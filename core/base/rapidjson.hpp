#pragma once

// The JSON library that comes with cereal, under one name.

#include <cereal/archives/json.hpp>  // sets RapidJSON up: where it asserts, it throws

namespace torchtap::base {

#ifdef CEREAL_RAPIDJSON_NAMESPACE
namespace rapid = CEREAL_RAPIDJSON_NAMESPACE;
#else
namespace rapid = RAPIDJSON_NAMESPACE;  // distributions that build cereal with their own
#endif

}  // namespace torchtap::base
