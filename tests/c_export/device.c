/* Runs an exported network on numbers that the exporting program has computed, too. */
#define DIGITS_DECLARATIONS_ONLY
#define CONVOLUTION_DECLARATIONS_ONLY
#define LSTM_DECLARATIONS_ONLY
#define TRANSFORMER_DECLARATIONS_ONLY
#include MODEL
#include NUMBERS

#include <math.h>
#ifndef ON_DEVICE
#include <stdio.h>
#endif

static int differs(float a, float b) { return !(fabsf(a - b) <= 1e-5f * (1 + fabsf(b))); }

static int check(void) {
  static unsigned char saved[SAVED_BYTES];
  float loss = 0, again = 0, output[OUTPUTS];
  int bad = 0;
  model_init();
  for (int i = 0; i < STEPS; ++i) {
    if (i == STEPS - 1) model_save(saved);
    bad += model_step(inputs[i], labels[i], &loss) != 0 || differs(loss, losses[i]);
  }
  bad += model_run(inputs[0], output) != 0;
  for (int i = 0; i < OUTPUTS; ++i) bad += differs(output[i], outputs[i]);
  model_init();
  bad += model_load(saved, SAVED_BYTES) != 0 || model_step(inputs[STEPS - 1], labels[STEPS - 1], &again) != 0;
  bad += differs(again, loss);
  saved[SAVED_BYTES - 1] ^= 1;
  bad += model_load(saved, SAVED_BYTES) == 0 || model_load(saved, SAVED_BYTES - 1) == 0;
  return bad;
}

int main(void) {
  const int bad = check();
#ifndef ON_DEVICE
  if (bad) printf("%d numbers differ\n", bad);
#endif
  return bad != 0;
}
