# Writes files as arrays of bytes: cmake -DOUTPUT=assets.cpp "-DFILES=a;b" -P torchtap_explorer_assets.cmake
set(type_html "text/html; charset=utf-8")
set(type_js "text/javascript; charset=utf-8")
set(type_css "text/css; charset=utf-8")
set(type_svg "image/svg+xml")

set(arrays "")
set(rows "")
set(number 0)
foreach(file IN LISTS FILES)
  cmake_path(GET file FILENAME name)
  cmake_path(GET file EXTENSION LAST_ONLY extension)
  string(SUBSTRING "${extension}" 1 -1 extension)
  if(NOT DEFINED type_${extension})
    message(FATAL_ERROR "${file}: a page has .html, .js, .css and .svg files; say in ${CMAKE_CURRENT_LIST_FILE} what this is.")
  endif()
  file(READ "${file}" bytes HEX)
  file(SHA256 "${file}" hash)
  string(SUBSTRING "${hash}" 0 16 tag)
  string(LENGTH "${bytes}" digits)
  math(EXPR size "${digits} / 2")
  if(size GREATER 0)
    string(REGEX REPLACE "(..)" "0x\\1," bytes "${bytes}")
  else()
    set(bytes "0")
  endif()
  string(APPEND arrays "const unsigned char file_${number}[] = {${bytes}};\n")
  string(APPEND rows "    {\"/${name}\", \"${type_${extension}}\", file_${number}, ${size}, \"${tag}\"},\n")
  math(EXPR number "${number} + 1")
endforeach()
file(WRITE "${OUTPUT}" "// Made by cmake/torchtap_explorer_assets.cmake of views/explorer/web/dist/.
#include <torchtap/views/explorer/detail/assets.hpp>

namespace torchtap::views::explorer::detail {
namespace {

${arrays}
constexpr Asset assets[] = {
${rows}    {nullptr, nullptr, nullptr, 0, nullptr},
};

}  // namespace

const Asset* find_asset(const std::string& path) {
  for (const Asset* asset = assets; asset->path != nullptr; ++asset) {
    if (path == asset->path) return asset;
  }
  return nullptr;
}

}  // namespace torchtap::views::explorer::detail
")
