# Compile options of Espalier's own code. None of them are passed on to projects that use the library.

function(espalier_warnings target)
  set(warnings -Wall -Wextra)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
    # g++ 12 at -O3 reports false overflows in fmt and the standard library.
    list(APPEND warnings -Wno-stringop-overflow -Wno-array-bounds -Wno-restrict)
  endif()
  if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    list(APPEND warnings -Wno-unknown-pragmas) # GCC's ivdep
  endif()
  string(REPLACE ";" "," host_warnings "${warnings}")
  target_compile_options(
    ${target}
    PRIVATE "$<$<COMPILE_LANGUAGE:CXX>:${warnings};$<$<BOOL:${ESPALIER_WARNINGS_AS_ERRORS}>:-Werror>>"
            "$<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=${host_warnings};$<$<BOOL:${ESPALIER_WARNINGS_AS_ERRORS}>:-Werror=all-warnings>>")
endfunction()

# No -march: kernels choose their instruction set, so that one binary runs everywhere. No -ffast-math: NaN must work.
# Sections, so that --gc-sections leaves out of a program what it does not call.
function(espalier_optimize target)
  target_compile_options(
    ${target}
    PRIVATE "$<$<COMPILE_LANGUAGE:CXX>:$<$<NOT:$<CONFIG:Debug>>:-O3>;-fno-math-errno;-fno-trapping-math;-fno-semantic-interposition;-ffunction-sections;-fdata-sections>"
  )
  if(ESPALIER_OPENMP)
    find_package(OpenMP REQUIRED COMPONENTS CXX)
    separate_arguments(flags NATIVE_COMMAND "${OpenMP_CXX_FLAGS}")
    target_compile_options(${target} PRIVATE "$<$<COMPILE_LANGUAGE:CXX>:${flags}>")
    # Not by its target, so that users of a static Espalier need not find OpenMP. The linker does not find Clang's by name.
    foreach(name IN LISTS OpenMP_CXX_LIB_NAMES)
      cmake_path(GET OpenMP_${name}_LIBRARY PARENT_PATH folder)
      if(folder IN_LIST CMAKE_CXX_IMPLICIT_LINK_DIRECTORIES)
        target_link_libraries(${target} PRIVATE ${name})
      else()
        target_link_libraries(${target} PRIVATE "${OpenMP_${name}_LIBRARY}")
      endif()
    endforeach()
  endif()
endfunction()

# What nearly every source includes, compiled once. Only headers of others: g++ knows a header with #pragma once in a
# precompiled one by its text, and ccache hands out a precompiled header made before a comment of ours changed.
function(espalier_precompile target)
  target_precompile_headers(
    ${target}
    PRIVATE
    <algorithm>
    <atomic>
    <cmath>
    <cstdint>
    <cstring>
    <filesystem>
    <functional>
    <map>
    <memory>
    <mutex>
    <numeric>
    <optional>
    <source_location>
    <span>
    <string>
    <string_view>
    <utility>
    <variant>
    <vector>
    <fmt/format.h>)
endfunction()

if(ESPALIER_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  find_program(ESPALIER_CCACHE_PROGRAM ccache)
  mark_as_advanced(ESPALIER_CCACHE_PROGRAM)
  if(ESPALIER_CCACHE_PROGRAM)
    # These settings share the cache between clones and build folders, and allow precompiled headers.
    set(CMAKE_CXX_COMPILER_LAUNCHER
        "${CMAKE_COMMAND}" -E env "CCACHE_BASEDIR=${PROJECT_SOURCE_DIR}" CCACHE_NOHASHDIR=1
        "CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime"
        "${ESPALIER_CCACHE_PROGRAM}")
    # Clang writes times of files into a precompiled header, so that objects of another clone would never be found.
    add_compile_options("$<$<COMPILE_LANG_AND_ID:CXX,Clang>:SHELL:-Xclang -fno-pch-timestamp>")
  endif()
endif()
