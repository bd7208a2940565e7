# Debian packages: `cpack -G DEB` in a build folder that was configured with -DCMAKE_INSTALL_PREFIX=/usr writes
# libespalier0.1 (the shared library, and what programs under mpirun load), libespalier-dev and espalier-tools.
set(soversion "${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR}")
set(name_of_dev libespalier-dev)
set(name_of_runtime "libespalier${soversion}")
set(name_of_tools espalier-tools)
set(CPACK_COMPONENTS_ALL dev)
if(BUILD_SHARED_LIBS OR TARGET espalier_mpi)
  list(APPEND CPACK_COMPONENTS_ALL runtime)
endif()
if(ESPALIER_BUILD_PROGRAMS)
  list(APPEND CPACK_COMPONENTS_ALL tools)
endif()

# Only packages have these files.
foreach(component IN LISTS CPACK_COMPONENTS_ALL)
  install(
    FILES "${PROJECT_SOURCE_DIR}/cmake/copyright"
    DESTINATION "${CMAKE_INSTALL_DATAROOTDIR}/doc/${name_of_${component}}"
    COMPONENT ${component}
    EXCLUDE_FROM_ALL)
  string(TOUPPER ${component} upper)
  set(CPACK_DEBIAN_${upper}_PACKAGE_NAME "${name_of_${component}}")
endforeach()

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_CONTACT "Espalier developers <espalier@localhost>")
set(CPACK_PACKAGING_INSTALL_PREFIX "${CMAKE_INSTALL_PREFIX}")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "deep-learning library in C++20") # without an article
set(CPACK_COMPONENT_RUNTIME_DESCRIPTION "The shared library.")
set(CPACK_COMPONENT_DEV_DESCRIPTION "Headers, and what CMake and pkg-config read.")
set(CPACK_COMPONENT_TOOLS_DESCRIPTION "Programs that run, train and show plan files.")
set(CPACK_STRIP_FILES ON)
set(CPACK_PRE_BUILD_SCRIPTS "${PROJECT_SOURCE_DIR}/cmake/compress_manual_pages.cmake")
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ
                                                WORLD_EXECUTE)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_ENABLE_COMPONENT_DEPENDS OFF)
set(CPACK_DEBIAN_RUNTIME_PACKAGE_SECTION libs)
set(CPACK_DEBIAN_DEV_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_TOOLS_PACKAGE_SECTION science)

# What programs and libraries load, dpkg-shlibdeps finds; programs load the shared library of the same build.
find_program(ESPALIER_SHLIBDEPS dpkg-shlibdeps)
mark_as_advanced(ESPALIER_SHLIBDEPS)
if(ESPALIER_SHLIBDEPS)
  set(CPACK_DEBIAN_RUNTIME_PACKAGE_SHLIBDEPS ON)
  set(CPACK_DEBIAN_TOOLS_PACKAGE_SHLIBDEPS ON)
  set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS "${PROJECT_BINARY_DIR}")
endif()
set(same "${name_of_runtime} (= ${PROJECT_VERSION})")
if(BUILD_SHARED_LIBS)
  set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
  set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS_POLICY "=")
  file(WRITE "${PROJECT_BINARY_DIR}/triggers" "activate-noawait ldconfig\n")
  set(CPACK_DEBIAN_RUNTIME_PACKAGE_CONTROL_EXTRA "${PROJECT_BINARY_DIR}/triggers")
  set(CPACK_DEBIAN_DEV_PACKAGE_DEPENDS "${same}")
  set(CPACK_DEBIAN_TOOLS_PACKAGE_DEPENDS "${same}")
else() # what a static library is linked with
  set(CPACK_DEBIAN_DEV_PACKAGE_DEPENDS "libdnnl-dev, libopenblas-openmp-dev, libfmt-dev")
  if(ESPALIER_WITH_ONNX)
    string(APPEND CPACK_DEBIAN_DEV_PACKAGE_DEPENDS ", libonnx-dev, libprotobuf-dev")
  endif()
  foreach(library ZLIB=zlib1g-dev PNG=libpng-dev JPEG=libjpeg-dev)
    string(REPLACE "=" ";" library ${library})
    list(GET library 0 name)
    list(GET library 1 package)
    if(ESPALIER_WITH_${name})
      string(APPEND CPACK_DEBIAN_DEV_PACKAGE_DEPENDS ", ${package}")
    endif()
  endforeach()
endif()
include(CPack)
