/* A program in C that runs a plan from several threads, trains another, and saves it: program INFERENCE
 * TRAINING FOLDER. The first takes x [-1, 6] and gives rows whose sum is 1; the second takes x [-1, 6] and y
 * [-1, 3]. */
#include <dlpack/dlpack.h>
#include <espalier/executor/espalier_c.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#define ROWS 8
#define THREADS 4

static int failures = 0;
#define CHECK(condition)                                                                        \
  do {                                                                                          \
    if (!(condition)) {                                                                         \
      ++failures;                                                                               \
      fprintf(stderr, "line %d: %s; last error: %s\n", __LINE__, #condition, esp_last_error()); \
    }                                                                                           \
  } while (0)

static DLManagedTensor matrix(float* data, int64_t* shape) {
  DLManagedTensor t;
  memset(&t, 0, sizeof t);
  t.dl_tensor.data = data;
  t.dl_tensor.device.device_type = kDLCPU;
  t.dl_tensor.ndim = 2;
  t.dl_tensor.dtype.code = kDLFloat;
  t.dl_tensor.dtype.bits = 32;
  t.dl_tensor.dtype.lanes = 1;
  t.dl_tensor.shape = shape;
  return t;
}

static void fill(float* data, int count, int seed) {
  for (int i = 0; i < count; ++i) data[i] = sinf((float)(7 * i + seed));
}

/* The first output of a plan with one input, as floats. */
static void predict(esp_executor* plan, int seed, float* result) {
  float x[ROWS * 6];
  int64_t shape[2] = {ROWS, 6};
  DLManagedTensor input = matrix(x, shape), *inputs[1] = {&input}, *output = NULL;
  fill(x, ROWS * 6, seed);
  CHECK(esp_run(plan, inputs, 1, &output, 1) == ESP_OK);
  if (!output) return;
  CHECK(output->dl_tensor.ndim == 2 && output->dl_tensor.shape[0] == ROWS && output->dl_tensor.shape[1] == 3);
  memcpy(result, (const char*)output->dl_tensor.data + output->dl_tensor.byte_offset,
         ROWS * 3 * sizeof(float));
  output->deleter(output);
}

struct work {
  esp_executor* plan;
  int seed;
  float result[ROWS * 3];
};

static void* work(void* data) {
  struct work* w = data;
  for (int i = 0; i < 50; ++i) predict(w->plan, w->seed, w->result);
  return NULL;
}

static void run_in_threads(const char* path) {
  struct work works[THREADS];
  pthread_t threads[THREADS];
  esp_value value;
  esp_executor* plan = esp_load(path, ESP_AS_SAVED, "cpu");
  CHECK(plan != NULL);
  if (!plan) return;
  CHECK(esp_input_count(plan) == 1 && esp_output_count(plan) == 2);
  CHECK(esp_input(plan, 0, &value) == ESP_OK && strcmp(value.name, "x") == 0 &&
        strcmp(value.dtype, "float32") == 0);
  CHECK(value.rank == 2 && value.shape[0] == -1 && value.shape[1] == 6);
  CHECK(esp_output(plan, 1, &value) == ESP_OK && strcmp(value.name, "hidden") == 0);
  CHECK(esp_output(plan, 2, &value) == ESP_INVALID);
  for (int i = 0; i < THREADS; ++i) {
    works[i].plan = plan;
    works[i].seed = i;
    CHECK(pthread_create(&threads[i], NULL, work, &works[i]) == 0);
  }
  for (int i = 0; i < THREADS; ++i) {
    float again[ROWS * 3];
    pthread_join(threads[i], NULL);
    predict(plan, i, again);
    CHECK(memcmp(again, works[i].result, sizeof again) == 0);
    CHECK(fabsf(again[0] + again[1] + again[2] - 1) < 1e-5f);
  }
  esp_release(plan);
}

static float train(esp_executor* plan, int steps) {
  float x[ROWS * 6], y[ROWS * 3], loss = NAN;
  int64_t x_shape[2] = {ROWS, 6}, y_shape[2] = {ROWS, 3};
  DLManagedTensor in_x = matrix(x, x_shape), in_y = matrix(y, y_shape), *inputs[2] = {&in_x, &in_y}, *output;
  fill(x, ROWS * 6, 1);
  fill(y, ROWS * 3, 2);
  for (int i = 0; i < steps; ++i) {
    output = NULL;
    CHECK(esp_run(plan, inputs, 2, &output, 1) == ESP_OK);
    if (!output) return loss;
    memcpy(&loss, (const char*)output->dl_tensor.data + output->dl_tensor.byte_offset, sizeof loss);
    output->deleter(output);
  }
  return loss;
}

static void train_and_save(const char* path, const char* folder) {
  char saved[4096];
  float first, last;
  esp_executor *plan = esp_load(path, ESP_AS_SAVED, NULL), *again;
  CHECK(plan != NULL);
  if (!plan) return;
  first = train(plan, 1);
  last = train(plan, 60);
  CHECK(last < 0.8f * first);
  snprintf(saved, sizeof saved, "%s/saved.plan", folder);
  CHECK(esp_save(plan, saved) == ESP_OK);
  again = esp_load(saved, ESP_TRAINING, NULL);
  CHECK(again != NULL);
  if (again) CHECK(train(again, 1) < 0.9f * first);
  esp_release(again);
  CHECK(esp_save(plan, "/nowhere/saved.plan") == ESP_FILE);
  esp_release(plan);
}

/* Of a training, the prediction alone, which needs no target. */
static void predict_alone(const char* path) {
  const char *names[2] = {"prediction", "prediction"}, *other = "none";
  esp_value value;
  esp_executor* plan = esp_load_outputs(path, names, 1, NULL);
  CHECK(plan != NULL && esp_input_count(plan) == 1 && esp_output_count(plan) == 2);
  if (!plan) return;
  CHECK(esp_input(plan, 0, &value) == ESP_OK && strcmp(value.name, "x") == 0);
  CHECK(esp_output(plan, 0, &value) == ESP_OK && value.rank == 2 && value.shape[1] == 3);
  esp_release(plan);
  CHECK(esp_load_outputs(path, names, 2, NULL) == NULL && strstr(esp_last_error(), "twice") != NULL);
  CHECK(esp_load_outputs(path, &other, 1, NULL) == NULL &&
        strstr(esp_last_error(), "value, prediction") != NULL);
  CHECK(esp_load_outputs(path, NULL, 1, NULL) == NULL && strstr(esp_last_error(), "names") != NULL);
  CHECK(esp_load_outputs(path, names, 0, NULL) == NULL && strstr(esp_last_error(), "0 outputs") != NULL);
}

static void fail(const char* path) {
  float x[6] = {0};
  int64_t shape[2] = {1, 6};
  DLManagedTensor input = matrix(x, shape), *inputs[1] = {&input}, *output = NULL;
  esp_executor* plan;
  CHECK(esp_load("none.plan", ESP_AS_SAVED, NULL) == NULL && strstr(esp_last_error(), "none.plan") != NULL);
  CHECK(esp_load(NULL, ESP_AS_SAVED, NULL) == NULL && strstr(esp_last_error(), "path") != NULL);
  CHECK(esp_load(path, ESP_AS_SAVED, "tpu") == NULL && strstr(esp_last_error(), "tpu") != NULL);
  CHECK(esp_load(path, (esp_mode)9, NULL) == NULL && strstr(esp_last_error(), "9 is no esp_mode") != NULL);
  plan = esp_load(path, ESP_AS_SAVED, NULL);
  CHECK(esp_run(plan, NULL, 0, &output, 1) == ESP_INVALID && strstr(esp_last_error(), "1 inputs") != NULL);
  input.dl_tensor.dtype.code = kDLInt;
  CHECK(esp_run(plan, inputs, 1, &output, 1) == ESP_INVALID && strstr(esp_last_error(), "int32") != NULL);
  input.dl_tensor.dtype.code = kDLFloat;
  shape[0] = 6, shape[1] = 1;
  CHECK(esp_run(plan, inputs, 1, &output, 1) == ESP_INVALID && strstr(esp_last_error(), "[6, 1]") != NULL);
  CHECK(esp_run(NULL, NULL, 0, NULL, 0) == ESP_INVALID);
  CHECK(output == NULL && esp_input_count(NULL) == 0);
  esp_release(plan);
  esp_release(NULL);
}

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  CHECK(strlen(esp_version()) >= 5 && strcmp(esp_last_error(), "") == 0);
  run_in_threads(argv[1]);
  train_and_save(argv[2], argv[3]);
  predict_alone(argv[2]);
  fail(argv[1]);
  return failures ? 1 : 0;
}
