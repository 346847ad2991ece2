"""Triton autotuning on a budget: import before any module that defines kernels.

Stock autotuning compiles some 250 variants one after the other and measures each for an eighth of a second, which would eat
minutes of a short run. Here a kernel keeps at most eight variants and measures each briefly. They are compiled in threads, which
helps less than hoped: the assembler was seen running one process at a time.
"""
from concurrent.futures import ThreadPoolExecutor

KEEP = 8


def choose(configs):
    def cost(c):
        w = {4: 0, 8: 1, 2: 1.5, 16: 3, 1: 3}.get(c.num_warps, 4)
        return w + {3: 0, 2: 0.25, 4: 1, 1: 1}.get(c.num_stages, 2)
    groups = {}
    for c in sorted(configs, key=cost):
        groups.setdefault(str(sorted(c.kwargs.items())), []).append(c)
    out, k = [], 0
    while len(out) < min(KEEP, len(configs)):                # round-robin over block sizes, best warps and stages first
        for g in groups.values():
            if k < len(g) and len(out) < KEEP:
                out.append(g[k])
        k += 1
    return out


def install():
    import triton.testing
    from triton.runtime.autotuner import Autotuner
    init, prune = Autotuner.__init__, Autotuner.prune_configs

    def new_init(self, fn, arg_names, configs, *a, **kw):
        kw["do_bench"] = lambda call, quantiles: triton.testing.do_bench(call, warmup=2, rep=10, quantiles=quantiles)
        kw["warmup"] = kw["rep"] = None
        init(self, fn, arg_names, choose(configs) if configs else configs, *a, **kw)

    def new_prune(self, kwargs):
        configs = prune(self, kwargs)
        args = list(self.nargs.values())

        def compile_one(c):
            try:
                self.fn.warmup(*args, **kwargs, **c.all_kwargs())
            except Exception:                                # measured (and discarded) again by the caller
                pass
        if len(configs) > 1:
            with ThreadPoolExecutor(len(configs)) as ex:
                list(ex.map(compile_one, configs))
        return configs
    Autotuner.__init__, Autotuner.prune_configs = new_init, new_prune


try:
    install()
except ImportError:                                          # no triton: nothing to tune
    pass
