#!/usr/bin/env python3
"""Public pages of the docs without an example: `examples.py [FOLDER]`, where FOLDER has docs built before (as `target/doc`).

A page is that of a struct, enum, trait, function, macro, type or union; an example is Rust code anywhere on it.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# What users see: the pages of the internal crates are among those of `infeed`, which re-exports them. Not all of these are in one folder.
CRATES = ("infeed", "infeed_jpeg", "infeed_burn", "infeed_candle", "infeed_tch")
PAGES = ("struct.", "enum.", "trait.", "fn.", "macro.", "type.", "union.", "derive.", "attr.")
EXAMPLE = 'class="rust rust-example-rendered"'


def build():
    """The public docs, in a folder of their own: those of private items lie in `target/doc`. A warning is an error."""
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    folder = target / "public-doc"
    # candle takes longer than all else here: `.ci/all` looks at its docs.
    apart = ["--exclude", "infeed-candle"]
    command = ["cargo", "doc", "--locked", "--workspace", *apart, "--features", "full", "--no-deps"]
    environment = {**os.environ, "CARGO_BUILD_BUILD_DIR": str(target), "RUSTDOCFLAGS": "-D warnings"}
    subprocess.run([*command, "--target-dir", folder], cwd=ROOT, check=True, env=environment)
    return folder / "doc"


def source(page):
    """Where the item of a page stands: file and line."""
    found = re.search(r'class="src[^"]*" href="[./]*/src/(infeed\w*)/([^"]+)\.html#(\d+)', page)
    if not found:
        return "elsewhere", 0
    crate = found[1].replace("_", "-")
    folder = {"infeed": "src", "infeed-jpeg": "jpeg/src"}.get(crate, f"crates/{crate}/src")
    return f"{folder}/{found[2]}", int(found[3])


def main():
    docs = Path(sys.argv[1]) if len(sys.argv) > 1 else build()
    pages, without = 0, []
    for crate in CRATES:
        for path in sorted((docs / crate).rglob("*.html")):
            text = path.read_text(encoding="utf-8")
            # A page that only leads to another has no item.
            if not path.name.startswith(PAGES) or 'http-equiv="refresh"' in text:
                continue
            pages += 1
            if EXAMPLE not in text:
                without.append((*source(text), path.relative_to(docs)))
    for file, line, page in sorted(without):
        print(f"{file}:{line}: {page} has no example")
    print(f"{pages - len(without)} of {pages} pages have an example")
    if pages == 0:
        print(f"no docs of {', '.join(CRATES)} in {docs}")
    return 1 if without or pages == 0 else 0


sys.exit(main())
