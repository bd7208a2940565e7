# Compiles test files in groups, which takes two thirds of the time.
#
# A group is a file that includes what its test files include, then each of them in a namespace of its own, since their
# helpers have the same names. `#pragma once` keeps the headers out of those namespaces. What a file sets by a pragma ends
# with it.

# Replaces the files of a target that are named *_test.cpp by groups of `size`.
function(group_tests target size)
  get_target_property(sources ${target} SOURCES)
  set(tests ${sources})
  list(FILTER tests INCLUDE REGEX "_test\\.cpp$")
  list(FILTER sources EXCLUDE REGEX "_test\\.cpp$")
  list(LENGTH tests count)
  set(first 0)
  while(first LESS count)
    list(SUBLIST tests ${first} ${size} group)
    math(EXPR number "${first} / ${size}")
    set(includes "")
    set(bodies "")
    foreach(test IN LISTS group)
      set(path "${CMAKE_CURRENT_SOURCE_DIR}/${test}")
      set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${path}") # its includes may change
      file(STRINGS "${path}" own REGEX "^#include ")
      list(APPEND includes ${own})
      cmake_path(GET test STEM name)
      string(APPEND bodies "#pragma GCC push_options\nnamespace ${name} {\n#include \"${path}\"\n}\n#pragma GCC pop_options\n")
    endforeach()
    list(REMOVE_DUPLICATES includes)
    list(JOIN includes "\n" includes)
    set(file "${CMAKE_CURRENT_BINARY_DIR}/${target}_${number}.cpp")
    file(CONFIGURE OUTPUT "${file}" CONTENT "${includes}\n${bodies}" @ONLY)
    list(APPEND sources "${file}")
    math(EXPR first "${first} + ${size}")
  endwhile()
  set_target_properties(${target} PROPERTIES SOURCES "${sources}")
  # A fixture in an unnamed namespace is not in the main file any more, which is what the warning asks for.
  target_compile_options(${target} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage>)
  # Headers beside the test files.
  target_include_directories(${target} PRIVATE "${CMAKE_CURRENT_SOURCE_DIR}")
endfunction()
