"""Which tests a command line asks for. All runners share it."""

import fnmatch, sys


def select(names, globs, alias=lambda name: (name,)):
    """Those of `names` that a glob names, in order; all without globs. A glob behind `!` takes its names away. `alias`
    gives the forms in which a name may be written. A glob that names nothing is a mistake of the caller's: exit status
    2."""
    matching = lambda glob: [n for n in names if any(fnmatch.fnmatch(form, glob) for form in alias(n))]
    stray = [g for g in globs if not matching(g.removeprefix("!"))]
    if stray:
        print(f"no such test: {' '.join(stray)}", file=sys.stderr)
        sys.exit(2)
    named = [g for g in globs if not g.startswith("!")]
    wanted = {n for g in named for n in matching(g)} if named else set(names)
    wanted -= {n for g in globs if g.startswith("!") for n in matching(g[1:])}
    return [n for n in names if n in wanted]


def prefix_optional(name):
    """A test function may be named with and without its prefix."""
    return name, name.removeprefix("test_")
