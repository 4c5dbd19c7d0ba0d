# torchtap::transparent: hooks on every module of a program, by linking (extras/transparent/RATIONALE.md). Needs ELF, whose dynamic linker takes
# the first definition that it finds.
set(lacks "")
if(NOT UNIX OR APPLE)
  set(lacks "it needs ELF")
elseif(NOT TORCHTAP_BUILD_SHARED)
  set(lacks "it is a shared library, which has to use the program's torchtap and not a static copy of its own; set TORCHTAP_BUILD_SHARED=ON")
endif()
file(GLOB_RECURSE headers CONFIGURE_DEPENDS "${CMAKE_CURRENT_LIST_DIR}/*.hpp" "${CMAKE_CURRENT_LIST_DIR}/*.h")
list(FILTER headers EXCLUDE REGEX "/transparent/tests/")
torchtap_part(transparent HEADERS ${headers} LACKS "${lacks}"
              DESCRIPTION "hooks every module of a program that links it")
