# torchtap::json: what other parts write and read as JSON, so that NaN, infinities and whole numbers are the same everywhere
# (docs/format.md). Users do not name it, and need not have nlohmann-json.
find_package(nlohmann_json QUIET)
set(lacks "")
if(NOT nlohmann_json_FOUND)
  set(lacks "it needs nlohmann_json (Debian: nlohmann-json3-dev)")
endif()
torchtap_part(json INNER_ROOMS json LACKS "${lacks}"
              DESCRIPTION "writes and reads the JSON of torchtap's parts")
