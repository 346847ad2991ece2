#!/usr/bin/env python3
"""The project's own rules, checked on the text of the sources (comments and strings blanked out):

  layers     a file includes only headers of its own floor or lower ones
  library    no printing, exiting, aborting in the library (src without src/cli); no C library allocator outside base/alloc.c
  libm       no exp, log, sin, pow and the like in src/ops, src/model and src/engine: results must not depend on the C library;
             the square root is exact everywhere. A reason "libm: ..." in a file's opening comment excuses the file
  portable   Linux-only and glibc-only headers and calls only in files that branch on __linux__
  size       the tracked files stay below 48 MiB

A line that must break a rule says why in a comment "lint: RULE: reason" on it or on the line before."""

import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
FLOORS = ["base", "format", "text", "forge", "ops", "model", "cache", "engine", "server", "cli"]
PUBLIC = "weft.h"
LIMIT = 48 << 20


def calls(names):
    return re.compile(r"(?<![\w.>])(?:%s)\s*\(" % "|".join(names.split()))


PRINT = calls("printf vprintf fprintf vfprintf dprintf puts fputs putchar putc fputc perror psignal warn warnx err errx "
              "exit _exit _Exit quick_exit abort")
ALLOC = calls("malloc calloc realloc reallocarray free strdup strndup aligned_alloc posix_memalign memalign valloc asprintf "
              "vasprintf getline getdelim open_memstream")
LIBM = calls(" ".join(f + s for f in "exp exp2 exp10 expm1 log log2 log10 log1p pow sin cos tan tanh sinh cosh asin acos atan "
                      "atan2 asinh acosh atanh erf erfc tgamma lgamma cbrt hypot".split() for s in ("", "f", "l")))
LINUX_HEADER = re.compile(r"#\s*include\s*<(sys/(epoll|eventfd|inotify|prctl|sendfile|signalfd|sysinfo|timerfd|random|syscall)\.h|"
                          r"linux/.*|asm/.*|malloc\.h|endian\.h|byteswap\.h|error\.h|argp\.h|features\.h|gnu/.*|numa\.h|sched\.h)>")
LINUX_CALL = calls("strchrnul mempcpy memrchr secure_getenv get_nprocs qsort_r fopencookie memfd_create mremap fallocate "
                   "posix_fallocate posix_fadvise pipe2 accept4 dup3 gettid sincos sincosf canonicalize_file_name getrandom "
                   "epoll_create epoll_create1 epoll_ctl epoll_wait eventfd signalfd timerfd_create inotify_init prctl "
                   "sched_getaffinity sched_setaffinity sched_getcpu pthread_setaffinity_np pthread_getaffinity_np "
                   "pthread_barrier_init pthread_barrier_wait pthread_spin_init pthread_spin_lock pthread_condattr_setclock "
                   "pthread_timedjoin_np pthread_tryjoin_np pthread_mutex_timedlock sem_init sem_timedwait clock_nanosleep "
                   "sigtimedwait sigwaitinfo timer_create execvpe strverscmp malloc_trim malloc_usable_size mallinfo mallinfo2 "
                   "program_invocation_name explicit_bzero statx renameat2 copy_file_range splice tee vmsplice process_vm_readv "
                   "syscall ppoll")
LINUX_NAME = re.compile(r"\b(MAP_POPULATE|MAP_HUGETLB|MADV_HUGEPAGE|MADV_POPULATE_READ|O_DIRECT|O_TMPFILE|O_PATH|MSG_NOSIGNAL|"
                        r"CLOCK_MONOTONIC_COARSE|TEMP_FAILURE_RETRY|__GLIBC__|_GNU_SOURCE)\b")


def blank(text):
    """The text with comments and the insides of strings and characters turned to blanks; lines stay where they are."""
    def fill(m):
        s = m.group(0)
        if s[0] in "\"'":
            return s[0] + " " * (len(s) - 2) + s[0]
        return re.sub(r"[^\n]", " ", s)
    return re.sub(r"/\*.*?\*/|//[^\n]*|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'", fill, text, flags=re.S)


def check(path, report):
    rel = path.relative_to(ROOT)
    parts = rel.parts  # src/FLOOR/...
    floor = parts[1]
    raw = path.read_text(encoding="utf-8")
    lines, code = raw.split("\n"), blank(raw).split("\n")
    for_linux = re.search(r"^\s*#\s*(if|elif).*__linux__", raw, re.M)
    opening = re.match(r"\s*/\*.*?\*/", raw, re.S)
    libm = floor in ("ops", "model", "engine") and not (opening and "libm: " in opening.group(0))

    for i, (text, line) in enumerate(zip(code, lines)):
        def fault(rule, what):
            if not any(f"lint: {rule}:" in near for near in lines[max(0, i - 1):i + 1]):
                report.append(f"{rel}:{i + 1}: {rule}: {what}")

        include = re.match(r'\s*#\s*include\s*"([^"]+)"', line)
        if include and include.group(1) != PUBLIC:
            target = include.group(1)
            their = target.split("/")[0]
            if "/" not in target or their not in FLOORS:
                fault("layers", f'"{target}": write the path from src/, "floor/name.h"')
            elif FLOORS.index(their) > FLOORS.index(floor):
                fault("layers", f'{floor} must not include "{target}" from the higher floor {their}')
            elif not (ROOT / "src" / target).is_file():
                fault("layers", f'"{target}" does not exist')
        if floor not in ("cli",):
            for m in PRINT.finditer(text):
                fault("library", f"{m.group(0)[:-1].strip()}: the library returns errors; it never prints or exits")
        if str(rel) != "src/base/alloc.c":
            for m in ALLOC.finditer(text):
                fault("library", f"{m.group(0)[:-1].strip()}: memory goes through base/alloc.h")
        if libm and not any("libm: " in near for near in lines[max(0, i - 1):i + 1]):
            for m in LIBM.finditer(text):
                fault("libm", f"{m.group(0)[:-1].strip()}: differs between C libraries; say \"libm: why\" where that is harmless")
        if not for_linux:
            for pattern in (LINUX_HEADER, LINUX_CALL, LINUX_NAME):
                m = pattern.search(line if pattern is LINUX_HEADER else text)
                if m:
                    fault("portable", f"{m.group(0).rstrip('( ')}: Linux or glibc only, and the file has no __linux__ branch")


def size(report):
    listed = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=ROOT,
                            capture_output=True, check=False)
    if listed.returncode != 0:
        return  # an unpacked archive: nothing is tracked
    files = [ROOT / name for name in listed.stdout.decode().split("\0") if name]
    total = sum(f.stat().st_size for f in files if f.is_file())
    if total >= LIMIT:
        report.append(f"size: {len(files)} files hold {total} bytes, the limit is {LIMIT}")


def main():
    report = []
    sources = sorted(p for pattern in ("*.c", "*.h") for p in (ROOT / "src").rglob(pattern))
    for path in sources:
        if path.relative_to(ROOT).parts[1] not in FLOORS:
            report.append(f"{path.relative_to(ROOT)}: layers: not on a floor ({', '.join(FLOORS)})")
            continue
        check(path, report)
    size(report)
    for line in report:
        print(line)
    print(f"rules: {len(sources)} files, {len(report)} faults")
    return 1 if report else 0


if __name__ == "__main__":
    sys.exit(main())
