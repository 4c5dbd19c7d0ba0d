# Writes files as arrays of bytes: cmake -DOUTPUT=assets.cpp "-DFILES=a;b" [-DGZIP=gzip] -P assets.cmake
# With gzip each is there a second time, packed.
set(type_html "text/html; charset=utf-8")
set(type_js "text/javascript; charset=utf-8")
set(type_css "text/css; charset=utf-8")
set(type_svg "image/svg+xml")

set(arrays "")
set(rows "")

# Appends the bytes of a file to `arrays`, as an array of that name; `size` is how many they are.
function(torchtap_array name file)
  file(READ "${file}" bytes HEX)
  string(LENGTH "${bytes}" digits)
  math(EXPR size "${digits} / 2")
  if(size GREATER 0)
    string(REGEX REPLACE "(..)" "0x\\1," bytes "${bytes}")
  else()
    set(bytes "0")
  endif()
  set(arrays "${arrays}const unsigned char ${name}[] = {${bytes}};\n" PARENT_SCOPE)
  set(size ${size} PARENT_SCOPE)
endfunction()

set(number 0)
foreach(file IN LISTS FILES)
  cmake_path(GET file FILENAME name)
  cmake_path(GET file EXTENSION LAST_ONLY extension)
  string(SUBSTRING "${extension}" 1 -1 extension)
  if(NOT DEFINED type_${extension})
    message(FATAL_ERROR "${file}: a page has .html, .js, .css and .svg files; say in ${CMAKE_CURRENT_LIST_FILE} what this is.")
  endif()
  file(SHA256 "${file}" hash)
  string(SUBSTRING "${hash}" 0 16 tag)
  torchtap_array(file_${number} "${file}")
  set(row "\"/${name}\", \"${type_${extension}}\", file_${number}, ${size}, \"${tag}\"")
  set(packed "nullptr, 0")
  if(GZIP)
    # Neither the time nor the name of the file, so that the same sources give the same library.
    execute_process(COMMAND "${GZIP}" -9nc "${file}" OUTPUT_FILE "${OUTPUT}.gz" COMMAND_ERROR_IS_FATAL ANY)
    torchtap_array(packed_${number} "${OUTPUT}.gz")
    file(REMOVE "${OUTPUT}.gz")
    set(packed "packed_${number}, ${size}")
  endif()
  string(APPEND rows "    {${row}, ${packed}},\n")
  math(EXPR number "${number} + 1")
endforeach()
file(WRITE "${OUTPUT}" "// Made by views/explorer/assets.cmake of views/explorer/web/dist/.
#include <torchtap/views/explorer/detail/assets.hpp>

namespace torchtap::views::explorer::detail {
namespace {

${arrays}
constexpr Asset assets[] = {
${rows}    {nullptr, nullptr, nullptr, 0, nullptr, nullptr, 0},
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
