# Extracts the C++ of the tables of a page, so that it can be compiled and run.
#
# A table whose second column is headed "Espalier" counts. Each row becomes a function of its own, with each piece of code
# in its second cell as a statement. It sees the members of `struct Names`, which consist of the block of C++ behind
#   <!-- names -->
# in the README.md of the page's folder, and which are made anew for each row. A row whose code uses a GPU is compiled only.

include("${CMAKE_CURRENT_LIST_DIR}/snippets.cmake")

# Writes <folder>/<name>.cpp, a program that runs all rows and fails if one of them throws.
function(extract_table_rows page folder name)
  cmake_path(GET page PARENT_PATH pages)
  extract_names("${pages}/README.md" names)
  file(READ "${page}" text)
  string(ASCII 1 bar) # in place of "|" within a cell
  string(REPLACE "\\|" "${bar}" text "${text}\n")
  set(functions "")
  set(calls "")
  set(line 0)
  set(in_table FALSE)
  while(NOT text STREQUAL "")
    string(FIND "${text}" "\n" end)
    string(SUBSTRING "${text}" 0 ${end} row)
    math(EXPR end "${end} + 1")
    string(SUBSTRING "${text}" ${end} -1 text)
    math(EXPR line "${line} + 1")
    if(row MATCHES "^\\| [^|]* \\| Espalier \\|")
      set(in_table TRUE)
    elseif(NOT row MATCHES "^\\|")
      set(in_table FALSE)
    elseif(in_table AND NOT row MATCHES "^\\| --- \\|")
      if(NOT row MATCHES "^\\|[^|]*\\|([^|]*)\\|")
        message(FATAL_ERROR "${page}:${line}: a row has fewer than two cells")
      endif()
      string(REPLACE "${bar}" "|" cell "${CMAKE_MATCH_1}")
      statements_of("${cell}" "#line ${line} \"${page}\"\n" statements)
      if(statements STREQUAL "")
        message(FATAL_ERROR "${page}:${line}: the cell has no code")
      endif()
      string(APPEND functions "struct Row_${line} : Names {\n  void run() {\n${statements}  }\n};\n")
      if(statements MATCHES "gpu\\(")
        string(APPEND calls "  (void)&Row_${line}::run;\n")
      else()
        string(APPEND calls "  failed += fails<Row_${line}>(\"${page}:${line}\");\n")
      endif()
    endif()
  endwhile()
  if(calls STREQUAL "")
    message(FATAL_ERROR "${page}: there is no table with a column \"Espalier\"")
  endif()

  usual_head(head)
  write_if_different("${folder}/${name}.cpp" "${head}
namespace {\nstruct Names {\n${names}};\n\n${functions}
#line 1 \"main of ${name}\"
template <class Row>
int fails(const char* place) try {
  Row().run();
  return 0;
} catch (const std::exception& error) {
  std::cerr << place << \": \" << error.what() << \"\\n\";
  return 1;
}
}  // namespace\n
int main() {\n  int failed = 0;\n${calls}  return failed ? 1 : 0;\n}\n")
endfunction()

# Each `piece of code` of a cell, as a statement in braces with a line in front.
function(statements_of cell line result)
  set(statements "")
  while(TRUE)
    string(FIND "${cell}" "`" begin)
    if(begin EQUAL -1)
      break()
    endif()
    math(EXPR begin "${begin} + 1")
    string(SUBSTRING "${cell}" ${begin} -1 cell)
    string(FIND "${cell}" "`" end)
    if(end EQUAL -1)
      message(FATAL_ERROR "code does not end: ${cell}")
    endif()
    string(SUBSTRING "${cell}" 0 ${end} code)
    string(APPEND statements "    {\n${line}${code};\n    }\n")
    math(EXPR end "${end} + 1")
    string(SUBSTRING "${cell}" ${end} -1 cell)
  endwhile()
  set(${result} "${statements}" PARENT_SCOPE)
endfunction()

# The block behind <!-- names -->.
function(extract_names page result)
  file(READ "${page}" text)
  set(mark "<!-- names -->\n```cpp\n")
  string(FIND "${text}" "${mark}" begin)
  if(begin EQUAL -1)
    message(FATAL_ERROR "${page}: there is no block of names")
  endif()
  string(LENGTH "${mark}" length)
  math(EXPR begin "${begin} + ${length}")
  string(SUBSTRING "${text}" 0 ${begin} before)
  string(SUBSTRING "${text}" ${begin} -1 text)
  string(FIND "${text}" "```" end)
  string(SUBSTRING "${text}" 0 ${end} code)
  count_lines("${before}" line)
  math(EXPR line "${line} + 1")
  set(${result} "#line ${line} \"${page}\"\n${code}" PARENT_SCOPE)
endfunction()
