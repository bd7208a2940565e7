# Decides whether the CUDA backend is built, and adds its sources.

espalier_choice(ESPALIER_CUDA "Build the CUDA backend: AUTO (where a toolkit is found)")
set(ESPALIER_CUDA_ARCHITECTURES "" CACHE STRING
    "Architectures to compile for, as in CMAKE_CUDA_ARCHITECTURES; empty: this machine's GPUs, or all of the last years")

set(ESPALIER_WITH_CUDA OFF)
if(NOT ESPALIER_CUDA STREQUAL "OFF")
  find_package(CUDAToolkit 12.8 QUIET)
  if(CUDAToolkit_FOUND AND CUDAToolkit_NVCC_EXECUTABLE AND TARGET CUDA::cublasLt AND TARGET CUDA::cusolver
     AND TARGET CUDA::nvrtc)
    set(ESPALIER_WITH_CUDA ON)
  elseif(ESPALIER_CUDA STREQUAL "ON")
    message(FATAL_ERROR "ESPALIER_CUDA=ON: no CUDA toolkit (12.8 or later, with nvcc, cuBLAS, cuSOLVER and NVRTC) was found")
  endif()
endif()

if(ESPALIER_WITH_CUDA)
  if(NOT ESPALIER_CUDA_ARCHITECTURES)
    execute_process(COMMAND nvidia-smi --query-gpu=compute_cap --format=csv,noheader OUTPUT_VARIABLE capabilities
                    ERROR_QUIET RESULT_VARIABLE failed)
    string(REGEX MATCHALL "[0-9]+\\.[0-9]+" capabilities "${capabilities}")
    string(REPLACE "." "" capabilities "${capabilities}")
    list(REMOVE_DUPLICATES capabilities)
    # GPUs that are older or newer than the toolkit are left out.
    execute_process(COMMAND "${CUDAToolkit_NVCC_EXECUTABLE}" --list-gpu-arch OUTPUT_VARIABLE known)
    foreach(capability IN LISTS capabilities)
      if(NOT "${known}" MATCHES "compute_${capability}(\n|$)")
        list(REMOVE_ITEM capabilities ${capability})
      endif()
    endforeach()
    if(failed OR NOT capabilities)
      set(capabilities 80-real 86-real 89-real 90-real 100-real 120) # the last one with PTX, for newer GPUs
    endif()
    set(ESPALIER_CUDA_ARCHITECTURES "${capabilities}" CACHE STRING "" FORCE)
  endif()
  if(NOT CMAKE_CUDA_COMPILER)
    set(CMAKE_CUDA_COMPILER "${CUDAToolkit_NVCC_EXECUTABLE}")
  endif()
  set(CMAKE_CUDA_ARCHITECTURES "${ESPALIER_CUDA_ARCHITECTURES}")
  if(ESPALIER_CCACHE AND CMAKE_CXX_COMPILER_LAUNCHER AND NOT CMAKE_CUDA_COMPILER_LAUNCHER)
    set(CMAKE_CUDA_COMPILER_LAUNCHER "${CMAKE_CXX_COMPILER_LAUNCHER}")
  endif()
  enable_language(CUDA)
  # CMake 3.25 does not support C++20 for nvcc 13.
  string(APPEND CMAKE_CUDA_FLAGS " -std=c++20 --extended-lambda --expt-relaxed-constexpr")
  set(ESPALIER_CUDA_LIBRARIES cudart_static cublasLt cusolver nvrtc)
  message(STATUS "CUDA ${CUDAToolkit_VERSION}, architectures ${ESPALIER_CUDA_ARCHITECTURES}")
endif()

# Adds the sources of the backend to the library.
function(espalier_link_cuda target)
  target_sources(${target} PRIVATE "${PROJECT_SOURCE_DIR}/executor/backends.cpp")
  if(ESPALIER_WITH_CUDA)
    get_property(with GLOBAL PROPERTY ESPALIER_CUDA_SOURCES)
    target_sources(${target} PRIVATE ${with})
    list(TRANSFORM ESPALIER_CUDA_LIBRARIES PREPEND CUDA:: OUTPUT_VARIABLE libraries)
    # As a target it brings the driver's library, which nothing calls, and without which no program would start.
    list(TRANSFORM libraries REPLACE "^CUDA::nvrtc$" "$<TARGET_FILE:CUDA::nvrtc>")
    target_link_libraries(${target} PRIVATE ${libraries})
  endif()
endfunction()
