/* ids.h: files of token ids. */
#ifndef WEFT_CLI_IDS_H
#define WEFT_CLI_IDS_H

#include "base/error.h"
#include "base/vec.h"

typedef WEFT_VEC(int32_t) weft_cli_ids;

/* Numbers between blanks or commas, or a safetensors file with a tensor 'input_ids' (I32 or I64). An empty list is an error. */
weft_status weft_cli_read_ids(weft_cli_ids *ids, const char *path, weft_error *e);
/* One line of numbers. */
weft_status weft_cli_write_ids(const char *path, const int32_t *ids, size_t n, weft_error *e);

#endif
