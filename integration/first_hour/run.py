#!/usr/bin/env python3
"""The first hour of a newcomer, by script: what README and guide say is done word for word. See README.md."""

import argparse
import json
import os
import pty
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import names

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "skills").rglob("*.md"))]
FENCE = re.compile(r"^```([^\n]*)\n(.*?)^```$", re.M | re.S)
# Beside the commands of a page: what a user has typed before.
PICTURES = 600
# Of the terminal.
COLUMNS = 100
# No command of README is meant to take this long, in seconds.
ENDLESS = 600


class Wrong(Exception):
    """What a page says is not so."""


def blocks(page, language):
    return [text for words, text in FENCE.findall(page.read_text()) if words.split(",")[0] == language]


def say(text):
    print(text, flush=True)


# A crate of the README's text alone.


MAIN = """
fn main() -> infeed::Result<()> {{
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let (last, mut steps) = (std::env::args().nth(1), 0);
    runtime.block_on(train(move |images, labels| {{
        println!("step {{:?}} {{:?}}", images.shape(), labels.as_slice::<i64>().expect("labels on the host"));
        steps += 1;
        // In the middle of this one, until it is killed.
        while last == Some(steps.to_string()) {{
            std::thread::park();
        }}
    }}))
}}

{code}
"""


def crate(args, work):
    [code] = blocks(ROOT / "README.md", "rust")
    data, batch, epochs = work / "pictures", 16, 3
    # Where the data lies, and how long it takes, is the reader's own.
    code = replaced(code, "/data/imagenet/train", str(data))
    code = replaced(code, "batch_size(256)", f"batch_size({batch})")
    code = replaced(code, "..90", f"..{epochs}")
    folder = work / "trainer"
    folder.mkdir()
    (folder / "main.rs").write_text(MAIN.format(code=code))
    trainer = folder / "trainer"
    compile_apart(folder) if args.apart else compile_with_what_is_built(folder / "main.rs", trainer)

    whole = steps(finish([trainer], folder))
    (folder / "loader.json").unlink()
    # Killed in the middle of an epoch, by what nobody can catch.
    process = subprocess.Popen([trainer, "5"], cwd=folder, stdout=subprocess.PIPE, text=True)
    before = [next(process.stdout) for _ in range(5)]
    process.send_signal(signal.SIGKILL)
    process.communicate()
    after = steps(finish([trainer], folder))
    # The state is written behind a step: that of the kill is done again.
    if before[:-1] + after != whole:
        raise Wrong(f"README's code was killed in step {len(before)}, and did {len(after)} more: not the {len(whole)} of a whole run")
    say(f"crate: README's code compiles, trains {len(whole)} steps, is killed in step {len(before)}, and does this and the others")


def compile_with_what_is_built(source, to):
    """With the libraries that `cargo test` has made for the examples: nothing is compiled twice."""
    command = ["cargo", "test", "--locked", "--no-run", "--message-format", "json"]
    told = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    made = [made for made in map(json.loads, told.splitlines()) if made["reason"] == "compiler-artifact"]
    library = {m["target"]["name"]: m["filenames"][0] for m in made if m["target"]["kind"] == ["lib"] and not m["profile"]["test"]}
    externs = [word for name in ("infeed", "futures", "tokio") for word in ("--extern", f"{name}={library[name]}")]
    # Where the build script has put the library that it links.
    linked = [word for m in map(json.loads, told.splitlines()) for path in m.get("linked_paths", ()) for word in ("-L", path)]
    deps = Path(library["futures"]).parent
    rustc = ["rustc", "--edition", "2024", "-o", to, source, "-L", f"dependency={deps}", *linked, *externs]
    subprocess.run(rustc, cwd=ROOT, check=True)


def compile_apart(folder):
    """As a crate of its own, with the default features."""
    (folder / "Cargo.toml").write_text(
        '[package]\nname = "trainer"\nversion = "0.1.0"\nedition = "2024"\n\n[[bin]]\nname = "trainer"\npath = "main.rs"\n\n'
        f'[dependencies]\ninfeed = {{ path = "{ROOT}" }}\nfutures = "0.3"\n'
        'tokio = { version = "1", features = ["rt", "time"] }\n\n[workspace]\n'
    )
    # The versions that the project is tested with.
    shutil.copyfile(ROOT / "Cargo.lock", folder / "Cargo.lock")
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "first-hour"
    subprocess.run(["cargo", "build", "--quiet", "--target-dir", target], cwd=folder, check=True)
    shutil.copyfile(target / "debug/trainer", folder / "trainer")
    (folder / "trainer").chmod(0o755)


def finish(command, folder):
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=ENDLESS)
    if done.returncode:
        raise Wrong(f"{command[0]} ended with {done.returncode}:\n{done.stderr[-2000:]}")
    return done.stdout


def steps(output):
    # A line that a kill cut off has no end.
    return [line for line in output.splitlines(keepends=True) if line.startswith("step") and line.endswith("\n")]


def replaced(code, this, that):
    if this not in code:
        raise Wrong(f"README's code has no {this!r} any more: mend this script")
    return code.replace(this, that)


# A session at a terminal.


def session(args, work):
    """The commands of README's block that begins with `infeed synth`, one after another, at a terminal."""
    [block] = [text for text in blocks(ROOT / "README.md", "sh") if text.startswith("infeed synth")]
    shell = {**os.environ, "PATH": f"{args.infeed.parent}:{os.environ['PATH']}", "TERM": "xterm-256color"}
    shell.pop("NO_COLOR", None)
    for command in commands(block):
        command = command.replace("/dev/shm/imagenet", str(work / "imagenet")).replace("/dev/shm/copy", str(work / "copy"))
        # No bucket is at hand; a folder is staged alike.
        command = command.replace("s3://bucket/imagenet", str(work / "imagenet")).replace("--count 2000", f"--count {PICTURES}")
        code, seen = at_terminal(command, shell, work)
        if code:
            raise Wrong(f"`{command}` ended with {code}:\n{seen[-3000:]}")
        words = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", seen)
        if not words.strip() or "panicked" in words or "\x1b" in words:
            raise Wrong(f"`{command}` shows nothing, or nonsense:\n{seen[-3000:]!r}")
        lines = [line.rstrip() for line in re.split(r"[\r\n]+", words)]
        # A name alone may be longer than any terminal is wide.
        if wide := [line for line in lines if len(line) > COLUMNS and " " in line.strip()]:
            raise Wrong(f"`{command}` shows lines wider than the terminal's {COLUMNS} columns:\n" + "\n".join(wide))
        widest = max(map(len, lines))
        say(f"session: {command.split('  ')[0]}  ({len(words.splitlines())} lines, {widest} columns)")


def commands(block):
    lines = [line.split("#")[0].strip() for line in block.replace("\\\n", " ").splitlines()]
    return [line for line in lines if line]


def at_terminal(command, shell, folder):
    """What a terminal shows, and the exit code."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(folder)
        os.execvpe("bash", ["bash", "-c", f"stty cols {COLUMNS} rows 40; exec {command}"], shell)
    seen, ends = b"", time.monotonic() + ENDLESS
    while time.monotonic() < ends:
        if select.select([terminal], [], [], 1)[0]:
            try:
                more = os.read(terminal, 65536)
            except OSError:
                # The other end is closed.
                break
            if not more:
                break
            seen += more
    else:
        os.kill(pid, signal.SIGKILL)
    os.close(terminal)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), seen.decode(errors="replace")


# Every block of every page.


def every_block(args, work):
    """Rust blocks are tests of the crate; here are the others."""
    counts = {}
    for page in PAGES:
        known = {"rust", "sh", "json", "toml", "python", "text", ""}
        for words, text in FENCE.findall(page.read_text()):
            language = words.split(",")[0]
            name = f"{page.relative_to(ROOT)}, block {text.splitlines()[0]!r}"
            if language not in known:
                raise Wrong(f"{name}: nobody knows how to try {language!r}")
            if language in TRIED:
                counts[language] = counts.get(language, 0) + TRIED[language](args, work, text, name)
    say("blocks: " + ", ".join(f"{count} {language}" for language, count in sorted(counts.items())) + " tried")


def every_name(args, work):
    """Each name in backticks is one of the code, the repository or the command line."""
    others = [ROOT / "CONTRIBUTING.md", ROOT / "ARCHITECTURE.md", ROOT / "SECURITY.md", ROOT / "llms.txt", ROOT / "python/README.md"]
    count, wrong = names.check([*PAGES, *others], args.infeed)
    if wrong:
        raise Wrong("the docs name what does not exist:\n" + "\n".join(wrong))
    say(f"names: {count} in backticks looked up")


def try_commands(args, work, text, name):
    """Every command line of infeed's is one that infeed takes: its arguments are read, up to the help behind them."""
    tried = 0
    for command in commands(text):
        if not command.startswith("infeed ") or command.startswith("infeed help"):
            continue
        # Words such as DIR stand for the reader's; several commands may stand in a line.
        for one in command.split("; "):
            done = subprocess.run(
                ["bash", "-c", f"{one.replace('COMMAND', 'run')} --help"],
                env={**os.environ, "PATH": f"{args.infeed.parent}:{os.environ['PATH']}"},
                capture_output=True,
                text=True,
            )
            if done.returncode:
                raise Wrong(f"{name}: `{one}` is not taken:\n{done.stderr}")
            tried += 1
    return tried


def try_transform(args, work, text, name):
    file = work / "block.json"
    file.write_text(text)
    volumes = '"op": "patch"' in text
    url = work / "patients" if volumes else "synthetic://?count=8&height=300&width=300"
    if volumes and not url.exists():
        run(args, name, "synth", "nrrd", url, "--count", "2")
    fields = ("--field", "image=ct+pet", "--field", "mask=mask+mask2") if volumes else ()
    run(args, name, "run", url, "--transform", file, "--batch-size", "2", "--max-batches", "1", *fields)
    return 1


def try_config(args, work, text, name):
    file, url = work / "block.toml", "synthetic://?count=512&height=300&width=300"
    file.write_text(text.replace("/nvme", str(work / "nvme")))
    mixed = ("--part", url) if "mixture" in text else ()
    run(args, name, "run", url, *mixed, "--config", file, "--batch-size", "8", "--max-batches", "1")
    return 1


def try_python(args, work, text, name):
    compile(text, name, "exec")
    return 1


TRIED = {"sh": try_commands, "json": try_transform, "toml": try_config, "python": try_python}


def run(args, name, *words):
    done = subprocess.run([args.infeed, *map(str, words)], capture_output=True, text=True, timeout=ENDLESS)
    if done.returncode:
        raise Wrong(f"{name}: infeed {' '.join(map(str, words))}\n{done.stderr}")


PARTS = {"names": every_name, "blocks": every_block, "session": session, "crate": crate}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--infeed", required=True, type=lambda path: Path(path).resolve(), help="the binary")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--apart", action="store_true", help="compile README's code as a crate of its own, all that it needs anew")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="infeed-first-hour-") as folder:
        work = Path(folder)
        subprocess.run([args.infeed, "synth", "imagenet", work / "pictures", "--count", "100"], check=True, capture_output=True)
        for part in args.only:
            try:
                PARTS[part](args, work)
            except Wrong as wrong:
                sys.exit(f"{part}: {wrong}")


if __name__ == "__main__":
    main()
