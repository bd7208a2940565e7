#include "espalier/executor/c_export/program.h"

#include <algorithm>
#include <cctype>
#include <cstring>

#include "espalier/core/error.h"
#include "espalier/executor/c_export/entry_text.h"

namespace espalier::c_export {

namespace {

constexpr int64_t saved_header = 24;  // mark, signature, checksum, zeros, and the next random stream

std::string upper(std::string_view text) {
  std::string result;
  for (const char c : text) result += static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return result;
}

void append_number(std::string& bytes, uint64_t number, int count) {
  for (int i = 0; i < count; ++i) bytes += static_cast<char>(number >> (8 * i) & 0xff);
}

uint32_t checksum_of(std::string_view bytes) {
  uint32_t sum = 2166136261u;
  for (const char c : bytes) sum = (sum ^ static_cast<unsigned char>(c)) * 16777619u;
  return sum;
}

/// What `name`_load reads: numbers with their low bytes first, and states as they lie in memory.
std::string saved_states(const Leaves& leaves, RandomStart random) {
  std::string rest;
  append_number(rest, 0, 4);
  append_number(rest, random.stream, 8);
  rest += leaves.state_values();
  std::string bytes = "ESPC";
  append_number(bytes, leaves.signature(), 4);
  append_number(bytes, checksum_of(rest), 4);
  return bytes + rest;
}

/// The functions that save and load states.
std::string state_functions(const Leaves& leaves, const CodeOptions& options, RandomStart random,
                            bool draws) {
  const std::string& name = options.name;
  std::string text;
  if (!options.loaded_weights) {
    text += fmt::format("void {}_init(void) {{\n{}", name, leaves.initialization());
    if (draws) text += fmt::format("  random_stream = UINT64_C({});\n", random.stream);
    text += "}\n\n";
  }
  for (const char* const kind : {"save", "load"}) {
    const bool saves = std::string_view(kind) == "save";
    std::string arrays;
    for (const Leaves::StateArray& array : leaves.state_arrays()) {
      const int64_t bytes = array.elements * static_cast<int64_t>(size_of(array.dtype));
      arrays += saves ? fmt::format("  copy_bytes({}, to + at, {});\n", bytes, array.name)
                      : fmt::format("  copy_bytes({}, {}, from + at);\n", bytes, array.name);
      arrays += fmt::format("  at += {};\n", bytes);
    }
    text += saves ? fmt::format(
                        "void {}_save(unsigned char *to) {{\n"
                        "  long at = {};\n"
                        "  put_number(to, 4, UINT64_C({}));\n"
                        "  put_number(to + 4, 4, UINT64_C({}));\n"
                        "  put_number(to + 12, 4, 0);\n"
                        "  put_number(to + 16, 8, {});\n"
                        "{}"
                        "  put_number(to + 8, 4, checksum(to + 12, at - 12));\n"
                        "}}\n\n",
                        name, saved_header, 0x43505345u, leaves.signature(), draws ? "random_stream" : "0",
                        arrays)
                  : fmt::format(
                        "int {}_load(const unsigned char *from, long bytes) {{\n"
                        "  long at = {};\n"
                        "  if (bytes != {}_SAVED_BYTES || get_number(from, 4) != UINT64_C({}) ||\n"
                        "      get_number(from + 4, 4) != UINT64_C({}) ||\n"
                        "      get_number(from + 8, 4) != checksum(from + 12, bytes - 12))\n"
                        "    return 1;\n"
                        "{}{}"
                        "  return 0;\n"
                        "}}\n\n",
                        name, saved_header, upper(name), 0x43505345u, leaves.signature(),
                        draws ? "  random_stream = get_number(from + 16, 8);\n" : "", arrays);
  }
  return text;
}

constexpr const char* number_functions =
    R"(static void copy_bytes(long n, void *to, const void *from) {
  unsigned char *const bytes = to;
  const unsigned char *const given = from;
  for (long i = 0; i < n; ++i) bytes[i] = given[i];
}

static void put_number(unsigned char *to, int bytes, uint64_t number) {
  for (int i = 0; i < bytes; ++i) to[i] = (unsigned char)(number >> (8 * i));
}

static uint64_t get_number(const unsigned char *from, int bytes) {
  uint64_t number = 0;
  for (int i = 0; i < bytes; ++i) number |= (uint64_t)from[i] << (8 * i);
  return number;
}

/* FNV-1a. */
static uint32_t checksum(const unsigned char *bytes, long n) {
  uint32_t sum = 2166136261u;
  for (long i = 0; i < n; ++i) sum = (sum ^ bytes[i]) * 16777619u;
  return sum;
}

)";

struct Declarations {
  std::string text;
  void add(std::string_view comment, std::string_view prototype) {
    text += fmt::format("/* {} */\n{};\n", comment, prototype);
  }
};

}  // namespace

Code write_code(const std::vector<EntryPoint>& entries, const CodeOptions& options, RandomStart random) {
  const Leaves leaves(entries, options);
  FileParts parts{.options = options, .leaves = leaves};
  std::vector<MemoryPlan> memory;
  for (const EntryPoint& entry : entries) {
    memory.push_back(
        verified(plan_memory(entry.plan->graph, {.workspaces = false, .over_other_types = false})));
    parts.scratch_begin = std::max(parts.scratch_begin, memory.back().arena_bytes);
  }
  std::vector<EntryText> texts;
  for (size_t i = 0; i < entries.size(); ++i) texts.push_back(write_entry(entries[i], memory[i], parts));
  const bool draws = parts.random, states = leaves.has_states();
  const std::vector<std::string> rates = leaves.learning_rates();

  Code code;
  code.sizes = {.arena = std::max<int64_t>(parts.scratch_begin + parts.scratch_bytes, 8),
                .constants = leaves.constant_bytes() + parts.constant_bytes,
                .states = leaves.state_bytes()};
  const std::string &name = options.name, upper_name = upper(name);
  const int64_t saved = saved_header + leaves.state_bytes();

  Declarations declared;
  for (const EntryText& text : texts)
    declared.add(
        "0, or the number of the call that met an index outside of its axis: nothing is updated then.",
        text.prototype);
  if (states && !options.loaded_weights)
    declared.add("Sets parameters and states to their exported values. Comes before all else.",
                 fmt::format("void {}_init(void)", name));
  if (states) {
    declared.add(fmt::format("Writes parameters and states: {}_SAVED_BYTES bytes.", upper_name),
                 fmt::format("void {}_save(unsigned char *to)", name));
    declared.add(
        "Reads them back. 0, or 1 if they are not what this program has saved: nothing is changed then.",
        fmt::format("int {}_load(const unsigned char *from, long bytes)", name));
  }
  if (!rates.empty())
    declared.add("Sets the learning rate of the steps to come.",
                 fmt::format("void {}_set_learning_rate(float rate)", name));

  std::string& text = code.text;
  text += fmt::format(
      "/* {}: C99, written by Espalier. It needs math.h and allocates nothing. Compilers\n"
      " * vectorize square roots with -fno-math-errno.\n *\n",
      in_comment(options.file));
  text += fmt::format(" *   arena      {:>10} bytes: values between calls, not kept\n", code.sizes.arena);
  text += fmt::format(" *   states     {:>10} bytes: parameters and states that are written\n",
                      code.sizes.states);
  text += fmt::format(" *   constants  {:>10} bytes: tables that are only read\n *\n", code.sizes.constants);
  for (size_t i = 0; i < entries.size(); ++i)
    text += fmt::format(" *   {}_{}, {} calls:\n{}", name, entries[i].name, texts[i].calls, texts[i].comment);
  text += " *\n" + leaves.listing();
  text += fmt::format(
      " *\n * One thread at a time may be inside. Other files define {}_DECLARATIONS_ONLY and include this "
      "one.\n */\n",
      upper_name);
  text += fmt::format("#ifndef {0}_DECLARED\n#define {0}_DECLARED\n#include <stdint.h>\n\n", upper_name);
  text += fmt::format("#define {}_ARENA_BYTES {}\n", upper_name, code.sizes.arena);
  if (states) text += fmt::format("#define {}_SAVED_BYTES {}\n", upper_name, saved);
  text += "\n#ifdef __cplusplus\nextern \"C\" {\n#endif\n" + declared.text +
          "#ifdef __cplusplus\n}\n#endif\n#endif\n\n";
  text += fmt::format("#ifndef {}_DECLARATIONS_ONLY\n#include <math.h>\n\n", upper_name);
  text += fmt::format(
      "static union {{\n  double reals;\n  int64_t integers;\n  unsigned char bytes[{}_ARENA_BYTES];\n}} "
      "{}_arena;\n",
      upper_name, name);
  text += fmt::format("#define AT(type, offset) ((type *)(void *)({}_arena.bytes + (offset)))\n\n", name);
  if (draws)
    text += fmt::format(
        "static const uint64_t random_seed = UINT64_C({});\nstatic uint64_t random_stream = "
        "UINT64_C({});\n\n",
        random.seed, random.stream);
  text += leaves.definitions() + parts.tables + "\n" + parts.helpers.text() + parts.text;
  for (const EntryText& entry : texts) text += entry.prototype + " " + entry.body + "\n";
  if (states) text += number_functions + state_functions(leaves, options, random, draws);
  if (!rates.empty()) {
    text += fmt::format("void {}_set_learning_rate(float rate) {{\n", name);
    for (const std::string& rate : rates) text += fmt::format("  ({})[0] = rate;\n", rate);
    text += "}\n\n";
  }
  text += "#endif\n";
  if (options.linked_weights)
    code.weights = fmt::format(
        "/* {}: the tables of {}, written by Espalier. */\n#include <math.h>\n#include <stdint.h>\n\n{}",
        in_comment(options.weight_file), in_comment(options.file), leaves.linked_tables());
  if (options.loaded_weights) code.weights = saved_states(leaves, random);
  return code;
}

}  // namespace espalier::c_export
