/* Plan files in C: load one, run it, train it, save it. C99.
 *
 * Functions that can fail return an esp_status, or null. esp_last_error() then says what went wrong, in this
 * thread. Tensors come and go as DLPack tensors, <dlpack/dlpack.h>, which are shared and not copied where
 * that is possible. The functions and their meaning stay as they are within a major version; new ones may
 * come.
 */
#ifndef ESPALIER_C_H
#define ESPALIER_C_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct DLManagedTensor;

/* A loaded plan. */
typedef struct esp_executor esp_executor;

typedef enum esp_status {
  ESP_OK = 0,
  ESP_INVALID = 1,     /* an argument that does not fit the plan: names, shapes, types */
  ESP_FILE = 2,        /* a file that cannot be read or written, or is no plan */
  ESP_UNSUPPORTED = 3, /* what this machine or version cannot do */
  ESP_MEMORY = 4,      /* no memory left */
  ESP_ERROR = 5        /* any other error */
} esp_status;

typedef enum esp_mode { ESP_AS_SAVED = 0, ESP_INFERENCE = 1, ESP_TRAINING = 2 } esp_mode;

/* How a value is declared. `name` and `shape` live as long as the executor does. */
typedef struct esp_value {
  const char* name;
  const char* dtype;    /* "float32", "int64", … */
  const int64_t* shape; /* -1: any size */
  int32_t rank;
} esp_value;

/* "0.1.0" */
const char* esp_version(void);

/* The message of the last call in this thread that failed; "" if none did. Valid until the next one fails
 * here. */
const char* esp_last_error(void);

/* Loads a plan file onto `device`, "cpu" or "cuda:0"; null: the CPU. Columns of Distributors become inputs.
 * Null on failure, also for another number as `mode`. */
esp_executor* esp_load(const char* path, esp_mode mode, const char* device);

/* The same for inference of the outputs of these names alone, which are outputs 1 and on. Output 0 is the
 * plan's value if that, "value", is one of them, and else the first again. Inputs that none of them reads,
 * such as the labels of a training, are not asked for. */
esp_executor* esp_load_outputs(const char* path, const char* const* names, size_t count, const char* device);

/* Releases an executor that no thread uses; null: nothing. */
void esp_release(esp_executor* executor);

/* What a run takes and gives. Output 0 is the plan's value. The index must be less than the count. */
size_t esp_input_count(const esp_executor* executor);
size_t esp_output_count(const esp_executor* executor);
esp_status esp_input(const esp_executor* executor, size_t index, esp_value* value);
esp_status esp_output(const esp_executor* executor, size_t index, esp_value* value);

/* One run: of an executor of training a step, whose value is mostly the loss. `inputs` are as many as the
 * plan has, in its order. They stay the caller's, are read before the call returns, and are on the CPU.
 * `outputs` receives so many outputs, from output 0 on; `output_count` may be less than the plan has. Call
 * each one's deleter when done with it. Several threads may run an executor of inference at once, which then
 * gives output 0 alone. Training draws the random numbers of the thread that runs it; those of the file go on
 * in the thread that loads it. */
esp_status esp_run(esp_executor* executor, struct DLManagedTensor* const* inputs, size_t input_count,
                   struct DLManagedTensor** outputs, size_t output_count);

/* Writes the executor as it is now, in training with the state of the run: a whole file or none. */
esp_status esp_save(const esp_executor* executor, const char* path);

#ifdef __cplusplus
}
#endif
#endif
