/* dirs.h: where a user's own files go. */
#ifndef WEFT_BASE_DIRS_H
#define WEFT_BASE_DIRS_H

#include "base/str.h"

/* The user's folder for what can be made again, which need not exist: $XDG_CACHE_HOME/weft/NAME, else ~/.cache/weft/NAME, on macOS
 * ~/Library/Caches/weft/NAME. Left empty where the environment names neither (HOME). False when memory is short. */
bool weft_cache_dir(weft_str *dir, const char *name);

/* Any text as the beginning of a file's name: letters, digits, '_', '-' and '.', not at the start; "model" for no text at all. */
enum { WEFT_LABEL = 80 };
void weft_cache_label(char to[WEFT_LABEL + 1], const char *text);

#endif
