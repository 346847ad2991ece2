/* packed.h: the packed form of a checkpoint's weights, kept on disk and mapped.
 *
 * Packing reads and rearranges every weight: seconds for each gigabyte, at every start. So the result is kept as one file for each
 * checkpoint and tile layout, and the next start maps it. The weights are handed out as blobs, one after the other, in the order
 * in which they were asked for when the file was made; the file knows nothing of what is in them.
 *
 *     weft_packed_open(&p, &desc, pool, e);
 *     for every weight:
 *         data = weft_packed_take(p, bytes);            NULL: no memory
 *         if (!weft_packed_ready(p)) fill data;
 *     weft_packed_commit(p, e);
 *     after every step: weft_packed_check(p, e);
 *
 * A file is used only if it is whole: the header, the size and a checksum of every 4 MiB are verified at each start, which also
 * brings the pages in (1.2 GB in the page cache: 0.2 s on two cores), and only if it can be this user's work alone. Any other is
 * made anew. A new one is written in place, under a name of its own until it is whole, so that processes that start at the same
 * time do not meet; the last one's stays. What goes wrong with files never fails a start, as packing can do without them: it is
 * one line in the log. A file that is cut short while it is in use is an error (weft_packed_check), not a crash.
 *
 * An object belongs to one thread at a time; the blobs may be filled by many. */
#ifndef WEFT_OPS_CPU_PACKED_H
#define WEFT_OPS_CPU_PACKED_H

#include "base/pool.h"
#include "base/str.h"

/* Of the file's format and of what the blobs hold: raised with every change of the tile layout, and of the order in which
 * model/load.c hands out a weight's rows. */
#define WEFT_PACKED_VERSION 1
/* Smaller checkpoints are packed sooner than they are read. Bytes. */
#define WEFT_PACKED_LEAST ((size_t)64 << 20)

typedef struct weft_packed weft_packed;

typedef struct weft_packed_desc {
    const char *dir;    /* the folder, made where it is missing; NULL: nothing is kept, the blobs are ordinary memory */
    const char *label;  /* what the file's name begins with: the model's; any text */
    uint8_t source[16]; /* which checkpoint: weft_model_dir_fingerprint() */
    uint64_t layout;    /* what else the blobs depend on: the kind of tiles, the list of weights with their shapes and types */
    size_t bytes;       /* of all blobs, each rounded up to 64 */
    size_t least;       /* fewer bytes than this are not kept; 0: WEFT_PACKED_LEAST */
} weft_packed_desc;

/* Nothing but a lack of memory is an error. The pool is used here and in weft_packed_commit(). */
weft_status weft_packed_open(weft_packed **p, const weft_packed_desc *desc, weft_pool *pool, weft_error *e);
void weft_packed_close(weft_packed *p); /* the blobs go, too; NULL is fine */

/* The blobs hold what they held when the file was made, and may only be read. */
bool weft_packed_ready(const weft_packed *p);
/* The next blob, aligned to 64 bytes; zeros unless the file is ready. NULL when memory is short, and beyond desc.bytes. */
uint8_t *weft_packed_take(weft_packed *p, size_t bytes);
/* All blobs are filled and will only be read from now on: makes the file permanent. An error means that the blobs themselves were
 * lost on the way (the file was cut short by somebody while it was filled). Removes files of the same label that nobody has used
 * for 30 days. */
weft_status weft_packed_commit(weft_packed *p, weft_error *e);
/* WEFT_EIO: the file was cut short or could not be read, and what was read since the last call may have been zeros. */
weft_status weft_packed_check(const weft_packed *p, weft_error *e);

/* What is kept for a checkpoint, the newest of several layouts. */
typedef struct weft_packed_info {
    weft_str path;  /* empty: nothing */
    uint64_t bytes; /* of the file */
    bool valid;     /* as far as its header tells: the rest is verified when it is used */
    weft_error why; /* it is not */
} weft_packed_info; /* zero-initialise; path is freed by weft_str_free() */
weft_status weft_packed_find(weft_packed_info *info, const char *dir, const char *label, const uint8_t source[16], weft_error *e);

#endif
