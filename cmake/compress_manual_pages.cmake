# Run by CPack before it writes a package: Debian's have compressed manual pages.
file(GLOB pages "${CPACK_TEMPORARY_DIRECTORY}/tools/usr/share/man/man1/*.1")
foreach(page IN LISTS pages)
  execute_process(COMMAND gzip -9 --no-name "${page}" COMMAND_ERROR_IS_FATAL ANY)
endforeach()
