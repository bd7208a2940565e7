// Random numbers: those of the executor, by Philox.
#include "espalier/core/philox.h"
#include "espalier/executor/c_export/emitters.h"

namespace espalier::c_export {

namespace {

constexpr const char* philox_text =
    R"(/* Word i of a stream: lane i % 4 of block i / 4 of Philox4x32-10 (Salmon, Moraes, Dror and Shaw 2011). */
static void random_words(uint64_t stream, uint64_t block, uint32_t *word) {
  uint32_t a = (uint32_t)block, b = (uint32_t)(block >> 32), c = (uint32_t)stream, d = (uint32_t)(stream >> 32);
  uint32_t key0 = (uint32_t)random_seed, key1 = (uint32_t)(random_seed >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t first = (uint64_t)a * 0xD2511F53u, second = (uint64_t)c * 0xCD9E8D57u;
    a = (uint32_t)(second >> 32) ^ b ^ key0;
    b = (uint32_t)second;
    c = (uint32_t)(first >> 32) ^ d ^ key1;
    d = (uint32_t)first;
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  word[0] = a;
  word[1] = b;
  word[2] = c;
  word[3] = d;
}
)";

/// Calls for each element with `word`, whose 24 high bits are random.
void each_word(Function& f, const std::string& value) {
  f.only({DType::float32});
  f.need("random_words", philox_text);
  const std::string stream = f.stream(), y = f.out();
  const int64_t n = f.output_shape().elements();
  f.open(fmt::format("for (long i = 0; i < {}; i += 4)", n));
  f.line("uint32_t words[4];");
  f.line(fmt::format("random_words({}, (uint64_t)i / 4, words);", stream));
  f.line(fmt::format("for (long k = 0; k < 4 && i + k < {}; ++k) {}[i + k] = {};", n, y, value));
  f.close();
}

}  // namespace

void write_dropout_mask(Function& f) {
  const double keep = 1 - attribute<double>(f.op(), "rate");
  each_word(f, fmt::format("(words[k] >> 8) < {}u ? {} : 0", philox::keep_threshold(keep),
                           literal(1 / keep, DType::float32)));
}

void write_uniform(Function& f) { each_word(f, "(float)(words[k] >> 8) * 5.96046448e-08f"); }

}  // namespace espalier::c_export
