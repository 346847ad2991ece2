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
    int64_t mtime_ns; /* when the file was last written as it was mapped: nanoseconds since 1970 */
    char *path;
    char *temp; /* what a file that is being written is called until it is published; else NULL */
    int slot;   /* place in the fault handler's table; of meaning only while path is set */
    int fd;     /* of a file that is being written, holds its lock; of meaning only while temp is set */
} weft_map;

/* Maps a regular file read-only. WEFT_EINVAL for a directory, pipe or device, WEFT_EBUSY beyond 1024 maps at a time. */
weft_status weft_map_open(weft_map *m, const char *path, weft_error *e);
/* The same for a file that nobody else can have written: no link, owned by this user, writable by nobody else; WEFT_EINVAL for any
 * other. */
weft_status weft_map_open_own(weft_map *m, const char *path, weft_error *e);
void weft_map_close(weft_map *m); /* a zeroed or closed map is fine */
/* WEFT_EIO if the file shrank or failed under the map. */
weft_status weft_map_check(const weft_map *m, weft_error *e);

/* The other direction: a file is made in place, through a map that may be written (cast the const away), and appears under its name
 * when it is whole. Until then it lies beside it under a name of its own, for this user alone and locked, which
 * weft_file_remove_abandoned() goes by when the process dies.
 * Makes `size` zero bytes, size >= 1. The blocks are reserved first, so that a full disk is an error here and not a fault when a
 * page is written. */
weft_status weft_map_create(weft_map *m, const char *path, size_t size, weft_error *e);
/* To the disk, then to its name; a map that may only be read is left. On failure nothing of it is left on the disk and the bytes
 * live on at the same addresses in ordinary memory (*e says why; with WEFT_ENOMEM they are lost): what a disk that failed still
 * holds of them, the caller must check. Nobody else may use the bytes meanwhile. A map that is closed unpublished leaves nothing.
 */
weft_status weft_map_publish(weft_map *m, weft_error *e);
/* Removes what a process that ended left of weft_map_create(); false while its writer lives, or may live. */
bool weft_file_remove_abandoned(const char *temp);

/* Reads a whole regular file, at most `limit` bytes (larger: WEFT_EFORMAT, before anything is read). *data is terminated with a
 * zero byte that *size does not count; freed by weft_free. */
weft_status weft_file_read(const char *path, size_t limit, char **data, size_t *size, weft_error *e);

/* Writes to a temporary file beside path, syncs, renames: the old file stays whole if anything fails. Its permissions carry over;
 * a link is replaced by the file. */
weft_status weft_file_write(const char *path, const void *data, size_t size, weft_error *e);

/* Makes a folder and those above it where they are missing, for this user alone (0700). */
weft_status weft_dir_make(const char *path, weft_error *e);

bool weft_file_exists(const char *path); /* a regular file (links followed) */
bool weft_dir_exists(const char *path);

#endif
