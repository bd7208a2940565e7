# Decides whether the reader and writer of ONNX files is built: a library of its own, so that programs without it link
# neither protobuf nor ONNX's messages.

espalier_choice(ESPALIER_ONNX "Build espalier_onnx, which reads and writes ONNX files: AUTO (where libonnx_proto is found)")

set(ESPALIER_WITH_ONNX OFF)
if(NOT ESPALIER_ONNX STREQUAL "OFF")
  find_package(Protobuf QUIET)
  find_path(ESPALIER_ONNX_INCLUDE onnx/onnx_pb.h)
  find_library(ESPALIER_ONNX_PROTO onnx_proto)
  mark_as_advanced(ESPALIER_ONNX_INCLUDE ESPALIER_ONNX_PROTO)
  if(Protobuf_FOUND AND ESPALIER_ONNX_INCLUDE AND ESPALIER_ONNX_PROTO)
    set(ESPALIER_WITH_ONNX ON)
  elseif(ESPALIER_ONNX STREQUAL "ON")
    message(FATAL_ERROR "ESPALIER_ONNX=ON: libonnx_proto or protobuf was not found (Debian: libonnx-dev libprotobuf-dev)")
  else()
    message(STATUS "ONNX files are left out: libonnx_proto was not found (Debian: libonnx-dev libprotobuf-dev)")
  endif()
endif()

# The libraries are named by their files, so that users of a static espalier_onnx need not find them.
function(espalier_onnx_library)
  if(NOT ESPALIER_WITH_ONNX)
    return()
  endif()
  get_property(sources GLOBAL PROPERTY ESPALIER_ONNX_SOURCES)
  add_library(espalier_onnx ${sources})
  add_library(espalier::onnx ALIAS espalier_onnx)
  target_compile_features(espalier_onnx PUBLIC cxx_std_20)
  espalier_warnings(espalier_onnx)
  espalier_optimize(espalier_onnx)
  target_compile_definitions(espalier_onnx PRIVATE ONNX_NAMESPACE=onnx ONNX_ML=1)
  target_include_directories(espalier_onnx SYSTEM PRIVATE "${ESPALIER_ONNX_INCLUDE}" ${Protobuf_INCLUDE_DIRS})
  target_link_libraries(espalier_onnx PUBLIC espalier PRIVATE fmt::fmt "${ESPALIER_ONNX_PROTO}" ${Protobuf_LIBRARIES})
  set_target_properties(
    espalier_onnx
    PROPERTIES CXX_EXTENSIONS OFF
               POSITION_INDEPENDENT_CODE ON
               EXPORT_NAME onnx
               VERSION ${PROJECT_VERSION}
               SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR}
               INSTALL_RPATH_USE_LINK_PATH ON)
endfunction()
