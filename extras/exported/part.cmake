# torchtap::exported: hooks in packages that AOTInductor compiled (extras/exported/README.md).
find_path(TORCHTAP_AOTI_INCLUDE_DIR torch/csrc/inductor/aoti_package/model_package_loader.h HINTS ${TORCH_INCLUDE_DIRS})
mark_as_advanced(TORCHTAP_AOTI_INCLUDE_DIR)
set(lacks "")
if(NOT TORCHTAP_AOTI_INCLUDE_DIR)
  set(lacks "it needs a LibTorch that loads AOTInductor packages, as 2.6 and newer do")
endif()
torchtap_part(exported ROOMS exported LACKS "${lacks}" SUGGESTS "python3-torchtap, python3-torch, python3-setuptools, g++"
              DESCRIPTION "records models that AOTInductor compiled, and has the operators of torchtap.export, which compiles them in Python")
