# Decides whether convolutions use cuDNN. That needs cuDNN's header; the library is opened at its first use.

espalier_choice(ESPALIER_CUDNN "Compute convolutions by cuDNN: AUTO (with CUDA, where cuDNN is found)")

set(ESPALIER_WITH_CUDNN OFF)
if(ESPALIER_WITH_CUDA AND NOT ESPALIER_CUDNN STREQUAL "OFF")
  cmake_path(GET CUDAToolkit_BIN_DIR PARENT_PATH toolkit)
  find_path(ESPALIER_CUDNN_INCLUDE cudnn_version.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
  find_library(ESPALIER_CUDNN_LIBRARY NAMES libcudnn.so.9 cudnn HINTS "${CUDAToolkit_LIBRARY_DIR}" "${toolkit}/lib")
  mark_as_advanced(ESPALIER_CUDNN_INCLUDE ESPALIER_CUDNN_LIBRARY)
  set(cudnn_version 0)
  if(ESPALIER_CUDNN_INCLUDE)
    file(STRINGS "${ESPALIER_CUDNN_INCLUDE}/cudnn_version.h" cudnn_version REGEX "^#define CUDNN_MAJOR +[0-9]+")
    string(REGEX REPLACE "[^0-9]" "" cudnn_version "${cudnn_version}")
  endif()
  if(cudnn_version EQUAL 9) # the version in the name of the library
    set(ESPALIER_WITH_CUDNN ON)
    message(STATUS "cuDNN ${cudnn_version}")
  elseif(ESPALIER_CUDNN STREQUAL "ON")
    message(FATAL_ERROR "ESPALIER_CUDNN=ON: no cudnn.h of version 9 was found")
  endif()
elseif(ESPALIER_CUDNN STREQUAL "ON")
  message(FATAL_ERROR "ESPALIER_CUDNN=ON needs the CUDA backend")
endif()

# Adds the sources of the backend to the library.
function(espalier_link_cudnn target)
  if(NOT ESPALIER_WITH_CUDNN)
    return()
  endif()
  get_property(with GLOBAL PROPERTY ESPALIER_CUDNN_SOURCES)
  target_sources(${target} PRIVATE ${with})
  target_include_directories(${target} PRIVATE "${ESPALIER_CUDNN_INCLUDE}")
  if(ESPALIER_CUDNN_LIBRARY) # where it is opened if the loader finds none
    set_source_files_properties(${with} TARGET_DIRECTORY ${target}
                                PROPERTIES COMPILE_DEFINITIONS "ESPALIER_CUDNN_BUILT=\"${ESPALIER_CUDNN_LIBRARY}\"")
  endif()
endfunction()
