# Run by CPack before it writes packages: Debian's have compressed manual pages and changelogs.
file(GLOB documents "${CPACK_TEMPORARY_DIRECTORY}/*/usr/share/man/man1/*.1" "${CPACK_TEMPORARY_DIRECTORY}/*/usr/share/doc/*/changelog")
foreach(document IN LISTS documents)
  execute_process(COMMAND gzip -9 --no-name "${document}" COMMAND_ERROR_IS_FATAL ANY)
endforeach()
