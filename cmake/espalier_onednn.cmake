# Decides whether oneDNN computes products and convolutions of float32. Without it OpenBLAS does, and kernels of Espalier.
option(ESPALIER_ONEDNN "Compute products and convolutions by oneDNN, where that is faster" ON)

# Adds the sources that use oneDNN, or those in their place, and links oneDNN. Each is compiled alone, so that libraries
# with and without it are equal but for these objects.
function(espalier_link_onednn)
  set(part NO_ONEDNN)
  if(ESPALIER_ONEDNN)
    set(part ONEDNN)
    foreach(target espalier_base espalier)
      target_link_libraries(${target} PRIVATE DNNL::dnnl)
    endforeach()
  endif()
  get_property(sources GLOBAL PROPERTY ESPALIER_${part}_SOURCES)
  target_sources(espalier_base PRIVATE ${sources})
  set_source_files_properties(${sources} TARGET_DIRECTORY espalier_base PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
endfunction()
