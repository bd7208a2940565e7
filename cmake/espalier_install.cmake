include(CMakePackageConfigHelpers)
set(package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/espalier")

# Components, for packages: runtime (the shared library), dev (what compiling with it takes) and tools (programs).
install(
  TARGETS espalier
  EXPORT espalierTargets
  ARCHIVE COMPONENT dev
  LIBRARY COMPONENT runtime NAMELINK_COMPONENT dev)
if(ESPALIER_WITH_ONNX)
  install(
    TARGETS espalier_onnx
    EXPORT espalierOnnxTargets
    ARCHIVE COMPONENT dev
    LIBRARY COMPONENT runtime NAMELINK_COMPONENT dev)
  install(EXPORT espalierOnnxTargets NAMESPACE espalier:: DESTINATION "${package_dir}" COMPONENT dev)
  install(FILES onnx.h DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/espalier" COMPONENT dev)
endif()
install(FILES espalier.h DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/espalier" COMPONENT dev)
install(DIRECTORY core ops nn optim data executor DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/espalier" COMPONENT dev
        FILES_MATCHING PATTERN "*.h" PATTERN programs EXCLUDE)

install(EXPORT espalierTargets NAMESPACE espalier:: DESTINATION "${package_dir}" COMPONENT dev)
configure_package_config_file(cmake/espalierConfig.cmake.in espalierConfig.cmake INSTALL_DESTINATION "${package_dir}")
write_basic_package_version_file(espalierConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/espalierConfig.cmake" "${PROJECT_BINARY_DIR}/espalierConfigVersion.cmake"
              cmake/FindDNNL.cmake cmake/FindOpenBLASOpenMP.cmake DESTINATION "${package_dir}" COMPONENT dev)

# pkg-config: a static Espalier lists the libraries it uses, with or without --static.
function(append_library_flags variable file)
  cmake_path(GET file PARENT_PATH folder)
  cmake_path(GET file STEM name)
  string(REGEX REPLACE "^lib" "" name "${name}")
  if(NOT folder IN_LIST CMAKE_CXX_IMPLICIT_LINK_DIRECTORIES)
    string(REPLACE " " "\\ " folder "${folder}")
    string(APPEND ${variable} " -L${folder} -Wl,-rpath,${folder}")
  endif()
  set(${variable} "${${variable}} -l${name}" PARENT_SCOPE)
endfunction()

set(pc_requires)
set(pc_libraries)
set(pc_hide)
if(NOT BUILD_SHARED_LIBS)
  set(pc_hide "-Wl,--exclude-libs,libespalier.a ") # as CMake's target does for shared objects
  set(pc_requires fmt)
  foreach(library ZLIB=zlib PNG=libpng JPEG=libjpeg)
    string(REPLACE "=" ";" library ${library})
    list(GET library 0 name)
    list(GET library 1 package)
    if(ESPALIER_WITH_${name})
      string(APPEND pc_requires " ${package}")
    endif()
  endforeach()
  if(ESPALIER_ONEDNN)
    append_library_flags(pc_libraries "${DNNL_LIBRARY}")
  endif()
  append_library_flags(pc_libraries "${OpenBLASOpenMP_LIBRARY}")
  foreach(name IN LISTS OpenMP_CXX_LIB_NAMES)
    append_library_flags(pc_libraries "${OpenMP_${name}_LIBRARY}")
  endforeach()
  if(ESPALIER_WITH_CUDA)
    foreach(library IN LISTS ESPALIER_CUDA_LIBRARIES)
      get_target_property(file CUDA::${library} IMPORTED_LOCATION)
      append_library_flags(pc_libraries "${file}")
    endforeach()
    string(APPEND pc_libraries " -ldl -lrt -lpthread") # what the CUDA runtime needs
  endif()
endif()
# A program with a static Espalier looks for the library for MPI in this installation, wherever it is.
if(TARGET espalier_mpi AND NOT BUILD_SHARED_LIBS)
  target_link_options(espalier INTERFACE "$<INSTALL_INTERFACE:LINKER:-rpath,$<INSTALL_PREFIX>/${CMAKE_INSTALL_LIBDIR}>")
  string(APPEND pc_libraries " -Wl,-rpath,\${libdir}")
endif()
file(RELATIVE_PATH pc_prefix "${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig" "${CMAKE_INSTALL_PREFIX}")
string(REGEX REPLACE "/$" "" pc_prefix "${pc_prefix}")
configure_file(cmake/espalier.pc.in espalier.pc @ONLY)
if(ESPALIER_WITH_ONNX)
  set(pc_onnx_libraries)
  set(pc_onnx_hide)
  if(NOT BUILD_SHARED_LIBS)
    set(pc_onnx_hide "-Wl,--exclude-libs,libespalier_onnx.a ")
    append_library_flags(pc_onnx_libraries "${ESPALIER_ONNX_PROTO}")
    append_library_flags(pc_onnx_libraries "${Protobuf_LIBRARY_RELEASE}")
  endif()
  configure_file(cmake/espalier_onnx.pc.in espalier_onnx.pc @ONLY)
  install(FILES "${PROJECT_BINARY_DIR}/espalier_onnx.pc" DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig" COMPONENT dev)
endif()
install(FILES "${PROJECT_BINARY_DIR}/espalier.pc" DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig" COMPONENT dev)
# /usr/include must not be passed as a system folder: C++ headers would no longer find those of C.
install(
  CODE "
  if(CMAKE_INSTALL_PREFIX STREQUAL \"/usr\")
    set(file \"\$ENV{DESTDIR}/usr/${CMAKE_INSTALL_LIBDIR}/pkgconfig/espalier.pc\")
    file(READ \"\${file}\" text)
    string(REPLACE -isystem -I text \"\${text}\")
    file(WRITE \"\${file}\" \"\${text}\")
  endif()"
  COMPONENT dev)
