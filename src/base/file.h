/* file.h: files, whole and mapped.
 *
 * A mapped file that is cut short while it is in use does not kill the process: the fault handler puts zero pages under the hole
 * and marks the mapping; weft_map_check() then turns the mark into an error. Readers of a map call it after they have read. */
#ifndef WEFT_BASE_FILE_H
#define WEFT_BASE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

typedef struct weft_map {
    const uint8_t *data; /* NULL for an empty file */
    size_t size;
    char *path;
    int slot; /* place in the fault handler's table; of meaning only while path is set */
} weft_map;

/* Maps a regular file read-only. WEFT_EINVAL for a directory, pipe or device, WEFT_EBUSY beyond 1024 maps at a time. */
weft_status weft_map_open(weft_map *m, const char *path, weft_error *e);
void weft_map_close(weft_map *m); /* a zeroed or closed map is fine */
/* WEFT_EIO if the file shrank or failed under the map. */
weft_status weft_map_check(const weft_map *m, weft_error *e);

/* Reads a whole regular file, at most `limit` bytes (larger: WEFT_EFORMAT, before anything is read). *data is terminated with a
 * zero byte that *size does not count; freed by weft_free. */
weft_status weft_file_read(const char *path, size_t limit, char **data, size_t *size, weft_error *e);

/* Writes to a temporary file beside path, syncs, renames: the old file stays whole if anything fails. Its permissions carry over;
 * a link is replaced by the file. */
weft_status weft_file_write(const char *path, const void *data, size_t size, weft_error *e);

bool weft_file_exists(const char *path); /* a regular file (links followed) */
bool weft_dir_exists(const char *path);

#endif
