# Decides whether the NCCL backend is built. It needs NCCL's header; the library is opened at its first use.

espalier_choice(ESPALIER_NCCL "Let GPUs meet through NCCL: AUTO (with CUDA, where NCCL is found)")

set(ESPALIER_WITH_NCCL OFF)
if(ESPALIER_WITH_CUDA AND NOT ESPALIER_NCCL STREQUAL "OFF")
  cmake_path(GET CUDAToolkit_BIN_DIR PARENT_PATH toolkit)
  find_path(ESPALIER_NCCL_INCLUDE nccl.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
  find_library(ESPALIER_NCCL_LIBRARY NAMES libnccl.so.2 nccl HINTS "${CUDAToolkit_LIBRARY_DIR}" "${toolkit}/lib")
  mark_as_advanced(ESPALIER_NCCL_INCLUDE ESPALIER_NCCL_LIBRARY)
  set(nccl_version 0)
  if(ESPALIER_NCCL_INCLUDE)
    file(STRINGS "${ESPALIER_NCCL_INCLUDE}/nccl.h" nccl_version REGEX "^#define NCCL_VERSION_CODE +[0-9]+")
    string(REGEX REPLACE "[^0-9]" "" nccl_version "${nccl_version}")
  endif()
  if(nccl_version GREATER_EQUAL 21800) # the first whose communicators need not block
    set(ESPALIER_WITH_NCCL ON)
    message(STATUS "NCCL ${nccl_version}")
  elseif(ESPALIER_NCCL STREQUAL "ON")
    message(FATAL_ERROR "ESPALIER_NCCL=ON: no nccl.h of 2.18 or later was found")
  endif()
elseif(ESPALIER_NCCL STREQUAL "ON")
  message(FATAL_ERROR "ESPALIER_NCCL=ON needs the CUDA backend")
endif()

# Adds the sources of the backend to the library.
function(espalier_link_nccl target)
  if(NOT ESPALIER_WITH_NCCL)
    return()
  endif()
  get_property(with GLOBAL PROPERTY ESPALIER_NCCL_SOURCES)
  target_sources(${target} PRIVATE ${with})
  target_include_directories(${target} PRIVATE "${ESPALIER_NCCL_INCLUDE}")
  if(ESPALIER_NCCL_LIBRARY) # where it is opened if the loader finds none
    set_source_files_properties(${with} TARGET_DIRECTORY ${target} PROPERTIES COMPILE_DEFINITIONS
                                                                              "ESPALIER_NCCL_BUILT=\"${ESPALIER_NCCL_LIBRARY}\"")
  endif()
endfunction()
