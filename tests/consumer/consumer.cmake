# What the projects here build, once Espalier's target is there.
add_executable(consumer ../main.cpp)
add_library(plugin MODULE ../plugin.cpp)
set_target_properties(plugin PROPERTIES CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON PREFIX "")
add_executable(host ../host.cpp)
target_link_libraries(host PRIVATE ${CMAKE_DL_LIBS})
foreach(target consumer plugin host)
  target_link_libraries(${target} PRIVATE espalier::espalier)
  # The headers of a library are not what a project wants to be warned of.
  target_compile_options(${target} PRIVATE -Wall -Wextra -Wshadow -Wconversion -Werror)
endforeach()
install(TARGETS consumer)
