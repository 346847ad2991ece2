/* peer.c: the speed of llama.cpp, as node-llama-cpp ships it, on one GGUF file; one JSON object on standard output.
 *
 *   peer --lib DIR --model FILE [--threads N] [--flash on|off|both] [--prefill TOKENS@DEPTH,...] [--decode DEPTH,...]
 *        [--decode-tokens N] [--rows DEPTH,...] [--row-counts M,...] [--row-rounds N]
 *   peer --lib DIR --model FILE [--threads N] --ids ID,... --logits FILE
 *
 * prefill  TOKENS tokens in one call behind DEPTH cached ones, logits for the last
 * decode   tokens one by one behind DEPTH cached ones, logits for each, nothing sampled
 * rows     one call of M tokens with logits for each, what a verify pass of speculative decoding costs
 * logits   nothing is measured: the logits behind each of the ids go to the file, as float32, row by row
 *
 * The libraries are opened at run time, so this program builds without them. What it declares of them are facts of the interface of
 * llama.cpp 0.4.0 and only as much as is called; the defaults that the library fills in are compared with the known ones, so that a
 * library with another interface is refused instead of misread.
 *
 * A depth is not computed: a short real prefill is saved with its state, the saved keys and values are repeated as often as the
 * depth needs, and the result is loaded as a state (speed does not depend on values). Where the saved state does not have the
 * expected form, the depth is filled by a real prefill, once. Batch 2048, micro batch 512, keys and values in 16 bits, CPU only. */
#define _GNU_SOURCE /* dladdr */
#include <dirent.h>
#include <dlfcn.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

enum { BATCH = 2048, MICRO_BATCH = 512, SEED_TOKENS = 512, MAX_CELLS = 16, MAX_ROWS = 64, MAX_REPEATS = 64, WARM_STEPS = 2 };

/* ---- the library's interface: facts of version 0.4.0 --------------------------------------------------------------------- */

enum { LOG_ERROR = 4, LOAD_MMAP = 1, FLASH_OFF = 0, FLASH_ON = 1, TYPE_F16 = 1 };

typedef struct model_params {
    void **devices; /* ends with NULL; an empty list: no accelerator */
    const void *buffer_overrides;
    int32_t gpu_layers;
    int32_t split_mode, load_mode, lazy_mode; /* enums */
    int32_t main_gpu;
    const float *tensor_split;
    bool (*progress)(float, void *);
    void *progress_data;
    const void *key_overrides;
    bool vocab_only, check_tensors, extra_buffers, no_host, no_alloc, load_mtp;
} model_params;

typedef struct context_params {
    uint32_t context, batch, micro_batch, sequences, snapshots, outputs, outputs_per_sequence;
    int32_t threads, threads_batch;
    int32_t context_type, rope_scaling, pooling, attention, flash; /* enums */
    float rope_base, rope_scale, yarn_extension, yarn_attention, yarn_fast, yarn_slow;
    uint32_t yarn_context;
    float defragment;
    void *eval_callback, *eval_data;
    int32_t type_k, type_v; /* enum of tensor types */
    void *abort_callback, *abort_data;
    bool embeddings, offload_kv, no_timings, offload_ops, full_window, one_buffer;
    void *samplers;
    size_t sampler_count;
    void *other;
} context_params;

typedef struct batch {
    int32_t tokens;
    int32_t *token;
    float *embedding;
    int32_t *position, *sequences; /* NULL: they follow what is cached, sequence 0 */
    int32_t **sequence;
    int8_t *logits; /* per token, not 0: wanted */
} batch;

typedef void log_callback(int level, const char *text, void *data);

/* name here, result, the library's name, arguments */
#define PEER_FUNCTIONS(F)                                                                                                          \
    F(version, const char *, llama_version, (void))                                                                                \
    F(log_set, void, llama_log_set, (log_callback *, void *))                                                                      \
    F(start, void, llama_backend_init, (void))                                                                                     \
    F(load_backends, void, ggml_backend_load_all_from_path, (const char *))                                                        \
    F(backend_by_name, void *, ggml_backend_reg_by_name, (const char *))                                                           \
    F(backend_function, void *, ggml_backend_reg_get_proc_address, (void *, const char *))                                         \
    F(system_info, const char *, llama_print_system_info, (void))                                                                  \
    F(model_defaults, model_params, llama_model_default_params, (void))                                                            \
    F(context_defaults, context_params, llama_context_default_params, (void))                                                      \
    F(model_load, void *, llama_model_load_from_file, (const char *, model_params))                                                \
    F(model_free, void, llama_model_free, (void *))                                                                                \
    F(model_describe, int32_t, llama_model_desc, (const void *, char *, size_t))                                                   \
    F(model_bytes, uint64_t, llama_model_size, (const void *))                                                                     \
    F(model_vocab, const void *, llama_model_get_vocab, (const void *))                                                            \
    F(vocab_size, int32_t, llama_vocab_n_tokens, (const void *))                                                                   \
    F(context_new, void *, llama_init_from_model, (void *, context_params))                                                        \
    F(context_free, void, llama_free, (void *))                                                                                    \
    F(memory, void *, llama_get_memory, (const void *))                                                                            \
    F(memory_clear, void, llama_memory_clear, (void *, bool))                                                                      \
    F(last_position, int32_t, llama_memory_seq_pos_max, (void *, int32_t))                                                         \
    F(state_size, size_t, llama_state_seq_get_size, (void *, int32_t))                                                             \
    F(state_get, size_t, llama_state_seq_get_data, (void *, uint8_t *, size_t, int32_t))                                           \
    F(state_set, size_t, llama_state_seq_set_data, (void *, const uint8_t *, size_t, int32_t))                                     \
    F(decode, int32_t, llama_decode, (void *, batch))                                                                              \
    F(wait, void, llama_synchronize, (void *))                                                                                     \
    F(logits, float *, llama_get_logits_ith, (void *, int32_t))

#define DECLARE(name, result, symbol, arguments) result(*name) arguments;
typedef struct library {
    PEER_FUNCTIONS(DECLARE)
} library;

/* ---- small things -------------------------------------------------------------------------------------------------------- */

static library peer;
static char peer_error[512]; /* the first error that the library logged: the later ones follow from it */

_Noreturn static void fail(const char *format, ...) {
    va_list a;
    fputs("peer: ", stderr);
    va_start(a, format);
    vfprintf(stderr, format, a);
    va_end(a);
    if (*peer_error) fprintf(stderr, ". The library says: %s", peer_error);
    fputc('\n', stderr);
    exit(1);
}

static void *allocate(size_t bytes) {
    void *p = malloc(bytes ? bytes : 1);
    if (!p) fail("no memory for %zu bytes", bytes);
    return p;
}

static double seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}
static double median(double *v, int n) {
    qsort(v, (size_t)n, sizeof *v, ascending);
    return (v[(n - 1) / 2] + v[n / 2]) / 2;
}

static void print_string(const char *s) {
    putchar('"');
    for (; *s; s++) {
        if (*s == '"' || *s == '\\') putchar('\\');
        if ((unsigned char)*s < 0x20)
            printf("\\u%04x", (unsigned)*s);
        else
            putchar(*s);
    }
    putchar('"');
}

static void keep_errors(int level, const char *text, void *data) {
    (void)data;
    if (level != LOG_ERROR || *peer_error) return;
    snprintf(peer_error, sizeof peer_error, "%s", text);
    peer_error[strcspn(peer_error, "\r\n")] = 0;
}

/* ---- opening ------------------------------------------------------------------------------------------------------------- */

static void open_library(const char *dir) {
    char path[4096] = "";
    DIR *d = opendir(dir);
    if (!d) fail("cannot open the folder %s", dir);
    for (struct dirent *e; (e = readdir(d));) {
        const char *dot = strrchr(e->d_name, '.');
        bool shared = dot && (!strcmp(dot, ".so") || !strcmp(dot, ".dylib"));
        if (shared && !strncmp(e->d_name, "libllama.", 9)) snprintf(path, sizeof path, "%s/%s", dir, e->d_name);
    }
    closedir(d);
    if (!*path) fail("%s has no libllama; give the folder of node-llama-cpp's shared libraries with --lib", dir);
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!handle) fail("cannot open %s: %s", path, dlerror());
#define RESOLVE(name, result, symbol, arguments)                                                                                   \
    if (!(*(void **)&peer.name = dlsym(handle, #symbol)))                                                                          \
        fail("%s has no %s: not the version this program was written for", path, #symbol);
    PEER_FUNCTIONS(RESOLVE)

    /* Two structures travel by value: their known defaults tell whether their layout is the one declared here. */
    model_params m = peer.model_defaults();
    context_params c = peer.context_defaults();
    if (c.batch != BATCH || c.micro_batch != MICRO_BATCH || c.type_k != TYPE_F16 || c.type_v != TYPE_F16 || c.flash != -1 ||
        c.other || c.samplers || m.key_overrides || m.vocab_only || !m.extra_buffers)
        fail("%s (version %s) has another interface than version 0.4.0", path, peer.version());
    peer.log_set(keep_errors, NULL);
    peer.load_backends(dir);
    peer.start();
}

/* The library has its kernels once per kind of processor and picks one file at start. */
static const char *kernels_file(void) {
    Dl_info info;
    void *cpu = peer.backend_by_name("CPU");
    void *f = cpu ? peer.backend_function(cpu, "ggml_backend_set_n_threads") : NULL;
    if (!f || !dladdr(f, &info) || !info.dli_fname) return "unknown";
    const char *slash = strrchr(info.dli_fname, '/');
    return slash ? slash + 1 : info.dli_fname;
}

/* ---- a context and its depth --------------------------------------------------------------------------------------------- */

typedef struct bytes {
    uint8_t *data;
    size_t size;
} bytes;

typedef struct session {
    void *context;
    int32_t vocab;
    uint64_t random;
    bytes seed;  /* the state after SEED_TOKENS tokens */
    bytes state; /* the state at `depth` */
    int depth;
    bool computed; /* some depth needed a real prefill */
} session;

static void decode(session *s, int tokens, bool all_logits) {
    static int32_t token[BATCH];
    static int8_t logits[BATCH];
    for (int done = 0; done < tokens;) {
        int n = tokens - done < BATCH ? tokens - done : BATCH;
        for (int i = 0; i < n; i++) {
            s->random = s->random * 6364136223846793005u + 1442695040888963407u;
            token[i] = (int32_t)((s->random >> 33) % (uint64_t)s->vocab);
            logits[i] = all_logits || done + i == tokens - 1;
        }
        batch b = {.tokens = n, .token = token, .logits = logits};
        if (peer.decode(s->context, b)) fail("decoding %d tokens failed", n);
        done += n;
    }
    peer.wait(s->context);
}

static bytes save_state(session *s) {
    bytes b = {.size = peer.state_size(s->context, 0)};
    b.data = allocate(b.size);
    if (!b.size || peer.state_get(s->context, b.data, b.size, 0) != b.size) fail("the state cannot be saved");
    return b;
}

static bool load_state(session *s, bytes b, int depth) {
    void *memory = peer.memory(s->context);
    peer.memory_clear(memory, false);
    return peer.state_set(s->context, b.data, b.size, 0) == b.size && peer.last_position(memory, 0) == depth - 1;
}

/* Reads the state `in` of n tokens and writes one of m tokens to out, by repeating what belongs to a token. */
typedef struct stretch {
    const uint8_t *in, *end;
    uint8_t *out; /* NULL: only count */
    size_t written;
    int n, m;
    bool bad;
} stretch;

static const uint8_t *take(stretch *x, size_t size) {
    static const uint8_t zero[16];
    if (x->bad || size > (size_t)(x->end - x->in)) {
        x->bad = true;
        return zero; /* callers read at most 8 bytes of it */
    }
    x->in += size;
    return x->in - size;
}
static void put(stretch *x, const void *data, size_t size) {
    if (x->out) memcpy(x->out + x->written, data, size);
    x->written += size;
}
static uint32_t copy_u32(stretch *x) {
    uint32_t v;
    memcpy(&v, take(x, sizeof v), sizeof v);
    put(x, &v, sizeof v);
    return v;
}
static uint64_t copy_u64(stretch *x) {
    uint64_t v;
    memcpy(&v, take(x, sizeof v), sizeof v);
    put(x, &v, sizeof v);
    return v;
}
/* n items of `size` bytes become m. */
static void repeat(stretch *x, uint64_t size) {
    if (size > (uint64_t)(x->end - x->in) / (uint64_t)x->n) x->bad = true;
    if (x->bad) return;
    const uint8_t *items = take(x, (size_t)size * (size_t)x->n);
    for (int i = 0; i < x->m; i += x->n) put(x, items, (size_t)size * (size_t)(x->m - i < x->n ? x->m - i : x->n));
}

/* The records of the tokens: position, the number of its sequences (1), for some models 4-byte words that may repeat the position,
 * the sequence. Nothing tells their size: it is the one at which the positions count from 0. */
static size_t record_size(const stretch *x) {
    for (size_t size = 12; size <= 32; size += 4) {
        bool fits = (size_t)(x->end - x->in) / size >= (size_t)x->n;
        for (int i = 0; fits && i < x->n; i++) {
            int32_t v[2];
            memcpy(v, x->in + (size_t)i * size, sizeof v);
            fits = v[0] == i && v[1] == 1;
        }
        if (fits) return size;
    }
    return 0;
}

static void stretch_records(stretch *x) {
    size_t size = record_size(x);
    if (!size) x->bad = true;
    if (x->bad) return;
    const uint8_t *records = take(x, size * (size_t)x->n);
    for (int i = 0; i < x->m; i++) {
        int32_t word[8], source = i % x->n;
        memcpy(word, records + (size_t)source * size, size);
        for (size_t k = 0; k + 1 < size / 4; k++)
            if (k != 1 && word[k] == source) word[k] = i;
        put(x, word, size);
    }
}

static bool stretch_state(stretch *x) {
    copy_u32(x); /* mark of the format */
    copy_u32(x); /* sequence */
    if (copy_u32(x) != 1) return false;
    uint32_t n = copy_u32(x), m = (uint32_t)x->m;
    if (n != (uint32_t)x->n || x->written < sizeof m) return false;
    if (x->out) memcpy(x->out + x->written - sizeof m, &m, sizeof m);
    stretch_records(x);
    uint32_t transposed = copy_u32(x), layers = copy_u32(x);
    for (uint32_t i = 0; i < layers && !x->bad; i++) {
        copy_u32(x); /* type */
        repeat(x, copy_u64(x));
    }
    for (uint32_t i = 0; i < layers && !x->bad; i++) {
        copy_u32(x);
        if (!transposed) {
            repeat(x, copy_u64(x));
            continue;
        }
        uint32_t item = copy_u32(x), rows = copy_u32(x);
        for (uint32_t r = 0; r < rows && !x->bad; r++) repeat(x, item);
    }
    if (x->bad || x->in == x->end) return !x->bad;
    /* A recurrent state: of one token, the last, of no sequence by name. */
    if (copy_u32(x) != 1 || copy_u32(x) != (uint32_t)x->n - 1) return false;
    int32_t last = x->m - 1;
    if (x->out) memcpy(x->out + x->written - sizeof last, &last, sizeof last);
    if (copy_u32(x) != 0) return false;
    put(x, x->in, (size_t)(x->end - x->in));
    return true;
}

static bool stretched(bytes in, int n, int m, bytes *out) {
    stretch x = {.in = in.data, .end = in.data + in.size, .n = n, .m = m};
    if (!stretch_state(&x)) return false;
    out->size = x.written;
    out->data = allocate(out->size);
    stretch y = {.in = in.data, .end = in.data + in.size, .n = n, .m = m, .out = out->data};
    return stretch_state(&y);
}

/* The context has `depth` tokens behind it afterwards. */
static void go_to(session *s, int depth) {
    peer.memory_clear(peer.memory(s->context), false);
    if (!depth) return;
    if (s->depth == depth) {
        if (!load_state(s, s->state, depth)) fail("the saved state of depth %d cannot be loaded", depth);
        return;
    }
    free(s->state.data);
    s->state = (bytes){0};
    s->depth = depth;
    if (stretched(s->seed, SEED_TOKENS, depth, &s->state) && load_state(s, s->state, depth)) return;
    *peer_error = 0;
    free(s->state.data);
    peer.memory_clear(peer.memory(s->context), false);
    decode(s, depth, false);
    s->state = save_state(s);
    s->computed = true;
}

/* ---- measuring ----------------------------------------------------------------------------------------------------------- */

typedef struct options {
    const char *lib, *model;
    int threads, decode_tokens, row_rounds;
    bool flash[2]; /* without, with */
    int prefill_tokens[MAX_CELLS], prefill_depth[MAX_CELLS], prefills;
    int decode_depth[MAX_CELLS], decodes;
    int rows_depth[MAX_CELLS], rows_depths;
    int row_count[MAX_CELLS], row_counts;
    const char *logits;
    int id[MAX_CELLS], ids;
} options;

static int context_size(const options *o) {
    int most = SEED_TOKENS, rows = 0;
    for (int i = 0; i < o->row_counts; i++) rows += o->row_count[i];
    for (int i = 0; i < o->prefills; i++)
        if (o->prefill_depth[i] + o->prefill_tokens[i] > most) most = o->prefill_depth[i] + o->prefill_tokens[i];
    for (int i = 0; i < o->decodes; i++)
        if (o->decode_depth[i] + o->decode_tokens + WARM_STEPS > most) most = o->decode_depth[i] + o->decode_tokens + WARM_STEPS;
    for (int i = 0; i < o->rows_depths; i++)
        if (o->rows_depth[i] + (o->row_rounds + 1) * rows > most) most = o->rows_depth[i] + (o->row_rounds + 1) * rows;
    return (most + 255) / 256 * 256;
}

static session open_session(const options *o, void *model, bool flash) {
    context_params p = peer.context_defaults();
    p.context = (uint32_t)context_size(o);
    p.batch = BATCH;
    p.micro_batch = MICRO_BATCH;
    p.sequences = 1;
    p.threads = p.threads_batch = o->threads;
    p.flash = flash ? FLASH_ON : FLASH_OFF;
    p.offload_kv = p.offload_ops = false;
    session s = {.context = peer.context_new(model, p), .vocab = peer.vocab_size(peer.model_vocab(model)), .random = 1};
    if (!s.context) fail("a context of %u tokens cannot be made", p.context);
    if (s.vocab < 1) fail("the model has no vocabulary");
    return s;
}

static void write_logits(const options *o, void *model) {
    session s = open_session(o, model, false);
    FILE *f = fopen(o->logits, "wb");
    if (!f) fail("cannot write %s", o->logits);
    int8_t wanted[MAX_CELLS];
    int32_t token[MAX_CELLS];
    for (int i = 0; i < o->ids; i++) token[i] = o->id[i] % s.vocab, wanted[i] = 1;
    batch b = {.tokens = o->ids, .token = token, .logits = wanted};
    if (peer.decode(s.context, b)) fail("decoding %d tokens failed", o->ids);
    peer.wait(s.context);
    for (int i = 0; i < o->ids; i++) {
        const float *row = peer.logits(s.context, i);
        if (!row || fwrite(row, sizeof *row, (size_t)s.vocab, f) != (size_t)s.vocab) fail("cannot write %s", o->logits);
    }
    if (fclose(f) != 0) fail("cannot write %s", o->logits);
    peer.context_free(s.context);
}

static void measure(const options *o, void *model, bool flash) {
    session s = open_session(o, model, flash);
    decode(&s, SEED_TOKENS, false);
    s.seed = save_state(&s);

    printf("{\"flash\": %s, \"prefill\": [", flash ? "true" : "false");
    for (int i = 0; i < o->prefills; i++) {
        go_to(&s, o->prefill_depth[i]);
        double t = seconds();
        decode(&s, o->prefill_tokens[i], false);
        printf("%s{\"tokens\": %d, \"depth\": %d, \"tok_s\": %.3f}", i ? ", " : "", o->prefill_tokens[i], o->prefill_depth[i],
               o->prefill_tokens[i] / (seconds() - t));
    }
    printf("], \"decode\": [");
    for (int i = 0; i < o->decodes; i++) {
        go_to(&s, o->decode_depth[i]);
        for (int k = 0; k < WARM_STEPS; k++) decode(&s, 1, true);
        double t = seconds();
        for (int k = 0; k < o->decode_tokens; k++) decode(&s, 1, true);
        printf("%s{\"tokens\": %d, \"depth\": %d, \"tok_s\": %.3f}", i ? ", " : "", o->decode_tokens, o->decode_depth[i],
               o->decode_tokens / (seconds() - t));
    }
    printf("], \"rows\": [");
    for (int i = 0; i < o->rows_depths; i++) {
        static double time[MAX_CELLS][MAX_REPEATS];
        go_to(&s, o->rows_depth[i]);
        for (int k = -1; k < o->row_rounds; k++) { /* the first round warms up */
            for (int r = 0; r < o->row_counts; r++) {
                double t = seconds();
                decode(&s, o->row_count[r], true);
                if (k >= 0) time[r][k] = seconds() - t;
            }
        }
        for (int r = 0; r < o->row_counts; r++)
            printf("%s{\"depth\": %d, \"rows\": %d, \"ms\": %.3f}", i + r ? ", " : "", o->rows_depth[i], o->row_count[r],
                   median(time[r], o->row_rounds) * 1e3);
    }
    printf("], \"depth_by\": \"%s\"}", s.computed ? "prefill" : "copies");
    fflush(stdout);
    free(s.seed.data);
    free(s.state.data);
    peer.context_free(s.context);
}

/* ---- arguments ----------------------------------------------------------------------------------------------------------- */

static int number(const char **text, const char *option, int least, int most) {
    char *end;
    long v = strtol(*text, &end, 10);
    if (end == *text || v < least || v > most) fail("%s: a number from %d to %d is needed at '%s'", option, least, most, *text);
    *text = end;
    return (int)v;
}

/* Numbers separated by commas; with `first`, pairs FIRST@NUMBER. */
static int numbers(const char *text, const char *option, int least, int most, int *first, int *list) {
    int n = 0;
    while (*text) {
        if (n == MAX_CELLS) fail("%s: more than %d entries", option, MAX_CELLS);
        if (first) {
            first[n] = number(&text, option, 1, BATCH);
            if (*text++ != '@') fail("%s: TOKENS@DEPTH is needed", option);
        }
        list[n++] = number(&text, option, least, most);
        if (*text == ',' && text[1])
            text++;
        else if (*text)
            fail("%s: '%s' is not understood", option, text);
    }
    return n;
}

static int one(const char *text, const char *option, int least, int most) {
    int v = number(&text, option, least, most);
    if (*text) fail("%s: '%s' is not understood", option, text);
    return v;
}

static void parse(options *o, int argc, char **argv) {
    enum { DEEPEST = 1 << 20 };
    for (int i = 1; i < argc; i += 2) {
        const char *name = argv[i], *v = i + 1 < argc ? argv[i + 1] : NULL;
        if (!v) fail("%s needs a value", name);
        if (!strcmp(name, "--lib"))
            o->lib = v;
        else if (!strcmp(name, "--model"))
            o->model = v;
        else if (!strcmp(name, "--threads"))
            o->threads = one(v, name, 1, 512);
        else if (!strcmp(name, "--decode-tokens"))
            o->decode_tokens = one(v, name, 1, 4096);
        else if (!strcmp(name, "--row-rounds"))
            o->row_rounds = one(v, name, 1, MAX_REPEATS);
        else if (!strcmp(name, "--prefill"))
            o->prefills = numbers(v, name, 0, DEEPEST, o->prefill_tokens, o->prefill_depth);
        else if (!strcmp(name, "--decode"))
            o->decodes = numbers(v, name, 0, DEEPEST, NULL, o->decode_depth);
        else if (!strcmp(name, "--rows"))
            o->rows_depths = numbers(v, name, 0, DEEPEST, NULL, o->rows_depth);
        else if (!strcmp(name, "--row-counts"))
            o->row_counts = numbers(v, name, 1, MAX_ROWS, NULL, o->row_count);
        else if (!strcmp(name, "--ids"))
            o->ids = numbers(v, name, 0, INT32_MAX, NULL, o->id);
        else if (!strcmp(name, "--logits"))
            o->logits = v;
        else if (!strcmp(name, "--flash")) {
            o->flash[0] = strcmp(v, "on") != 0;
            o->flash[1] = strcmp(v, "off") != 0;
            if (o->flash[0] && o->flash[1] && strcmp(v, "both")) fail("--flash is on, off or both, not '%s'", v);
        } else
            fail("there is no option %s; bench/peer/peer.c lists them", name);
    }
    if (!o->lib || !o->model) fail("--lib DIR and --model FILE are needed");
    if ((o->ids > 0) != (o->logits != NULL)) fail("--ids and --logits belong together");
}

int main(int argc, char **argv) {
    options o = {.threads = 2,
                 .decode_tokens = 16,
                 .row_rounds = 5,
                 .flash = {true, true},
                 .prefill_tokens = {512},
                 .prefills = 1,
                 .decodes = 1,
                 .rows_depths = 1,
                 .row_count = {1, 2, 4, 8},
                 .row_counts = 4};
    parse(&o, argc, argv);
    open_library(o.lib);
    model_params p = peer.model_defaults();
    void *no_devices[] = {NULL};
    p.devices = no_devices;
    p.gpu_layers = 0;
    p.load_mode = LOAD_MMAP;
    double t = seconds();
    void *model = peer.model_load(o.model, p);
    if (!model) fail("cannot load %s", o.model);
    double load = seconds() - t;
    if (o.logits) {
        write_logits(&o, model);
        peer.model_free(model);
        return 0;
    }

    char about[256] = "";
    peer.model_describe(model, about, sizeof about);
    printf("{\"version\": ");
    print_string(peer.version());
    printf(", \"kernels\": ");
    print_string(kernels_file());
    printf(", \"system\": ");
    print_string(peer.system_info());
    printf(", \"model\": ");
    print_string(about);
    printf(", \"model_bytes\": %llu, \"load_s\": %.3f, \"threads\": %d, \"runs\": [", (unsigned long long)peer.model_bytes(model),
           load, o.threads);
    for (int flash = 1, first = 1; flash >= 0; flash--) {
        if (!o.flash[flash]) continue;
        if (!first) printf(", ");
        first = 0;
        measure(&o, model, flash);
    }
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
#ifdef __APPLE__
    long long peak = usage.ru_maxrss; /* bytes there, KiB elsewhere */
#else
    long long peak = usage.ru_maxrss * 1024LL;
#endif
    printf("], \"peak_bytes\": %lld}\n", peak);
    peer.model_free(model);
    return 0;
}
