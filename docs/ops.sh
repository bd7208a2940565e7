#!/usr/bin/env bash
# Writes ops.md, the list of all operations, from the headers of ops/functions/:
#   docs/ops.sh           writes ops.md
#   docs/ops.sh --check   fails unless ops.md is as it would be written
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# A header's first comment is the title of its section; "//" before declarations is a paragraph, "///" the text of the
# next declaration. Operands are printed by their names alone, source locations not at all.
section() {
  awk '
    function flush_paragraph() { if (paragraph != "") print "\n" paragraph "\n"; paragraph = "" }
    function declaration(text,   name) {
      gsub(/[ \n]+/, " ", text)
      sub(/, std::source_location where = std::source_location::current\(\)/, "", text)
      sub(/, const std::source_location& where = std::source_location::current\(\)/, "", text)
      gsub(/const (Operand|Variable|Tensor|Shape|Axes|std::string|std::optional<[A-Za-z0-9_]+>|std::vector<[A-Za-z0-9_]+>|[A-Z][A-Za-z]*Options)& /, "", text)
      gsub(/(Operand|Variable) (and|or) /, "", text)
      sub(/;$/, "", text)
      sub(/^ /, "", text)
      sub(/^(Variable|inline Variable) /, "", text)
      return text
    }
    /^\/\/ / && !inside { title = title (title == "" ? "" : " ") substr($0, 4); next }
    /^namespace espalier \{/ { inside = 1; sub(/\..*$/, "", title); print "\n## " title "\n"; next }
    /^}  \/\/ namespace espalier/ { inside = 0 }
    !inside { next }
    block != "" { block = block "\n" $0; if ($0 ~ /^};?$/) { print "\n```cpp"; print block; print "```\n"; block = ""; doc = "" } next }
    pending == "" && /^\/\/\/ / { flush_paragraph(); doc = doc (doc == "" ? "" : " ") substr($0, 5); next }
    pending == "" && /^\/\/ / { paragraph = paragraph (paragraph == "" ? "" : " ") substr($0, 4); next }
    pending == "" && /^(struct|enum|class) [A-Za-z]+;/ { next }
    pending == "" && /^(struct|enum|class) / {
      flush_paragraph()
      if ($0 ~ /};$/) { print "\n```cpp"; if (doc != "") print "// " doc; print $0; print "```\n"; doc = ""; next }
      block = (doc != "" ? "// " doc "\n" : "") $0
      next
    }
    /^ *$/ && pending == "" { next }
    {
      flush_paragraph()
      pending = pending (pending == "" ? "" : " ") $0
      if ($0 ~ /;( *\/\/.*)?$/) {
        print "- `" declaration(pending) "`" (doc == "" ? "" : ": " doc)
        pending = doc = ""
      }
    }' "$1"
}

text=$(
  echo "# Operations"
  echo
  echo "Every public operation, by the headers in \`ops/functions/\`; this page is written from them by \`docs/ops.sh\`. Operands are Variables,"
  echo "Tensors or numbers. What holds for all of them is in [reference.md](reference.md)."
  for header in ops/functions/*.h; do section "$header"; done | cat -s
)
if [ "${1:-}" = --check ]; then
  diff <(echo "$text") docs/ops.md >&2 || { echo "docs/ops.md: run docs/ops.sh" >&2 && exit 1; }
else
  echo "$text" >docs/ops.md
fi
