# The OpenMP build of OpenBLAS as the imported target OpenBLAS::OpenMP. Its pthread build, whose threads compete with those of
# OpenMP, may be installed too, as libopenblas.so; so the folder of the OpenMP build is searched
# first, and a library is accepted only if it uses OpenMP. OpenBLASOpenMP_RUNTIME is its OpenMP runtime: libgomp or libomp.
function(openblas_calls_openmp result file)
  file(STRINGS "${file}" calls REGEX "^(GOMP_parallel|__kmpc_fork_call)" LIMIT_COUNT 1)
  if(NOT calls)
    set(${result} FALSE PARENT_SCOPE)
  endif()
endfunction()

function(openblas_runtime result file)
  file(STRINGS "${file}" calls REGEX "^GOMP_parallel" LIMIT_COUNT 1)
  if(calls)
    set(${result} libgomp PARENT_SCOPE)
  else()
    set(${result} libomp PARENT_SCOPE)
  endif()
endfunction()

find_path(OpenBLASOpenMP_INCLUDE_DIR openblas_config.h PATH_SUFFIXES openblas-openmp openblas)
find_library(OpenBLASOpenMP_LIBRARY NAMES openblas openblaso PATH_SUFFIXES openblas-openmp
             VALIDATOR openblas_calls_openmp)
mark_as_advanced(OpenBLASOpenMP_INCLUDE_DIR OpenBLASOpenMP_LIBRARY)

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(
  OpenBLASOpenMP REQUIRED_VARS OpenBLASOpenMP_LIBRARY OpenBLASOpenMP_INCLUDE_DIR
  REASON_FAILURE_MESSAGE "The pthread build will not do. Debian's package is libopenblas-openmp-dev.")

if(OpenBLASOpenMP_FOUND)
  openblas_runtime(OpenBLASOpenMP_RUNTIME "${OpenBLASOpenMP_LIBRARY}")
endif()
if(OpenBLASOpenMP_FOUND AND NOT TARGET OpenBLAS::OpenMP)
  add_library(OpenBLAS::OpenMP UNKNOWN IMPORTED)
  set_target_properties(OpenBLAS::OpenMP PROPERTIES IMPORTED_LOCATION "${OpenBLASOpenMP_LIBRARY}"
                                                    INTERFACE_INCLUDE_DIRECTORIES "${OpenBLASOpenMP_INCLUDE_DIR}")
  if(OpenBLASOpenMP_LIBRARY MATCHES "\\.a$") # which has LAPACK, too, in Fortran
    set_target_properties(OpenBLAS::OpenMP PROPERTIES INTERFACE_LINK_LIBRARIES gfortran)
  endif()
  # The program must load the library it was linked with. An explicit rpath is kept by an installation.
  cmake_path(GET OpenBLASOpenMP_LIBRARY PARENT_PATH folder)
  if(NOT folder IN_LIST CMAKE_CXX_IMPLICIT_LINK_DIRECTORIES)
    set_target_properties(OpenBLAS::OpenMP PROPERTIES INTERFACE_LINK_OPTIONS "LINKER:-rpath,${folder}")
  endif()
endif()
