# Decides whether the MPI backend, for processes started by mpirun, is built.

espalier_choice(ESPALIER_MPI "Build the library for MPI: AUTO (where MPI is found)")

set(ESPALIER_WITH_MPI OFF)
if(NOT ESPALIER_MPI STREQUAL "OFF")
  find_package(MPI QUIET COMPONENTS CXX)
  if(MPI_CXX_FOUND)
    set(ESPALIER_WITH_MPI ON)
    message(STATUS "MPI ${MPI_CXX_VERSION}")
  elseif(ESPALIER_MPI STREQUAL "ON")
    message(FATAL_ERROR "ESPALIER_MPI=ON: no MPI was found (Debian: libopenmpi-dev)")
  endif()
endif()
