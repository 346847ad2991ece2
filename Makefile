# weft. `make run` and `make test` are the two commands; both install what is missing first (tools/setup.sh).
#
#   make             the command build/weft and the library, static and shared
#   make run         the bundled model writes a function
#   make test        everything that runs without a download
#   make asan tsan   the same under the address and the thread sanitizer (build-asan, build-tsan)
#   make test-same   three tests of drafts at length: their text is the one without; their law, a million answers; 30,000 tokens
#   make fuzz        every fuzzer for FUZZ_SECONDS; make coverage: what the seed corpora reach in the parsers, then all tests
#   make bench-peer  beside llama.cpp, which npm fetches; PEER_FLAGS="--quick --models 2b-4" and more: bench/peer/run.py --help
#   make bench-speculate  what drafting brings: held-out text, a trace on the shapes of a 2B model, an edit; SPECULATE_FLAGS="--rounds 15"
#   make lint format bench test-real install uninstall clean
#
# BUILD=dir keeps another build apart; CC, CPPFLAGS, CFLAGS, LDFLAGS, PREFIX and DESTDIR have their usual meaning. Other flags or
# another compiler rebuild what depends on them.
BUILD   ?= build
PREFIX  ?= /usr/local
ifeq ($(origin CC),default)
CC      := $(shell command -v gcc >/dev/null 2>&1 && echo gcc || echo cc)
endif
CFLAGS  ?= -O2 -g
FUZZ_SECONDS ?= 60
CLANG   ?= $(shell command -v clang-14 || command -v clang || echo clang)

TARGET  := $(shell $(CC) -dumpmachine 2>/dev/null)
CSTD     = -std=c17 -Wall -Wextra -ffp-contract=off -fPIC -fvisibility=hidden -pthread -D_POSIX_C_SOURCE=200809L
ifneq ($(findstring darwin,$(TARGET)),)
CSTD    += -D_DARWIN_C_SOURCE
SO       = dylib
else
CSTD    += -fno-semantic-interposition
SO       = so
endif
PKGS     = json-c libpcre2-8 libutf8proc libxxhash
INC      = -Iinclude -Isrc $(shell pkg-config --cflags $(PKGS) 2>/dev/null)
LIBS     = $(shell pkg-config --libs $(PKGS) 2>/dev/null) -lm -pthread
VERSION := $(shell sed -n 's/^#define WEFT_VERSION "\(.*\)"/\1/p' include/weft.h)
MAJOR   := $(firstword $(subst ., ,$(VERSION)))

# Kernels in plain C are compiled once per vector width, WEFT_VARIANT names the copy; those for one instruction set only where the
# target has it.
KERNELS := base
ifneq ($(filter x86_64-%,$(TARGET)),)
KERNELS += v3 v4
ISA_SRC := src/ops/cpu/linear_avx512_vnni.c src/ops/cpu/linear_amx.c
endif
KERNEL_FLAGS_v3 = -mavx2 -mfma -mprfchw
KERNEL_FLAGS_v4 = -mfma -mprfchw -mavx512f -mavx512bw -mavx512cd -mavx512dq -mavx512vl -mprefer-vector-width=512

LAYERS  ?= base format text forge ops ops/cpu model cache engine
KERNEL_SRC := $(wildcard src/ops/cpu/kernels*.c)
KERNEL_OBJ := $(foreach v,$(KERNELS),$(KERNEL_SRC:%.c=$(BUILD)/%-$v.o))
LIB_SRC := $(filter-out $(KERNEL_SRC) $(wildcard src/ops/cpu/linear_a*.c),$(wildcard $(LAYERS:%=src/%/*.c))) $(if $(filter ops/cpu,$(LAYERS)),$(ISA_SRC))
LIB_OBJ := $(LIB_SRC:%.c=$(BUILD)/%.o) $(if $(filter ops/cpu,$(LAYERS)),$(KERNEL_OBJ))
CLI_OBJ := $(patsubst %.c,$(BUILD)/%.o,$(wildcard src/cli/*.c))
TESTS   := $(patsubst tests/unit/%.c,$(BUILD)/tests/%,$(wildcard tests/unit/test_*.c))
FUZZERS := $(patsubst tests/fuzz/%.c,%,$(wildcard tests/fuzz/fuzz_*.c))
REPLAYS := $(FUZZERS:%=$(BUILD)/tests/test_%)

.PHONY: all setup setup-lint setup-fuzz tests check run test asan tsan fuzz fuzzers coverage lint format bench bench-speculate \
        bench-peer test-real test-same install uninstall clean FORCE
.DELETE_ON_ERROR:

all: $(BUILD)/weft $(BUILD)/libweft.$(SO)

# ---- objects ----

# One word for the shell, whatever quotes it holds.
quote = '$(subst ','\'',$(1))'

# Changes when the compiler or its flags do, and only then.
FLAGS = $(CC) $(CSTD) $(INC) $(CPPFLAGS) $(CFLAGS) $(LDFLAGS) $(LIBS)
$(BUILD)/flags: FORCE
	@mkdir -p $(@D)
	@printf '%s\n' $(call quote,$(FLAGS)) | cmp -s - $@ || printf '%s\n' $(call quote,$(FLAGS)) > $@

COMPILE = @mkdir -p $(@D) && echo '  CC $@' && $(CC) $(CSTD) $(INC) $(CPPFLAGS) $(CFLAGS) -MMD -MP
LINK    = @echo '  LD $@' && $(CC) $(CSTD) $(CFLAGS) $(LDFLAGS)
define KERNEL_RULE
$(KERNEL_SRC:%.c=$(BUILD)/%-$1.o): $(BUILD)/%-$1.o: %.c $(BUILD)/flags
	$$(COMPILE) -O3 -fno-math-errno -Wno-psabi $(KERNEL_FLAGS_$1) -DWEFT_VARIANT=$1 -c $$< -o $$@
endef
$(foreach v,$(KERNELS),$(eval $(call KERNEL_RULE,$v)))
# Without UBSan, which triples the time that these unrolled files take to compile.
$(ISA_SRC:%.c=$(BUILD)/%.o): ISA_FLAGS = $(KERNEL_FLAGS_v4) -mavx512vnni -fno-sanitize=undefined
$(BUILD)/src/ops/cpu/linear_amx.o: ISA_FLAGS += -mamx-tile -mamx-int8
$(BUILD)/src/ops/cpu/%.o: src/ops/cpu/%.c $(BUILD)/flags
	$(COMPILE) -O3 -fno-math-errno $(ISA_FLAGS) -c $< -o $@
$(BUILD)/%.o: %.c $(BUILD)/flags
	$(COMPILE) -c $< -o $@

$(BUILD)/libweft.a: $(LIB_OBJ)
	@echo '  AR $@' && rm -f $@ && ar rcs $@ $^
# Beside it the name that a program linked against it asks for.
$(BUILD)/libweft.so: $(LIB_OBJ)
	$(LINK) -shared -Wl,-soname,libweft.so.$(MAJOR) -o $@ $^ $(LIBS)
	@ln -sf $(@F) $(BUILD)/libweft.so.$(MAJOR)
$(BUILD)/libweft.dylib: $(LIB_OBJ)
	$(LINK) -dynamiclib -install_name @rpath/libweft.$(MAJOR).dylib -o $@ $^ $(LIBS)
	@ln -sf $(@F) $(BUILD)/libweft.$(MAJOR).dylib
$(BUILD)/weft: $(CLI_OBJ) $(BUILD)/libweft.a
	$(LINK) -o $@ $^ $(LIBS)

# ---- tests ----

$(BUILD)/tests/test_fuzz_%: tests/fuzz/fuzz_%.c tests/fuzz/replay.c $(BUILD)/libweft.a
	$(COMPILE) -DWEFT_CORPUS='"tests/fuzz/corpus/$*"' $(LDFLAGS) -o $@ $< tests/fuzz/replay.c $(BUILD)/libweft.a $(LIBS)
$(BUILD)/tests/test_%: tests/unit/test_%.c $(BUILD)/libweft.a
	$(COMPILE) -Itests $(LDFLAGS) -o $@ $< $(BUILD)/libweft.a $(LIBS) -lcmocka

tests: $(TESTS) $(REPLAYS)

# Everything built, every test run; no set-up.
check: all tests
	@tests/run.sh $(BUILD)

setup:
	@tools/setup.sh
setup-lint setup-fuzz: setup-%:
	@tools/setup.sh $*

# A make of their own: the compiler and what pkg-config says may be new after the set-up.
JOBS = -j$(shell getconf _NPROCESSORS_ONLN)
run: setup
	@$(MAKE) --no-print-directory $(JOBS) all
	$(BUILD)/weft run --stats "Write a Python function that returns the larger of two numbers."
test: setup
	@$(MAKE) --no-print-directory $(JOBS) check

SANITIZE = -O1 -g -fno-omit-frame-pointer -fno-sanitize-recover=all
asan: setup
	@$(MAKE) --no-print-directory BUILD=build-asan CFLAGS="$(SANITIZE) -fsanitize=address,undefined" check
tsan: setup
	@$(MAKE) --no-print-directory BUILD=build-tsan CFLAGS="$(SANITIZE) -fsanitize=thread" check

# Without the kernels: coverage and sanitizers together keep clang busy with them for ten minutes.
fuzz: setup-fuzz
	@$(MAKE) --no-print-directory BUILD=build-fuzz LAYERS="base format text engine" CC="$(CLANG)" CFLAGS="$(SANITIZE) -fsanitize=fuzzer-no-link,address,undefined" fuzzers
	@tests/fuzz/run.sh build-fuzz $(FUZZ_SECONDS)
fuzzers: $(FUZZERS:%=$(BUILD)/fuzz/%)
$(BUILD)/fuzz/%: tests/fuzz/%.c $(BUILD)/libweft.a
	$(COMPILE) -fsanitize=fuzzer $(LDFLAGS) -o $@ $< $(BUILD)/libweft.a $(LIBS)

coverage: setup-fuzz
	@$(MAKE) --no-print-directory BUILD=build-coverage CC="$(CLANG)" CFLAGS="-O1 -g -fprofile-instr-generate -fcoverage-mapping" all tests
	@tools/coverage.sh build-coverage

lint: setup-lint
	@CFLAGS_LINT=$(call quote,$(CSTD) $(INC) $(CPPFLAGS)) tools/lint.sh
format: setup-lint
	@tools/lint.sh format

bench: setup
	@$(MAKE) --no-print-directory $(JOBS) all
	$(BUILD)/weft bench models/mini

# Opt-in: minutes of a quiet machine, and a checkpoint of 1.2 GB of random weights.
SHAPES = $(BUILD)/bench/2b-4
bench-speculate: setup
	@$(MAKE) --no-print-directory $(JOBS) all $(BUILD)/bench/speculate/speculate
	@[ -d $(SHAPES) ] || $(BUILD)/weft forge synth --like qwen3.5-2b --bits 4 --out $(SHAPES)
	$(BUILD)/bench/speculate/speculate text $(SPECULATE_FLAGS)
	$(BUILD)/bench/speculate/speculate trace --model $(SHAPES) $(SPECULATE_FLAGS)
	$(BUILD)/bench/speculate/speculate edit --model $(SHAPES) $(SPECULATE_FLAGS)
	$(BUILD)/bench/speculate/speculate edit $(SPECULATE_FLAGS)
SPECULATE_OBJ = $(BUILD)/src/cli/args.o $(BUILD)/src/cli/pace.o $(BUILD)/src/cli/series.o
$(BUILD)/bench/speculate/speculate: bench/speculate/speculate.c $(SPECULATE_OBJ) $(BUILD)/libweft.a
	$(COMPILE) $(LDFLAGS) -o $@ $< $(SPECULATE_OBJ) $(BUILD)/libweft.a $(LIBS)

# Opt-in: fetches node-llama-cpp's shared libraries and makes checkpoints of 17 GB.
bench-peer: setup
	@$(MAKE) --no-print-directory $(JOBS) all $(BUILD)/bench/peer/peer
	@bench/peer/install.sh $(BUILD)/peer
	@python3 bench/peer/run.py --weft $(BUILD)/weft --peer $(BUILD)/bench/peer/peer --lib $(BUILD)/peer --dir $(BUILD)/bench-peer $(PEER_FLAGS)
$(BUILD)/bench/peer/peer: bench/peer/peer.c $(BUILD)/flags
	$(COMPILE) -o $@ $< -ldl

# Opt-in: real checkpoints, which these scripts look for and may download.
test-real: setup
	@$(MAKE) --no-print-directory $(JOBS) all
	@ran=0; for t in tests/real/*.sh; do [ -x "$$t" ] || continue; ran=1; echo "== $$t"; "$$t" $(BUILD) || exit 1; done; \
	[ $$ran = 1 ] || { echo "no suites in tests/real"; exit 1; }

# Opt-in: three quarters of an hour.
test-same: setup
	@$(MAKE) --no-print-directory $(JOBS) $(BUILD)/tests/test_law $(BUILD)/tests/test_speculation $(BUILD)/tests/test_same_text
	$(BUILD)/tests/test_law 4
	$(BUILD)/tests/test_speculation long
	$(BUILD)/tests/test_same_text all

# ---- installation ----

D = $(DESTDIR)$(PREFIX)
install: setup
	@$(MAKE) --no-print-directory $(JOBS) all
	install -d $(D)/bin $(D)/include $(D)/lib/pkgconfig $(D)/share/weft/models
	install -m 755 $(BUILD)/weft $(D)/bin/weft
	install -m 644 include/weft.h $(D)/include/weft.h
	install -m 644 $(BUILD)/libweft.a $(D)/lib/libweft.a
ifeq ($(SO),so)
	install -m 755 $(BUILD)/libweft.so $(D)/lib/libweft.so.$(MAJOR)
	ln -sf libweft.so.$(MAJOR) $(D)/lib/libweft.so
else
	install -m 755 $(BUILD)/libweft.dylib $(D)/lib/libweft.$(MAJOR).dylib
	install_name_tool -id $(PREFIX)/lib/libweft.$(MAJOR).dylib $(D)/lib/libweft.$(MAJOR).dylib
	ln -sf libweft.$(MAJOR).dylib $(D)/lib/libweft.dylib
endif
	printf '%s\n' 'Name: weft' 'Description: inference for hybrid language models' 'Version: $(VERSION)' \
	  'Cflags: -I$(PREFIX)/include' 'Libs: -L$(PREFIX)/lib -lweft' 'Libs.private: -lm -pthread' 'Requires.private: $(PKGS)' \
	  > $(D)/lib/pkgconfig/weft.pc
	if [ -d models/mini ]; then cp -R models/mini $(D)/share/weft/models/; fi
uninstall:
	rm -f $(D)/bin/weft $(D)/include/weft.h $(D)/lib/libweft.a $(D)/lib/libweft.so $(D)/lib/libweft.so.$(MAJOR) \
	  $(D)/lib/libweft.dylib $(D)/lib/libweft.$(MAJOR).dylib $(D)/lib/pkgconfig/weft.pc
	rm -rf $(D)/share/weft
clean:
	rm -rf build build-asan build-tsan build-fuzz build-coverage

-include $(LIB_OBJ:.o=.d) $(CLI_OBJ:.o=.d) $(wildcard $(BUILD)/tests/*.d $(BUILD)/bench/*/*.d $(BUILD)/fuzz/*.d)
