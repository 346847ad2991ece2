/* shards.c: see shards.h. */
#include "format/shards.h"

#include <stdlib.h>
#include <string.h>

#include "base/str.h"
#include "format/json.h"

static bool plain_name(const char *s) {
    return s[0] != '.' && !strchr(s, '/') && !strchr(s, '\\') && !strchr(s, ':') && weft_ends_with(s, ".safetensors");
}

static int by_name(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static weft_status collect(weft_shards *s, struct json_object *map, weft_error *e) {
    size_t n = (size_t)json_object_object_length(map);
    if (n == 0) return weft_fail(e, WEFT_EFORMAT, "'weight_map' is empty");
    s->entries = weft_arena_get(&s->arena, n, sizeof *s->entries);
    s->files = weft_arena_get(&s->arena, n, sizeof *s->files);
    if (!s->entries || !s->files) return weft_fail_oom(e, "reading a shard index");

    json_object_object_foreach(map, tensor, v) {
        const char *file = NULL;
        if (tensor[0] == '\0') return weft_fail(e, WEFT_EFORMAT, "'weight_map' has a tensor with an empty name");
        WEFT_TRY(weft_json_text_value(v, (weft_json_at){map, "weight_map."}, tensor, &file, e));
        if (!plain_name(file))
            return weft_fail(e, WEFT_EFORMAT,
                             "tensor '%s' is said to be in '%s'; expected the name of a .safetensors file beside the index", tensor,
                             file);
        weft_shard_entry *entry = &s->entries[s->n_entries];
        entry->tensor = weft_arena_str(&s->arena, tensor, strlen(tensor));
        entry->file = s->files[s->n_entries] = file; /* still the JSON tree's */
        if (!entry->tensor) return weft_fail_oom(e, "reading a shard index");
        s->n_entries++;
    }

    qsort(s->files, n, sizeof *s->files, by_name);
    for (size_t i = 0; i < n; i++) {
        if (s->n_files > 0 && strcmp(s->files[i], s->files[s->n_files - 1]) == 0) continue;
        if (s->n_files == WEFT_MAX_SHARDS) return weft_fail(e, WEFT_EFORMAT, "more than %d shard files", WEFT_MAX_SHARDS);
        const char *own = weft_arena_str(&s->arena, s->files[i], strlen(s->files[i]));
        if (!own) return weft_fail_oom(e, "reading a shard index");
        s->files[s->n_files++] = own;
    }
    for (size_t i = 0; i < n; i++)
        s->entries[i].file = *(const char **)bsearch(&s->entries[i].file, s->files, s->n_files, sizeof *s->files, by_name);
    return WEFT_OK;
}

weft_status weft_shards_parse(weft_shards *s, const char *text, size_t n, weft_error *e) {
    *s = (weft_shards){0};
    struct json_object *root = NULL, *map = NULL;
    WEFT_TRY(weft_json_parse(&root, text, n, e));
    weft_json_at at = {root, ""};
    weft_status st = weft_json_need(at, "weight_map", e);
    if (st == WEFT_OK) st = weft_json_object(at, "weight_map", &map, e);
    if (st == WEFT_OK) st = collect(s, map, e);
    json_object_put(root);
    if (st != WEFT_OK) weft_shards_free(s);
    return st;
}

void weft_shards_free(weft_shards *s) {
    weft_arena_free(&s->arena);
    *s = (weft_shards){0};
}
