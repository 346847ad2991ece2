/* bundled.c: where the model that comes with weft lies. */
#include "cli/cli.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#if defined(__APPLE__)
#include <mach-o/dyld.h>
#endif

#include "base/file.h"

enum { PATH = 4096 };

/* The running program's own file, links resolved; false where the system does not say. */
static bool executable(char path[PATH]) {
#if defined(__linux__)
    ssize_t n = readlink("/proc/self/exe", path, PATH - 1);
    if (n <= 0 || n >= PATH - 1) return false;
    path[n] = 0;
    return true;
#elif defined(__APPLE__)
    char raw[PATH];
    uint32_t size = sizeof raw;
    if (_NSGetExecutablePath(raw, &size) != 0) return false;
    return realpath(raw, path) != NULL; /* PATH_MAX is 1024 there */
#else
    (void)path;
    return false;
#endif
}

const char *weft_cli_bundled_model(void) {
    static const char *const beside[] = {"share/weft/models/mini", "models/mini"}; /* installed; build/weft in the source tree */
    static char found[PATH + 32];
    char path[PATH];
    if (executable(path)) {
        for (int up = 0; up < 2; up++) { /* PREFIX/bin/weft -> PREFIX */
            char *slash = strrchr(path, '/');
            if (!slash) break;
            *slash = 0;
        }
        for (int i = 0; i < 2; i++) {
            snprintf(found, sizeof found, "%s/%s", path, beside[i]);
            if (weft_dir_exists(found)) return found;
        }
    }
    snprintf(found, sizeof found, "models/mini");
    return weft_dir_exists(found) ? found : NULL;
}
