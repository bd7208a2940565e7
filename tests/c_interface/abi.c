/* The binary interface of espalier_c.h on machines of 64 bits: what a program that was compiled earlier
 * relies on. It stays as it is within a major version; a new function gets its lines here. check_abi.sh
 * compiles it. */
#include <dlpack/dlpack.h>
#include <espalier/executor/espalier_c.h>
#include <stddef.h>

#define SAME_TYPE(value, ...) _Static_assert(_Generic((value), __VA_ARGS__ : 1, default : 0), #value)
#define SIZE(type, bytes) _Static_assert(sizeof(type) == (bytes), #type)
#define OFFSET(type, member, bytes) _Static_assert(offsetof(type, member) == (bytes), #type "." #member)
#define VALUE(name, number) _Static_assert((name) == (number), #name)

SIZE(esp_status, 4);
VALUE(ESP_OK, 0);
VALUE(ESP_INVALID, 1);
VALUE(ESP_FILE, 2);
VALUE(ESP_UNSUPPORTED, 3);
VALUE(ESP_MEMORY, 4);
VALUE(ESP_ERROR, 5);

SIZE(esp_mode, 4);
VALUE(ESP_AS_SAVED, 0);
VALUE(ESP_INFERENCE, 1);
VALUE(ESP_TRAINING, 2);

SIZE(esp_value, 32);
OFFSET(esp_value, name, 0);
OFFSET(esp_value, dtype, 8);
OFFSET(esp_value, shape, 16);
OFFSET(esp_value, rank, 24);
SAME_TYPE(((esp_value*)0)->name, const char*);
SAME_TYPE(((esp_value*)0)->dtype, const char*);
SAME_TYPE(((esp_value*)0)->shape, const int64_t*);
SAME_TYPE(((esp_value*)0)->rank, int32_t);

/* Tensors come and go as DLPack has them. */
SIZE(DLManagedTensor, 64);
SIZE(DLTensor, 48);
OFFSET(DLTensor, device, 8);
OFFSET(DLTensor, ndim, 16);
OFFSET(DLTensor, dtype, 20);
OFFSET(DLTensor, shape, 24);
OFFSET(DLTensor, strides, 32);
OFFSET(DLTensor, byte_offset, 40);
OFFSET(DLManagedTensor, manager_ctx, 48);
OFFSET(DLManagedTensor, deleter, 56);

SAME_TYPE(&esp_version, const char* (*)(void));
SAME_TYPE(&esp_last_error, const char* (*)(void));
SAME_TYPE(&esp_load, esp_executor* (*)(const char*, esp_mode, const char*));
SAME_TYPE(&esp_load_outputs, esp_executor* (*)(const char*, const char* const*, size_t, const char*));
SAME_TYPE(&esp_release, void (*)(esp_executor*));
SAME_TYPE(&esp_input_count, size_t (*)(const esp_executor*));
SAME_TYPE(&esp_output_count, size_t (*)(const esp_executor*));
SAME_TYPE(&esp_input, esp_status (*)(const esp_executor*, size_t, esp_value*));
SAME_TYPE(&esp_output, esp_status (*)(const esp_executor*, size_t, esp_value*));
SAME_TYPE(&esp_run,
          esp_status (*)(esp_executor*, DLManagedTensor* const*, size_t, DLManagedTensor**, size_t));
SAME_TYPE(&esp_save, esp_status (*)(const esp_executor*, const char*));

typedef void (*function)(void);
const function functions[] = {(function)esp_version, (function)esp_last_error,  (function)esp_load,
                              (function)esp_release, (function)esp_input_count, (function)esp_output_count,
                              (function)esp_input,   (function)esp_output,      (function)esp_run,
                              (function)esp_save,    (function)esp_load_outputs};

int main(void) {
  esp_value value;
  if (esp_load(NULL, ESP_AS_SAVED, NULL) || !*esp_last_error()) return 1;
  if (esp_input_count(NULL) || esp_input(NULL, 0, &value) != ESP_INVALID) return 1;
  esp_release(NULL);
  return 0;
}
