/* dirs.c: see dirs.h. By the XDG Base Directory Specification 0.8, which wants relative paths to be ignored. */
#include "base/dirs.h"

#include <stdio.h>
#include <stdlib.h>

#if defined(__APPLE__)
#define CACHES "Library/Caches"
#else
#define CACHES ".cache"
#endif

bool weft_cache_dir(weft_str *dir, const char *name) {
    const char *caches = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    weft_str_clear(dir);
    if (caches && caches[0] == '/') return weft_str_addf(dir, "%s/weft/%s", caches, name);
    if (home && home[0] == '/') return weft_str_addf(dir, "%s/" CACHES "/weft/%s", home, name);
    return true;
}

void weft_cache_label(char to[WEFT_LABEL + 1], const char *text) {
    size_t n = 0;
    for (; text[n] && n < WEFT_LABEL; n++) {
        char c = text[n];
        bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
        to[n] = c;
        if (!plain && !(c == '.' && n)) to[n] = '_';
    }
    to[n] = '\0';
    if (!n) snprintf(to, WEFT_LABEL + 1, "model");
}
