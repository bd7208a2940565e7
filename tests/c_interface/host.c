/* Loads plug-ins that each have an Espalier of their own, and runs their plans from several threads:
 * host FIRST SECOND PLUGIN... FIRST takes x [-1, 6], SECOND what FIRST gives, and its results are rows of 3
 * whose sum is 1. */
#define _POSIX_C_SOURCE 200809L
#include <dlfcn.h>
#include <dlpack/dlpack.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#define ROWS 8
#define THREADS 3
#define PLUGINS 4

static int failures = 0;
#define CHECK(condition)                                            \
  do {                                                              \
    if (!(condition)) {                                             \
      ++failures;                                                   \
      fprintf(stderr, "host, line %d: %s\n", __LINE__, #condition); \
    }                                                               \
  } while (0)

typedef void* open_function(const char*, const char*, char*, size_t);
typedef int run_function(void*, DLManagedTensor*, DLManagedTensor**);
typedef void close_function(void*);

struct plugin {
  void *library, *chain;
  run_function* run;
  close_function* close;
};

struct work {
  const struct plugin* plugin;
  int seed;
  float result[ROWS * 3];
};

/* A function of a library: C has no cast from an object's address to a function's. */
static void* load(void* library, const char* name, void* function, size_t bytes) {
  void* found = dlsym(library, name);
  CHECK(found != NULL);
  memcpy(function, &found, bytes);
  return found;
}

static struct plugin open_plugin(const char* path, const char* first, const char* second) {
  struct plugin plugin = {0};
  open_function* open;
  char error[256] = "";
  plugin.library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!plugin.library) fprintf(stderr, "%s\n", dlerror());
  CHECK(plugin.library != NULL);
  if (!plugin.library) return plugin;
  CHECK(dlsym(plugin.library, "esp_run") == NULL); /* hidden */
  if (!load(plugin.library, "chain_open", &open, sizeof open) ||
      !load(plugin.library, "chain_run", &plugin.run, sizeof plugin.run) ||
      !load(plugin.library, "chain_close", &plugin.close, sizeof plugin.close))
    return plugin;
  CHECK(open("none.plan", second, error, sizeof error) == NULL && strstr(error, "none.plan"));
  plugin.chain = open(first, second, error, sizeof error);
  if (!plugin.chain) fprintf(stderr, "%s\n", error);
  CHECK(plugin.chain != NULL);
  return plugin;
}

static void run_once(struct work* w) {
  float x[ROWS * 6];
  int64_t shape[2] = {ROWS, 6};
  DLManagedTensor input, *output = NULL;
  memset(&input, 0, sizeof input);
  for (int i = 0; i < ROWS * 6; ++i) x[i] = sinf((float)(5 * i + w->seed));
  input.dl_tensor.data = x;
  input.dl_tensor.device.device_type = kDLCPU;
  input.dl_tensor.ndim = 2;
  input.dl_tensor.dtype.code = kDLFloat;
  input.dl_tensor.dtype.bits = 32;
  input.dl_tensor.dtype.lanes = 1;
  input.dl_tensor.shape = shape;
  CHECK(w->plugin->run(w->plugin->chain, &input, &output) == 0);
  if (!output) return;
  memcpy(w->result, (const char*)output->dl_tensor.data + output->dl_tensor.byte_offset, sizeof w->result);
  output->deleter(output);
}

static void* work(void* data) {
  for (int i = 0; i < 20; ++i) run_once(data);
  return NULL;
}

int main(int argc, char** argv) {
  struct plugin plugins[PLUGINS];
  struct work works[PLUGINS][THREADS];
  pthread_t threads[PLUGINS][THREADS];
  const int count = argc - 3;
  if (count < 1 || count > PLUGINS) return 64;
  memset(works, 0, sizeof works);
  for (int p = 0; p < count; ++p) plugins[p] = open_plugin(argv[p + 3], argv[1], argv[2]);
  if (failures) return 1;
  for (int p = 0; p < count; ++p)
    for (int t = 0; t < THREADS; ++t) {
      works[p][t].plugin = &plugins[p];
      works[p][t].seed = t;
      CHECK(pthread_create(&threads[p][t], NULL, work, &works[p][t]) == 0);
    }
  for (int p = 0; p < count; ++p)
    for (int t = 0; t < THREADS; ++t) pthread_join(threads[p][t], NULL);
  for (int p = 0; p < count; ++p)
    for (int t = 0; t < THREADS; ++t) {
      const float* row = works[p][t].result;
      CHECK(fabsf(row[0] + row[1] + row[2] - 1) < 1e-5f);
      CHECK(memcmp(row, works[0][t].result, sizeof works[0][t].result) == 0); /* plug-ins agree */
      CHECK(t == 0 || memcmp(row, works[p][0].result, sizeof works[p][0].result) != 0);
    }
  for (int p = 0; p < count; ++p) plugins[p].close(plugins[p].chain);
  return failures != 0;
}
