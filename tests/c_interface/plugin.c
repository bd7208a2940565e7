/* A plug-in with an Espalier of its own, of which it exports nothing: it holds two plans, and computes the
 * second of what the first gives, without a copy between them. */
#include <dlpack/dlpack.h>
#include <espalier/executor/espalier_c.h>
#include <stdio.h>
#include <stdlib.h>

#if defined(__GNUC__)
#define EXPORTED __attribute__((visibility("default")))
#else
#define EXPORTED
#endif

struct chain {
  esp_executor *first, *second;
};

/* Null, with the reason in `error`, if a plan cannot be loaded. */
EXPORTED struct chain* chain_open(const char* first, const char* second, char* error, size_t bytes) {
  struct chain* made = calloc(1, sizeof *made);
  if (!made) return NULL;
  made->first = esp_load(first, ESP_INFERENCE, "cpu");
  if (made->first) made->second = esp_load(second, ESP_INFERENCE, "cpu");
  if (made->second) return made;
  snprintf(error, bytes, "%s", esp_last_error());
  esp_release(made->first);
  free(made);
  return NULL;
}

/* 0, or the status of the call that failed. The caller calls the deleter of the output. Several threads may
 * be inside. */
EXPORTED int chain_run(struct chain* chain, struct DLManagedTensor* input, struct DLManagedTensor** output) {
  DLManagedTensor* between = NULL;
  int status = esp_run(chain->first, &input, 1, &between, 1);
  if (status != ESP_OK) return status;
  status = esp_run(chain->second, &between, 1, output, 1);
  between->deleter(between);
  return status;
}

EXPORTED void chain_close(struct chain* chain) {
  esp_release(chain->first);
  esp_release(chain->second);
  free(chain);
}
