# Decides whether the programs are linked without any shared library, and links them so.
option(ESPALIER_STATIC_PROGRAMS "Link the programs without any shared library" OFF)

if(ESPALIER_STATIC_PROGRAMS)
  foreach(option ESPALIER_ONEDNN ESPALIER_CUDA ESPALIER_MPI BUILD_SHARED_LIBS)
    if(${option})
      message(FATAL_ERROR "ESPALIER_STATIC_PROGRAMS=ON needs ${option}=OFF, whose libraries are shared")
    endif()
  endforeach()
  set(CMAKE_FIND_LIBRARY_SUFFIXES .a)
  # Debian has no archive of fmt. FMT_SHARED is what its shared library says, so that objects share a compiler cache.
  add_library(espalier_fmt STATIC "${PROJECT_SOURCE_DIR}/executor/programs/static_fmt.cpp")
  target_compile_features(espalier_fmt PUBLIC cxx_std_20)
  target_compile_definitions(espalier_fmt INTERFACE FMT_SHARED)
  add_library(fmt::fmt ALIAS espalier_fmt)
else()
  find_package(fmt REQUIRED)
endif()

# OpenBLAS has kernels for twenty processors, a megabyte each. A program that is one file has those of four, and the others
# take the newest of these whose instructions they have: SSE3, AVX, AVX2 or AVX-512. (Opteron's run on no other processor.)
set(ESPALIER_STATIC_KERNELS
    OPTERON=PRESCOTT OPTERON_SSE3=PRESCOTT BARCELONA=PRESCOTT BOBCAT=PRESCOTT ATOM=PRESCOTT NANO=PRESCOTT CORE2=PRESCOTT
    PENRYN=PRESCOTT DUNNINGTON=PRESCOTT NEHALEM=PRESCOTT BULLDOZER=SANDYBRIDGE PILEDRIVER=SANDYBRIDGE
    STEAMROLLER=SANDYBRIDGE EXCAVATOR=HASWELL ZEN=HASWELL COOPERLAKE=SKYLAKEX)
# libgfortran calls these if it finds any function of threads, but does not ask the linker for them.
set(ESPALIER_STATIC_THREADS
    cond_broadcast cond_destroy cond_init cond_wait create getspecific join key_create key_delete mutex_destroy mutex_init
    mutex_lock mutex_trylock mutex_unlock self setspecific)

function(espalier_static_program target)
  if(NOT ESPALIER_STATIC_PROGRAMS)
    return()
  endif()
  target_link_options(${target} PRIVATE -static LINKER:--gc-sections "$<$<CONFIG:Release,MinSizeRel>:-s>")
  foreach(name IN LISTS ESPALIER_STATIC_THREADS)
    target_link_options(${target} PRIVATE "LINKER:--undefined=pthread_${name}")
  endforeach()
  if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64)$")
    foreach(pair IN LISTS ESPALIER_STATIC_KERNELS)
      string(REPLACE "=" "=gotoblas_" pair "${pair}")
      target_link_options(${target} PRIVATE "LINKER:--defsym=gotoblas_${pair}")
    endforeach()
  endif()
endfunction()
