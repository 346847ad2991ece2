/* error.c: messages. Text is made in a buffer of its own first, so that a message may quote the one it replaces. */
#define WEFT_ERROR_C
#include "base/error.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/num.h"

const char *weft_status_name(weft_status s) {
    switch (s) {
    case WEFT_OK: return "ok";
    case WEFT_EINVAL: return "invalid argument";
    case WEFT_EIO: return "input/output error";
    case WEFT_ENOMEM: return "out of memory";
    case WEFT_EFORMAT: return "damaged or contradictory file";
    case WEFT_ESUPPORT: return "not supported";
    case WEFT_ENUMERIC: return "not a number";
    case WEFT_EBUSY: return "busy";
    }
    return "unknown status";
}

/* Length of the well-formed UTF-8 sequence at s (RFC 3629: no surrogates, no overlong forms), its code point in *cp; 0 if there is
 * none. s is terminated, and a zero byte is no continuation, so this never reads past the end. */
static size_t sequence(const unsigned char *s, uint32_t *cp) {
    static const uint32_t least[5] = {0, 0, 0x80, 0x800, 0x10000};
    size_t n = s[0] < 0x80 ? 1 : s[0] < 0xC2 ? 0 : s[0] < 0xE0 ? 2 : s[0] < 0xF0 ? 3 : s[0] < 0xF5 ? 4 : 0;
    if (n == 0) return 0;
    uint32_t c = n == 1 ? s[0] : s[0] & (0x7Fu >> n);
    for (size_t i = 1; i < n; i++) {
        if ((s[i] & 0xC0) != 0x80) return 0;
        c = c << 6 | (s[i] & 0x3Fu);
    }
    if (c < least[n] || c > 0x10FFFF || (c >= 0xD800 && c < 0xE000)) return 0;
    *cp = c;
    return n;
}

/* C0, DEL and C1 controls, line and paragraph separators, and the marks that reorder text on a screen. */
static bool forbidden(uint32_t c) {
    return c < 0x20 || (c >= 0x7F && c < 0xA0) || (c >= 0x2028 && c <= 0x202E) || (c >= 0x2066 && c <= 0x2069);
}

void weft_clean_line(char *text) {
    unsigned char *from = (unsigned char *)text, *to = from;
    while (*from) {
        uint32_t cp = 0;
        size_t n = sequence(from, &cp);
        if (n == 0 || forbidden(cp)) {
            *to++ = '?';
            from += n ? n : 1;
        } else {
            memmove(to, from, n);
            to += n;
            from += n;
        }
    }
    *to = 0;
}

void weft_format_line(char *buf, size_t size, const char *fmt, va_list ap) {
    int n = weft_vformat(buf, size, fmt, ap);
    if (n < 0) buf[0] = 0;
    if (n >= 0 && (size_t)n >= size) { /* cut: drop the character that the cut went through */
        size_t end = size - 1, lead = end;
        while (lead > 0 && end - lead < 4 && ((unsigned char)buf[lead - 1] & 0xC0) == 0x80) lead--;
        uint32_t cp;
        if (lead > 0 && (unsigned char)buf[lead - 1] >= 0xC0 && sequence((unsigned char *)buf + lead - 1, &cp) == 0)
            buf[lead - 1] = 0;
    }
    weft_clean_line(buf);
}

static weft_status set(weft_error *e, weft_status code, const char *fmt, va_list ap) {
    if (e) {
        char text[sizeof e->text];
        weft_format_line(text, sizeof text, fmt, ap);
        e->code = code;
        memcpy(e->text, text, sizeof text);
    }
    return code;
}

weft_status weft_fail(weft_error *e, weft_status code, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    set(e, code, fmt, ap);
    va_end(ap);
    return code;
}

weft_status weft_fail_oom(weft_error *e, const char *what) {
    return weft_fail(e, WEFT_ENOMEM, "out of memory: %s", what);
}

weft_status weft_fail_os(weft_error *e, int number, const char *fmt, ...) {
    weft_status code = number == ENOMEM ? WEFT_ENOMEM : WEFT_EIO;
    if (!e) return code;
    va_list ap;
    va_start(ap, fmt);
    set(e, code, fmt, ap);
    va_end(ap);
    char reason[128];
    if (strerror_r(number, reason, sizeof reason) != 0) snprintf(reason, sizeof reason, "error %d", number);
    return weft_fail(e, code, "%s: %s", e->text, reason);
}

weft_status weft_fail_in(weft_error *e, const char *prefix) {
    if (!e) return WEFT_EINVAL;
    return weft_fail(e, e->code, "%s: %s", prefix, e->text);
}
