# The oldest supported compilers: those that the checks use. Older ones lack parts of C++20.
set(ESPALIER_LEAST_GNU 12)
set(ESPALIER_LEAST_Clang 16)

if(DEFINED ESPALIER_LEAST_${CMAKE_CXX_COMPILER_ID})
  set(least ${ESPALIER_LEAST_${CMAKE_CXX_COMPILER_ID}})
  if(CMAKE_CXX_COMPILER_VERSION VERSION_LESS least)
    string(REPLACE GNU GCC name ${CMAKE_CXX_COMPILER_ID})
    message(FATAL_ERROR "Espalier needs ${name} ${least} or later, and ${CMAKE_CXX_COMPILER} is ${name} "
                        "${CMAKE_CXX_COMPILER_VERSION}.")
  endif()
else()
  message(WARNING "Espalier is tested with GCC and Clang, not with ${CMAKE_CXX_COMPILER_ID}.")
endif()

# A program must not use two OpenMP runtimes, whose threads would compete for the cores. OpenBLAS and oneDNN use libgomp;
# Clang supports libomp only. Tests under a sanitizer need not be fast.
option(ESPALIER_TWO_OPENMP "Accept a second OpenMP runtime in a program" OFF)
mark_as_advanced(ESPALIER_TWO_OPENMP)
function(espalier_one_openmp)
  if(ESPALIER_OPENMP AND NOT ESPALIER_TWO_OPENMP AND CMAKE_CXX_COMPILER_ID MATCHES "Clang" AND OpenBLASOpenMP_RUNTIME STREQUAL "libgomp")
    message(FATAL_ERROR "ESPALIER_OPENMP=ON: Clang compiles for the OpenMP runtime libomp, and OpenBLAS brings libgomp; "
                        "compile with GCC, or with -DESPALIER_OPENMP=OFF.")
  endif()
endfunction()
